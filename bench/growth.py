"""How a training step grows: time and memory of a GPT against length, width and batch.

python bench/growth.py > growth.jsonl                         # about two minutes on a GPU, eight on two cores
python bench/growth.py growth.jsonl docs/figures/growth.png   # draw it

AdamW and random tokens; heads of 64. On a GPU the 12 layers and 50,257 words of GPT-2, compiled, in bf16; on a CPU 4
layers and 8,192 words in fp32. The lengths share as many tokens as fit; widths and batches have texts of 1,024. Every
point has its own process; on a GPU the three sweeps compile side by side and measure one at a time. The limit of the
time is the arithmetic at the rate of a large product measured in the same run; that of the memory is the machine's.
"""

import fcntl
import json
import os
import resource
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from scale import DEVICE, GPU, SHARED, Training, matmul_rate

from regard.explain.fleet import GIB
from regard.explain.picture import COLOURS, check_picture, figure, save
from regard.models import config_for

LENGTHS = (128, 512, 2048, 8192, 16_384)
if GPU:
    LAYERS, VOCAB, HOW, STEPS = 12, 50_257, dict(precision="bf16", compiled=True), 5
    SWEEPS = {
        "length": [(768, 65_536 // length, length) for length in LENGTHS],
        "width": [(width, 32, 1024) for width in (256, 512, 1024, 2048)],
        "batch": [(768, rows, 1024) for rows in (1, 4, 16, 64)],
    }
else:
    LAYERS, VOCAB, HOW, STEPS = 4, 8192, dict(precision="fp32", compiled=False), 1
    SWEEPS = {
        "length": [(256, 16_384 // length, length) for length in LENGTHS],
        "width": [(width, 8, 1024) for width in (128, 256, 512, 1024)],
        "batch": [(256, rows, 1024) for rows in (1, 2, 4, 8, 16)],
    }


def flops(config: Any, length: int) -> float:
    """FLOPs per token, forward and backward, with the half of the attention table that a causal model uses."""
    matrices = 12 * config.layers * config.width**2 + config.width * config.vocab
    return 6 * matrices + 6 * config.layers * config.width * length


def measure(sweep: str, point: int, lock: Path) -> dict[str, Any]:
    torch.set_float32_matmul_precision("high")
    width, rows, length = SWEEPS[sweep][point]
    sizes = dict(width=width, heads=max(1, width // 64), ffn=4 * width, layers=LAYERS, context=length)
    config = config_for("gpt", "gpt2", VOCAB, task="lm", **sizes)
    line = SHARED | dict(sweep=sweep, width=width, rows=rows, length=length, device_gib=device_gib())
    training = Training(config, rows, length, **HOW)
    for _ in range(5 if GPU else 1):  # compiled, then recorded
        training.step([training.batch()], training.tokens)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        matmul = matmul_rate()
        line |= training.measure(3, STEPS)
    if not GPU:
        line["peak_gib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB, 2)
    seconds = training.tokens / line["tokens_per_second"]
    least = training.tokens * flops(config, length) / matmul / 1e12
    return line | dict(matmul_tflops=round(matmul, 2), seconds=seconds, least=least)


def device_gib() -> float:
    if GPU:
        return torch.cuda.get_device_properties(DEVICE).total_memory / GIB
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    drawing = figure(10, 5.5)
    axes = drawing.subplots(2, 3, sharey="row", squeeze=False)
    for column, sweep in enumerate(SWEEPS):
        varied = "rows" if sweep == "batch" else sweep
        points = sorted((x for x in lines if x["sweep"] == sweep), key=lambda x: x[varied])
        at, some = [x[varied] for x in points], points[0]
        time, memory = axes[:, column]
        time.loglog(at, [1000 * x["seconds"] for x in points], "o-", base=2, color=COLOURS[0], label="measured")
        time.loglog(at, [1000 * x["least"] for x in points], "--", base=2, color=COLOURS[1], label="limit: arithmetic")
        memory.loglog(at, [x["peak_gib"] for x in points], "o-", base=2, color=COLOURS[0], label="measured")
        memory.axhline(some["device_gib"], linestyle="--", color=COLOURS[1], label="limit: the machine's memory")
        memory.set_xlabel(
            {
                "length": f"tokens of a text ({some['rows'] * some['length']:,} in all)",
                "width": f"width ({some['rows']} texts of {some['length']:,} tokens)",
                "batch": f"texts of {some['length']:,} tokens",
            }[sweep]
        )
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
    if len(words) == 3:
        print(json.dumps(measure(words[0], int(words[1]), Path(words[2]))))
    elif len(words) == 2:
        draw([json.loads(line) for line in Path(words[0]).read_text().splitlines()], check_picture(words[1]))
    else:
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(SWEEPS) if GPU else 1) as several:
            list(several.map(lambda sweep: run(sweep, f"{folder}/lock"), SWEEPS))


def run(sweep: str, lock: str) -> None:
    for point in range(len(SWEEPS[sweep])):
        done = subprocess.run([sys.executable, __file__, sweep, str(point), lock], stdout=subprocess.PIPE, check=True)
        print(done.stdout.decode(), end="", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
