"""One word in two texts, against sums done by hand."""

import pytest
import torch
from torch.testing import assert_close as close

from regard.errors import DataError
from regard.inside import pair as comparing
from regard.inside.attention import stages
from regard.inside.look import look
from regard.inside.looked import Question
from regard.inside.pair import pair, shared_word

A, B = "The cat drank the milk because it was hungry.", "The cat drank the milk because it was sweet."
CHECK = lambda: None  # noqa: E731


@pytest.mark.parametrize("name", ["masked", "encoder", "transformer", "tagger"])
def test_rows_and_their_difference(open_model, name):
    predictor = open_model(name)
    header, t = pair(predictor, (A, 6), (B, 6), CHECK)
    kind, stream = ("encoder", "source") if name == "transformer" else ("self", "text")
    chips = header["tokens_a"]
    assert "".join(chips[i]["text"] for i in header["rows"]["a"]["tokens"]).strip() == "it"
    sides = [look(predictor, Question(text=text, target="x")) for text in (A, B)]
    rows = []
    for found, name_, places in zip(
        sides, "ab", (header["rows"]["a"]["tokens"], header["rows"]["b"]["tokens"]), strict=True
    ):
        assert [c["id"] for c in found.streams[stream]] == [c["id"] for c in header[f"tokens_{name_}"]]
        expected = torch.stack([
            torch.stack([stages(layer, h)["weights"][places].mean(0) for h in range(2)])
            for layer in found.attention[kind].layers
        ])  # fmt: skip
        close(t[f"row_{name_}"], expected)
        rows.append(expected)
    ids = [[c["id"] for c in found.streams[stream]] for found in sides]
    for ranked in header["heads"]:
        mine, other = (r[ranked["layer"], ranked["head"]] for r in rows)
        if len(ids[0]) == len(ids[1]):  # then each place is compared with itself, and a new word counts in full
            parts = zip(*ids, mine, other, strict=True)
            moved = sum(abs(x - y) if one == two else x + y for one, two, x, y in parts) / 2
            assert ranked["difference"] == pytest.approx(float(moved), abs=1e-6)
        assert 0 <= ranked["difference"] <= 1 + 1e-6
    values = [h["difference"] for h in header["heads"]]
    assert values == sorted(values, reverse=True) and values[0] > 1e-4 and len(values) == 4


def test_vectors_and_occlusion(open_model):
    predictor = open_model("masked")
    header, _ = pair(predictor, (A, 6), (B, 6), CHECK)
    (at,) = header["rows"]["a"]["tokens"]

    def states(ids):
        kept = []
        predictor.model(torch.tensor([ids]), kept=kept)
        return [x[0] for x in kept[1:]]

    ids = [[c["id"] for c in header[f"tokens_{n}"]] for n in "ab"]
    with torch.no_grad():
        one, two = (states(row) for row in ids)
        expected = [torch.cosine_similarity(x[at], y[at], dim=0).item() for x, y in zip(one, two, strict=True)]
        assert header["cosine"] == pytest.approx([1.0, *expected], abs=1e-5)
        assert [o["text"] for o in header["occlusion_a"]] == [
            "the",
            "cat",
            "drank",
            "the",
            "milk",
            "because",
            "was",
            "hungry",
            ".",
        ]
        for other in header["occlusion_a"]:
            row = [predictor.tokenizer.mask if c["word"] == other["word"] else c["id"] for c in header["tokens_a"]]
            change = 1 - torch.cosine_similarity(states(row)[-1][at], one[-1][at], dim=0).item()
            assert other["change"] == pytest.approx(change, abs=1e-5)


def test_who_looks_back_only_cannot_tell(open_model):
    header, _ = pair(open_model("gpt"), (A, 6), (B, 6), CHECK)
    assert header["heads"][0]["difference"] < 1e-6 and "looks back only" in header["finding"]
    assert header["cosine"] == pytest.approx([1.0] * 3)
    late = {o["text"]: o["change"] for o in header["occlusion_a"]}
    assert late["hungry."] == pytest.approx(0, abs=1e-6) and late["milk"] > 1e-4


@pytest.mark.parametrize("name", ["gpt", "masked"])
def test_a_text_beside_itself_is_the_same(open_model, name):
    header, _ = pair(open_model(name), (A, 6), (A, 6), CHECK)
    assert "the same" in header["finding"] and "looks back only" not in header["finding"]


def test_two_words_are_both_named(open_model):
    header, _ = pair(open_model("masked"), (A, 8), (B, 8), CHECK)
    assert "“hungry”" in header["finding"] and "“sweet”" in header["finding"]


def test_words_that_were_not_hidden_are_told(open_model, monkeypatch):
    assert not pair(open_model("gpt"), (A, 6), (B, 6), CHECK)[0]["few"]
    monkeypatch.setattr(comparing, "MOST_WORDS", 7)  # of nine, and one is the word itself
    header, _ = pair(open_model("gpt"), (A, 6), (B, 6), CHECK)
    assert header["few"] and len(header["occlusion_a"]) == 7


def test_a_recurrent_model_has_vectors_and_no_rows(open_model):
    header, t = pair(open_model("lstm"), ("it was sweet", 0), ("milk it was", 1), CHECK)
    assert not t and not header["heads"] and len(header["cosine"]) == 2 and len(header["occlusion_b"]) == 2


def test_a_word_that_is_not_there(open_model):
    with pytest.raises(DataError, match="no word number 99"):
        pair(open_model("masked"), (A, 99), (B, 6), CHECK)


def test_the_word_to_compare_is_one_that_both_texts_have(open_model):
    gpt, bert = open_model("gpt"), open_model("masked")
    assert shared_word(gpt, A, B) == (6, 6), "it"
    assert shared_word(gpt, "Server, can I have the check?", "Looks like I just crashed the server.") == (0, 6)
    assert shared_word(gpt, "one", "two") == (0, 0)
    first, second = "Well, the cat knows it.", "The cat knows it."
    assert shared_word(gpt, first, second) == (4, 3)
    assert shared_word(bert, first, second) == (5, 3), "BERT cuts the comma off"
    header, _ = pair(gpt, (A, -1), (B, -1), CHECK)
    assert header == pair(gpt, (A, 6), (B, 6), CHECK)[0]
