"""Starting and stopping: help is quick and complete, Ctrl-C saves and says how to go on."""

import re
import signal
import subprocess
import sys
import time

import pytest
from tests.system.cli_toy import regard, train_words, works, write_toy

import regard as package
from regard.tasks.registry import TASKS

VERBS = ["data list", "data get", "train", "finetune", "translate", "classify", "tag", "predict", "evaluate", "compare"]
VERBS += ["tokens", "info", "embed", "similar", "fill", "caption", "studio", "look"]
VERBS += ["generate", "next", "chat", "export", "clean"]


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_shows_its_examples_and_defaults(verb):
    result = works(*verb.split(), "--help")
    assert "Examples:" in result.out and f"    regard {verb}" in result.out
    options = re.findall(r"--(?:beam|device|length-penalty|arch|samples) .*?\[default: ", result.out, flags=re.S)
    plain = "data list", "data get", "train", "finetune", "tokens", "info", "studio", "export", "clean"
    assert options or verb in plain


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.archs])
def test_train_help_offers_what_the_task_takes(name):
    task = TASKS[name]
    words = works("train", name, "--help").out
    offered = set(re.findall(r"^  --([a-z-]+)", words, flags=re.M))
    own = {option.replace("_", "-") for option in task.options}
    others = {option.replace("_", "-") for other in TASKS.values() for option in other.options} - own
    assert own | {"data", "arch", "size", "minutes", "device"} <= offered and not others & offered
    assert all(arch in words for arch in task.archs) and f"    regard train {name} --" in words


def test_the_front_page_names_every_verb_in_order():
    listed = re.findall(r"^  (\w+) +\S.*", works("--help").out.split("Commands:")[1], flags=re.M)
    expected = (
        "start data model train finetune translate generate next chat summarise classify tag caption forecast embed"
    )
    expected += " similar fill transcribe predict evaluate compare"
    expected += " tokens info gradients plan serve studio look export clean"
    assert listed == expected.split()


def test_no_words_at_all_show_the_front_page():
    assert "Start here:" in regard().out + regard().err


def test_version():
    assert works("--version").out.strip() == f"regard {package.__version__}"


def test_nothing_is_coloured(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in works("train", "--help").out + regard("trian").err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_the_line_it_prints_goes_on(tmp_path, number, code):
    folder = write_toy(tmp_path)
    settings = ["--steps=5000", "--set=eval_every=5000", "--set=log_every=1", "--name=demo"]
    first = stopped_at(folder, [*train_words(folder), *settings], number, code)
    assert (folder / "runs/demo/state.safetensors").is_file()
    if number == signal.SIGINT:  # the other way of stopping leaves the same state
        assert stopped_at(folder, first[1].split()[1:], number, code)[0] > first[0]


def stopped_at(folder, words, number, code) -> tuple[int, str]:
    """Start training, send a signal once it has made a step: the last step, and the line that goes on."""
    metrics = folder / "runs/demo/metrics.jsonl"
    size = metrics.stat().st_size if metrics.exists() else 0
    line = [sys.executable, "-m", "regard", *words]
    with subprocess.Popen(line, cwd=folder, stderr=subprocess.PIPE, text=True) as run:
        until = time.monotonic() + 60
        while not (metrics.exists() and metrics.stat().st_size > size):
            assert time.monotonic() < until and run.poll() is None, "it did not start to train"
            time.sleep(0.02)
        run.send_signal(number)
        _, err = run.communicate(timeout=60)
    assert run.returncode == code, err
    step, resume = re.search(r"stopped after step (\d+).*(regard train --resume \S+)", err).groups()
    return int(step), resume
