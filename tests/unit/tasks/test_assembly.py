"""From a run to its parts: data is read once, and a text shorter than a row is not refused."""

import dataclasses
import os
import signal

import pytest

from regard.data import labelled
from regard.data.settings import LabelledConfig, TextConfig
from regard.tasks import assemble, assembly, default_run, extend_run, train_run

PARAGRAPH = "The cat drank the milk because it was hungry.\n"


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_labels_are_read_once_for_data_and_baselines(tmp_path, monkeypatch):
    rows = "".join(f"a {'good' if i % 2 else 'bad'} film {i},{'pos' if i % 2 else 'neg'}\n" for i in range(40))
    (tmp_path / "r.csv").write_text("text,label\n" + rows)
    run = default_run("classify", data=LabelledConfig(path="r.csv", vocab=80))
    read, files = labelled.read_rows, []
    monkeypatch.setattr(labelled, "read_rows", lambda path, *a, **k: files.append(path) or read(path, *a, **k))
    said: list[list[str]] = [[], []]
    for lines in said:
        assemble(run, say=lines.append)
    assert len(files) == 1, "neither the baseline nor the second run reads the file again"
    baselines = [[line for line in lines if line.startswith(("baseline", "for example"))] for lines in said]
    assert baselines[0] == baselines[1] and len(baselines[0]) == 3
    assert baselines[0][1:] == ["baseline: bag of words, accuracy 100.0%", "baseline: majority class, accuracy 50.0%"]


@pytest.mark.parametrize("arch", ["gpt", "lstm"])
def test_a_short_text_shrinks_the_context(tmp_path, arch):
    (tmp_path / "short.txt").write_text(PARAGRAPH)
    run = default_run("lm", arch, data=TextConfig(path="short.txt", tokens="chars"))
    run = dataclasses.replace(run, minutes=0.0, steps=2)
    messages: list[str] = []
    parts = assemble(run, say=messages.append)
    context = int(0.9 * len(PARAGRAPH)) - 1
    assert parts.run.data.context == context < 256
    assert parts.run.model.context == (context if arch == "gpt" else 0)
    assert f"the text is short: with {context + 1} tokens to train on, the context is {context}" in messages
    assert next(parts.loader).count > 0


def test_a_run_on_a_short_text_is_extended(tmp_path):
    (tmp_path / "short.txt").write_text(PARAGRAPH)
    run = default_run("lm", data=TextConfig(path="short.txt", tokens="chars"))
    run = dataclasses.replace(run, minutes=0.0, steps=2, eval_every=1, average=False)
    train_run(run, "run", quiet=True)
    assert extend_run("run", steps=1, quiet=True).steps == 3


def test_ctrl_c_waits_for_the_estimate_of_memory(monkeypatch):
    """An exception inside torch's hooks would abort the process."""
    run = default_run("lm", "gpt", data=TextConfig(path="x.txt", tokens="chars"))
    estimate, ended = assembly.training_memory, []

    def interrupted(*args, **settings):
        os.kill(os.getpid(), signal.SIGINT)
        ended.append(estimate(*args, **settings))
        return ended[0]

    monkeypatch.setattr(assembly, "training_memory", interrupted)
    with pytest.raises(SystemExit) as stop:
        assembly.cost(run)
    assert stop.value.code == 130 and ended
