"""What a look says in the end, against the predictors and against torch."""

import copy

import pytest
import torch
import torch.nn.functional as F
from tests.packed import unpack
from tests.unit.inside.tiny import CONFIGS
from torch.testing import assert_close as close

from regard.data.pairs import clean
from regard.errors import ConfigError, DataError
from regard.inside.findings import of_next
from regard.inside.look import look
from regard.inside.looked import Question
from regard.inside.tokens import candidates, vocabulary
from regard.tasks.multilabel import LabelSetOutput

TEXT = "The cat drank the milk because it was hungry."
LMS = [name for name, (task, _) in CONFIGS.items() if task == "lm"]


@pytest.mark.parametrize("name", LMS)
def test_next_token_and_surprisal_are_the_models(open_model, name):
    writer = open_model(name)
    header, tensors = unpack(look(writer, Question(text=TEXT)).bytes())
    ids = torch.tensor(writer.encode(TEXT))
    with torch.no_grad():
        logits = writer.model.logits(writer.model(ids[None]))[0]
    close(torch.tensor(tensors["logits"]), logits[-1])
    actual = header["results"]["next"]
    close(torch.tensor(actual["surprisal"][1:]), F.cross_entropy(logits[:-1], ids[1:], reduction="none"))
    assert actual["surprisal"][0] is None
    likely = logits[-1].softmax(-1)
    order = likely.argsort(descending=True)
    assert [t["id"] for t in actual["top"]] == order[:64].tolist()
    close(torch.tensor([t["p"] for t in actual["top"]]), likely[order[:64]])
    table = writer.next(TEXT, top=3)
    assert [c.id for c in table] == [t["id"] for t in actual["top"][:3]]
    words = vocabulary(writer)["texts"]
    assert [t["text"] for t in actual["top"]] == [words[t["id"]] for t in actual["top"]]


def test_sentences_are_free_of_control_characters(open_model):
    """A terminal would obey them, and no SVG may have them."""
    for name, text in (("gpt", "a\x1b[31m\x07 cat"), ("transformer", "a cat")):
        view = look(open_model(name), Question(text=text, target="le\x1b chat"))
        assert all(sentence.isprintable() for sentence in view.finding.values())
    assert of_next({"top": [{"text": "\x07", "p": 0.5}], "surprisal": [None]}, [{"text": "a"}]).isprintable()


def test_a_text_too_long_is_cut_and_said(open_model):
    writer = open_model("gpt")
    long = TEXT * 9
    view = look(writer, Question(text=long))
    (note,) = view.notes
    assert "64 tokens" in note and len(view.streams["text"]) == 64
    assert [t["id"] for t in view.results["next"]["top"][:5]] == [c.id for c in writer.next(long, top=5)]
    assert long.endswith("".join(t["text"] for t in view.streams["text"]))
    (note,) = look(open_model("masked"), Question(text=long + " [MASK]")).notes[:1]
    assert "48 tokens" in note
    view = look(open_model("transformer"), Question(text=long, target="Ein"))
    assert len(view.streams["source"]) == 64 and view.streams["source"][-1]["text"] == "</s>" and view.notes


def test_labels_gaps_and_likeness_are_the_predictors(open_model):
    found = look(open_model("classifier"), Question(text=TEXT)).results["classes"]
    (answer,) = open_model("classifier").classify([TEXT])
    assert {c["label"]: c["p"] for c in found} == pytest.approx(answer.probabilities)
    found = look(open_model("pair"), Question(text=TEXT, second="A cat.")).results["classes"]
    (answer,) = open_model("pair").classify([TEXT], ["A cat."])
    assert {c["label"]: c["p"] for c in found} == pytest.approx(answer.probabilities)
    found = look(open_model("lstm-classifier"), Question(text=TEXT)).results["classes"]
    (answer,) = open_model("lstm-classifier").classify([TEXT])
    assert {c["label"]: c["p"] for c in found} == pytest.approx(answer.probabilities)

    found = look(open_model("tagger"), Question(text=TEXT)).results["tags"]
    words = open_model("tagger").tag(TEXT)
    assert [(t["word"], t["label"], t["start"], t["end"]) for t in found] == [
        (w.word, w.label, w.start, w.end) for w in words
    ]
    assert [t["p"] for t in found] == pytest.approx([w.probability for w in words])

    text = "The [MASK] drank the [MASK]."
    found = look(open_model("masked"), Question(text=text)).results["fill"]
    gaps = open_model("masked").fill(text, top=10)
    assert [[(w["id"], pytest.approx(w["p"])) for w in gap["words"]] for gap in found] == [
        [(w.id, w.probability) for w in gap] for gap in gaps
    ]
    for name in ("encoder", "masked"):
        found = look(open_model(name), Question(text=TEXT, second="The check, server?")).results["similar"]
        (other,) = open_model(name).similar(TEXT, ["The check, server?"])
        assert found["cosine"] == pytest.approx(other.score, abs=1e-5)


@pytest.mark.parametrize("name", ["transformer", "prenorm", "lstm-translator", "gru-bottleneck"])
@pytest.mark.parametrize("prefix", ["", "Ein Mann"])
def test_hypotheses_are_those_of_the_search(open_model, name, prefix):
    translator = open_model(name)
    answer = look(translator, Question(text=TEXT, beam=4, prefix=prefix)).results["translation"]
    given = [prefix] if prefix else None
    (expected,) = translator.hypotheses([TEXT], beam=4, n_best=4, prefix=given)
    assert [h["text"] for h in answer["hypotheses"]] == [h.text for h in expected]
    assert [h["score"] for h in answer["hypotheses"]] == pytest.approx([h.score for h in expected], abs=1e-4)
    for one, other in zip(answer["hypotheses"], expected, strict=True):
        assert [t["id"] for t in one["tokens"]] == other.ids
        assert sum(t["logp"] for t in one["tokens"]) == pytest.approx(other.log_probability, abs=1e-3)
    best = answer["hypotheses"][0]["tokens"]
    for step, token in zip(answer["steps"], best, strict=True):
        assert step["token"] == token["text"] and len(step["top"]) == 8
        assert step["top"][0]["p"] == max(w["p"] for w in step["top"])


def eager(translator, by: float):
    """A copy that likes to end: untrained models hardly ever do."""
    translator = copy.deepcopy(translator)
    with torch.no_grad():
        states = translator.model(torch.tensor([[5, 6, 7, 0]]), None, torch.tensor([[translator.tokenizer.pad, 9, 10]]))
        lean = states[0].mean(0)
        translator.model.token.weight[translator.tokenizer.eos] += by * lean / lean.norm()
    return translator


@pytest.mark.parametrize(("name", "by"), [("transformer", 1), ("lstm-translator", 1), ("gru-bottleneck", 2)])
def test_kept_candidates_are_the_beams_of_the_next_step(open_model, name, by):
    """Walking the parents back from what ended gives the hypotheses themselves."""
    translator = eager(open_model(name), by)
    answer = look(translator, Question(text=TEXT, beam=3)).results["translation"]
    (expected,) = translator.hypotheses([TEXT], beam=3, n_best=3)
    ended, alive = [], [[]]
    for step in answer["beam"]:
        grown = []
        for candidate in step:
            ids = [*alive[candidate["parent"]], candidate["id"]]
            if candidate["kept"]:
                (ended if candidate["ends"] else grown).append(ids)
        alive = grown
    assert len(ended[0]) < 4, "nothing ended on the way"
    assert [[t["id"] for t in h["tokens"]] for h in answer["hypotheses"]] == [h.ids for h in expected]
    assert all(h.ids in ended for h in expected)


def test_a_given_translation_is_scored(open_model):
    translator = open_model("transformer")
    view = look(translator, Question(text=TEXT, target="Ein Mann liest ein Buch."))
    (hypothesis,) = view.results["translation"]["hypotheses"]
    assert "given" in view.finding["translation"] and "best" not in view.finding["translation"]
    assert hypothesis["text"] == "Ein Mann liest ein Buch."
    assert hypothesis["score"] == pytest.approx(translator.score([TEXT], ["Ein Mann liest ein Buch."])[0], abs=1e-4)
    target, inputs = view.streams["target"], view.streams["inputs"]
    assert [t["id"] for t in inputs[1:]] == [t["id"] for t in target[:-1]] and inputs[0]["special"]


def test_questions_that_have_no_answer_are_refused(open_model):
    for name in ("transformer", "classifier", "tagger"):
        with pytest.raises(DataError, match="empty"):
            look(open_model(name), Question(text="  "))
    with pytest.raises(ConfigError, match="beam"):
        look(open_model("transformer"), Question(text="a", beam=11))
    assert any("[MASK]" in note for note in look(open_model("masked"), Question(text=TEXT)).notes)


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "😀" * 300, "a\x00b\n\t", "ü  ﷽ 字", TEXT])
@pytest.mark.parametrize("name", ["gpt", "transformer", "masked", "tagger", "lstm"])
def test_chips_tell_where_they_stand(open_model, name, text):
    view = look(open_model(name), Question(text=text, target="x"))
    chips = view.streams.get("text") or view.streams["source"]
    shown = clean(text) if name == "transformer" else text
    last = 0
    for chip in chips:
        assert "\n" not in chip["shown"] and " " not in chip["shown"]
        if chip["special"] or chip["bytes"] is not None or chip["start"] == chip["end"]:
            continue
        assert chip["start"] >= last
        last = chip["start"]
        if name in ("gpt", "lstm"):
            assert shown[chip["start"] : chip["end"]] == chip["text"]
        if name == "transformer":
            assert shown[chip["start"] : chip["end"]] == chip["text"].strip()
    if name in ("gpt", "lstm") and not view.notes:
        whole = b"".join(bytes(c["bytes"]) if c["bytes"] else c["text"].encode() for c in chips)
        assert whole == text.encode()


def test_words_are_numbered(open_model):
    chips = look(open_model("gpt"), Question(text="The  cat\ndrank it.")).streams["text"]
    words = {}
    for chip in chips:
        words[chip["word"]] = words.get(chip["word"], "") + chip["text"]
    assert words == {0: "The", 1: "  cat", 2: "\ndrank", 3: " it."}
    chips = look(open_model("pair"), Question(text="The cat.", second="The milk.")).streams["text"]
    plain = [(c["text"], c["word"], c.get("sentence", 0)) for c in chips if not c["special"]]
    assert plain == [("the", 0, 0), ("cat", 1, 0), (".", 2, 0), ("the", 3, 1), ("milk", 4, 1), (".", 5, 1)]


def test_several_labels_have_probabilities_of_their_own(open_model, monkeypatch):
    classifier = open_model("classifier")
    monkeypatch.setattr(classifier, "output", LabelSetOutput(classifier.labels, [0.5, 0.5]))
    shown = look(classifier, Question(text=TEXT)).results["classes"]
    (answer,) = classifier.predict([TEXT])
    assert {one["label"]: one["p"] for one in shown} == pytest.approx(answer.probabilities)


def test_a_predictor_without_figures_is_refused(open_model, monkeypatch):
    classifier = open_model("classifier")
    monkeypatch.setattr(classifier, "family", "")
    with pytest.raises(ConfigError, match="no figures for this model"):
        look(classifier, Question(text=TEXT))


def test_specials_and_parts_of_characters_cannot_be_typed(open_model):
    tokenizer = open_model("transformer").tokenizer
    specials = {tokenizer.eos, tokenizer.unk, tokenizer.pad}
    whole = candidates(tokenizer, range(tokenizer.size))
    byte = next(one for one in whole if one["text"] == "<0xC3>")
    assert specials | {byte["id"]} <= {one["id"] for one in whole if not one["typable"]}
    assert all(one["typable"] for one in candidates(tokenizer, tokenizer.encode_batch(["cat"])[0]))
    steps = look(open_model("transformer"), Question(text=TEXT)).results["translation"]["steps"]
    assert all(one["typable"] == whole[one["id"]]["typable"] for step in steps for one in step["top"])
