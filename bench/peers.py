"""All ratios in one table: each side in its own process, the median of three measurements.

python bench/peers.py                       # every row of this machine: a GPU's, or a CPU's
python bench/peers.py gpt2-train vit-train  # only these
python bench/peers.py --json                # lines for another program
DEMO=runs/mine TEST=test.en python bench/peers.py translate-int8   # a CPU's: a post-norm model and sentences
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from _common import machine, seconds

Work = tuple[Callable[[], Any], float]  # what is timed, and how many units it does
MEASUREMENTS, LEAST = 3, 2.0  # how often a rate is measured, and seconds that this takes at least


@dataclass(frozen=True)
class Row:
    """One comparison. `side(name)` builds a side, or returns the rate of one that was recorded earlier."""

    unit: str
    ours: str
    theirs: str
    side: Callable[[str], Work | float]


def gpt2_train(name: str) -> Work | float:
    import gpt_train

    torch.set_float32_matmul_precision("high")
    if name == "nanogpt":
        return gpt_train.NANOGPT * gpt_train.matmul_rate() / gpt_train.MATMUL
    rows = 64
    _, step = gpt_train.theirs() if name == "transformers" else gpt_train.ours("fp8" if name == "fp8" else "bf16")
    ids = torch.randint(0, gpt_train.VOCAB, (rows, gpt_train.LENGTH + 1), device="cuda")
    return lambda: [step(ids) for _ in range(gpt_train.STEPS)], gpt_train.STEPS * rows * gpt_train.LENGTH


def transformer_train(name: str) -> Work:
    import train_step

    units, builders = train_step.contenders("cuda")
    return several(builders[name]()), 4 * units


def vit_train(name: str) -> Work:
    import vit_train

    units, builders = vit_train.contenders("cuda")
    return several(builders[name]()), 4 * units


def bert_train(how: str) -> Callable[[str], Work]:
    def side(name: str) -> Work:
        import bert_train

        torch.set_float32_matmul_precision("high")
        _, real, make = bert_train.contenders(how, bert_train.BASE)[name]
        return make(), bert_train.STEPS * real

    return side


def gpt2_decode(rows: int) -> Callable[[str], Work]:
    def side(name: str) -> Work:
        import gpt_decode

        return gpt_decode.on_gpu(rows)[name](), rows * gpt_decode.NEW_ON_GPU

    return side


def beam(name: str) -> Work:
    import beam

    units, builders = beam.contenders("cuda")
    return builders[name](), units


THREADS = 2


def minilm(alone: bool) -> Callable[[str], Work]:
    """1,000 sentences in batches of similar length, or 50 of them one at a time."""

    def side(name: str) -> Work:
        import embed

        library, _, kind = name.partition("_")
        run = getattr(embed, library)(THREADS, kind or "fp32")
        texts = embed.sentences()[: embed.ONE if alone else None]
        return lambda: [run([text]) for text in texts] if alone else run(texts), len(texts)

    return side


def translate(name: str) -> Work:
    """Sentences per second, text to text, beam 5."""
    import beam

    return beam.translators(os.environ.get("DEMO", "runs/demo"), os.environ["TEST"], THREADS)[name]()


def several(step: Callable[[], Any]) -> Callable[[], Any]:
    """Training does not wait for the device between steps."""
    return lambda: [step() for _ in range(4)]


ONE, MANY = gpt2_decode(1), gpt2_decode(64)
ALONE, TOGETHER = minilm(True), minilm(False)
GPU = {
    "gpt2-train": Row("tokens/s", "regard", "nanogpt", gpt2_train),
    "gpt2-train-fp8": Row("tokens/s", "fp8", "nanogpt", gpt2_train),
    "gpt2-train-transformers": Row("tokens/s", "regard", "transformers", gpt2_train),
    "transformer-base-train": Row("target tokens/s", "regard", "torch", transformer_train),
    "vit-train": Row("images/s", "regard", "timm", vit_train),
    "bert-128-train": Row("tokens/s", "regard", "transformers", bert_train("128")),
    "bert-512-train": Row("tokens/s", "regard", "transformers", bert_train("512")),
    "gpt2-decode-1": Row("tokens/s", "regard", "transformers", ONE),
    "gpt2-decode-1-compiled": Row("tokens/s", "regard_compiled", "transformers", ONE),
    "gpt2-decode-64": Row("tokens/s", "regard", "transformers", MANY),
    "gpt2-decode-64-compiled": Row("tokens/s", "regard_compiled", "transformers", MANY),
    "beam": Row("tokens/s", "regard", "transformers", beam),
}
CPU = {
    "translate": Row("sentences/s", "regard", "ctranslate2", translate),
    "translate-fp16": Row("sentences/s", "regard_fp16", "ctranslate2", translate),
    "translate-int8": Row("sentences/s", "regard_int8", "ctranslate2_int8", translate),
    "translate-fp32-int8": Row("sentences/s", "regard", "ctranslate2_int8", translate),
    "minilm-one": Row("sentences/s", "regard", "onnxruntime", ALONE),
    "minilm-one-fp16": Row("sentences/s", "regard_fp16", "onnxruntime", ALONE),
    "minilm-one-int8": Row("sentences/s", "regard_int8", "onnxruntime_int8", ALONE),
    "minilm-batch": Row("sentences/s", "regard", "onnxruntime", TOGETHER),
    "minilm-batch-fp16": Row("sentences/s", "regard_fp16", "onnxruntime", TOGETHER),
    "minilm-batch-int8": Row("sentences/s", "regard_int8", "onnxruntime_int8", TOGETHER),
}
TABLE = GPU if torch.cuda.is_available() else CPU


def measure(side: Work | float) -> dict[str, float]:
    """In this process: the median of three rates, their spread, and the peak memory."""
    if isinstance(side, float):
        return {"rate": side, "spread": 0.0, "gib": 0.0}
    work, units = side
    began = time.perf_counter()
    each = min(seconds(work, repeat=1, warm=4 if torch.cuda.is_available() else 1))
    first = time.perf_counter() - began
    times = [min(seconds(work, repeat=max(1, round(LEAST / MEASUREMENTS / each)), warm=0)) for _ in range(MEASUREMENTS)]
    rates = sorted(units / t for t in times)
    memory = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
    return dict(rate=statistics.median(rates), spread=rates[-1] / rates[0] - 1, gib=memory, first=first)


def in_process(row: str, side: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, "--side", row, side], capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        print(f"{row}, {side}: {done.stderr[-2000:]}", file=sys.stderr, flush=True)
        return {"rate": float("nan"), "spread": 0.0, "gib": 0.0}
    return json.loads(lines[-1])


def main(names: list[str], lines: bool) -> None:
    measured: dict[Any, dict[str, float]] = {}
    if not lines:
        here = machine("cuda" if torch.cuda.is_available() else "cpu")
        print(f"{here}, torch {torch.__version__}\n\n| what | unit | regard | peer | | ratio |")
        print("| --- | --- | ---: | ---: | --- | ---: |", flush=True)
    for name in names or TABLE:
        row = TABLE[name]
        for side in (row.ours, row.theirs):
            if (row.side, side) not in measured:
                measured[row.side, side] = in_process(name, side)
        ours, theirs = (measured[row.side, side] for side in (row.ours, row.theirs))
        ratio = ours["rate"] / theirs["rate"]
        if lines:
            print(
                json.dumps(dict(bench=name, unit=row.unit, ours=ours, peer=row.theirs, theirs=theirs, ratio=ratio)),
                flush=True,
            )
        else:
            rates = f"{ours['rate']:,.0f} | {theirs['rate']:,.0f}"
            print(f"| {name} | {row.unit} | {rates} | {row.theirs} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parent.parent / "src"))
    arguments = [a for a in sys.argv[1:] if not a.startswith("-")]
    if "--side" in sys.argv:
        print(json.dumps(measure(TABLE[arguments[0]].side(arguments[1]))))
    else:
        main(arguments, "--json" in sys.argv)
