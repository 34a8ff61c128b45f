"""Bad input: one clear sentence on stderr, the right exit code, nothing on stdout, nothing half-written."""

import errno
import json
import os

import pytest
import torch
from tests.system.cli_toy import regard, train_words, works, write_toy

from regard.cli import main as cli


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = write_toy(tmp_path_factory.mktemp("toy"))
    (folder / "five.en").write_text("the dog sees the cat .\n" * 5)
    (folder / "empty.en").write_text("")
    (folder / "blank.en").write_text("\n\n\n\n\n")
    (folder / "latin.en").write_bytes("café\n".encode("latin-1") * 5)
    (folder / "broken.py").write_text("def recipe():\n    return 1 / 0\n")
    (folder / "long.en").write_text("the dog\n" + "the dog " * 900 + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))
        patch.chdir(folder)
        works(*train_words(folder), "--steps=2", "--name=demo")
    return folder


@pytest.fixture(autouse=True)
def _here(toy, monkeypatch):
    monkeypatch.chdir(toy)


FILES = "train translate --source train.en --target train.fr --steps 2 --name new"
CASES = {
    "translate runs/demo hello --temperature 0.5": ["--sample"],
    "train translate --source train.en --target five.en --steps 2 --name new": ["183", "5", "five.en"],
    "train translate --source empty.en --target empty.en --steps 2 --name new": ["empty.en", "empty"],
    "train translate --source blank.en --target five.en --steps 2 --name new": ["blank.en"],
    "train translate --source latin.en --target five.en --steps 2 --name new": ["latin.en", "line 1", "UTF-8", "iconv"],
    "train translate --source . --target five.en --steps 2 --name new": ["folder"],
    "train translate --source nowhere.en --target five.en --steps 2 --name new": ["nowhere.en"],
    "train translate --source train.en --name new": ["--target"],
    "train translate --source train.en --target train.fr --set data.vocab=0 --name new": ["vocab is 0", "at least 1"],
    "train translate --data tatoeba-en-fr --source train.en": ["--data", "--source"],
    "train translate --data tatoeba-en-f": ["did you mean 'tatoeba-en-fr'"],
    "train translate --data multi30k-en-de": ["REGARD_DATA"],
    "train translate": ["--data", "regard data list"],
    "train": ["regard train translate"],
    "train transalte --data x": ["did you mean 'translate'"],
    "train nowhere.py": ["nowhere.py", "recipe"],
    "train broken.py": ["broken.py", "line 2", "division by zero"],
    "train --resume runs/nowhere": ["runs/nowhere"],
    "train translate --resume runs/demo": ["regard train --resume runs/demo"],
    "train --resume runs/demo --set optim.lr=5": ["as it was started"],
    "train --resume runs/demo --seed 3": ["as it was started"],
    "train --resume runs/demo --data foo": ["as it was started"],
    "train --resume runs/demo --name y": ["as it was started"],
    f"{FILES} --minutes 1": ["--minutes", "--steps"],
    f"{FILES} --set model.widht=3": ["did you mean 'model.width'"],
    f"{FILES} --set model.width=abc": ["model.width", "int", "'abc'"],
    f"{FILES} --set model.width=30 --set model.heads=4": ["30", "4 heads"],
    f"{FILES} --set width": ["name=value"],
    f"{FILES} --arch transformr": ["did you mean 'transformer'"],
    f"{FILES} --set data.max_length=3000": ["model.max_length=3000"],
    f"{FILES} --set model.heads=0": ["heads"],
    f"{FILES} --set model.width=-64": ["width"],
    f"{FILES} --set model.dropout=2": ["dropout"],
    f"{FILES} --set model.ffn=0": ["ffn"],
    f"{FILES} --set seed=-1": ["seed"],
    f"{FILES} --arch ,": ["--arch"],
    f"{FILES} --set width=64": ["did you mean 'model.width'"],
    f"{FILES} --size tinny": ["did you mean 'tiny'"],
    f"{FILES} --device tpu": ["auto, cpu, cuda"],
    f"{FILES} --device cuda:99": ["GPU"],
    "translate runs/nowhere hello": ["runs/nowhere", "there are: runs/demo"],
    "translate runs/DEMOS hello": ["did you mean runs/demo"],
    "translate runs hello": ["name one of: runs/demo"],
    "translate runs/demo hello --n-best 9": ["--beam 9"],
    "translate runs/demo hello --picture look.jpg": ["look.png"],
    "translate runs/demo hello --heads": ["--picture"],
    "translate runs/demo hello --alignment --layer 9 --json": ["layers 1 to 2"],
    "translate runs/demo one two --given x": ["exactly one sentence"],
    "translate runs/demo hello --sample --n-best 2": ["--sample"],
    "predict runs/demo nowhere.en": ["nowhere.en"],
    "predict runs/demo test.en --out nowhere/out": ["mkdir -p nowhere"],
    "predict runs/demo test.en --out runs": ["runs is not empty", "another --out"],
    "predict runs/demo long.en --out out.fr": ["line 2", "512"],
    "evaluate runs/demo --source test.en": ["--target"],
    "evaluate runs/demo --source test.en --target five.en": ["60", "5"],
    "evaluate runs/demo --source empty.en --target empty.en": ["empty"],
    "evaluate runs/demo --tokenize 13b": ["did you mean '13a'"],
    "compare runs/demo runs/nowhere --source test.en --target test.fr": ["runs/nowhere"],
    "evaluate runs/nowhere": ["no run or model folder"],
    "tokens runs/nowhere hello": ["no run or model folder"],
    "info runs": ["name one of: runs/demo"],
    "info runs/nowhere": ["no run or model folder"],
    "data get tatoeba-en-ff": ["did you mean 'tatoeba-en-fr'"],
}


def test_a_sentence_too_long_for_a_file_name_is_a_sentence():
    result = works("translate", "runs/demo", "the big dog " * 30, "--beam=1")
    assert len(result.lines) == 1


@pytest.mark.parametrize(("words", "message"), [
    (["info", "x" * 300], f"{'x' * 80}: File name too long; check the name"),
    (["translate", "runs/demo", "the dog", f"--beam={10**20}"], "beams would need"),
    (["compare", "runs/demo", "runs/demo", f"--samples={10**20}", "--beam=1"], "samples of 60 parts would need"),
])  # fmt: skip
def test_what_no_machine_has_room_for_is_refused_in_words(words, message):
    answer = regard(*words)
    assert answer.code == 2 and message in answer.err


@pytest.mark.parametrize("line", CASES)
def test_one_sentence_exit_code_two_and_nothing_written(toy, line):
    before = sorted(p for p in toy.rglob("*"))
    result = regard(*line.split())
    assert result.code == 2, result.err
    assert result.out == ""
    last = result.err.splitlines()[-1]
    assert last.startswith("regard: ") and "Traceback" not in result.err
    missing = [word for word in CASES[line] if word not in last]
    assert not missing, f"{missing} is not in: {last}"
    assert sorted(p for p in toy.rglob("*")) == before


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("trian", "'train'"),
        ("train lm --stepz 3", "--steps"),
        ("compare runs/demo", "RUN"),
        ("train --seeds 0", "--seeds"),
    ],
)
def test_what_the_parser_finds_wrong_is_said_too(line, word):
    result = regard(*line.split())
    assert result.code == 2 and result.out == "" and word in result.err


def test_bytes_that_are_no_text_through_a_pipe():
    result = regard("translate", "runs/demo", typed=b"fine\n\xff\xfe\n")
    assert result.code == 2 and "line 2" in result.err and "UTF-8" in result.err


def test_a_damaged_a_newer_and_a_missing_model(toy, tmp_path):
    def copy(name: str, change) -> str:
        folder = tmp_path / name
        folder.mkdir()
        for path in (toy / "runs/demo").iterdir():
            if path.is_file():
                (folder / path.name).write_bytes(path.read_bytes())
        change(folder)
        return str(folder)

    def cut(folder):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:1000])

    def newer(folder):
        settings = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(settings | {"format_version": 99}))

    def gone(folder):
        (folder / "model.safetensors").unlink()

    def newer_model(folder):
        path = folder / "regard.json"
        path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 99'))

    def other(folder):
        (folder / "config.json").write_text('{"model_type": "gpt9"}')

    def no_object(folder):
        (folder / "config.json").write_text("[]")

    def no_sizes(folder):
        (folder / "config.json").write_text('{"model_type": "marian"}')

    cases = [("translate", cut, "model.safetensors"), ("train", newer, "newer"), ("translate", gone, "--resume")]
    cases += [("translate", newer_model, "newer regard"), ("translate", other, "gpt9")]
    cases += [("translate", no_object, "config.json"), ("translate", no_sizes, "config.json")]
    for verb, change, word in cases:
        folder = copy(change.__name__, change)
        result = regard("train", "--resume", folder) if verb == "train" else regard("translate", folder, "hello")
        assert result.code == 2 and word in result.err.splitlines()[-1], result.err


def test_a_full_disk_is_a_failure_of_the_work(toy, monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = regard("predict", "runs/demo", "five.en", f"--out={tmp_path}/out")
    assert result.code == 1 and "disk is full" in result.err
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_a_picture_names_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = regard("translate", "runs/demo", "hello", "--picture=x.png")
    assert result.code == 3 and "pip install 'regard[plot]'" in result.err


def test_our_own_mistakes_are_admitted_and_traced_when_asked(monkeypatch):
    monkeypatch.setattr(cli, "app", lambda *_, **__: 1 / 0)
    result = regard("info", "x")
    assert result.code == 1 and "ZeroDivisionError" in result.err and "Traceback" not in result.err
    assert "Traceback" in regard("info", "x", "-v").err


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "not enough memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "the GPU has not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."), "9 bytes"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "the disk is full"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (RuntimeError("shapes differ"), "this should not happen"),
    ],
)
def test_what_the_machine_cannot_do_ends_with_one(monkeypatch, error, message):
    """1 is a failure of the work, 2 of what was typed: a script that runs many must be able to tell."""

    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", failing)
    result = regard("info", "x")
    assert result.code == 1 and message in result.err and len(result.err.splitlines()) == 1
