"""`regard gradients`: tables, sentences that follow from them, a picture, JSON, and what goes wrong."""

import json
import re
import sys

import pytest
from tests.system.cli_toy import regard, works

SHORT = ["gradients", "--arch=rnn,gpt", "--length=12"]


def test_every_measurement_is_a_table_and_a_sentence(tmp_path):
    result = works(*SHORT, f"--out={tmp_path}/a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    blocks = result.out.strip().split("\n\n")
    assert [b.split("  ")[0] for b in blocks[1:]] == [
        "untrained networks",
        "an RNN, its recurrent matrix scaled",
        "remedies",
        "clipping to 1",
    ]
    for block in blocks[1:]:
        assert block.endswith("."), "the finding stands below its table"
    rows = {line.split("  ")[0] for line in result.lines}
    assert {"rnn", "gpt", "linear, radius 1.5", "tanh, radius 3", "gates: GRU", "attention: GPT"} <= rows
    assert re.search(r"gradient of rnn vanishes .* and that of gpt persists", result.out)


def test_json_holds_the_curves_the_sentences_were_made_from():
    answer = json.loads(works(*SHORT, "--json").out)
    assert [m["name"] for m in answer["models"]] == ["rnn", "gpt"]
    assert all(len(row["norms"]) == 13 for part in ("models", "radii", "remedies") for row in answer[part])
    far = answer["models"][0]["norms"]
    assert f"({far[12] / far[1]:.0e})" in answer["findings"][0]
    assert len(answer["findings"]) == 4 and answer["memory"] == answer["weights"] == answer["speed"] == []


def test_memory_and_speed_add_a_table_each(monkeypatch):
    from regard.lab import recall

    monkeypatch.setattr(recall, "UPDATES", 3)
    monkeypatch.setattr(recall, "TOKENS", 2048)
    monkeypatch.setattr(recall, "REPEATS", 1)
    result = works("gradients", "--arch=gpt,mlp,conv3", "--length=12", "--memory", "--speed", "--device=cpu")
    memory, costs, speed = result.out.strip().split("\n\n")[-3:]
    assert "that of conv3 vanishes (0; exactly zero from 9 steps on)" in result.out
    assert "gpt, each from scratch" in memory and "gpt, short distances first" in memory
    assert "mlp, each from scratch" in memory and "mlp, short" not in memory and "\nmlp" not in speed
    assert costs.endswith("Parameters per additional token: gpt 64, mlp 4,096 and the others none.")
    assert "gpt to 0" in memory and "at most 3 updates" in memory and "–" in memory
    assert speed.startswith("ms for 2,048 tokens on cpu") and "Fastest at 2,048 is" in speed and "\nconv3" in speed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--arch=rnn,lstn"], ["'lstn'", "did you mean 'lstm'"]),
        (["--arch=,"], ["--arch", "rnn,lstm,gpt"]),
        (["--out=a.txt"], ["a.txt", ".png"]),
        (["--length=2000"], ["--length", "1000"]),
        (["--device=tpu"], ["'tpu'", "cuda"]),
    ],
)
def test_bad_words_are_told_before_the_work(words, message):
    result = regard("gradients", *words)
    assert result.code == 2 and not result.out
    assert all(part in result.err for part in message), result.err


def test_without_matplotlib_there_are_tables_and_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = works(*SHORT, f"--out={tmp_path}/a.png")
    assert "no picture" in result.err and "regard[plot]" in result.err
    assert "attention: GPT" in result.out and not list(tmp_path.iterdir())
