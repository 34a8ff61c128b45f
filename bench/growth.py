"""How a training step grows: time and memory of GPT-2 against length, width and batch, on one GPU.

python bench/growth.py > growth.jsonl                     # a GPU, about two minutes; without one toy models, as a check
python bench/growth.py growth.jsonl docs/figures/growth.png   # draw it

12 layers with heads of 64, bf16, AdamW, compiled, random tokens. Lengths share 65,536 tokens, widths 32 x 1,024 tokens,
batches are of 1,024 tokens. The three sweeps compile side by side and measure one at a time. The limit of the time is
the arithmetic at the rate of a large product measured in the same run; that of the memory is the device's.
"""

import fcntl
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from scale import DEVICE, GPU, SHARED, Training, matmul_rate

from regard.explain.fleet import GIB
from regard.explain.picture import COLOURS, check_picture, figure, save
from regard.models import config_for

UNIT = 1 if GPU else 16  # a CPU takes a sixteenth of everything
SWEEPS = {
    "length": [(768, 65_536 // length, length) for length in (128, 512, 2048, 8192, 16_384)],
    "width": [(width, 32, 1024) for width in (256, 512, 1024, 2048)],
    "batch": [(768, rows, 1024) for rows in (1, 4, 16, 64)],
}
LABELS = {"length": "tokens of a text (65,536 in all)", "width": "width (32 x 1,024 tokens)", "batch": "texts of 1,024"}


def flops(config: Any, length: int) -> float:
    """FLOPs per token, forward and backward, with the half of the attention table that a causal model uses."""
    matrices = 12 * config.layers * config.width**2 + config.width * 50_304
    return 6 * matrices + 6 * config.layers * config.width * length


def measure(sweep: str, lock: Path) -> None:
    torch.set_float32_matmul_precision("high")
    for width, rows, length in SWEEPS[sweep]:
        torch._dynamo.reset()
        width, rows, length = width // UNIT, max(1, rows // UNIT), length // UNIT
        sizes = dict(width=width, heads=max(1, width // 64), ffn=4 * width, layers=12 if GPU else 2, context=length)
        config = config_for("gpt", "gpt2", 50257 if GPU else 97, task="lm", **sizes)
        line = SHARED | dict(sweep=sweep, width=width, rows=rows, length=length, device_gib=device_gib())
        training = Training(config, rows, length)
        for _ in range(5):  # compiled, then recorded
            training.step([training.batch()], training.tokens)
        with lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            matmul = matmul_rate()
            line |= training.measure(3, 5)
        seconds = training.tokens / line["tokens_per_second"]
        least = training.tokens * flops(config, length) / matmul / 1e12
        print(json.dumps(line | dict(matmul_tflops=round(matmul, 1), seconds=seconds, least=least)), flush=True)
        del training
        if GPU:
            torch.cuda.empty_cache()


def device_gib() -> float:
    return torch.cuda.get_device_properties(DEVICE).total_memory / GIB if GPU else 0.0


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    drawing = figure(10, 5.5)
    axes = drawing.subplots(2, 3, sharey="row", squeeze=False)
    for column, (sweep, label) in enumerate(LABELS.items()):
        points = sorted(
            (x for x in lines if x["sweep"] == sweep), key=lambda x: x["rows" if sweep == "batch" else sweep]
        )
        at = [x["rows" if sweep == "batch" else sweep] for x in points]
        time, memory = axes[:, column]
        time.loglog(at, [1000 * x["seconds"] for x in points], "o-", base=2, color=COLOURS[0], label="measured")
        time.loglog(at, [1000 * x["least"] for x in points], "--", base=2, color=COLOURS[1], label="limit: arithmetic")
        memory.loglog(at, [x["peak_gib"] for x in points], "o-", base=2, color=COLOURS[0], label="measured")
        memory.axhline(points[0]["device_gib"], linestyle="--", color=COLOURS[1], label="limit: the device's memory")
        memory.set_xlabel(label)
        for each in (time, memory):
            each.set_xticks(at, [f"{n // 1024}k" if n >= 1024 else str(n) for n in at])
            each.minorticks_off()
            each.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[0, 0].set_ylabel("milliseconds a step")
    axes[1, 0].set_ylabel("GiB at most")
    for row in axes:
        row[0].legend(fontsize=8)
    save(drawing, path)


def main(words: list[str]) -> None:
    if len(words) == 2 and words[0] in SWEEPS:
        measure(words[0], Path(words[1]))
    elif len(words) == 2:
        draw([json.loads(line) for line in Path(words[0]).read_text().splitlines()], check_picture(words[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            children = [subprocess.Popen([sys.executable, __file__, sweep, f"{folder}/lock"]) for sweep in SWEEPS]
            codes = [child.wait() for child in children]
            if any(codes):
                sys.exit("a sweep failed")


if __name__ == "__main__":
    main(sys.argv[1:])
