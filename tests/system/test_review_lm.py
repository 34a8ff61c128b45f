"""What a reviewer of the language models found once: wrong numbers, paths that moved, words that were not kept."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.system.cli_toy import regard, works
from tests.unit.models.tiny_gguf import tiny_llama, write_gguf

import regard as package
from regard.checkpoint import load_state
from regard.data.text import TextConfig, prepare_text
from regard.tasks import finetune_run, train_run
from regard.tasks.plan import read_run
from regard.train import progress

SMALL = ["--set=model.width=32", "--set=model.layers=1", "--set=model.heads=2", "--set=model.ffn=32", "--device=cpu"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A GPT of bytes in runs/x, one of characters in runs/c, and records."""
    folder = tmp_path_factory.mktemp("review")
    (folder / "my.txt").write_text("the cat sat on the mat. the dog ran to the log.\n" * 200, encoding="utf-8")
    pairs = [{"prompt": f"say {n}", "completion": f"ahoy {n}!"} for n in range(60)]
    (folder / "my.jsonl").write_text("".join(json.dumps(p) + "\n" for p in pairs), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))
        patch.chdir(folder)
        for name, tokens in (("x", "bytes"), ("c", "chars")):
            works("train", "lm", "--data=my.txt", f"--tokens={tokens}", *SMALL, "--steps=4", f"--name={name}")
    return folder


@pytest.fixture(autouse=True)
def _here(place, monkeypatch):
    monkeypatch.chdir(place)


def tune(name: str, *more: str) -> None:
    works("finetune", "runs/x", "lm", "--data=my.jsonl", "--steps=4", f"--name={name}", "--device=cpu", *more)


def test_of_records_only_the_answers_are_scored_each_after_its_own_prompt(place):
    tune("ft")
    kept = json.loads(works("info", "runs/ft", "--json").out)["held_out"]["held_out_loss"]
    found = json.loads(works("evaluate", "runs/ft", "--json").out)
    assert math.isclose(found["loss"], kept, rel_tol=1e-5)
    answers = [f"ahoy {n}!" for n in range(54, 60)]
    size = sum(map(len, answers))
    assert found["targets"] == size + len(answers)  # and the end of each
    bits = found["loss"] * found["targets"] / math.log(2) / size
    assert math.isclose(found["bits_per_byte"], bits, rel_tol=1e-6)
    every = json.loads(works("evaluate", "runs/ft", "--data=my.jsonl", "--json").out)
    assert every["targets"] == sum(len(f"ahoy {n}!") + 1 for n in range(60))
    assert "leave it out" in regard("evaluate", "runs/ft", "--stride=8").err


def test_the_first_token_of_ones_own_text_is_no_target_and_its_bytes_do_not_count(place):
    found = json.loads(works("evaluate", "runs/x", "--json").out)
    prepared = prepare_text(read_run("runs/x").data, lambda _: None)
    assert found["targets"] == prepared.valid_bytes - 1  # one byte, one token
    assert math.isclose(found["bits_per_byte"], found["loss"] / math.log(2), rel_tol=1e-6)


def test_a_fine_tuned_run_goes_on_and_is_scored_when_what_it_began_with_is_gone(place, monkeypatch):
    more = ["--lora", "--set=model.dropout=0.1", "--set=eval_every=2"]
    tune("whole", *more)
    shutil.copytree("runs/x", "runs/base")
    run = read_run("runs/whole")
    start = str(Path("runs/base").absolute())
    run, save = replace(run, start=start, data=replace(run.data, tokenizer=start)), progress.save

    def save_and_stop(*args):
        save(*args)
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(progress, "save", save_and_stop)
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


def test_what_cannot_be_changed_of_a_trained_model_is_said(place):
    room = read_run("runs/x").model.context
    more = regard("finetune", "runs/x", "lm", "--data=my.txt", "--steps=2", f"--set=data.context={2 * room}").err
    assert f"at most {room}" in more and "--set model.context" not in more
    wide = regard("finetune", "runs/x", "lm", "--data=my.txt", "--steps=2", "--set=model.ffn=64", "--name=w").err
    assert "only model.dropout" in wide and not Path("runs/w").exists()
    itself = regard("finetune", "runs/x", "lm", "--data=my.txt", "--steps=2", "--name=x", "--force").err
    assert "choose another --name" in itself and Path("runs/x/model.safetensors").is_file()


def test_help_promises_what_finetune_does(place):
    assert "Train that long. [default: (5)" in " ".join(works("finetune", "runs/x", "lm", "--help").out.split())
    assert "(3 epochs)" in works("finetune", "runs/x", "tag", "--help").out
    assert finetune_run(Path("runs/x"), "lm", TextConfig(path="my.txt")).minutes == 5


def test_summaries_want_records_and_a_model_to_begin_with(place):
    assert "regard finetune" in regard("train", "summarise", "--data=my.jsonl", "--steps=2").err
    assert "a text and its summary" in regard("finetune", "runs/x", "summarise", "--data=my.txt", "--steps=2").err


def test_records_that_are_too_long_are_told_from_too_little_text(place):
    long = {"prompt": "word " * 400, "completion": "yes"}
    Path("long.jsonl").write_text((json.dumps(long) + "\n") * 20, encoding="utf-8")
    said = regard("finetune", "runs/x", "lm", "--data=long.jsonl", "--steps=2").err
    assert "20 records were dropped" in said and "data.context" in said


def test_comparing_language_models_wants_a_text(place):
    assert "regard compare runs/x runs/c --data FILE" in regard("compare", "runs/x", "runs/c").err


def test_bits_are_those_of_the_whole_text_however_it_is_cut(place):
    text = "the dog sat on the log.\n" * 12  # more than a context
    for name in ("x", "c"):
        writer = package.load(f"runs/{name}")
        with torch.no_grad():
            for p in writer.model.parameters():
                p.zero_()
        assert math.isclose(writer.bits(text), len(text) * math.log2(writer.tokenizer.size), rel_tol=1e-6)


def test_blank_lines_stay_blank(place):
    Path("in.txt").write_text("the cat\n\n  \nthe dog\n", encoding="utf-8")
    for name in ("x", "c"):
        lines = works("predict", f"runs/{name}", "in.txt").out.split("\n")
        assert len(lines) == 5 and lines[1] == lines[2] == ""


def test_the_word_asked_for_is_not_the_mark_before_a_text(place, monkeypatch):
    writer = package.load("runs/x")
    monkeypatch.setattr(writer.tokenizer, "bos", 7)
    assert writer.next("the ", top=1, words=["cat"])[1].id == ord("c")
    assert "empty" in regard("next", "runs/x", "the", "--word=").err


def test_a_model_is_told_about_by_its_file(place):
    write_gguf(Path("m.gguf"), tiny_llama())
    told = works("info", "m.gguf").out
    assert "a llama to lm" in told and "regard evaluate m.gguf --data FILE" in told
    works("evaluate", "m.gguf", "--data=my.txt", "--context=32")
    assert "scored on my.txt" in works("info", "m.gguf").out


def test_all_ends_of_a_model_survive_fine_tuning(place):
    shutil.copytree("runs/x", "runs/two", dirs_exist_ok=True)
    path = Path("runs/two/generation_config.json")
    known = json.loads(path.read_text())
    path.write_text(json.dumps(known | {"eos_token_id": [256, 10]}))
    works("finetune", "runs/two", "lm", "--data=my.jsonl", "--steps=2", "--name=ends", "--device=cpu")
    assert package.load("runs/ends").tokenizer.ends == (256, 10)
    assert json.loads(Path("runs/ends/config.json").read_text())["eos_token_id"] == 256


def test_parameters_are_those_that_are_written(place):
    tune("lora", "--lora")
    total = sum(t.numel() for t in _weights("runs/lora").values())
    assert sum(json.loads(works("info", "runs/lora", "--json").out)["parameters"].values()) == total
    assert f"{total:,} parameters" in Path("runs/lora/README.md").read_text()
    assert "runs/x" in works("info", "runs/lora").out and "lora " in works("info", "runs/lora").out


def test_a_model_in_several_files_is_exported_whole(place):
    shutil.copytree("runs/x", "runs/shards", dirs_exist_ok=True)
    weights = _weights("runs/x")
    Path("runs/shards/model.safetensors").unlink()
    half, index = len(weights) // 2, {}
    for number, names in enumerate((list(weights)[:half], list(weights)[half:]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: weights[name] for name in names}, f"runs/shards/{file}")
        index |= dict.fromkeys(names, file)
    Path("runs/shards/model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    works("export", "runs/shards", "--out=whole")
    assert package.load("whole").generate(["the"], max_tokens=3, temperature=0.0)


def test_a_dialogue_that_is_too_long_is_said_to_be_cut(place):
    room = read_run("runs/x").model.context
    said = works("chat", "runs/x", "the cat " * room, "--max-tokens=4")
    assert f"this model sees {room}" in said.err
    assert f"sees the last {room} of them" in works("next", "runs/x", "the cat " * room).err
    assert "this model sees" in works("summarise", "runs/x", "the cat " * room, "--max-tokens=4").err


def test_what_a_search_cannot_do_is_refused(place):
    assert "leave out --stop" in regard("generate", "runs/x", "the", "--beam=2", "--stop=x").err
    assert "add --json" in regard("generate", "runs/x", "the", "--logprobs").err


def test_spaces_can_be_seen_among_the_tokens(place):
    assert "␣" in works("tokens", "runs/x", "a b").out


def _weights(folder: str) -> dict[str, torch.Tensor]:
    return load_file(f"{folder}/model.safetensors")
