"""A run goes on with the data it was started with: sounds and pictures are known by what is in them, all of them."""

import json
import shutil
import struct
from pathlib import Path

import pytest
from PIL import Image
from tests.system.cli_toy import regard, train_words, works, write_toy

from regard.checkpoint import load_state, save_state

DATA = Path(__file__).parents[1] / "fixtures" / "data"
SMALL = ["--device=cpu", "--set=model.width=16", "--set=model.ffn=16", "--set=data.held_out=0.25", "--steps=4",
         "--set=keep_state=true"]  # fmt: skip
TASKS = {
    "audio": ("clips", ["--set=data.seconds=0.2", "--set=data.mels=16", "--set=model.layers=1"]),
    "image": ("photos", ["--set=data.size=8", "--set=model.patch=2", "--set=model.layers=1"]),
    "caption": ("captions.tsv", ["--images=photos", "--set=data.size=8", "--set=data.vocab=320",
                                 "--set=model.patch=2", "--set=model.encoder_layers=1"]),
}  # fmt: skip


@pytest.fixture(scope="module", params=TASKS)
def trained(request, tmp_path_factory):
    """A run of a task that looks as if it had been killed before its end, beside its data."""
    place = tmp_path_factory.mktemp(request.param)
    shutil.copytree(DATA, place, dirs_exist_ok=True)
    data, settings = TASKS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        works("train", request.param, f"--data={data}", *settings, *SMALL, "--name=trained")
    log = place / "runs/trained/metrics.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    return request.param, place


@pytest.fixture
def task(trained, monkeypatch):
    """The name of the task; a copy of its run is runs/x."""
    name, place = trained
    monkeypatch.chdir(place)
    shutil.rmtree("runs/x", ignore_errors=True)
    shutil.copytree("runs/trained", "runs/x")
    return name


def change(path: Path) -> None:
    """A little louder, or a little lighter; names, sizes and numbers of files stay."""
    if path.suffix == ".wav":
        data = bytearray(path.read_bytes())
        (sample,) = struct.unpack_from("<h", data, 400)
        struct.pack_into("<h", data, 400, sample ^ 0x400)
        path.write_bytes(data)
    else:
        image = Image.open(path).convert("L")
        image.putpixel((3, 3), image.getpixel((3, 3)) ^ 64)
        image.save(path)


def test_a_changed_file_stops_a_resume_and_its_return_lets_it_go_on(task):
    files = sorted(Path("clips" if task == "audio" else "photos").rglob("*.*"))
    for path in (files[0], files[-1]):
        before = path.read_bytes()
        change(path)
        result = regard("train", "--resume", "runs/x", "--device=cpu")
        assert result.code == 2 and "the data has changed" in result.err and "resume with the data" in result.err
        path.write_bytes(before)
    works("train", "--resume", "runs/x", "--device=cpu")


def test_a_run_from_before_files_were_hashed_is_resumed(task):
    state = Path("runs/x/state.safetensors")
    tensors, meta = load_state(state)
    del meta["loader"]["files"]
    save_state(state, tensors, meta | {"loader": meta["loader"] | {"content": 12345}})
    works("train", "--resume", "runs/x", "--device=cpu")


def test_a_folder_that_moved_is_the_same_data(task, tmp_path):
    here, there = str(Path.cwd()), str(tmp_path / "there")
    shutil.copytree(here, there)
    settings = json.loads(Path("runs/x/run.json").read_text())
    settings["data"] = {k: v.replace(here, there) if isinstance(v, str) else v for k, v in settings["data"].items()}
    Path("runs/x/run.json").write_text(json.dumps(settings))
    works("train", "--resume", "runs/x", "--device=cpu")


def test_resume_refuses_other_text_of_as_many_lines(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    works(*train_words(write_toy(tmp_path)), "--steps=4", "--set=eval_every=2", "--set=keep_state=true", "--name=x")
    log = Path("runs/x/metrics.jsonl")
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))  # as if killed before the end
    text = tmp_path / "train.en"
    text.write_text(text.read_text().replace("dog", "hound"))
    result = regard("train", "--resume", "runs/x")
    assert result.code == 2 and "resume with the data" in result.err
