"""Settings: to JSON and back, and recipes whose mistakes are named."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from regard.config import override
from regard.data import image_sets
from regard.data.prepare import PairsConfig
from regard.errors import CheckpointError, ConfigError
from regard.models import Seq2SeqConfig, TransformerConfig
from regard.tasks.plan import load_recipe, read_run, run_from_dict
from regard.training.run import Run, write_run
from regard.training.settings import Optim, Schedule

ROOT = Path(__file__).parents[3]
MODELS = [TransformerConfig(vocab=50, width=32, heads=4), Seq2SeqConfig(vocab=50, cell="gru", attention=False)]


@pytest.mark.parametrize("model", MODELS, ids=["transformer", "seq2seq"])
def test_settings_survive_json(tmp_path, model):
    run = Run(
        model=model,
        data=PairsConfig(source="a", target="b", bpe_dropout=0.1),
        optim=Optim(name="muon", betas=(0.8, 0.9)),
        schedule=Schedule(kind="noam", warmup=7),
        minutes=2.5,
        precision="bf16",
    )
    assert run_from_dict(json.loads(json.dumps(run.to_dict()))) == run
    write_run(tmp_path, run)
    assert read_run(tmp_path) == run


def test_settings_can_be_overridden():
    run = Run(model=MODELS[0], data=PairsConfig(), steps=10)
    changed = override(run, ["model.width=64", "optim.betas=0.5,0.6", "schedule.kind=linear", "steps=1_000"])
    assert (changed.model.width, changed.optim.betas, changed.schedule.kind) == (64, (0.5, 0.6), "linear")
    assert changed.steps == 1000 and run.steps == 10


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.py")), ids=lambda path: path.stem)
def test_every_recipe_can_be_planned(path, monkeypatch):
    """What it starts from stands for the model that would be fetched."""
    encoder = ROOT / "tests/fixtures/runs/mlm"
    monkeypatch.setattr("regard.models.fetched.resolve", lambda name: encoder)
    for run in load_recipe(path).values():
        assert run_from_dict(json.loads(json.dumps(run.to_dict()))) == run


def test_pictures_of_ten_classes_become_six_and_four(tmp_path, monkeypatch):
    """recipes/cifar10_finetune.py: a folder of pictures for each class."""
    monkeypatch.setattr(image_sets, "read", lambda name: toy_set())
    recipe = runpy.run_path(str(ROOT / "recipes/cifar10_finetune.py"))
    recipe["write_photos"](tmp_path)
    folders = {part.name: {f.name: len(list(f.iterdir())) for f in part.iterdir()} for part in tmp_path.iterdir()}
    assert folders["four"] == dict.fromkeys(recipe["FOUR"], 3) and folders["test"] == dict.fromkeys(recipe["FOUR"], 1)
    assert len(folders["six"]) == 6 and set(folders["six"].values()) == {3}


def toy_set():
    pixels, labels = np.zeros((30, 3, 4, 4), np.uint8), np.arange(30) % 10
    return image_sets.ImageSet(image_sets.CIFAR10, {"train": (pixels, labels), "test": (pixels, labels)})


@pytest.mark.parametrize("order", [1, -1])
def test_override_checks_changed_settings_together(order):
    run = Run(model=MODELS[0], data=PairsConfig(), steps=10)
    model = override(run, ["model.width=90", "model.heads=6"][::order]).model
    assert (model.width, model.heads) == (90, 6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(), "set steps, minutes or epochs"),
        (dict(steps=-1), "steps is -1"),
        (dict(steps=1, keep=0), "keep is 0; must be at least 1"),
        (dict(steps=1, smoothing=1.0), "smoothing is 1.0"),
        (dict(steps=1, precision="fp16"), "no precision 'fp16'"),
        (dict(minutes=float("nan")), "minutes is nan"),
        (dict(minutes=1e308), r"minutes is 1e\+308; must be at most 5260320"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        Run(model=MODELS[0], data=PairsConfig(), **settings)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no run or model folder"):
        read_run(tmp_path)
    for damaged in ("{", "[]", '{"format_version": 1, "arch": "transformer", "model": {"wide": 3}}'):
        (tmp_path / "run.json").write_text(damaged)
        with pytest.raises(CheckpointError, match=r"run\.json"):
            read_run(tmp_path)
    (tmp_path / "run.json").write_text('{"format_version": 99}')
    with pytest.raises(CheckpointError, match="newer regard"):
        read_run(tmp_path)


RECIPE = """
from regard.data.prepare import PairsConfig
from regard.models import TransformerConfig
from regard.training.run import Run

def recipe():
    return Run(model=TransformerConfig(vocab=9, width=8, heads=2), data=PairsConfig(), steps=3)
"""


def test_a_recipe_is_a_python_file(tmp_path):
    (tmp_path / "r.py").write_text(RECIPE)
    assert load_recipe(tmp_path / "r.py")["r"].steps == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", r"no function recipe\(\)"),
        ("def recipe():\n    return 3", "returned int"),
        ("def recipe():\n    return 1 / 0", "line 2: ZeroDivisionError"),
        ("import nowhere_to_be_found", "line 1: ModuleNotFoundError"),
        ("def recipe(:", "line 1: SyntaxError"),
        (RECIPE.replace("steps=3", "stps=3"), "stps"),
        (RECIPE.replace("heads=2", "heads=3"), "is not divisible"),
    ],
)
def test_a_recipe_that_fails_says_where(tmp_path, text: str, message: str):
    (tmp_path / "r.py").write_text(text)
    with pytest.raises(ConfigError, match=message) as e:
        load_recipe(tmp_path / "r.py")
    assert str(tmp_path / "r.py") in str(e.value)


def test_a_recipe_that_is_not_there(tmp_path):
    for path in (tmp_path / "none.py", tmp_path):
        with pytest.raises(ConfigError, match="no such recipe"):
            load_recipe(path)
    (tmp_path / "recipe.txt").write_text(RECIPE)
    with pytest.raises(ConfigError, match=r"ends in \.py"):
        load_recipe(tmp_path / "recipe.txt")
