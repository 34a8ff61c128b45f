"""Command lines at random: those that work, with a word or a file of theirs changed, and any word after any verb.

Verbs, arguments and options come from the command line itself, so a new one is tried as soon as it exists. A case is a
function of its seed and number alone.
"""

import dataclasses
import random
import re
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer
from tests.fuzz import values
from tests.fuzz.damage import damage, damage_json
from tests.fuzz.models import LINES, RUNS, words
from tests.fuzz.world import OUTPUTS, Case

PATIENCE = 2.0  # seconds before Ctrl-C
LONG = ("--steps", "--minutes", "--seeds", "--search", "--set", "--size", "--arch", "--max-tokens", "--n", "--beam",
        "--samples", "--memory", "--speed", "--length", "--resume", "--studio", "--tokens", "--context", "--stride",
        "--n-best", "--processes")  # fmt: skip
READ = ("--data", "--valid", "--source", "--target", "--labels", "--in", "--images", "--text", "--label")


def is_file(path: Path) -> bool:
    """Whatever the name: Python 3.12 raises for one that is too long."""
    try:
        return path.is_file()
    except OSError:
        return False


@dataclass(frozen=True)
class Verb:
    """A command of the application: the words that call it, and what it takes."""

    words: tuple[str, ...]
    arguments: tuple[Any, ...]
    options: tuple[Any, ...]
    between: int = 0  # arguments that stand after the first word

    def line(self, args: Sequence[str]) -> tuple[str, ...]:
        return (self.words[0], *args[: self.between], *self.words[1:], *args[self.between :])

    def option(self, name: str) -> Any:
        return next((param for param in self.options if name in (*param.opts, *param.secondary_opts)), None)


def verbs() -> list[Verb]:
    """Every command of the application; the tasks of a verb are commands of their own."""
    from regard.cli.main import app

    def walk(command: Any, words: tuple[str, ...], above: tuple[Any, ...]) -> Iterator[Verb]:
        own = tuple(p for p in command.params if p.param_type_name == "argument")
        if hasattr(command, "list_commands"):
            for name in command.list_commands(None):
                yield from walk(command.get_command(None, name), (*words, name), above + own)
        else:
            params = tuple(p for p in command.params if p.param_type_name != "argument" and p.name != "help")
            yield Verb(words, above + own, params, len(above))

    whole: Any = typer.main.get_command(app)
    resume = next(walk(whole.get_command(None, "train").get_command(None, "--resume"), ("train",), ()))
    return [*walk(whole, (), ()), Verb(resume.words, (), resume.options)]


def parse(line: str, known: Sequence[Verb]) -> tuple[Verb, list[str]]:
    """The verb of a line, and the words that are its arguments and options."""
    first, *args = words(line)
    for verb in known:
        if verb.words[0] == first and (len(verb.words) == 1 or verb.words[1] in args[: verb.between + 1]):
            args = [w for i, w in enumerate(args) if (w, i) != (verb.words[-1], verb.between)]
            return verb, args if len(verb.words) > 1 else words(line)[1:]
    raise LookupError(f"no verb for {line!r}")


def settings() -> list[str]:
    """Every name that --set knows, of every task and model."""
    from regard.models import MODELS
    from regard.tasks import TASKS
    from regard.training.run import Run

    def walk(cls: Any, path: str) -> Iterator[str]:
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            if dataclasses.is_dataclass(hints[field.name]):
                yield from walk(hints[field.name], f"{path}{field.name}.")
            else:
                yield path + field.name

    names = set(walk(Run, ""))
    data, models = (task.settings for task in TASKS.values()), (config for config, *_ in MODELS.values())
    for path, classes in (("data.", data), ("model.", models)):
        for cls in filter(dataclasses.is_dataclass, classes):
            names |= set(walk(cls, path))
    return sorted(names)


class Lines:
    """`Lines(work, seed).case(number)`; `work` is the folder with `data` and `runs` that command lines start in."""

    def __init__(self, work: Path, seed: int):
        self.work, self.seed = work, seed
        self.verbs, self.settings = verbs(), settings()
        self.good = [parse(line, self.verbs) for line in LINES]
        files = (p for p in sorted((work / "data").rglob("*")) if not p.is_dir() or p.parent == work / "data")
        self.data = [str(p.relative_to(work)) for p in files]
        self.models = [f"runs/{name}" for name in RUNS]

    def case(self, number: int) -> Case:
        return Draw(self, random.Random(f"{self.seed}/{number}")).case()


class Draw:
    """One case."""

    def __init__(self, lines: Lines, rng: random.Random):
        self.lines, self.rng = lines, rng
        self.files: dict[str, bytes] = {}
        self.long = False
        self.verb = lines.verbs[0]

    def case(self) -> Case:
        if self.rng.random() < 0.12:
            args = self.any_line()
        else:
            self.verb, good = self.rng.choice(self.lines.good)
            args = list(good)
            for _ in range(self.rng.choice((0, 1, 1, 1, 1, 2, 3))):
                self.change(args)
        if len(self.verb.words) > 1 and self.rng.random() < 0.03:
            self.verb = replace(self.verb, words=(self.verb.words[0], self.rng.choice(values.TASKS)))
        every = self.rng.choice((["-q"], ["-v"], [], [], []))
        self.long = self.long or self.verb.words in (("studio",), ("serve",))
        line = (*self.verb.line(args), *every)
        return Case(line, self.rng.choice(values.TYPED), self.files, PATIENCE if self.long else None)

    # -- lines --

    def any_line(self) -> list[str]:
        """A verb, and arguments and options that it knows, with any values."""
        self.verb = self.rng.choice(self.lines.verbs)
        args = [self.value(p) for p in self.verb.arguments for _ in range(self.rng.choice((1, 1, 1, 1, 0, 2)))]
        known = self.verb.options
        for param in self.rng.sample(known, min(len(known), self.rng.choice((0, 1, 2, 3, 5)))):
            args.append(self.option(param))
        return args

    def change(self, args: list[str]) -> None:
        """Change a word, add one, or leave one out; mostly what names something to read."""
        known = self.verb.options
        read = [i for i, word in enumerate(args) if word.startswith(READ) or not word.startswith("--")]
        way = self.rng.random()
        if way < 0.45 and read:
            at = self.rng.choice(read)
            args[at] = self.changed(args, at)
        elif way < 0.6 and self.verb.option("--set"):
            args.append(f"--set={self.setting()}")
            self.long = True
        elif way < 0.8 and known:
            args.append(self.option(self.rng.choice(known)))
        elif args:
            at = self.rng.randrange(len(args))
            if way < 0.85:
                self.note(args.pop(at))
            else:
                args[at] = self.changed(args, at)

    def changed(self, args: list[str], at: int) -> str:
        """Another value for the word at this place."""
        word = args[at]
        if word.startswith("--"):
            name, _, old = word.partition("=")
            self.note(word)
            if name == "--set":
                return f"--set={self.setting(old.split('=')[0])}"
            param = self.verb.option(name)
            return f"{name}={self.value(param, old)}" if param and not param.is_flag else word
        places = [i for i, w in enumerate(args) if not w.startswith("--")]
        known = self.verb.arguments
        return self.value(known[min(places.index(at), len(known) - 1)], word) if known else word

    def option(self, param: Any) -> str:
        name = self.rng.choice([*param.opts, *param.secondary_opts])
        self.note(name)
        if param.is_flag:
            return name
        value = self.setting() if name == "--set" else self.value(param)
        return f"{name}={value}"

    def note(self, word: str) -> None:
        """What may take as long as it was asked to is interrupted, as somebody at the keyboard would."""
        self.long = self.long or word.partition("=")[0] in LONG

    # -- values --

    def value(self, param: Any, old: str = "") -> str:
        """A value for an argument or option; `old` is one that works."""
        kind, name, opts = (param.metavar or "").upper(), param.name.rstrip("_"), param.opts
        pick = self.rng.choice
        if kind in ("RUN", "MODEL") or name == "model":
            return self.model(old)
        if any(o in OUTPUTS for o in opts) or (name == "out"):
            return pick(values.WRITTEN)
        if values.CHOICES.get(name):
            return pick(values.CHOICES[name])
        if "FILE" in kind or "FOLDER" in kind or kind in ("DIR", "IMAGE") or "WAV" in kind:
            return self.file(old)
        if kind in ("N", "R", "X", "P", "M"):
            return self.number(param, values.FLOATS if kind in ("X", "P", "M") else values.INTEGERS)
        if kind == "COLUMN":
            return pick(values.COLUMNS)
        if kind in ("THING", "SECOND"):
            return self.file(old) if self.rng.random() < 0.5 else pick(values.TEXTS)
        return pick(values.TEXTS)

    def number(self, param: Any, pool: list[str]) -> str:
        """Mostly one that the command line lets pass."""
        low, high = getattr(param, "min", None), getattr(param, "max", None)
        form = r"-?[\d.e-]+" if pool is values.FLOATS else r"-?[0-9]+"
        fits = [t for t in pool if re.fullmatch(form, t)]
        fits = [t for t in fits if (low is None or float(t) >= low) and (high is None or float(t) <= high)]
        return self.rng.choice(fits if fits and self.rng.random() < 0.75 else pool)

    def file(self, old: str = "") -> str:
        way = self.rng.random()
        if way < 0.45 and is_file(self.lines.work / old) and old.startswith("data/"):
            return self.own(old, damage(self.rng, (self.lines.work / old).read_bytes()))
        same = [p for p in self.lines.data if old and Path(p).suffix == Path(old).suffix]
        if way < 0.65 and same:
            return self.rng.choice(same)
        return self.rng.choice(self.lines.data) if way < 0.87 else self.rng.choice(values.PLACES)

    def model(self, old: str = "") -> str:
        way = self.rng.random()
        if way < 0.35:
            if old.endswith(".gguf") and is_file(self.lines.work / old):
                return self.own(old, damage(self.rng, (self.lines.work / old).read_bytes()))
            return self.damaged_model(old if old in self.lines.models else self.rng.choice(self.lines.models))
        if way < 0.75:
            return self.rng.choice(self.lines.models)
        return self.file() if way < 0.9 else self.rng.choice(["minilm", "gpt2", "smollm", *values.PLACES])

    def damaged_model(self, folder: str) -> str:
        """A copy of a model folder with one of its files changed or gone."""
        place = self.lines.work / folder
        names = sorted(
            str(p.relative_to(place)) for p in place.rglob("*") if p.is_file() and "checkpoints" not in p.parts
        )
        victim = self.rng.choice(
            [n for n in names if n.endswith((".json", ".jsonl"))] if self.rng.random() < 0.8 else names
        )
        for name in names:
            data = (place / name).read_bytes()
            if name != victim:
                self.own(f"{folder}/{name}", data)
            elif self.rng.random() < 0.9:
                self.own(
                    f"{folder}/{name}",
                    damage_json(self.rng, data) if name.endswith(".json") else damage(self.rng, data),
                )
        return f"own/{folder}"

    def own(self, name: str, data: bytes) -> str:
        self.files[f"own/{name}"] = data
        return f"own/{name}"

    def setting(self, name: str = "") -> str:
        name = name or self.rng.choice([*self.lines.settings, "x", "model", "data.x.y", ""])
        pool = self.rng.choice(values.SETTINGS)
        if self.rng.random() < 0.15:
            return self.rng.choice(
                [name, f"{name}={self.file()}", f"{name}={self.rng.choice(values.COLUMNS)}", "=", f"{name}=="]
            )
        return f"{name}={self.rng.choice(pool)}"
