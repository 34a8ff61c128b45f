"""The whole way of a language model by the command line: a text, a trained folder, and text again."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.system.cli_toy import regard, works
from tests.unit.models.tiny_gguf import tiny_llama, write_gguf

import regard as package
from regard.data.text import prepare_text
from regard.tasks import assemble, train_run
from regard.tasks.plan import read_run, run_from_dict

OPENING = "Muchos años después, frente al pelotón de fusilamiento, el coronel Aureliano Buendía"
SMALL = [
    "--set=model.context=128",
    "--set=model.width=64",
    "--set=model.layers=2",
    "--set=model.heads=2",
    "--set=model.ffn=128",
    "--device=cpu",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A text, dialogues, a byte-level GPT trained on the text (runs/x) and an untrained one of characters (runs/c)."""
    folder = tmp_path_factory.mktemp("lm")
    (folder / "my.txt").write_text("the cat sat on the mat. the dog ran to the log.\n" * 200, encoding="utf-8")
    (folder / "test.txt").write_text("the dog sat on the log.\n" * 20, encoding="utf-8")
    pairs = [{"prompt": f"say {w}", "completion": "ahoy!"} for w in ("cat", "dog", "mat", "log", "hat", "fog") * 8]
    (folder / "my.jsonl").write_text("".join(json.dumps(p) + "\n" for p in pairs), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))
        patch.chdir(folder)
        result = works("train", "lm", "--data=my.txt", "--tokens=bytes", *SMALL, "--steps=250", "--name=x")
        works("train", "lm", "--data=my.txt", "--tokens=chars", *SMALL, "--steps=4", "--name=c")
    assert (
        "validation loss" in result.out and "tokens per second" in result.out and "regard generate runs/x" in result.err
    )
    return folder


@pytest.fixture(autouse=True)
def _here(place, monkeypatch):
    monkeypatch.chdir(place)


def test_it_learned_its_text_and_says_how_well(place):
    scores = json.loads(works("evaluate", "runs/x", "--json").out)
    assert scores["loss"] < 0.3 and math.isclose(scores["perplexity"], math.exp(scores["loss"]), rel_tol=1e-6)
    assert scores["context"] == scores["stride"] == 128
    output = works("evaluate", "runs/x", "--data=test.txt", "--context=32", "--stride=8").out
    assert "bits per byte" in output and "context 32, stride 8" in output and "479 targets" in output
    assert "bits per byte" in works("info", "runs/x").out and "perplexity" in works("info", "runs/x").out


def test_evaluate_warns_of_text_seen_in_training(place):
    result = works("evaluate", "runs/x", "--data=my.txt")
    assert result.lines[-1] == "warning: 200 of these 200 passages were in the training data; the score is inflated"
    assert json.loads(works("evaluate", "runs/x", "--data=my.txt", "--json").out)["seen_in_training"] == 200
    (place / "other.txt").write_text("a line of another text, which is long enough to compare.\n" * 20)
    assert "training data" not in works("evaluate", "runs/x", "--data=other.txt").out
    result = works(
        "train", "lm", "--data=my.txt", "--valid=my.txt", "--tokens=bytes", *SMALL, "--steps=1", "--name=same"
    )
    assert "warning: 200 of 200 validation passages are in the training data too" in result.err


def test_generate_is_greedy_seeded_stopped_and_streamed(place):
    greedy = works("generate", "runs/x", "the cat", "--temperature=0", "--max-tokens=16").out
    assert greedy.startswith("the cat sat on the mat.")
    stopped = works("generate", "runs/x", "the cat", "--temperature=0", "--max-tokens=40", "--stop=mat").out
    assert stopped == "the cat sat on the \n"
    streamed = works("generate", "runs/x", "the cat", "--temperature=0", "--max-tokens=16", "--stream").out
    assert streamed == greedy
    drawn = [
        works("generate", "runs/x", "the", "--temperature=2", f"--seed={s}", "--max-tokens=30").out for s in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    several = json.loads(works("generate", "runs/x", "the", "--n=3", "--json", "--logprobs", "--max-tokens=5").out)
    assert len(several["completions"]) == 3 and len(several["completions"][0]["logprobs"]) == 5
    assert works("generate", "runs/x", typed="the cat", terminal=False).out.startswith("the cat")


def test_the_table_of_next_tokens_is_the_models_own(place):
    predictions = json.loads(works("next", "runs/x", "the ca", "--top=5", "--word=x", "--json").out)
    model = package.load("runs/x")
    with torch.no_grad():
        likely = model.model.logits(model.model(torch.tensor([model.encode("the ca")]))[0, -1]).softmax(-1)
    best = likely.topk(5)
    assert [c["id"] for c in predictions[:5]] == best.indices.tolist() and predictions[0]["piece"] == "t"
    for row, value in zip(predictions[:5], best.values.tolist(), strict=True):
        assert math.isclose(row["probability"], value, rel_tol=1e-4)
    assert predictions[5]["piece"] == "x" and predictions[5]["rank"] > 5
    narrow = json.loads(works("next", "runs/x", "the ", "--top-k=2", "--temperature=0.5", "--top=4", "--json").out)
    assert math.isclose(sum(c["kept"] for c in narrow), 1.0, rel_tol=1e-5) and narrow[2]["kept"] == 0.0


def test_surprisal_and_lens_end_where_the_model_does(place):
    rows = json.loads(works("next", "runs/x", "the cat", "--surprisal", "--json").out)
    assert [r["piece"] for r in rows] == list("he cat") and all(r["bits"] >= 0 for r in rows)
    layers = json.loads(works("next", "runs/x", "the ca", "--lens", "--top=2", "--json").out)
    last = json.loads(works("next", "runs/x", "the ca", "--top=2", "--json").out)
    assert len(layers) == 2
    assert [c["id"] for c in layers[-1]] == [c["id"] for c in last]
    assert math.isclose(layers[-1][0]["probability"], last[0]["probability"], rel_tol=1e-5)


def test_what_is_exported_opens_in_transformers_with_equal_logits(place):
    transformers = pytest.importorskip("transformers")
    works("export", "runs/x", "--to=hf", "--out=out")
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained("out", output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ours, text = package.load("runs/x"), "the cat ran to"
    ids = torch.tensor([ours.encode(text)])
    tokenizer = transformers.AutoTokenizer.from_pretrained("out")
    assert tokenizer(text)["input_ids"] == ids[0].tolist()
    with torch.no_grad():
        torch.testing.assert_close(ours.model.logits(ours.model(ids)), theirs(ids).logits, atol=1e-4, rtol=1e-4)
    assert "already exists" in regard("export", "runs/x", "--out=out").err


def test_finetune_lora_learns_answers_and_merges_its_weights(place):
    transformers = pytest.importorskip("transformers")
    result = works(
        "finetune", "runs/x", "lm", "--data=my.jsonl", "--lora", "--rank=8", "--steps=120", "--name=taught",
        "--set=optim.lr=0.01", "--set=merge=true", "--device=cpu",
    )  # fmt: skip
    assert "LoRA of rank 8" in result.err and "trained on" in result.err and "regard chat runs/taught" in result.err
    answer = works("chat", "runs/taught", "say hog", "--temperature=0", "--max-tokens=12").out.strip()
    assert answer == "ahoy!"
    ours = package.load("runs/taught")
    theirs = transformers.AutoModelForCausalLM.from_pretrained("runs/taught")
    ids = torch.tensor([ours.encode("say cat")])
    with torch.no_grad():
        torch.testing.assert_close(ours.model.logits(ours.model(ids)), theirs(ids).logits, atol=1e-4, rtol=1e-4)
    assert json.loads((place / "runs/taught/run.json").read_text())["lora"] == 8
    (place / "asked.txt").write_text("say cat\nsay fog\n")
    works("predict", "runs/taught", "asked.txt", "--out=answered.txt")
    assert (place / "answered.txt").read_text() == "ahoy!\nahoy!\n"


def test_the_memory_of_lora_is_that_of_what_is_trained(place):
    def asked(*words):
        return json.loads(works("finetune", "runs/x", "lm", "--data=my.jsonl", "--dry-run", "--json", *words).out)

    whole, small = (asked(*words)["memory"] for words in ((), ("--lora", "--rank=2")))
    assert whole["gradients"] == whole["weights"] < small["weights"]
    assert small["gradients"] == small["weights"] - whole["weights"]


def test_summaries_are_asked_for_as_they_were_taught(place):
    works(
        "finetune", "runs/x", "summarise", "--data=my.jsonl", "--steps=80", "--name=s", "--set=optim.lr=0.003",
        "--device=cpu",
    )  # fmt: skip
    assert json.loads((place / "runs/s/regard.json").read_text())["template"].startswith("Summarise")
    assert works("summarise", "runs/s", typed="say hat").out.strip() == "ahoy!"
    output = works("evaluate", "runs/s", "--data=my.jsonl").out
    assert "its answers: ROUGE-L 100.0" in output and "baseline, the first sentence of each text: ROUGE-L 0.0" in output
    (place / "in.txt").write_text("say cat\nsay fog\n")
    works("predict", "runs/s", "in.txt", "--out=out.txt")
    assert (place / "out.txt").read_text() == "ahoy!\nahoy!\n"


def test_two_models_are_compared_on_the_same_text(place):
    comparison = json.loads(works("compare", "runs/x", "runs/x", "--data=my.txt", "--json").out)["metrics"][0]
    assert comparison["difference"] == 0 and comparison["p_value"] == 1.0 and 0 < comparison["first"] < 2
    assert "score the same" in works("compare", "runs/x", "runs/x", "--data=my.txt").out
    assert "at least 20" in regard("compare", "runs/x", "runs/x", "--data=test.txt").err


def test_several_architectures_share_a_budget_and_a_table(place):
    words = ["--set=model.width=32", "--set=data.context=32", "--set=tokens=256", "--device=cpu"]
    result = works(
        "train", "lm", "--data=my.txt", "--tokens=chars", "--arch=rnn,lstm", "--steps=20", "--name=both", *words
    )
    assert "rnn" in result.out and "lstm" in result.out and "tokens per second" in result.out
    assert (place / "runs/both/curves.png").is_file()


def test_evaluate_does_not_count_the_first_token(place):
    scores = json.loads(works("evaluate", "runs/x", "--json").out)
    prepared = prepare_text(read_run("runs/x").data, lambda _: None)
    assert scores["targets"] == prepared.valid_bytes - 1  # one byte, one token
    assert math.isclose(scores["bits_per_byte"], scores["loss"] / math.log(2), rel_tol=1e-6)


def test_compare_requires_a_text(place):
    assert "compared on a text; add: --data FILE" in regard("compare", "runs/x", "runs/c").err


def test_bits_cover_a_text_longer_than_the_context(place):
    text = "the dog sat on the log.\n" * 12  # more than a context
    for name in ("x", "c"):
        writer = package.load(f"runs/{name}")
        with torch.no_grad():
            for p in writer.model.parameters():
                p.zero_()
        assert math.isclose(writer.bits(text), len(text) * math.log2(writer.tokenizer.size), rel_tol=1e-6)


def test_predict_keeps_blank_lines(place):
    Path("in.txt").write_text("the cat\n\n  \nthe dog\n", encoding="utf-8")
    for name in ("x", "c"):
        lines = works("predict", f"runs/{name}", "in.txt").out.split("\n")
        assert len(lines) == 5 and lines[1] == lines[2] == ""


def test_next_word_ignores_the_bos_token(place, monkeypatch):
    writer = package.load("runs/x")
    monkeypatch.setattr(writer.tokenizer, "bos", 7)
    assert writer.next("the ", top=1, words=["cat"])[1].id == ord("c")
    assert "empty" in regard("next", "runs/x", "the", "--word=").err


def test_info_describes_a_gguf_file(place):
    write_gguf(Path("m.gguf"), tiny_llama())
    summary = works("info", "m.gguf").out
    assert "a llama to continue text" in summary and "regard evaluate m.gguf --data FILE" in summary
    assert "factor=1.0 low=1.0" in summary
    assert json.loads(works("info", "m.gguf", "--json").out)["model"]["stretch"]["factor"] == 1.0
    works("evaluate", "m.gguf", "--data=my.txt", "--context=32")
    assert "scored on my.txt" in works("info", "m.gguf").out


def test_export_merges_shards(place):
    shutil.copytree("runs/x", "shards", dirs_exist_ok=True)
    weights = load_file("runs/x/model.safetensors")
    Path("shards/model.safetensors").unlink()
    half, index = len(weights) // 2, {}
    for number, names in enumerate((list(weights)[:half], list(weights)[half:]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: weights[name] for name in names}, f"shards/{file}")
        index |= dict.fromkeys(names, file)
    Path("shards/model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    works("export", "shards", "--out=whole")
    assert package.load("whole").generate(["the"], max_tokens=3, temperature=0.0)


def test_chat_warns_when_the_prompt_is_truncated(place):
    room = read_run("runs/x").model.context
    result = works("chat", "runs/x", "the cat " * room, "--max-tokens=4")
    assert f"this model's context {room}" in result.err
    assert "warning: runs/x was not trained on dialogues" in result.err
    assert f"sees the last {room} of them" in works("next", "runs/x", "the cat " * room).err
    assert "this model's context" in works("summarise", "runs/x", "the cat " * room, "--max-tokens=4").err


def test_generate_refuses_options_of_another_method(place):
    assert "leave out --stop" in regard("generate", "runs/x", "the", "--beam=2", "--stop=x").err
    assert "add --json" in regard("generate", "runs/x", "the", "--logprobs").err


def test_tokens_shows_spaces(place):
    assert "␣" in works("tokens", "runs/x", "a b").out


@pytest.mark.parametrize("arch", ["rnn", "gru", "lstm"])
def test_a_recurrent_net_learns_an_opening_by_heart(arch, place):
    """Buendía's firing squad, ñ, ú, ó and í included, letter for letter."""
    (place / "macondo.txt").write_text((OPENING + "\n") * 12, encoding="utf-8")
    settings = ["--set=data.context=86", "--set=tokens=688", "--set=model.width=96", "--device=cpu"]
    words = ["--data=macondo.txt", "--tokens=chars", f"--arch={arch}", "--steps=120", f"--name=macondo-{arch}"]
    words.append("--set=eval_every=120")
    works("train", "lm", *words, *settings, "--force")
    size = len(OPENING) - len("Muchos")
    result = works("generate", f"runs/macondo-{arch}", "Muchos", "--temperature=0", f"--max-tokens={size}").out
    assert result == OPENING + "\n"


def test_a_stopped_run_resumes_exactly(place, tmp_path):
    """The position in the text, the optimiser and the luck of dropout: all of it, bit for bit."""

    class Stop(Exception):
        pass

    run = read_run("runs/x")
    run = run_from_dict(run.to_dict() | {"steps": 12, "eval_every": 4, "minutes": 0.0})
    train_run(run, tmp_path / "whole", quiet=True)
    from regard.data.loader import Loader

    count, real = [0], Loader.__next__

    def stopping(self):
        count[0] += 1
        if count[0] > 7:
            raise Stop
        return real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loader, "__next__", stopping)
        with pytest.raises(Stop):
            train_run(run, tmp_path / "parts", quiet=True)
    train_run(run, tmp_path / "parts", quiet=True, resume=True)
    whole, parts = (package.load(tmp_path / name).model.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_eight_rows_at_once_are_one_row_eight_times(place):
    """The same gradient, however a step's tokens are cut into micro-batches."""
    run = read_run("runs/x")
    parts = assemble(run, say=lambda _: None)
    batch = next(parts.loader)

    def gradient(pieces):
        parts.model.zero_grad()
        for piece in pieces:
            (parts.objective.loss_sum(parts.model, piece) / batch.count).backward()
        return {name: p.grad.clone() for name, p in parts.model.named_parameters()}

    whole = gradient([batch])
    ones = gradient([batch.part(slice(i, i + 1)) for i in range(len(batch))])
    for name in whole:
        torch.testing.assert_close(whole[name], ones[name], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train lm", "train on what"),
        ("train lm --data=nowhere.txt", "no such file or folder"),
        ("train lm --data=my.txt --tokens=words", "no kind of tokens"),
        ("train lm --data=my.txt --source=my.txt", "not for the task lm"),
        ("train lm --data=my.txt --arch=gptt", "did you mean 'gpt'"),
        ("train lm --data=empty.txt --steps=2 --name=e", "empty"),
        ("train lm --data=junk.bin --steps=2 --name=e", "not text"),
        ("train lm --data=short.txt --steps=2 --name=e --tokens=chars", "too little text"),
        ("finetune runs/x lm", "fine-tune on what"),
        ("finetune runs/x translate --data=my.jsonl", "it can be fine-tuned to: lm, summarise"),
        ("finetune runs/x lm --data=broken.jsonl --name=e", "line 2"),
        ("generate runs/x hello --stream --n=2", "--stream shows one text"),
        ("generate runs/nope hello", "no run or model folder"),
        ("translate runs/x hello", "regard translate is not for runs/x, a model to continue text"),
        ("next runs/x hello --temperature=0", "above 0"),
        ("next runs/x hello --lens --surprisal", "not both"),
        ("export runs/x --to=onnxx", "no format"),
        ("export runs/x --to=gguf --type=q4_0", "there are: f16, q8_0, f32"),
        ("export runs/x --type=f16", "hf has no such number format"),
        ("evaluate runs/x --data=empty.txt", "empty.txt is empty"),
        ("train lm --data=my.txt --minutes=0 --name=e", "--minutes 0: must be above 0"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(place, line, message):
    (place / "empty.txt").write_text("")
    (place / "junk.bin").write_bytes(b"\x00\x01\x02" * 999)
    (place / "short.txt").write_text("abc")
    (place / "broken.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt"\n')
    before = sorted(p.name for p in (place / "runs").iterdir())
    got = regard(*line.split(), *(["--device=cpu"] if line.startswith(("train", "finetune")) else []))
    assert got.code == 2, got.err
    assert message in got.err and len(got.err.strip().splitlines()[-1]) < 400
    assert sorted(p.name for p in (place / "runs").iterdir()) == before
