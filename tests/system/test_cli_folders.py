"""Nothing of the user's is lost: folders that regard did not write, and files that point out of their folder."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from tests.system.cli_toy import regard, works

import regard as package
from regard.errors import CheckpointError

TINY = ["--tokens=chars", "--steps=2", "--device=cpu", "--set=model.width=8", "--set=model.layers=1",
        "--set=model.heads=2", "--set=model.ffn=8", "--set=model.context=16", "--set=data.context=16"]  # fmt: skip
TRAIN = ["train", "lm", "--data=my.txt", *TINY]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A user's project with a run, and a model `theirs` that came from somewhere else."""
    home = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.chdir(home)
        Path("my.txt").write_text("the cat sat on the mat.\n" * 100)
        works(*TRAIN, "--name=first")
        works("export", "runs/first", "--out=theirs")
        for name in ("README.md", "config.json", "tokenizer.json", "metrics.jsonl", ".new/draft", ".notes.tmp",
                     "checkpoints/step-1", "src/.swap.tmp"):  # fmt: skip
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(f"{name} of the project")
        Path("theirs/notes").write_text("mine")
    return home


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """A copy of the project to work in."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    home = shutil.copytree(trained, tmp_path / "project")
    monkeypatch.chdir(home)
    return home


def digest(folder: Path) -> dict[str, str]:
    """Of all files; what regard keeps of its own in runs/ aside."""
    paths = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["plain", "forced"])
@pytest.mark.parametrize("name", ["./", "theirs/", "../project", "src/"])
def test_training_into_a_folder_of_the_users_is_refused(place, name, force):
    before = digest(place)
    for words in (TRAIN, ["finetune", "runs/first", "lm", "--data=my.txt", "--steps=2", "--device=cpu"]):
        result = regard(*words, f"--name={name}", *force)
        assert result.code == 2 and "regard did not write what is there" in result.err and "--name" in result.err
    several = regard(*TRAIN, f"--name={name}", "--seeds=2", *force)
    assert several.code == 2 and digest(place) == before


def test_force_replaces_a_run_and_keeps_what_is_not_its(place):
    Path("runs/first/alignment.png").write_text("mine")
    held = regard(*TRAIN, "--name=first")
    assert held.code == 2 and "--resume runs/first" in held.err
    works("evaluate", "runs/first", "--data=my.txt")
    works(*TRAIN, "--name=first", "--force", "--seed=3")
    assert Path("runs/first/alignment.png").read_text() == "mine"
    assert not Path("runs/first/scores.jsonl").exists(), "the old run's scores are not the new one's"
    assert json.loads(Path("runs/first/run.json").read_text())["seed"] == 3


def test_force_replaces_a_folder_of_several_runs_by_one(place):
    works(*TRAIN, "--name=several", "--seeds=2")
    works(*TRAIN, "--name=several", "--force")
    assert "parameters" in works("info", "runs/several").out


def test_data_that_cannot_be_read_does_not_cost_the_old_run(place):
    before = digest(place)
    Path("broken.txt").write_bytes(b"\xff\xfe\x00" * 50)
    result = regard("train", "lm", "--data=broken.txt", *TINY, "--name=first", "--force")
    Path("broken.txt").unlink()
    assert result.code == 2 and digest(place) == before


def test_finetune_refuses_to_overwrite_its_base_by_any_path(place):
    Path("link").symlink_to("runs")
    before = digest(place)
    for name in ("first", "./runs/../runs/first", "link/first"):
        words = ["finetune", "runs/first", "lm", "--data=my.txt", "--steps=2", "--device=cpu"]
        result = regard(*words, f"--name={name}", "--force")
        assert result.code == 2 and "is the model being fine-tuned" in result.err
    assert digest(place) == before


@pytest.mark.parametrize("where", ["../../victim", "absolute"])
def test_a_plan_cannot_send_a_run_elsewhere(place, where):
    works(*TRAIN, "--seeds=2", "--name=several")
    victim = place / "victim"
    settings = json.loads(Path("runs/several/plan.json").read_text())
    settings[1]["folder"] = str(victim) if where == "absolute" else where
    Path("runs/several/plan.json").write_text(json.dumps(settings))
    for words in (("train", "--resume", "runs/several"), ("info", "runs/several")):
        result = regard(*words)
        assert result.code == 2 and "plan.json" in result.err
    assert not victim.exists()


@pytest.mark.parametrize(
    "shard", ["../outside.safetensors", "absolute", "sub/../model-1.safetensors", "", "..", "a\0b"]
)
def test_an_index_names_files_beside_it(place, shard):
    shutil.move("theirs/model.safetensors", "outside.safetensors")
    save_file(load_file("outside.safetensors"), "theirs/model-1.safetensors")
    index = Path("theirs/model.safetensors.index.json")
    names = load_file("outside.safetensors")
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "model-1.safetensors")}))
    package.load("theirs")
    shard = str(place / "outside.safetensors") if shard == "absolute" else shard
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, shard)}))
    with pytest.raises(CheckpointError, match="is not a file next to it"):
        package.load("theirs")
