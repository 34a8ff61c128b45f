"""A task: everything that differs between learning to translate and learning to classify, in one object.

`regard.tasks` lists them. Every verb, the studio and the server ask the task, and none of them names one. This module
and the files of the tasks import without torch, so that help is instant: methods import what they need.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from regard.config import unknown
from regard.data.folders import Say
from regard.errors import ConfigError
from regard.models.sizes import SIZES
from regard.tasks.presets import Preset
from regard.tasks.scored import Scored
from regard.tasks.served import Served
from regard.tasks.use import Inputs, Options, Predictions, answer_all
from regard.ticks import Console
from regard.training.baseline import Baseline
from regard.words import count

if TYPE_CHECKING:
    from torch import Tensor, nn

    from regard.data.contents import Contents
    from regard.objectives.base import Objective
    from regard.predictors import Predictor
    from regard.training.run import Run

CELLS = ("lstm", "gru", "rnn")
UNKNOWN_LABELS = ("LABEL_0", "LABEL_1")  # until the data is read


@dataclass(frozen=True)
class Arch:
    """An architecture a task offers: a model of `models.registry` and its settings."""

    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)


def recurrent(model: str) -> dict[str, Arch]:
    """lstm, gru and rnn: one model with different cells."""
    return {cell: Arch(model, {"cell": cell}) for cell in CELLS}


@dataclass(frozen=True)
class Fit:
    """Why data fits a task, and the command lines to type, the recommended one first."""

    reason: str
    commands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Card:
    """For the model card: the Hugging Face pipeline, a title, and the command that uses the model."""

    pipeline: str
    title: str
    use: str  # after `regard`, with {} for the folder


class Task(Scored, Served):
    """One task. A subclass sets the attributes and overrides the methods that differ."""

    name: str
    summary: str  # a line of `regard train --help`
    settings: type  # of its data, from data/settings.py
    options: tuple[str, ...] = ()  # settings with their own command-line option
    data_help: str = ""  # what --data takes
    examples: tuple[str, ...] = ()  # command lines of its help; the first is suggested when there is no data
    archs: Mapping[str, Arch] = {}  # the first is the default; empty: fine-tuning only
    uses: tuple[str, ...] = ()  # other models of `models.registry` that do it, but are not trained from scratch
    presets: Mapping[tuple[str, str], Preset] = {}  # by device and model; "" is any model
    card: Card
    answering: str = ""  # the command for an instruction-tuned model, if different

    # -- the run ----------------------------------------------------------------------------------------------------

    @property
    def data_options(self) -> tuple[str, ...]:
        """`options`, and `strict` if the settings have it."""
        return (*self.options, "strict") if hasattr(self.settings, "strict") else self.options

    @property
    def arch(self) -> str:
        return next(iter(self.archs), "")

    def for_arch(self, arch: str) -> "Task":
        """The task that trains this architecture: `classify --arch mlp`, for example, is `table`."""
        return self

    def preset(self, arch: str, device: str) -> Preset:
        return self.presets.get((device, self.archs[arch].model)) or self.presets[device, ""]

    def config(self, arch: str, size: str, **settings: Any) -> Any:
        """The config of a named architecture in a named size. Names ignore case."""
        from regard.models.registry import MODELS

        arch, size = arch.lower(), size.lower()
        if arch not in self.archs:
            raise unknown("architecture", arch, self.archs)
        spec = self.archs[arch]
        if size not in SIZES[spec.model]:
            raise unknown("size", size, SIZES[spec.model])
        return MODELS[spec.model][0](**{**SIZES[spec.model][size], **spec.settings, **settings})

    def default_run(self, arch: str, size: str, data: Any, device: str) -> "Run":
        """A good run for this device; an empty `size` or `data.vocab` takes the preset's."""
        from regard.training.run import Run

        if not any(getattr(data, name, "") for name in ("name", "path", "source")):
            sets = " (ready-made sets: regard data list)" if hasattr(data, "name") else ""
            raise ConfigError(f"train on what? type: {self.examples[0].split('#')[0].rstrip()}{sets}")
        if not self.archs:
            way = f"regard finetune {self.usual_start} {self.name} --data FILE"
            raise ConfigError(f"{self.name} fine-tunes a pretrained model; type: {way}")
        if arch not in self.archs:
            raise unknown("architecture", arch, self.archs)
        preset = self.preset(arch, device)
        data, settings = self.complete(data, preset), {**preset.model, **({} if size else preset.shape)}
        settings |= self.model_settings(data, arch, device, settings)
        model = self.config(arch, size or preset.size, **settings)
        return Run(task=self.name, model=model, data=data, **preset.run)

    def fits(self, contents: "Contents") -> Fit | None:
        """How the task fits the contents of a file or folder; None if it does not."""
        return None

    def fit_for(self, contents: "Contents", reason: str, start: str = "", **options: str) -> Fit | None:
        """A fit with the commands that train on the data: from the model `start`, if any, and from scratch."""
        data = [f"--{name} {quote(value)}" for name, value in {"data": str(contents.path), **options}.items() if value]
        ways = [f"finetune {start}"] if start and self.can_finetune else []
        ways += ["train"] if self.archs else []
        return Fit(reason, tuple(f"regard {way} {self.name} {' '.join(data)}" for way in ways)) if ways else None

    target_kind = "classes"  # what the label column holds, in the terms of `data.targets`

    def complete(self, data: Any, preset: Preset) -> Any:
        """The data settings, completed by the preset's vocabulary size."""
        if hasattr(data, "targets"):
            data = dataclasses.replace(data, targets=self.target_kind)
        if getattr(data, "vocab", None) == 0:
            return dataclasses.replace(data, vocab=preset.vocab)
        return data

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Model settings implied by the data settings, when a run is planned."""
        return {"vocab": data.vocab} if hasattr(data, "vocab") else {}

    def settings_from_data(self, run: "Run") -> dict[str, Any]:
        """The same after `--set` has changed either."""
        return {"vocab": run.data.vocab} if hasattr(run.data, "vocab") else {}

    @property
    def usual_length(self) -> str:
        """The default length of a run on a CPU, for the help."""
        if not self.archs:
            return self.finetune_length
        run = self.preset(self.arch, "cpu").run
        return f"{run['minutes']:g} on a CPU" if "minutes" in run else f"{run['epochs']:g} epochs"

    starts: tuple[str, ...] = ()  # models of `models.registry` that can be fine-tuned to it; empty: no fine-tuning
    heads: tuple[str, ...] = ()  # modules that may be new; LoRA and probes train them too
    usual_start = "minilm"  # the model to suggest for fine-tuning
    lora_targets: tuple[str, ...] = ("*",)  # patterns of the linear layers that LoRA adapts
    finetune_length = ""  # as `usual_length`, for fine-tuning
    least_steps: Mapping[str, int] = {"cpu": 60, "cuda": 60}  # fewer teach nothing, even with hundreds of rows

    def finetune_run(self, start: Path, data: Any, device: str, lora: int) -> "Run":
        """A good run that starts from the model in the folder `start`, one of `starts`, with its tokenizer."""
        raise NotImplementedError

    @property
    def can_finetune(self) -> bool:
        return bool(self.starts)

    def start_state(self, started: Any, run: "Run") -> "Mapping[str, Tensor]":
        """The weights of the model to start from, by their names in the model that is trained."""
        from regard.tasks.start import state_of

        return state_of(started, run.model)

    def within(self, run: "Run", minutes: float) -> "Run":
        """A fine-tuning run adapted to this many minutes."""
        return run

    def probe(self, run: "Run") -> "Run":
        """The run with a frozen encoder, which trains only a linear head."""
        raise ConfigError(f"{self.name} has no linear probe; leave out --probe")

    @property
    def can_probe(self) -> bool:
        return type(self).probe is not Task.probe

    # -- from data to batches, model and loss -----------------------------------------------------------------------

    def check(self, run: "Run", device: str) -> None:
        """Raise `ConfigError` for incompatible settings, before any data is read."""

    def read(self, run: "Run", say: Say) -> Any:
        """The data of the run, ready for batches: read, split and reported on."""
        raise NotImplementedError

    def fit(self, run: "Run", data: Any) -> "Run":
        """The run, with the model settings that come from the data: vocabulary, labels, means."""
        return run

    def build(self, run: "Run", data: Any, say: Say) -> "nn.Module":
        """The model to train, on the CPU."""
        import torch

        from regard.models.published import load_model
        from regard.models.registry import build
        from regard.tasks import start

        torch.manual_seed(run.seed)
        model = build(run.model)
        if not run.start:
            return model
        started: Any = load_model(Path(run.start))
        same = getattr(started.config, "labels", ()) == getattr(run.model, "labels", ())
        new = start.begin_(model, self.start_state(started, run), () if same else self.heads)
        say(f"randomly initialised: {', '.join(new)}" if new else "all weights come from the model, head included")
        start.freeze_(model, run, self.heads, say, self.lora_targets)
        return model

    def objective(self, run: "Run", data: Any = None) -> "Objective":
        """The loss; with `data`, also the scores of the validation set."""
        raise NotImplementedError

    def source(self, run: "Run", data: Any, part: str, device: str) -> Any:
        """The examples of a part, `train` or `valid`, by index; training examples may be augmented."""
        raise NotImplementedError

    def plan(self, run: "Run", data: Any, part: str, source: Any) -> Any:
        """Which examples form a batch."""
        from regard.data.loader import FixedSize

        return FixedSize(run.batch)

    def fingerprint(self, data: Any) -> dict[str, int]:
        """Identifies the training data: a run may only be resumed with the same data."""
        return {"files": data.files} if hasattr(data, "files") else {"content": data.content}

    def loader(self, run: "Run", data: Any, device: str) -> Any:
        """Endless training batches."""
        from regard.data.loader import Loader

        source = self.source(run, data, "train", device)
        return Loader(source, self.plan(run, data, "train", source), run.seed, **self.fingerprint(data))

    def validation(self, run: "Run", data: Any, device: str) -> Iterable[Any]:
        """One pass over the validation set, in a fixed order."""
        from regard.data.loader import in_order

        source = self.source(run, data, "valid", device)
        return in_order(source, self.plan(run, data, "valid", source))

    def metric(self, run: "Run", data: Any, device: str) -> Callable[[Any], dict[str, float]] | None:
        """Scores of the model's answers on the validation set, such as BLEU."""
        return None

    def baselines(self, run: "Run", data: Any) -> Sequence[Baseline]:
        """Scores of simple methods on the validation set, reported before and after training."""
        return ()

    def remarks(self, run: "Run", data: Any, loader: Any) -> Iterable[str]:
        """What to know before training: the length of an epoch, rare classes."""
        return [f"an epoch is {count(loader.batches_per_epoch, 'batch')}"]

    def flops_per_target(self, model: Any, run: "Run") -> float:
        """FLOPs of training on one target; 0: unknown."""
        return 0.0

    def example(self, run: "Run") -> Any:
        """A batch of the size used in training, to estimate memory."""
        raise NotImplementedError

    def show(self, run: "Run", data: Any, batch: Any, row: int) -> str:
        """A training example as the model sees it, as text."""
        raise NotImplementedError

    # -- the model folder -------------------------------------------------------------------------------------------

    def about(self, run: "Run", data: Any) -> dict[str, Any]:
        """What regard.json records about the data."""
        return {"name": getattr(run.data, "name", "")}

    def generation(self, run: "Run", data: Any) -> dict[str, Any]:
        """generation_config.json; empty for a model that generates nothing."""
        return {}

    def template(self, run: "Run", data: Any) -> str:
        """The prompt template of an instruction-tuned model."""
        return ""

    def calibration(self, run: "Run", model: Any, data: Any) -> dict[str, Any]:
        """What the predictor needs to interpret logits, such as thresholds chosen on the validation set."""
        return {}

    def write_files(self, folder: Path, run: "Run", data: Any) -> None:
        """Files beyond config, weights and card, which may be extended: a tokenizer, a preprocessor."""

    def named(self, data: Any) -> str:
        """The data's name for the model card, without local paths."""
        return getattr(data, "name", "") or Path(data.path).name

    # -- using the model --------------------------------------------------------------------------------------------

    purpose: str = ""  # "a vit to …"
    trains_on = ""  # the `kind` of data sets it learns from, in catalog.toml
    reads = "text"  # its modality: text, images, audio, series or tables
    table_ending = ".arrow"  # suffix of the file that a table in memory is written to; see `data.memory`
    unit = "examples"  # the word for examples
    verbs: tuple[str, ...] = ()  # command-line verbs that use a model of this task
    search: tuple[str, ...] = ()  # the `Options` its predictor takes
    predict_takes: tuple[str, ...] = ()  # the `Options` that `regard predict` takes for it

    def serves(self, config: Any) -> bool:
        """Whether a model with this config does this task, for folders that regard did not write."""
        from regard.models.registry import model_type

        return model_type(config) in {*self.uses, *(arch.model for arch in self.archs.values())}

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> "Predictor":
        """The object that answers; `about` is the folder's regard.json."""
        raise NotImplementedError

    def parse_inputs(self, predictor: Any, words: Sequence[str], console: Console) -> Any:
        """Command-line words as inputs of `predictor.predict`: texts, file names, a row."""
        return words

    def as_inputs(self, predictor: Any, values: Sequence[Any]) -> Any:
        """Python values as inputs of `predictor.predict`: file names are read, texts stay texts."""
        files = self.reads != "text" and all(isinstance(value, str | Path) for value in values)
        return self.parse_inputs(predictor, list(map(str, values)), Console()) if files else values

    def text(self, answer: Any) -> str:
        """An answer as text."""
        return answer.text

    def to_json(self, answer: Any) -> Any:
        """An answer as JSON."""
        return dataclasses.asdict(answer)

    def row(self, predictor: Any, answer: Any) -> dict[str, Any]:
        """The cells of an answer in a table; empty if the answer is None."""
        return {"text": "" if answer is None else answer.text}

    draws_attention = False
    takes_labels = False  # whether each request names its classes
    family = ""  # of figures in the studio; empty: not shown there
    views: tuple[str, ...] = ()  # views of its answers in the studio
    example_texts: tuple[str, ...] = ()  # examples in the studio

    def family_of(self, config: Any) -> str:
        return self.family

    def draw_attention(self, predictor: Any, words: Sequence[str], inputs: Any, answers: Any, path: str) -> Path:
        """Draw where the model looked in the first input; `words` are the command-line words."""
        raise NotImplementedError

    writes_lines = False  # whether rows are written as lines of text instead of a table

    def line(self, row: dict[str, Any]) -> str:
        return row["text"]

    def read_inputs(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Inputs:
        """All inputs of a file or folder."""
        raise ConfigError(f"{folder} does not read files; type: regard {self.card.use.format(folder)}")

    def predict_options(self, options: Options) -> dict[str, Any]:
        """The options of `predictor.predict` for a whole file."""
        return options.pick(self.search)

    def predictions(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Predictions:
        """Answers to all inputs of a file or folder, as they are computed."""
        inputs = self.read_inputs(predictor, folder, file, options, console)
        rows, lines = self.answers(predictor, inputs.examples, options), self.writes_lines and not inputs.table
        return Predictions(rows=rows, unit=inputs.unit, total=inputs.total, line=self.line if lines else None)

    def answers(self, predictor: Any, examples: Iterable[Any], options: Options) -> Iterable[dict[str, Any]]:
        """The rows of some of the examples from `read_inputs`."""
        how = self.predict_options(options)
        return answer_all(examples, lambda some: predictor.predict(some, **how), partial(self.row, predictor))

    def rows_of(self, predictor: Any, file: Path, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        """`predictions` for Python: `options` by name, progress on stderr."""
        chosen, console = Options.of(options), Console()
        chosen.refuse_others("predict", self.name, self.predict_takes)
        predictions = self.predictions(predictor, predictor.folder, file, chosen, console)
        with console.progress(predictions.unit, predictions.total):
            return list(predictions.rows)
