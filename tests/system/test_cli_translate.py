"""`regard train translate` and the verbs on its run: text files to a model, translations, scores and pictures."""

import json
import os

import pytest
from tests.system.cli_toy import TINY, regard, sentences, train_words, works, write_toy

import regard as package


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The toy's text files and one run trained on them, runs/demo."""
    folder = write_toy(tmp_path_factory.mktemp("toy"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))
        patch.chdir(folder)
        result = works(*train_words(folder), "--name=demo")
    assert "next:" in result.err and "bleu" in result.out
    return folder


@pytest.fixture(autouse=True)
def _here(toy, monkeypatch):
    monkeypatch.chdir(toy)


# -- training ------------------------------------------------------------------------------------------------------


def test_the_run_learned_its_language(toy):
    """Every toy word has one translation, so a working way ends close to 100 BLEU on sentences never seen."""
    result = works("evaluate", "runs/demo", "--source=test.en", "--target=test.fr", "--json")
    assert json.loads(result.out)["bleu"] > 90


def test_run_folder_holds_hugging_face_files_and_nothing_else(toy):
    names = {p.name for p in (toy / "runs/demo").iterdir()} - {"scores.jsonl", "tensorboard"}
    assert names == {
        ".regard-manifest.json", "README.md", "config.json", "generation_config.json", "metrics.jsonl",
        "model.safetensors", "regard.json", "run.json", "state.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    settings = json.loads((toy / "runs/demo/regard.json").read_text())
    assert settings["task"] == "translate" and settings["data"]["inputs"] and settings["versions"]["torch"]
    card = (toy / "runs/demo/README.md").read_text()
    assert card.startswith("---\n") and "trained on train.en → train.fr with" in card and str(toy) not in card


def test_transformers_opens_the_folder_and_translates_the_same(toy):
    transformers = pytest.importorskip("transformers")
    model = transformers.MarianMTModel.from_pretrained(toy / "runs/demo").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(toy / "runs/demo")
    texts = [s for s, _ in sentences()[:8]]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    made = model.generate(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], num_beams=1)
    theirs = tokenizer.batch_decode(made, skip_special_tokens=True)
    ours = works("translate", "runs/demo", *texts, "--beam=1").lines
    assert ours == [t.strip() for t in theirs]


def test_a_dry_run_tells_all_and_writes_nothing(toy, monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    result = works(*train_words(toy), "--dry-run", "--json")
    (actual,) = json.loads(result.out)
    assert actual["settings"]["model"]["width"] == 64 and actual["tokens_per_step"] == 1024
    V, D, F = 330, 64, 64
    layer = 4 * (D * D + D) + D * F + F + F * D + D + 4 * D  # self-attention, feed-forward, two norms
    assert actual["parameters"] == {"token": V * D, "encoder": layer, "decoder": 2 * (layer + 4 * (D * D + D) + 2 * D)}
    memory = actual["memory"]
    assert memory["weights"] == 4 * sum(actual["parameters"].values()) and memory["activations"] > memory["weights"]
    assert "model.width" in works(*train_words(toy), "--dry-run").out
    assert list(tmp_path.iterdir()) == []


def test_architectures_and_seeds_share_a_table_and_can_resume(toy):
    words = [w for w in train_words(toy) if "layers" not in w and "ffn" not in w and "steps" not in w]
    words += ["--steps=6", "--arch=Transformer,GRU", "--seeds=2", "--name=many", "--seed=5"]
    result = works(*words)
    rows = [line.split() for line in result.lines]
    assert [r[:2] for r in rows[1:]] == [["transformer", "2"], ["gru", "2"]] and "±" in rows[1]
    names = {p.name for p in (toy / "runs/many").iterdir()}
    runs = {f"{arch}-seed{seed}" for arch in ("transformer", "gru") for seed in (5, 6)}
    assert names == runs | {"plan.json", "curves.png", ".regard-manifest.json"}
    seeds = [json.loads((toy / f"runs/many/gru-seed{seed}/run.json").read_text())["seed"] for seed in (5, 6)]
    assert seeds == [5, 6]
    assert works("train", "--resume=runs/many").out == result.out, "what is finished is not trained again"
    assert "gru-seed6" in works("info", "runs/many").out


def test_a_recipe_is_trained_and_settings_override_it(toy, tmp_path):
    (tmp_path / "small.py").write_text(
        "from regard.tasks import default_run\n"
        "from regard.data.prepare import PairsConfig\n"
        "def recipe():\n"
        f"    data = PairsConfig(source='{toy}/train.en', target='{toy}/train.fr')\n"
        "    return default_run(data=data)\n"
    )
    short = [*TINY, "--steps=2"]
    works("train", tmp_path / "small.py", *short, "--name=from-recipe", "--set=model.heads=2")
    settings = json.loads((toy / "runs/from-recipe/run.json").read_text())
    assert settings["model"]["heads"] == 2 and settings["steps"] == 2


def test_a_run_is_not_overwritten_unless_forced(toy):
    result = regard(*train_words(toy), "--name=demo")
    assert result.code == 2 and "--resume runs/demo" in result.err
    works(*train_words(toy), "--steps=2", "--name=twice")
    before = (toy / "runs/twice/metrics.jsonl").read_text()
    works(*train_words(toy), "--steps=2", "--name=twice", "--force", "--seed=1")
    assert (toy / "runs/twice/metrics.jsonl").read_text() != before


def test_train_accepts_a_2000_token_validation_line(toy, tmp_path):
    write_toy(tmp_path)
    with open(tmp_path / "test.en", "a") as en, open(tmp_path / "test.fr", "a") as fr:
        en.write("the dog sees the cat . " * 400 + "\n")
        fr.write("le chien\n")
    works(*train_words(tmp_path), "--steps=2", "--name=long")


def test_train_evaluates_weights_that_are_not_finite(toy):
    result = regard(*train_words(toy), "--steps=4", "--set=optim.lr=1e15", "--set=eval_every=2", "--name=huge")
    assert "should not happen" not in result.err


def test_quiet_says_nothing_beside_the_result(toy):
    result = works(*train_words(toy), "--steps=2", "--name=quiet", "-q")
    assert result.err == "" and "validation loss" in result.out


# -- use -----------------------------------------------------------------------------------------------------------


def test_python_and_the_command_line_say_the_same(toy):
    texts = [s for s, _ in sentences()[:5]]
    assert works("translate", "runs/demo", *texts).lines == package.load("runs/demo").translate(texts)


def test_lines_through_a_pipe_keep_their_places(toy):
    """Empty lines stay empty, a missing last line end and Windows line ends are fine."""
    first, second = (s for s, _ in sentences()[:2])
    out = works("translate", "runs/demo", typed=f"\ufeff{first}\r\n\n   \n{second}").out
    one, two = works("translate", "runs/demo", first, second).lines
    assert out == f"{one}\n\n\n{two}\n"


def test_on_a_terminal_it_asks_until_an_empty_line(toy):
    first, second = (s for s, _ in sentences()[:2])
    result = works("translate", "runs/demo", typed=f"{first}\n{second}\n\nnot read\n", terminal=True)
    assert result.lines == works("translate", "runs/demo", first, second).lines
    assert result.err.count("> ") == 3


def test_n_best_lists_are_ordered_and_numbered(toy):
    texts = [s for s, _ in sentences()[:2]]
    rows = [line.split("\t") for line in works("translate", "runs/demo", "--n-best=3", typed="\n".join(texts)).lines]
    assert [r[0] for r in rows] == ["1"] * 3 + ["2"] * 3
    scores = [float(r[2]) for r in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)
    assert [r[1] for r in rows[::3]] == works("translate", "runs/demo", *texts).lines
    best = json.loads(works("translate", "runs/demo", texts[0], "--n-best=3", "--json").out)["translations"]
    assert [b["text"] for b in best] == [r[1] for r in rows[:3]]


def test_the_alignment_has_a_row_for_each_word_and_a_picture(toy, tmp_path):
    pytest.importorskip("matplotlib")
    source, target = sentences()[0]
    picture = tmp_path / "look.svg"
    result = works("translate", "runs/demo", source, "--alignment", "--json", f"--picture={picture}")
    got = json.loads(result.out)
    words = got["alignment"]
    assert words["source"] == [*source.split(), "</s>"]
    assert words["target"] == [*got["translations"][0]["text"].split(), "</s>"]
    assert all(abs(sum(row) - 1) < 0.01 for row in words["weights"])
    assert len(words["links"].split()) == len(words["target"]) - 1
    assert all(f"<!-- {w} -->" in picture.read_text() for w in target.split() if w.isalpha())
    table = works("translate", "runs/demo", source, "--alignment").lines
    assert table[2].split() == words["source"] and table[-1] == words["links"]


def test_every_head_can_be_had(toy, tmp_path):
    pytest.importorskip("matplotlib")
    result = works(
        "translate", "runs/demo", "the dog sees the cat .", "--heads", "--json", f"--picture={tmp_path}/h.png"
    )
    seen = json.loads(result.out)["attention"]
    assert (len(seen["weights"]), len(seen["weights"][0])) == (2, 2)
    assert len(seen["weights"][0][0]) == len(seen["target"]) and len(seen["weights"][0][0][0]) == len(seen["source"])
    assert (tmp_path / "h.png").stat().st_size > 1000


def test_a_given_translation_is_scored_and_the_right_one_is_likelier(toy):
    source, target = sentences()[0]
    right = json.loads(works("translate", "runs/demo", source, f"--given={target}", "--json").out)
    wrong = json.loads(works("translate", "runs/demo", source, "--given=petit petit petit", "--json").out)
    assert right["log_probability"] > wrong["log_probability"] + 5
    assert right["alignment"]["target"] == [*target.split(), "</s>"]


def test_prefix_sampling_and_seeds(toy):
    assert works("translate", "runs/demo", "the dog sees the cat .", "--prefix=petit homme").out.startswith(
        "petit homme"
    )
    drawn = [
        works("translate", "runs/demo", "the dog sees the cat .", "--sample", "--temperature=2", f"--seed={s}").out
        for s in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_sampled_line_ends_do_not_add_lines(toy):
    """At this temperature any byte is sampled, line ends among them."""
    result = works("translate", "runs/demo", "--sample", "--temperature=100", typed="the dog .\n" * 100)
    assert len(result.out.split("\n")) == 101


def test_sampling_differs_between_equal_sentences(toy):
    words = ["the dog .", "the dog .", "--sample", "--temperature=100"]
    first, second = works("translate", "runs/demo", *words).lines[:2]
    assert first != second


def test_predict_writes_a_whole_file(toy, tmp_path):
    works("predict", "runs/demo", "test.en", f"--out={tmp_path}/out.fr")
    lines = (tmp_path / "out.fr").read_text().splitlines()
    assert lines == works("translate", "runs/demo", typed=(toy / "test.en").read_bytes()).lines
    assert [p.name for p in tmp_path.iterdir()] == ["out.fr"]
    assert works("predict", "runs/demo", "test.en", "--out=-").out == (tmp_path / "out.fr").read_text()
    first = json.loads(works("predict", "runs/demo", "test.en", "--json").lines[0])
    assert first == {"source": sentences()[0][0], "text": lines[0]}


# -- numbers -------------------------------------------------------------------------------------------------------


def test_evaluate_defaults_to_the_validation_set_and_logs_scores(toy):
    result = works("evaluate", "runs/demo", "--beam=2")
    assert (
        "validation" in result.out and "95 %" in result.out and "tok:13a" in result.out and "source words" in result.out
    )
    output = works("info", "runs/demo").out
    assert "beam 2" in output and "BLEU" in output and "encoder" in output


def test_a_translator_scored_on_what_it_was_trained_on_is_said_to_be(toy, tmp_path):
    result = works("evaluate", "runs/demo", "--source=train.en", "--target=train.fr", "--beam=1")
    assert result.lines[-1] == "warning: 183 of these 183 sentences were in the training data; the score is inflated"
    (tmp_path / "mixed.en").write_text("".join(f"{s}\n" for s, _ in sentences()[50:70]))
    (tmp_path / "mixed.fr").write_text("".join(f"{t}\n" for _, t in sentences()[50:70]))
    files = [f"--source={tmp_path}/mixed.en", f"--target={tmp_path}/mixed.fr"]
    assert json.loads(works("evaluate", "runs/demo", *files, "--beam=1", "--json").out)["seen_in_training"] == 10
    clean = works("evaluate", "runs/demo", "--source=test.en", "--target=test.fr", "--beam=1").out
    assert "training data" not in clean


def test_references_without_a_word_are_refused_or_counted(toy, tmp_path):
    (tmp_path / "none.fr").write_text("\n" * 60)
    result = regard("evaluate", "runs/demo", "--source=test.en", f"--target={tmp_path}/none.fr")
    assert result.code == 2 and "all 60 references are empty" in result.err and result.out == ""
    (tmp_path / "some.fr").write_text("".join(t + "\n" for _, t in sentences()[:20]) + " \n" * 40)
    result = works("evaluate", "runs/demo", "--source=test.en", f"--target={tmp_path}/some.fr", "--beam=1")
    assert "40 of 60 references are empty" in result.err


def test_compare_tells_better_from_worse(toy):
    works(*train_words(toy), "--steps=20", "--set=eval_every=20", "--name=short")
    result = works(
        "compare", "runs/short", "runs/demo", "--source=test.en", "--target=test.fr", "--samples=200", "--json"
    )
    actual = {m["metric"]: m for m in json.loads(result.out)["metrics"]}
    assert actual["BLEU"]["difference"] > 0 and actual["BLEU"]["p_value"] < 0.05
    text = works("compare", "runs/short", "runs/demo", "--source=test.en", "--target=test.fr", "--samples=200").out
    assert "runs/demo is better than runs/short" in text


def test_tokens_and_info_for_programs(toy):
    rows = json.loads(works("tokens", "runs/demo", "the dog", "--json").out)
    assert [r["piece"] for r in rows] == ["▁the", "▁dog", "</s>"] and [r["position"] for r in rows] == [0, 1, 2]
    info = json.loads(works("info", "runs/demo", "--json").out)
    loaded = package.load("runs/demo")
    assert sum(info["parameters"].values()) == sum(p.numel() for p in loaded.model.parameters())
    assert info["held_out"]["bleu"] > 90 and info["training"]["steps"] == 70


def test_data_list_for_programs():
    sets = {d["name"]: d for d in json.loads(works("data", "list", "--json").out)}
    assert sets["tatoeba-en-fr"]["licence"] and os.linesep not in sets["tatoeba-en-fr"]["about"]
