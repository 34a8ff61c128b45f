"""Exported models compared with our own: MiniLM's vectors and SmolLM2's tokens through onnxruntime.

    pip install 'regard[export,gguf]'
    python bench/export.py [--threads 1]     # about five minutes; fetches MiniLM and SmolLM2-135M the first time

Each side reads the same ids with the same number of threads, in turn. Outputs are compared first, and the largest
difference is printed: a cosine below 0.99999 or a different token of ONNX is an error. GGUF files are read back by
regard, which computes in float32 whatever they hold; llama.cpp is not run here.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import in_turn, report

import regard
from regard.formats import FORMATS
from regard.formats.onnx import open_session
from regard.models.fetched import resolve
from regard.models.gguf import convert

SENTENCES = [f"This is sentence number {i}, and it is about as long as sentences are." for i in range(32)]
PROMPT, NEW = "To date, the cleverest thinker of all time was", 32


def minilm(folder: Path, threads: int) -> None:
    source = resolve("minilm")
    FORMATS["onnx"].write(source, folder / "minilm", "")
    session, ours = open_session(folder / "minilm" / "model.onnx", threads), regard.load("minilm")
    ids = [ours.tokenizer.encode(text).ids for text in SENTENCES]
    longest = max(map(len, ids))
    feed = {
        "input_ids": np.array([row + [0] * (longest - len(row)) for row in ids]),
        "attention_mask": np.array([[1] * len(row) + [0] * (longest - len(row)) for row in ids]),
    }
    if "token_type_ids" in {one.name for one in session.get_inputs()}:
        feed["token_type_ids"] = np.zeros_like(feed["input_ids"])

    def theirs() -> np.ndarray:
        return session.run(["sentence_embedding"], feed)[0]

    mine, other = ours.embed(SENTENCES), theirs()
    assert (mine * other).sum(1).min() > 0.99999
    print(f"onnx minilm: vectors differ by at most {np.abs(mine - other).max():.1e}")
    times = in_turn({"regard": lambda: ours.embed(SENTENCES), "onnxruntime": theirs})
    report("export-minilm", "cpu", "sentences/s", len(SENTENCES), **times)


def smollm2(folder: Path, threads: int) -> None:
    source = resolve("smollm2-135m")
    result = FORMATS["onnx"].write(source, folder / "smollm2", "")
    session, ours = open_session(folder / "smollm2" / "model.onnx", threads), regard.load("smollm2-135m")
    c, ids = ours.model.config, ours.encode(PROMPT)

    def theirs() -> list[int]:
        text, new = list(ids), len(ids)
        past = [np.zeros((1, c.kv_heads, 0, c.head_width), np.float32)] * (2 * c.layers)
        names = [one.name for one in session.get_inputs()][2:]
        for _ in range(NEW):
            feed: dict[str, Any] = dict(zip(names, past, strict=True))
            feed |= {"input_ids": np.array([text[-new:]]), "attention_mask": np.ones((1, len(text)), np.int64)}
            logits, *past = session.run(None, feed)
            text.append(int(logits[0, -1].argmax()))
            new = 1
        return text

    assert decode(ours, ids) == theirs()
    print(f"onnx smollm2-135m: logits differ by at most {result.values['max_difference']['model.onnx']:.1e}")
    sides = {"regard": partial(decode, ours, ids), "onnxruntime": theirs}
    report("export-smollm2", "cpu", "tokens/s", NEW, **in_turn(sides, 3))


@torch.inference_mode()
def decode(writer: Any, ids: list[int]) -> list[int]:
    state, text, new = writer.model.begin(1, len(ids) + NEW), list(ids), len(ids)
    for _ in range(NEW):
        hidden = writer.model.read(torch.tensor([text[-new:]]), state)
        text.append(int(writer.model.logits(hidden[0, -1]).argmax()))
        new = 1
    return text


def gguf(folder: Path) -> None:
    source, ours, sides = resolve("smollm2-135m"), regard.load("smollm2-135m"), {}
    ids = ours.encode(PROMPT)
    for dtype in FORMATS["gguf"].types:
        start = time.perf_counter()
        result = FORMATS["gguf"].write(source, folder / f"{dtype}.gguf", dtype)
        written, size = time.perf_counter() - start, result.path.stat().st_size / 1e6
        difference = result.values["max_difference"]
        print(f"gguf {dtype}: {size:.0f} MB in {written:.1f} s, logits differ by at most {difference:.1e}")
        (folder / dtype).mkdir()
        convert(result.path, folder / dtype)
        sides[f"gguf-{dtype}"] = partial(decode, regard.load(folder / dtype), ids)
    report("export-gguf", "cpu", "tokens/s", NEW, **in_turn(sides | {"regard": partial(decode, ours, ids)}, 3))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        minilm(Path(folder), threads)
        smollm2(Path(folder), threads)
        gguf(Path(folder))


if __name__ == "__main__":
    main()
