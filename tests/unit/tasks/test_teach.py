"""Teachers of a run: found, compared with the run's own tokens and classes, and remembered."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from regard.data.settings import LabelledConfig
from regard.errors import ConfigError
from regard.models.bert import BertConfig
from regard.models.published import to_published
from regard.tasks import assemble, default_run, finetune_run, train_run
from regard.tasks.plan import read_run
from regard.tasks.registry import get
from regard.tasks.teach import check_teachers

WORDS = ("good", "fine", "dull", "bad")


def table(path: str, labels: tuple[str, ...]) -> LabelledConfig:
    rows = [f"a {WORDS[i % len(labels)]} film {i},{labels[i % len(labels)]}\n" for i in range(60)]
    Path(path).write_text("text,label\n" + "".join(rows))
    return LabelledConfig(path=path, vocab=80)


def run_on(data: LabelledConfig, **settings):
    return dataclasses.replace(default_run("classify", "lstm", data=data), minutes=0.0, steps=4, **settings)


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def teacher() -> str:
    train_run(run_on(table("films.csv", ("pos", "neg"))), "teacher", quiet=True)
    return "teacher"


def test_a_run_learns_from_its_teacher_and_resumes_from_anywhere(teacher, tmp_path, monkeypatch):
    plain, taught = (run_on(LabelledConfig(path=str(tmp_path / "films.csv"), vocab=80), **how)
                     for how in ({}, {"teachers": (teacher,), "taught": 0.9}))  # fmt: skip
    for name, run in (("plain", plain), ("taught", taught)):
        train_run(run, name, quiet=True)
    assert read_run("taught").teachers == (str(tmp_path / "teacher"),)
    plain, taught = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "taught"))
    assert any(not torch.allclose(plain[name], taught[name], atol=1e-4) for name in plain)
    monkeypatch.chdir("/")
    assert assemble(read_run(tmp_path / "taught"), say=lambda _: None).objective.teachers


def test_the_teachers_probabilities_are_those_of_its_folder(teacher):
    import regard

    parts = assemble(run_on(table("films.csv", ("pos", "neg")), teachers=(teacher, teacher)), say=lambda _: None)
    batch = next(iter(parts.valid_batches()))
    expected = regard.load(teacher).model.eval()
    with torch.no_grad():
        probabilities = parts.objective.own.logits(expected, batch).softmax(-1)
        taught = parts.objective.taught(*parts.objective.own.inputs(batch))
    torch.testing.assert_close(taught, probabilities)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda: run_on(table("three.csv", ("pos", "neg", "so-so"))), "another labels"),
        (lambda: run_on(dataclasses.replace(table("films.csv", ("pos", "neg")), vocab=70)), "--set data.tokenizer="),
    ],
    ids=["classes", "tokens"],
)
def test_a_teacher_that_differs_is_refused_with_what_to_do(teacher, other, said):
    with pytest.raises(ConfigError, match=said):
        assemble(dataclasses.replace(other(), teachers=(teacher,)), say=lambda _: None)


def test_a_missing_teacher_is_named():
    run = run_on(table("films.csv", ("pos", "neg")), teachers=("runs/none",))
    with pytest.raises(Exception, match="runs/none"):
        assemble(run, say=lambda _: None)


@pytest.mark.parametrize("setting", [{"consistency": 1.0}, {"teachers": ("somewhere",)}])
def test_tasks_without_classes_refuse_the_settings(setting):
    run = default_run("regress", data=LabelledConfig(path="prices.csv"))
    with pytest.raises(ConfigError, match=f"^{next(iter(setting))}: regress does not choose among"):
        check_teachers(get("regress"), dataclasses.replace(run, **setting))


@pytest.mark.parametrize("share", [0.0, 1.5, -0.1])
def test_the_share_of_teachers_is_checked(share):
    with pytest.raises(ConfigError, match="taught is"):
        run_on(table("films.csv", ("pos", "neg")), taught=share)


@pytest.mark.parametrize(("device", "weight"), [("cpu", 0.0), ("cuda", 4.0)])
def test_fine_tuning_on_a_gpu_is_regularised(tmp_path, device, weight):
    config = BertConfig(vocab=90, width=16, layers=1, heads=2, ffn=16, max_length=24)
    (tmp_path / "config.json").write_text(json.dumps(to_published(config, None)))
    data = table("films.csv", ("pos", "neg"))
    run = finetune_run(tmp_path, "classify", data, device)
    assert run.consistency == weight
    assert finetune_run(tmp_path, "regress", data, device).consistency == 0, "a number has no probabilities"
    assert get("classify").probe(run).consistency == 0, "a frozen encoder has no dropout to disagree by"
