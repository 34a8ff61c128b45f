"""What every task trains with by default, against a recorded table (`tests/fixtures/presets.txt`).

A changed number is a decision, seen as a line of a diff. To record anew:

    python -m tests.reference.test_recorded_presets
"""

import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from regard import tasks
from regard.tasks.registry import TASKS

FIXTURE = Path(__file__).parents[1] / "fixtures" / "presets.txt"
RUN = ("minutes", "steps", "epochs", "tokens", "batch", "accumulate", "precision", "compile", "smoothing",
       "consistency", "average", "keep", "patience", "clip")  # fmt: skip
MODEL = ("width", "embedding", "layers", "encoder_layers", "decoder_layers", "heads", "ffn", "dropout", "context",
         "patch", "cell")  # fmt: skip


def line(run: Any) -> str:
    """The numbers of a run that a preset decides; what is 0, or off, is left out."""
    settings = {name: getattr(run, name) for name in RUN if hasattr(run, name)}
    settings |= {f"optim.{name}": value for name, value in asdict(run.optim).items()}
    settings |= {f"schedule.{name}": value for name, value in asdict(run.schedule).items()}
    model = {field.name for field in fields(run.model)}
    settings |= {f"model.{name}": getattr(run.model, name) for name in MODEL if name in model}
    settings |= {"data.vocab": run.data.vocab} if hasattr(run.data, "vocab") else {}
    return " ".join(f"{name}={value}".replace(" ", "") for name, value in settings.items() if value)


def table() -> str:
    lines = []
    for name, task in TASKS.items():
        for arch in task.archs:
            task = task.for_arch(arch)
            settings = {field.name for field in fields(task.settings)}
            where = {"source": "a", "target": "b"} if "source" in settings else {"path": "a"}
            data = task.settings(**where, **({"vocab": 0} if "vocab" in settings else {}))
            for device in ("cpu", "cuda"):
                lines.append(f"{name} {arch} {device}: {line(tasks.default_run(task.name, arch, '', data, device))}\n")
    return "".join(lines)


def test_presets_equal_the_recorded():
    assert table().splitlines() == FIXTURE.read_text("utf-8").splitlines()


if __name__ == "__main__":
    FIXTURE.write_text(table(), "utf-8")
    sys.exit(f"recorded in {FIXTURE}")
