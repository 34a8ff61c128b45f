"""`regard look` and `regard train --studio`: figures as files, and curves while they grow."""

import base64
import json
import re
import xml.etree.ElementTree as xml

import pytest
import torch
from PIL import Image
from tests.packed import unpack
from tests.system.cli_toy import regard, works
from tests.unit.inside import tiny

import regard as package
from regard.explain.picture import heatmap
from regard.inside.look import look
from regard.inside.looked import Question
from regard.serve import saved

TEXT = "The cat drank <the> milk & </script> it."
NAMES = ("gpt", "lstm", "masked", "classifier", "pair", "tagger", "encoder", "transformer", "lstm-translator")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("look")
    for name in NAMES:
        tiny.write(folder / name, name)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_of_every_family(runs, tmp_path, name):
    out = tmp_path / "a.png"
    result = works("look", runs / name, "The [MASK] cat costs $3.", "--second", "A cat.", "--out", out)
    assert result.out.strip() == str(out) and result.err
    with Image.open(out) as image:
        assert image.width > 300 and len(image.convert("L").getcolors(256)) > 10
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


def test_a_drawing_is_xml_with_the_tokens_in_it(runs, tmp_path):
    works("look", runs / "gpt", "<b>", "--out", tmp_path / "a.svg", "-q")
    assert xml.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")


def test_one_head_is_drawn_on_request(runs, tmp_path, monkeypatch):
    titles = []
    monkeypatch.setattr("regard.explain.picture.heatmap", lambda *words: titles.append(words[4]) or heatmap(*words))
    works("look", runs / "gpt", "a cat", "--layer=2", "--head=3", "--out", tmp_path / "one.png")
    works("look", runs / "gpt", "a cat", "--layer=1", "--out", tmp_path / "all.png")
    assert titles == ["layer 2, head 3", *(f"layer 1, head {head}" for head in (1, 2, 3, 4))]
    assert "there are layers 1 to 2" in regard("look", runs / "gpt", "a", "--layer=3", "--out", tmp_path / "x.png").err
    assert "there are heads 1 to 4" in regard("look", runs / "gpt", "a", "--head=5", "--out", tmp_path / "x.png").err
    assert "has none" in regard("look", runs / "lstm", "a cat", "--head=1", "--out", tmp_path / "x.png").err
    assert "are for pictures" in regard("look", runs / "gpt", "a", "--head=1", "--out", tmp_path / "x.html").err


def test_a_page_carries_its_numbers(runs, tmp_path, monkeypatch):
    page = tmp_path / "page"
    page.mkdir()
    whole = '<!doctype html><script id="regard-look" type="application/json">null</script><p>after</p>'
    (page / "figure.html").write_text(whole)
    monkeypatch.setattr(saved, "PAGE", page)
    out = tmp_path / "a.html"
    works("look", runs / "gpt", TEXT, "--out", out)
    text = out.read_text("utf-8")
    carried = re.search(r'json">(.*)</script><p>after</p>$', text, re.DOTALL)[1]
    assert "<" not in carried, "a piece of the vocabulary could end the script it travels in"
    actual = json.loads(carried)
    header, tensors = unpack(base64.b64decode(actual["look"]))
    assert "".join(t["text"] for t in header["streams"]["text"]["tokens"]) == TEXT
    writer = package.load(runs / "gpt")
    with torch.no_grad():
        logits = writer.model.logits(writer.hidden(writer.encode(TEXT)))[-1]
    torch.testing.assert_close(torch.tensor(tensors["logits"]), logits)
    assert len([path for path in actual["parts"] if path.startswith("/api/head?look=file&kind=self&")]) == 8
    rows = [path for path in actual["parts"] if path.startswith("/api/row?look=file&kind=self&")]
    assert len(rows) == len(header["streams"]["text"]["tokens"])
    vocabulary = actual["parts"]["/api/vocab?model=runs%2Fgpt"]["json"]
    assert len(vocabulary["texts"]) == writer.model.config.vocab and max(vocabulary["untypable"]) < len(
        vocabulary["texts"]
    )
    size = len(header["streams"]["text"]["tokens"])
    about, part = unpack(
        base64.b64decode(actual["parts"][f"/api/embedding?look=file&stream=text&from=0&to={size}"]["tensors"])
    )
    torch.testing.assert_close(torch.tensor(part["token"]), writer.model.token.weight[writer.encode(TEXT)].detach())
    assert about["rows"] == size and "/api/positions?model=runs%2Fgpt&n=64" in actual["parts"]
    assert actual["state"].startswith("#model=runs%2Fgpt&text=The+cat")

    works("look", runs / "lstm", TEXT, "--out", out)
    assert '"/api/recurrent?look=file"' in out.read_text("utf-8")


def test_look_shows_one_head_of_each_attention_first(runs, monkeypatch):
    view = look(package.load(runs / "transformer"), Question(text="The cat drank the milk.", target="Ein Mann"))
    monkeypatch.setattr(saved, "ROOM", 2000)
    heads = [path for path in saved.parts(view, "runs/x") if path.startswith("/api/head")]
    for kind, seen in view.overviews.items():
        layer, head = seen.sharpest
        assert f"/api/head?look=file&kind={kind}&layer={layer}&head={head}&stage=weights" in heads
    assert len(heads) < 12, "there was room for all: nothing was put to the test"


def test_parts_are_found_under_the_address_a_browser_writes(runs):
    """`encodeURIComponent` leaves A-Z a-z 0-9 - _ . ! ~ * ' ( ) as they are (ECMA-262, section 19.2.6)."""
    view = look(package.load(runs / "gpt"), Question(text="The cat"))
    carried = saved.parts(view, "runs/it's mine (2)!*~")
    assert "/api/vocab?model=runs%2Fit's%20mine%20(2)!*~" in carried
    assert "/api/positions?model=runs%2Fit's%20mine%20(2)!*~&n=64" in carried


def test_names_that_are_no_figure_and_pages_that_are_not_built(runs, tmp_path, monkeypatch):
    result = regard("look", runs / "gpt", TEXT, "--out", tmp_path / "a.gif")
    assert result.code == 2 and "a.html" in result.err
    monkeypatch.setattr(saved, "PAGE", tmp_path / "none")
    result = regard("look", runs / "gpt", TEXT, "--out", tmp_path / "a.html")
    assert result.code == 2 and "make page" in result.err
    result = regard("look", runs / "transformer", " ", "--out", tmp_path / "a.png")
    assert result.code == 2 and "empty" in result.err
    assert not list(tmp_path.iterdir())


def test_curves_can_be_watched_while_they_grow(tmp_path, monkeypatch):
    import urllib.request

    from regard.training import log

    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.txt").write_text("the cat sat on the mat.\n" * 300)
    heard, whole = [], log.Log.__call__
    messages: list[str] = []
    monkeypatch.setattr("regard.ticks.Console.say", lambda _, text: messages.append(text))

    def listening(self, event, *rest, **more):
        whole(self, event, *rest, **more)
        address = next(line for line in messages if line.startswith("studio: "))[8:].split("#")[0]
        runs = json.loads(urllib.request.urlopen(f"{address}api/runs", timeout=60).read())["runs"]
        events = urllib.request.urlopen(f"{address}api/metrics?run={runs[0]['id']}", timeout=60).read()
        heard.append((runs[0]["id"], len(json.loads(events)["events"])))

    monkeypatch.setattr(log.Log, "__call__", listening)
    small = ["--set=model.context=32", "--set=model.width=16", "--set=model.layers=1", "--set=model.heads=2",
             "--set=model.ffn=16", "--device=cpu"]  # fmt: skip
    works("train", "lm", "--data=my.txt", "--tokens=bytes", *small, "--steps=20", "--name=x", "--studio")
    assert heard and [n for _, n in heard] == list(range(1, len(heard) + 1)) and heard[0][0] == "runs/x"
