"""`regard finetune lm`: records, LoRA, resuming, and what a fine-tuned run keeps of its base model."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.system.cli_toy import regard, works

import regard as package
from regard.checkpoint import load_state
from regard.data.text import TextConfig
from regard.tasks import finetune_run, train_run
from regard.tasks.plan import read_run
from regard.training.progress import SavedState

SMALL = ["--set=model.width=32", "--set=model.layers=1", "--set=model.heads=2", "--set=model.ffn=32", "--device=cpu"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An untrained byte-level GPT in runs/x, a text and records."""
    folder = tmp_path_factory.mktemp("finetune")
    (folder / "my.txt").write_text("the cat sat on the mat. the dog ran to the log.\n" * 200, encoding="utf-8")
    pairs = [{"prompt": f"say {n}", "completion": f"ahoy {n}!"} for n in range(60)]
    (folder / "my.jsonl").write_text("".join(json.dumps(p) + "\n" for p in pairs), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))
        patch.chdir(folder)
        works("train", "lm", "--data=my.txt", "--tokens=bytes", *SMALL, "--steps=4", "--name=x")
    return folder


@pytest.fixture(autouse=True)
def _here(place, monkeypatch):
    monkeypatch.chdir(place)


def tune(name: str, *more: str) -> None:
    works("finetune", "runs/x", "lm", "--data=my.jsonl", "--steps=4", f"--name={name}", "--device=cpu", *more)


def test_evaluate_scores_only_the_answers_of_records(place):
    tune("ft")
    logged = json.loads(works("info", "runs/ft", "--json").out)["held_out"]["held_out_loss"]
    scores = json.loads(works("evaluate", "runs/ft", "--json").out)
    assert math.isclose(scores["loss"], logged, rel_tol=1e-5)
    answers = [f"ahoy {n}!" for n in range(54, 60)]
    size = sum(map(len, answers))
    assert scores["targets"] == size + len(answers)  # and the end of each
    bits = scores["loss"] * scores["targets"] / math.log(2) / size
    assert math.isclose(scores["bits_per_byte"], bits, rel_tol=1e-6)
    every = json.loads(works("evaluate", "runs/ft", "--data=my.jsonl", "--json").out)
    assert every["targets"] == sum(len(f"ahoy {n}!") + 1 for n in range(60))
    assert "leave it out" in regard("evaluate", "runs/ft", "--stride=8").err


def test_the_forms_of_others_are_learned_alike(place):
    alpaca = [{"instruction": "say", "input": str(n), "output": f"ahoy {n}!"} for n in range(60)]
    shared = [[{"from": "human", "value": f"say\n\n{n}"}, {"from": "gpt", "value": f"ahoy {n}!"}] for n in range(60)]
    Path("alpaca.json").write_text(json.dumps(alpaca, indent=1))
    Path("shared.json").write_text(json.dumps([{"conversations": talk} for talk in shared] + [{"id": 7}]))
    words = ["finetune", "runs/x", "lm", "--data=alpaca.json", "--steps=2", "--name=alpaca", "--device=cpu"]
    assert "60 records in Alpaca's format: instruction and output" in works(*words).err
    every = [works("evaluate", "runs/alpaca", f"--data={name}.json", "--json") for name in ("alpaca", "shared")]
    first, second = (json.loads(result.out) for result in every)
    assert first["targets"] == sum(len(f"ahoy {n}!") + 1 for n in range(60))
    assert (first["targets"], first["loss"]) == (second["targets"], second["loss"])
    assert "skipped 1 of 61 records: line 1: has 'id'" in every[1].err and "ShareGPT's format" in every[1].err
    assert regard("evaluate", "runs/alpaca", "--data=shared.json", "--strict").code == 2


def test_finetuned_run_resumes_without_its_base_model(place, monkeypatch):
    options = ["--lora", "--set=merge=true", "--set=model.dropout=0.1", "--set=eval_every=2", "--set=keep_state=true"]
    tune("whole", *options)
    shutil.copytree("runs/x", "runs/base")
    run = read_run("runs/whole")
    start = str(Path("runs/base").absolute())
    run, save = replace(run, start=start, data=replace(run.data, tokenizer=start)), SavedState.save

    def save_and_stop(*args):
        save(*args)
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(SavedState, "save", save_and_stop)
        with pytest.raises(InterruptedError):
            train_run(run, "runs/half", quiet=True)
    shutil.rmtree("runs/base")
    works("train", "--resume=runs/half", "--device=cpu")
    assert Path("runs/half/model.safetensors").read_bytes() == Path("runs/whole/model.safetensors").read_bytes()
    assert read_run("runs/half").start == start
    one, two = (load_state(f"runs/{name}/state.safetensors")[0] for name in ("half", "whole"))
    assert all(torch.equal(one[name], two[name]) for name in two if name != "tally")
    scored, kept = (json.loads(works(verb, "runs/half", "--json").out) for verb in ("evaluate", "info"))
    assert math.isclose(scored["loss"], kept["held_out"]["held_out_loss"], rel_tol=1e-5)


def test_finetune_refuses_to_change_the_architecture(place):
    room = read_run("runs/x").model.context
    more = regard("finetune", "runs/x", "lm", "--data=my.txt", "--steps=2", f"--set=data.context={2 * room}").err
    assert f"at most {room}" in more and "--set model.context" not in more
    wide = regard("finetune", "runs/x", "lm", "--data=my.txt", "--steps=2", "--set=model.ffn=64", "--name=w").err
    assert "only model.dropout" in wide and not Path("runs/w").exists()
    itself = regard("finetune", "runs/x", "lm", "--data=my.txt", "--steps=2", "--name=x", "--force").err
    assert "choose another --name" in itself and Path("runs/x/model.safetensors").is_file()


def test_finetune_help_shows_the_default_length(place):
    assert "Train that long. [default: (5)" in " ".join(works("finetune", "runs/x", "lm", "--help").out.split())
    assert "(3 epochs)" in works("finetune", "runs/x", "tag", "--help").out
    assert finetune_run(Path("runs/x"), "lm", TextConfig(path="my.txt")).minutes == 5


def test_summarise_requires_records_and_a_base_model(place):
    assert "regard finetune" in regard("train", "summarise", "--data=my.jsonl", "--steps=2").err
    assert "texts and summaries" in regard("finetune", "runs/x", "summarise", "--data=my.txt", "--steps=2").err


def test_finetune_reports_dropped_long_records(place):
    long = {"prompt": "word " * 400, "completion": "yes"}
    Path("long.jsonl").write_text((json.dumps(long) + "\n") * 20, encoding="utf-8")
    result = regard("finetune", "runs/x", "lm", "--data=long.jsonl", "--steps=2").err
    assert "20 records were dropped" in result and "data.context" in result


def test_finetune_keeps_every_end_token(place):
    shutil.copytree("runs/x", "runs/two", dirs_exist_ok=True)
    path = Path("runs/two/generation_config.json")
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"eos_token_id": [256, 10]}))
    works("finetune", "runs/two", "lm", "--data=my.jsonl", "--steps=2", "--name=ends", "--device=cpu")
    assert package.load("runs/ends").tokenizer.ends == (256, 10)
    assert json.loads(Path("runs/ends/config.json").read_text())["eos_token_id"] == 256


def test_info_counts_the_parameters_of_a_lora_run(place):
    tune("lora", "--lora")
    assert not Path("runs/lora/model.safetensors").exists()
    works("export", "runs/lora", "--out=merged")
    total = sum(t.numel() for t in load_file("merged/model.safetensors").values())
    assert sum(json.loads(works("info", "runs/lora", "--json").out)["parameters"].values()) == total
    assert f"{total:,} parameters" in Path("runs/lora/README.md").read_text()
    assert "runs/x" in works("info", "runs/lora").out and "lora " in works("info", "runs/lora").out
