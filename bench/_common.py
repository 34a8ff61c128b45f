"""Shared by the benchmarks: the same weights on both sides, times with their spread, one line per result."""

import json
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from regard.models import build, config_for
from regard.models.base import EncoderDecoder
from regard.models.published import to_published, weights_bytes
from regard.training.optim import Optimiser
from regard.training.recorded import RecordedStep
from regard.training.settings import Optim

_answer_of: Callable[..., Any]  # of a `Contender`, in its process
RESULTS = Path(__file__).parent / "results.jsonl"
ADAMW = Optim(lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, clip=0.0)  # torch's own settings


def pair(size: str, vocab: int, **settings: Any) -> tuple[EncoderDecoder, Any]:
    """Our Transformer, and transformers' MarianMTModel with the same weights."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    ours = build(config_for("transformer", size, vocab, **settings))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(to_published(ours.config)))
        Path(folder, "model.safetensors").write_bytes(weights_bytes(ours))
        return ours, transformers.MarianMTModel.from_pretrained(folder)


def seconds(work: Callable[[], Any], repeat: int, warm: int = 1) -> list[float]:
    """Wall-clock times of `work`, with the GPU synchronised."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    times = []
    for i in range(warm + repeat):
        wait()
        start = time.perf_counter()
        work()
        wait()
        if i >= warm:
            times.append(time.perf_counter() - start)
    return times


def in_turn(steps: dict[str, Callable[[], Any]], rounds: int = 10) -> dict[str, list[float]]:
    """Times of each, interleaved, so that a slow minute of the machine affects all."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for work in steps.values():
        seconds(work, repeat=0, warm=5)
    for _ in range(rounds):
        for name, work in steps.items():
            times[name] += seconds(work, repeat=3 if torch.cuda.is_available() else 1, warm=0)
    return times


def training_step(
    model: Any, objective: Any, batch: Any, count: int, optim: Optim = ADAMW
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """A step on a GPU as in `regard train`: recorded once it is warm, if the objective has fixed shapes."""
    optimiser = Optimiser(model, optim)

    def step(batches: list[Any], count: Any) -> tuple[torch.Tensor, ...]:
        with torch.autocast("cuda", torch.bfloat16):
            loss = objective.loss_sum(model, batches[0]) / count
        loss.backward()
        return (loss.detach(), *optimiser.update(loss.detach()))

    work = RecordedStep(step, torch.device("cuda"), fills=False) if objective.fixed_shapes else step
    return lambda: work([batch], count)


class Contender:
    """One side of a comparison on a CPU, in its own process, where `build(*args)` returns the function to call.

    In one process the thread pools of libraries disturb each other: after CTranslate2 has run once, our int8 stays
    slower by a third.
    """

    def __init__(self, build: Callable[..., Callable[..., Any]], *args: Any):
        self.process = ProcessPoolExecutor(1, get_context("spawn"), _build, (build, *args))

    def __call__(self, *args: Any) -> Any:
        return self.process.submit(_answer, *args).result()

    def seconds(self, *args: Any) -> list[float]:
        return self.process.submit(_seconds, *args).result()


def _build(build: Callable[..., Callable[..., Any]], *args: Any) -> None:
    global _answer_of
    _answer_of = build(*args)


def _answer(*args: Any) -> Any:
    return _answer_of(*args)


def _seconds(*args: Any) -> list[float]:
    return seconds(lambda: _answer_of(*args), 1, warm=0)


def machine(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    model = next((x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")), ": CPU")
    return f"{model.partition(': ')[2]}, {torch.get_num_threads()} threads"


def report(name: str, device: str, unit: str, work: float, **times: list[float]) -> dict[str, Any]:
    """Print and record rates (`work` units per best time: noise only adds), and ratios to the last one named."""
    rates = {key: work / min(value) for key, value in times.items()}
    *ours, reference = rates
    line = {
        "bench": name,
        "date": date.today().isoformat(),
        "machine": machine(device),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": _commit(),
        "unit": unit,
        **{key: round(rate, 1) for key, rate in rates.items()},
        "times": {key: len(v) for key, v in times.items()},
        "median_over_best": {key: round(statistics.median(v) / min(v), 3) for key, v in times.items()},
        "ratio": {key: round(rates[key] / rates[reference], 2) for key in ours},
    }
    with RESULTS.open("a") as f:
        f.write(json.dumps(line) + "\n")
    parts = [f"{key} {rate:,.0f} {unit}" for key, rate in rates.items()]
    print(f"{name} · {line['machine']} · {' · '.join(parts)} · ratio {line['ratio']}", flush=True)
    return line


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
