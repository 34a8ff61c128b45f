"""What a review on 2026-11-15 found, one test a finding. Each failed before the patch beside it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cli_toy import regard, train_words, works, write_toy

from regard import checkpoint, run_folder
from regard.config import override
from regard.errors import WorkFailed
from regard.tasks.plan import read_run


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return write_toy(tmp_path)


def short(toy, *more):
    return works(*train_words(toy), "--steps=4", "--set=eval_every=2", *more)


def test_a_2000_token_line_in_the_validation_files_does_not_stop_training(toy):
    with open(toy / "test.en", "a") as en, open(toy / "test.fr", "a") as fr:
        en.write("the dog sees the cat . " * 400 + "\n")
        fr.write("le chien\n")
    short(toy, "--name=x")


def test_data_longer_than_the_model_is_refused_before_anything_is_done(toy):
    said = regard(*train_words(toy), "--set=data.max_length=3000", "--name=x")
    assert said.code == 2 and "model.max_length=3000" in said.err and not Path("runs/x").exists()


def test_force_does_not_touch_a_run_that_is_being_trained(toy):
    short(toy, "--name=x")
    with checkpoint.alone("runs/x"), pytest.raises(WorkFailed):
        run_folder.new_run("runs/x", force=True)
    assert Path("runs/x/run.json").exists() and Path("runs/x/state.safetensors").exists()


def test_resume_refuses_other_text_of_as_many_lines(toy):
    short(toy, "--name=x")
    log = Path("runs/x/metrics.jsonl")
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))  # as if killed before the end
    text = toy / "train.en"
    text.write_text(text.read_text().replace("dog", "hound"))
    said = regard("train", "--resume", "runs/x")
    assert said.code == 2 and "resume with the data" in said.err


def test_resume_refuses_settings_that_it_would_ignore(toy):
    short(toy, "--name=x")
    for more in (["--set=optim.lr=5"], ["--steps=900"], ["--seed=3"], ["--data=foo"], ["--name=y"]):
        assert regard("train", "--resume", "runs/x", *more).code == 2, more
    assert regard("train", "--resume", "runs/x", "--device=cpu").code == 0


def test_force_with_one_run_replaces_a_folder_of_several(toy):
    short(toy, "--name=x", "--seeds=2")
    short(toy, "--name=x", "--force")
    assert "parameters" in works("info", "runs/x").out


def test_settings_that_are_checked_together_change_together(toy):
    run = read_run(Path(short(toy, "--name=x") and "runs/x"))
    for order in (1, -1):
        model = override(run, ["model.width=90", "model.heads=6"][::order]).model
        assert (model.width, model.heads) == (90, 6)


@pytest.mark.parametrize("setting", ["model.heads=0", "model.width=-64", "model.dropout=2", "model.ffn=0", "seed=-1"])
def test_a_senseless_number_is_a_sentence(toy, setting):
    said = regard(*train_words(toy), f"--set={setting}", "--name=x")
    assert said.code == 2 and "should not happen" not in said.err and setting.split("=")[0].split(".")[-1] in said.err


def test_one_line_in_is_one_line_out(toy):
    short(toy, "--name=x", "--set=optim.lr=0.00001")  # knows nothing: draws any byte, line ends among them
    said = works("translate", "runs/x", "--sample", "--temperature=5", typed="the dog .\n" * 300)
    assert len(said.out.split("\n")) == 301


def test_the_same_sentence_twice_is_drawn_twice(toy):
    short(toy, "--name=x", "--set=optim.lr=0.00001")
    first, second = works("translate", "runs/x", "the dog .", "the dog .", "--sample").lines[:2]
    assert first != second


def test_weights_that_are_not_finite_do_not_break_the_evaluation(toy):
    said = regard(*train_words(toy), "--set=optim.lr=1e15", "--set=eval_every=4", "--name=x")
    assert "should not happen" not in said.err


@pytest.mark.parametrize("text", ["[]", '{"model_type": "marian"}'])
def test_a_config_of_something_else_is_a_sentence(toy, text):
    short(toy, "--name=x")
    Path("runs/x/config.json").write_text(text)
    assert regard("translate", "runs/x", "the dog").code == 2


def test_a_model_folder_of_a_newer_regard_is_refused(toy):
    short(toy, "--name=x")
    path = Path("runs/x/regard.json")
    path.write_text(path.read_text().replace('"format_version": 1', '"format_version": 99'))
    said = regard("translate", "runs/x", "the dog")
    assert said.code == 2 and "newer regard" in said.err
