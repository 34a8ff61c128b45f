"""Run: everything that decides what a training run computes. A recipe returns one; run.json keeps it."""

import dataclasses
import importlib.util
import json
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard import checkpoint, models
from regard.config import MAX_SEED, at_least, fraction, from_dict, no_run, to_dict, unknown
from regard.data.captions import CaptionsConfig
from regard.data.clips import AudioConfig
from regard.data.features import TableConfig
from regard.data.history import HistoryConfig
from regard.data.images import ImagesConfig
from regard.data.labelled import LabelledConfig
from regard.data.masked import MaskedConfig
from regard.data.prepare import PairsConfig
from regard.data.series import SeriesConfig
from regard.data.text import TextConfig
from regard.errors import CheckpointError, ConfigError, RegardError
from regard.train.optim import Optim
from regard.train.schedule import Schedule

DataConfig = (
    PairsConfig
    | TextConfig
    | MaskedConfig
    | LabelledConfig
    | ImagesConfig
    | TableConfig
    | CaptionsConfig
    | SeriesConfig
    | HistoryConfig
    | AudioConfig
)
DATA: dict[str, type[Any]] = {
    "translate": PairsConfig,
    "lm": TextConfig,
    "summarise": TextConfig,
    "mlm": MaskedConfig,
    **dict.fromkeys(models.LABEL_TASKS, LabelledConfig),
    "image": ImagesConfig,
    "table": TableConfig,
    "caption": CaptionsConfig,
    "series": SeriesConfig,
    "fill-series": SeriesConfig,
    "forecast": HistoryConfig,
    "audio": AudioConfig,
}  # what each task is trained on
PRECISIONS = ("fp32", "bf16")
TIMED_STEPS = 20  # with `minutes`, the steps whose pace decides how many there will be
AT_LEAST = dict(steps=0, minutes=0, epochs=0, tokens=1, batch=1, accumulate=1, consistency=0, lora=0, eval_every=0,
                save_every=0, log_every=1, patience=0, keep=1, seed=0)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Run:
    """`steps`, `minutes` or `epochs` says how long. With `minutes` the first steps are timed, and `steps` is then fixed
    once; with `epochs`, when the data is read."""

    task: str = "translate"
    model: models.ModelConfig
    data: DataConfig
    start: str = ""  # the model folder whose weights training begins with; "": chance
    lora: int = (
        0  # rank of the small matrices trained beside the frozen ones (Hu et al. 2021); 0: everything is trained
    )
    frozen: bool = False  # only the head is trained, on what the model that it starts from makes of the texts
    optim: Optim = field(default_factory=Optim)
    schedule: Schedule = field(default_factory=Schedule)
    steps: int = 0
    minutes: float = 0.0
    epochs: float = 0.0
    tokens: int = 4096  # padded tokens of the larger side of a micro-batch of text
    batch: int = 64  # samples of a micro-batch, where they are no text
    accumulate: int = 1  # micro-batches in a step
    smoothing: float = 0.1
    consistency: float = 0.0
    eval_every: int = 0  # 0: eight times in a run, or fewer where that takes more than a quarter of `minutes`
    save_every: int = 0  # 0: at each evaluation
    log_every: int = 20
    patience: int = 0  # evaluations without a better score before stopping; 0: never
    keep: int = 3  # best evaluations whose weights are kept, and averaged at the end
    average: bool = True
    seed: int = 0
    precision: str = "fp32"
    compile: bool = False

    def __post_init__(self):
        if self.steps == 0 and self.minutes == 0 and self.epochs == 0:
            raise ConfigError("how long? say steps or minutes (or epochs): --steps 2000, or --minutes 4")
        at_least(self, **AT_LEAST)
        if self.seed > MAX_SEED:
            raise ConfigError(f"seed is {self.seed}; must be at most {MAX_SEED}")
        fraction(self, "smoothing")
        if self.frozen and (self.lora or not self.start):
            raise ConfigError(
                "frozen wants a model to start from, and no LoRA beside it: regard finetune MODEL --probe"
            )
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        if self.task not in DATA:
            raise unknown("task", self.task, DATA)
        if not isinstance(self.data, wanted := DATA[self.task]):
            raise ConfigError(f"the task {self.task} wants {wanted.__name__}, got {type(self.data).__name__}")
        name = "context" if hasattr(self.data, "context") else "max_length"
        asked = getattr(self.data, name, 0)
        room = getattr(self.model, name, 0) or asked
        if asked > room:
            way = (
                f"a model that was trained keeps them, so at most {room}"
                if self.start
                else f"add --set model.{name}={asked}"
            )
            raise ConfigError(f"data.{name} is {asked}, but the model has {room} positions; {way}")
        if self.minutes and not self.steps and self.schedule.ends and self.schedule.warmup < TIMED_STEPS:
            raise ConfigError(
                f"schedule.warmup is {self.schedule.warmup}; with minutes and a {self.schedule.kind} schedule it wants "
                f"at least {TIMED_STEPS}, the steps that are timed before the end is known"
            )

    def to_dict(self) -> dict[str, Any]:
        return {"arch": models.model_type(self.model), **to_dict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Run":
        values = dict(values)
        arch = values.pop("arch", "")
        if arch not in models.MODELS:
            raise unknown("architecture", str(arch), models.MODELS)
        if isinstance(values.get("model"), dict):
            values["model"] = from_dict(models.MODELS[arch][0], values["model"], "model.")
        if isinstance(values.get("data"), dict):
            values["data"] = from_dict(DATA.get(str(values.get("task")), PairsConfig), values["data"], "data.")
        return from_dict(cls, values)


def write_run(folder: str | Path, run: Run) -> None:
    """The resolved settings as run.json."""
    known = {"format_version": checkpoint.FORMAT_VERSION, "versions": checkpoint.versions(), **run.to_dict()}
    checkpoint.write_atomic(Path(folder) / "run.json", (json.dumps(known, indent=2) + "\n").encode())


def read_run(folder: str | Path) -> Run:
    path = Path(folder) / "run.json"
    if not path.is_file():
        if (path.parent / "config.json").is_file():
            raise CheckpointError(f"{folder} is a model but not a run: it has no run.json, so it cannot be resumed")
        raise no_run(path.parent)
    try:
        known = json.loads(path.read_bytes())
        checkpoint.check_format(path, known)
        return Run.from_dict({k: v for k, v in known.items() if k not in ("format_version", "versions")})
    except (ValueError, AttributeError, ConfigError) as e:
        raise CheckpointError(f"{path}: cannot be read ({e})") from None


def load_recipe(path: str | Path) -> dict[str, Run]:
    """What `recipe()` of a Python file returns: a run, or several by name. It is executed: use only what you trust."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such recipe; a recipe is a Python file with a function recipe() -> Run")
    spec = importlib.util.spec_from_file_location(f"recipe_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path}: not a Python file; a recipe's name ends in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        if not callable(make := getattr(module, "recipe", None)):
            raise ConfigError("there is no function recipe() in it; it should return regard.Run(...)")
        run = make()
    except RegardError as e:
        raise type(e)(f"{path}: {e}") if type(e) is ConfigError else e from None
    except Exception as e:
        raise ConfigError(f"{path}{_line(e, path)}: {type(e).__name__}: {e}") from e
    runs = run if isinstance(run, dict) else {path.stem: run}
    for run in runs.values():
        if not isinstance(run, Run):
            raise ConfigError(f"{path}: recipe() returned {type(run).__name__}; it should return regard.Run(...)")
    return runs


def _line(error: Exception, path: Path) -> str:
    """Where in the recipe itself it went wrong."""
    if isinstance(error, SyntaxError):
        return f" line {error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == path.name]
    return f" line {lines[-1]}" if lines else ""


def with_steps(run: Run, steps: int) -> Run:
    return dataclasses.replace(run, steps=steps)
