"""The Python API: tables in, runs that can be resumed, answers out; the same as the command line's."""

import re
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
import torch
import transformers
from tests.system.cli_toy import works
from tests.unit.inside import tiny

import regard
from regard import api
from regard.data.memory import to_arrow
from regard.data.tables import read_table
from regard.errors import ConfigError, DataError

WORDS = [("good", "pos"), ("bad", "neg")]
FILMS = [(f"a {word} film about number {i}", label) for i in range(20) for word, label in WORDS]
FRAME = pd.DataFrame(FILMS, columns=["review", "y"])
TINY = {"model.width": 16, "model.layers": 1, "model.heads": 2, "model.ffn": 16, "schedule.warmup": 1}
HOW = dict(text="review", label="y", steps=2, settings=TINY, device="cpu", quiet=True)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder to work in, with one run trained on a DataFrame."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        regard.train("classify", FRAME, name="sent", **HOW)
        yield folder


@pytest.fixture(scope="module")
def model(home):
    return regard.load("runs/sent")


def test_training_returns_folder_and_metrics(home):
    trained = regard.train("classify", pl.DataFrame(FRAME), arch="transformer", name="again", **HOW)
    assert trained.folder == Path("runs/again") and trained.best["steps"] == 2
    assert 0 <= trained.metrics["accuracy"] <= 1
    assert trained.load("cpu")("a good film").label in ("pos", "neg")


def test_table_of_a_run_is_kept_next_to_it(home):
    (table,) = (home / "runs/tables").glob("*.arrow")  # one, however often it was passed
    assert read_table(table).text("review") == FRAME["review"].tolist()
    assert '"path": "' + str(table) in (home / "runs/sent/run.json").read_text()
    assert "is finished" in works("train", "--resume", "runs/sent").err


def test_run_on_a_table_equals_the_run_on_its_file(home):
    """The weights are those of the command line on the same rows."""
    FRAME.to_parquet(home / "films.parquet")
    settings = [f"--set={name}={value}" for name, value in TINY.items()]
    works("train", "classify", "--data=films.parquet", "--text=review", "--label=y", "--steps=2", "--device=cpu",
          "--name=typed", *settings)  # fmt: skip
    weights = [(home / "runs" / name / "model.safetensors").read_bytes() for name in ("sent", "typed")]
    assert weights[0] == weights[1]


def test_unknown_options_name_the_nearest(home):
    with pytest.raises(ConfigError, match="--lable: not for the task classify"):
        regard.train("classify", FRAME, lable="y")
    with pytest.raises(ConfigError, match="did you mean 'picture'"):
        regard.evaluate("runs/sent", pictur="x.png")


def test_interrupted_training_raises_keyboard_interrupt(home, monkeypatch):
    def stopped(*_, **__):
        raise SystemExit(130)

    monkeypatch.setattr("regard.tasks.jobs.train_run", stopped)
    with pytest.raises(KeyboardInterrupt):
        regard.train("classify", FRAME, name="stopped", **HOW)


def test_one_input_gives_one_answer(model):
    texts = FRAME["review"][:3]
    answers = model(texts)
    assert answers == model(list(texts)) == list(model.predict(list(texts)))
    one = model(texts[0])
    assert one.label == answers[0].label and one.probabilities == pytest.approx(answers[0].probabilities)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, lambda f: f.to_dict("list")])
def test_tables_are_answered_as_predict_does(kind, model, home):
    table = kind(FRAME[:5])
    answered = model(table)
    assert type(answered) is type(table)
    FRAME[:5].to_csv(home / "five.csv", index=False)
    works("predict", "runs/sent", "five.csv", "--out=scored.csv", "--device=cpu")
    scored = pd.read_csv(home / "scored.csv")
    pd.testing.assert_frame_equal(to_arrow(answered).to_pandas(), scored, check_dtype=False, rtol=1e-6)
    assert model(Path("five.csv"))[0]["label"] == scored["label"][0]


def test_evaluate_is_the_command_lines(model):
    verdict = regard.evaluate(model, FRAME, quiet=True)
    labels = [answer.label for answer in model(FRAME["review"])]
    assert verdict["accuracy"] == pytest.approx((pd.Series(labels) == FRAME["y"]).mean())
    assert str(verdict).startswith("on a table in memory, 40 texts\n")
    own = regard.evaluate("runs/sent", device="cpu", quiet=True)
    assert works("evaluate", "runs/sent", "--device=cpu").out == f"runs/sent {own}\n"


def test_compare_finds_no_difference_of_a_model_to_itself(model):
    result = regard.compare(model, "runs/sent", FRAME, device="cpu", quiet=True)
    assert result.examples == 40 and result.differences[0].p_value == 1.0


def test_look_returns_the_weights_of_another_implementation(tmp_path):
    tiny.write(tmp_path / "encoder", "encoder")
    model, text = regard.load(tmp_path / "encoder"), "The cat sat."
    seen = regard.look(model, text)
    other = transformers.BertModel.from_pretrained(tmp_path / "encoder", attn_implementation="eager").eval()
    ids = torch.tensor([[token["id"] for token in seen.streams["text"]]])
    with torch.inference_mode():
        expected = torch.cat(other(ids, output_attentions=True).attentions)
    torch.testing.assert_close(seen.attention["self"].weights, expected, rtol=1e-5, atol=1e-6)
    assert seen.draw(tmp_path / "seen.png", layer=1, head=2).stat().st_size > 1000


def test_translation_takes_two_columns(home):
    frame = pd.DataFrame(
        [(f"a {x} {n}", f"un {y} {n}") for n in range(40) for x, y in [("dog", "chien"), ("cat", "chat")]]
    )
    tiny = {"data.vocab": 320, "model.width": 16, "model.encoder_layers": 1, "model.decoder_layers": 1, "model.ffn": 16}
    trained = regard.train(
        "translate", source=frame[0], target=frame[1], steps=1, settings=tiny | {"schedule.warmup": 1}, quiet=True
    )
    translated = trained.load("cpu")(frame.rename(columns=str)[:2], text="0", beam=1)
    assert list(translated.columns) == ["0", "1", "text"] and len(translated) == 2


def test_rows_of_numbers_are_taken_as_they_are(home):
    frame = pd.DataFrame({"hours": range(40), "school": ["north", "south"] * 20, "passed": [n > 20 for n in range(40)]})
    trained = regard.train("table", frame, label="passed", steps=1, settings={"schedule.warmup": 1}, quiet=True)
    model = trained.load("cpu")
    answer = model({"hours": 12, "school": "north"})
    assert answer == model([{"hours": 12, "school": "north"}])[0] == model([{"hours": "12", "school": "north"}])[0]
    assert {"passed", "predicted_passed"} <= set(model(frame).columns)


def test_empty_tables_are_an_error(home):
    with pytest.raises(DataError, match="no rows"):
        regard.train("classify", FRAME[:0], **HOW)


def test_examples_of_the_page_run(tmp_path, monkeypatch, capsys):
    """Every Python block of docs/python.md, one after the other, with two steps of a tiny model in place of minutes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    FRAME.rename(columns={"y": "sentiment"}).to_csv("reviews.csv", index=False)
    tiny.write(tmp_path / "minilm", "encoder")
    full = api.train

    def short(task, data="", *, minutes=None, settings=None, start="", **how):
        settings = {"schedule.warmup": 1} | ({} if start else TINY | (settings or {}))
        return full(task, data, start=start, steps=2, settings=settings, **{**how, "quiet": True})

    monkeypatch.setattr(api, "train", short)
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text("utf-8")
    names = {}
    for code in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S):
        exec(compile(code, "docs/python.md", "exec"), names)
    assert list(names["scored"].columns)[-2:] == ["probability_neg", "probability_pos"]
    assert "accuracy" in capsys.readouterr().out
