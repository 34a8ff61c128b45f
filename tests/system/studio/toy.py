"""Models of every family that is drawn differently, trained for a few steps, and the studio on them in a browser."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import numpy as np
import pytest
import torch
from PIL import Image
from tests.system.cli_toy import works, write_toy

import regard.serve
from regard.data.tokenizers.wordpiece import WordPiece
from regard.models.bert import Bert, BertConfig
from regard.predictors.embedder import Embedder

PAGE = Path(regard.serve.__file__).parent / "page"
NEAR = dict(rtol=0.0, atol=1e-3)
TEXTS = {
    "gpt": "the cat sat", "translator": "the big dog sees the cat .", "lstm": "the cat sat", "bert": "the [MASK] sat.",
    "sentences": "the cat sat", "tagger": "Ada met Bert in Paris.", "classifier": "a good film",
    "pair": "the film was good", "bahdanau": "the big dog sees the cat .", "vit": "", "students": "",
}  # fmt: skip
FEW = ["--steps=8", "--device=cpu", "--set=schedule.warmup=2", "--set=tokens=512"]
NARROW = ["--set=model.width=32", "--set=data.vocab=100"]
DRAWN = """() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() =>
    drawn(!document.querySelector('[aria-busy=true]')))))"""
BOTH = [*FEW, "--source=train.en", "--target=train.fr", "--valid-source=few.en", "--valid-target=few.fr"]


def missing() -> str:
    """Why no browser can be driven here; empty if one can."""
    if not (PAGE / "index.html").is_file():
        return "the page is not built: make page, which needs Node"
    if not shutil.which("chromium"):
        return "there is no chromium here"
    return ""


def wanted() -> None:
    """Skip where the browser is missing; where `make test` could have installed it, that is a failure."""
    if why := missing():
        if os.getuid() == 0 and shutil.which("apt-get"):
            pytest.fail(why)
        pytest.skip(why)


def train(folder: Path) -> Path:
    """runs/ with translator, bahdanau, gpt, lstm, bert, sentences, classifier, pair, tagger, vit and students."""
    write_toy(folder)
    for end in ("en", "fr"):
        lines = (folder / f"test.{end}").read_text().splitlines(keepends=True)
        (folder / f"few.{end}").write_text("".join(lines[:4]))
    story = "the cat sat on the mat. the dog ran to the log.\n"
    (folder / "my.txt").write_text(story * 60)
    (folder / "corpus.txt").write_text("\n\n".join(f"the cat number {i} sat. the dog ran." for i in range(40)))
    films = [("good", "pos"), ("bad", "neg"), ("great", "pos"), ("dull", "neg")]
    rows = [f"a {w} {t},{label}" for t in ("film", "plot", "cast", "book") for w, label in films] * 3
    (folder / "reviews.csv").write_text("\n".join(["review,sentiment", *rows]))
    things = ("film", "plot", "cast")
    pairs = [f"the {a} was good\ta good {b}\t{'same' if a == b else 'other'}\n" for a in things for b in things]
    (folder / "pairs.tsv").write_text("".join(pairs * 6))
    names = ("Ada", "Grace", "Bert")
    tags = [f"{a}\tB-person\nmet\tO\n{b}\tB-person\nin\tO\nParis\tB-place\n.\tO\n" for a in names for b in names]
    (folder / "train.conll").write_text("\n".join(tags))

    lm = ["--data=my.txt", "--tokens=bytes", *FEW, "--set=model.width=32"]
    gpt = ["--set=model.context=64", "--set=model.layers=2", "--set=model.heads=2", "--set=model.ffn=64"]
    small = ["--set=model.ffn=64", "--set=model.encoder_layers=1", "--set=model.decoder_layers=2"]
    short = ["--set=data.max_length=32", "--set=model.max_length=32", "--set=model.ffn=64"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        works("train", "translate", *BOTH, *small, "--set=data.vocab=330", "--set=model.width=32", "--name=translator")
        recurrent = ["--arch=lstm", "--set=data.vocab=330", "--set=model.embedding=16", "--set=model.width=32"]
        works("train", "translate", *BOTH, *recurrent, "--name=bahdanau")
        works("train", "lm", *lm, *gpt, "--name=gpt")
        works("train", "lm", *lm, "--arch=lstm", "--name=lstm")
        works("train", "mlm", "--data=corpus.txt", *FEW, *NARROW, *short, "--name=bert")
        works(
            "train",
            "classify",
            "--data=reviews.csv",
            "--text=review",
            *FEW,
            *NARROW,
            "--label=sentiment",
            "--name=classifier",
        )
        works("train", "pair", "--data=pairs.tsv", *FEW, *NARROW, "--name=pair")
        works("train", "tag", "--data=train.conll", "--valid=train.conll", *FEW, *NARROW, "--name=tagger")
        train_samples(folder)
    torch.manual_seed(0)
    pieces = WordPiece.train([story, *rows], 120)
    config = BertConfig(vocab=pieces.size, width=32, layers=2, heads=2, ffn=64, max_length=32)
    Embedder(Bert(config), pieces).save(folder / "runs" / "sentences")
    return folder


def train_samples(folder: Path) -> None:
    """runs/vit, of pictures of two classes, and runs/students, of the rows of a table."""
    rng = np.random.default_rng(0)
    for i in range(16):
        path = folder / "photos" / ("dark" if i % 2 else "light") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((rng.integers(0, 90, (8, 8)) + 160 * (1 - i % 2)).astype(np.uint8)).save(path)
    rows = [f"{hours},{school},{'yes' if hours > 9 else 'no'}" for hours in range(20) for school in ("north", "south")]
    (folder / "students.csv").write_text("\n".join(["hours,school,passed", *rows]))
    few = ["--steps=4", "--device=cpu", "--set=schedule.warmup=2", "--set=batch=8"]
    small = ["--set=data.size=8", "--set=model.patch=2", "--set=model.width=16", "--set=model.layers=2"]
    works("train", "image", "--data=photos", *few, *small, "--name=vit")
    works("train", "table", "--data=students.csv", "--label=passed", *few, "--name=students")


@contextmanager
def studio(folder: Path) -> Iterator[str]:
    """`regard studio` as somebody starts it: the address it answers at."""
    command = [sys.executable, "-m", "regard", "studio", "--runs", str(folder / "runs"), "--port", "0"]
    env = {**os.environ, "REGARD_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


@dataclass
class Tab:
    """A page of the browser, and what went wrong in it."""

    page: Any
    home: str
    wrong: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()  # beginnings of console errors that the test provokes
    fetching: set[Any] = field(default_factory=set)  # requests without an answer yet

    def __post_init__(self) -> None:
        self.page.set_default_timeout(30_000)
        self.page.on("console", lambda m: m.type in ("error", "warning") and self.wrong.append(m.text))
        self.page.on("pageerror", lambda e: self.wrong.append(str(e)))
        self.page.on("request", lambda r: self.fetching.add(r) or self.strange(r.url))
        self.page.on("requestfinished", lambda r: self.fetching.discard(r))
        self.page.on("requestfailed", lambda r: self.fetching.discard(r))

    def strange(self, url: str) -> None:
        if not url.startswith((self.home, "data:", "blob:", "about:", "file:")):
            self.strangers.append(url)

    def check(self) -> None:
        assert not [w for w in self.wrong if not w.startswith(self.expected or ("\0",))]
        assert not self.strangers, "asked outside this machine"

    def open(self, run: str, view: str, **more: object) -> None:
        self.page.goto("about:blank")
        self.page.goto(self.home + "#" + urlencode({"model": f"runs/{run}", "view": view, **more}))
        self.idle()

    def idle(self) -> None:
        self.page.locator("#view[aria-busy=false]").wait_for()
        self.page.locator("#view [data-figure]").first.wait_for()

    def settle(self) -> None:
        """Wait until two frames have passed in which nothing was fetched and no figure waited for its numbers."""
        while not self.page.evaluate(DRAWN) or self.fetching:
            pass

    def figure(self, name: str) -> Any:
        return self.page.locator(f'[data-figure="{name}"]')

    def table(self, name: str) -> list[list[str]]:
        """The numbers under a figure as the page has them, with the head of the table as the first row."""
        figure = self.page.locator(f'[data-figure="{name}"][aria-busy=false]')
        figure.wait_for()
        if figure.locator("details").get_attribute("open") is None:
            figure.locator("summary").click()
        figure.locator("details tbody tr").first.wait_for()
        read = "t => [...t.rows].map(r => [...r.cells].map(c => c.dataset.value ?? c.textContent))"
        return figure.locator("details table").evaluate(read)

    def matrix(self, name: str) -> torch.Tensor:
        """A table whose first column is names."""
        return torch.tensor([[float(x) for x in row[1:]] for row in self.table(name)[1:]])

    def state(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.page.url).fragment))
