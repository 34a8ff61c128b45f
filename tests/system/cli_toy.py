"""A language of ten words, small enough to learn in seconds, and the command line called inside this process."""

import contextlib
import io
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from regard.cli.main import main

WORDS = {"the": "le", "dog": "chien", "cat": "chat", "man": "homme", "sees": "voit", "eats": "mange", "likes": "aime"}
WORDS |= {"big": "grand", "small": "petit"}
NOUNS, VERBS, SIZES = ("dog", "cat", "man"), ("sees", "eats", "likes"), ("big ", "small ", "")

# a hundred thousand parameters learn the toy language in seventy steps: 98.9 BLEU or more for three seeds
TINY = [
    "--steps=70",
    "--set=data.vocab=330",
    "--set=model.width=64",
    "--set=model.ffn=64",
    "--set=model.encoder_layers=1",
    "--set=model.decoder_layers=2",
    "--set=schedule.warmup=10",
    "--set=tokens=1024",
    "--set=eval_every=35",
    "--device=cpu",
]


@dataclass(frozen=True)
class Result:
    """Exit code, stdout and stderr of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def regard(*words: object, typed: str | bytes = b"", terminal: bool = False) -> Result:
    """Run a command line here and now; `typed` comes through a pipe, or from somebody at a `terminal`."""
    out, err = io.StringIO(), io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO(typed.encode() if isinstance(typed, str) else typed), encoding="utf-8")
    stdin.isatty = lambda: terminal
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), mock.patch.object(sys, "stdin", stdin):
        try:
            main([str(w) for w in words])
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Result(code, out.getvalue(), err.getvalue())


def works(*words: object, typed: str | bytes = b"", terminal: bool = False) -> Result:
    """`regard`, for a command that must succeed."""
    result = regard(*words, typed=typed, terminal=terminal)
    assert result.code == 0, f"{words} ended with {result.code}\n{result.out}\n{result.err}"
    return result


def sentences() -> list[tuple[str, str]]:
    """All sentences of the toy language, in an order of no meaning."""
    sources = [
        f"the {a}{x} {v} the {b}{y} ." for a in SIZES for x in NOUNS for v in VERBS for b in SIZES for y in NOUNS
    ]
    random.Random(0).shuffle(sources)
    return [(s, " ".join(WORDS.get(w, w) for w in s.split())) for s in sources]


def write_toy(folder: Path) -> Path:
    """train.en/.fr and test.en/.fr, no sentence in both."""
    pairs = sentences()
    for part, chosen in (("train", pairs[60:]), ("test", pairs[:60])):
        (folder / f"{part}.en").write_text("".join(s + "\n" for s, _ in chosen))
        (folder / f"{part}.fr").write_text("".join(t + "\n" for _, t in chosen))
    return folder


def train_words(folder: Path) -> list[str]:
    files = [f"--source={folder}/train.en", f"--target={folder}/train.fr"]
    return ["train", "translate", *files, f"--valid-source={folder}/test.en", f"--valid-target={folder}/test.fr", *TINY]
