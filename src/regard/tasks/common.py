"""What the tasks share: the parts of a run, presets, and the model folder."""

import json
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard import checkpoint
from regard.data.folders import Say
from regard.evaluate.labels import alarm, macro_f1
from regard.explain.cost import parameters_by_part
from regard.models import build, model_type
from regard.models.published import to_published, weights_bytes
from regard.nn.init import undrawn
from regard.objectives.base import Objective
from regard.objectives.classify import Scores
from regard.train.loop import Batches
from regard.train.optim import Optim
from regard.train.run import Run
from regard.train.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What `regard train TASK` does when nobody says otherwise."""

    size: str
    settings: dict[str, Any]  # of the model, unless the user names a size
    minutes: float
    precision: str
    dropout: float
    optim: Optim
    schedule: Schedule
    vocab: int = 0  # of text, as are tokens
    tokens: int = 4096
    batch: int = 64  # of what is no text
    compile: bool = False


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Everything the loop asks for, made from one Run."""

    run: Run
    model: nn.Module
    objective: Objective
    loader: Batches
    valid_batches: Callable[[], Iterable[Any]]
    metric: Callable[[Any], dict[str, float]] | None
    save_model: Callable[[Path, Any], None]
    flops_per_target: float = 0.0  # 0: not known, and then nothing is said of the device's use


def write_folder(
    folder: Path,
    run: Run,
    model: Any,
    data: dict[str, Any],
    generation: dict[str, Any],
    card: str,
    template: str = "",
) -> None:
    """A Hugging Face model folder. The loop gives a draft folder and moves the files into place when all are there.

    `template` is how a text is put to a model that was taught to answer.
    """
    ends = generation.get("eos_token_id")
    eos = ends[0] if isinstance(ends, list) else ends
    known = {
        "format_version": checkpoint.FORMAT_VERSION,
        "task": run.task,
        "seed": run.seed,
        "versions": checkpoint.versions() | {"python": platform.python_version()},
        "data": data,
        **({"template": template} if template else {}),
    }
    for name, value in (
        ("config.json", to_published(run.model, eos)),
        ("generation_config.json", generation),
        ("regard.json", known),
    ):
        if value:  # an encoder generates nothing
            (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card, encoding="utf-8")
    (folder / "model.safetensors").write_bytes(weights_bytes(model))


def model_card(run: Run, model: nn.Module, *, pipeline: str, what: str, verb: str, data: str) -> str:
    with torch.device("meta"), undrawn():  # as it is written: without LoRA's maps beside it
        count = sum(parameters_by_part(build(run.model)).values())
    return f"""---
library_name: regard
pipeline_tag: {pipeline}
---

# {what} trained with regard

{type(model).__name__} ({model_type(run.model)}), {count:,} parameters, trained on {data} with seed {run.seed}.
All settings are in `run.json`, the curves in `metrics.jsonl`.

    regard {verb} THIS_FOLDER "{"… [MASK] …" if verb == "fill" else "…"}"
    regard info THIS_FOLDER
"""


def class_scores(run: Run, labels: tuple[str, ...], say: Say | None, more: Scores = lambda *_: {}) -> Scores | None:
    """Told of held-out classes beside their accuracy; and, once, an alarm when one of them takes every prediction."""
    data: Any = run.data
    told: set[str] = set()

    def scores(true: np.ndarray, guessed: np.ndarray) -> dict[str, float]:
        warning = alarm(true, guessed, labels, data.balanced)
        if say is not None and warning and warning not in told:
            say(warning)
            told.add(warning)
        return {**more(true, guessed), "macro_f1": macro_f1(true, guessed, len(labels))}

    return scores if labels else None
