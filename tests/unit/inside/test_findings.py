"""What the studio says in words follows from the tensors it names, worked out here once more."""

import re
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from regard.inside import recurrent
from regard.inside.attention import Overview
from regard.inside.findings import add_findings, of_attention, of_next
from regard.inside.look import look
from regard.inside.looked import Question
from regard.inside.pair import pair
from regard.inside.positions import permute, positions
from regard.inside.reach import finding as reach_finding
from regard.inside.recurrent import unrolled

TEXT = "The cat drank the milk because it was hungry."
OTHER = "The cat drank the milk because it was sweet."


def numbers(sentence: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", sentence)]


def percent(share: float) -> str:
    return f"{share:.0%}"


# -- recurrent ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gru", "lstm", "rnn", "lstm-classifier", "lstm-translator", "gru-bottleneck"])
def test_the_sentence_about_a_gate_is_about_that_gate(open_model, name):
    predictor = open_model(name)
    header, t = unrolled(look(predictor, Question(text=TEXT, target="Ein")))
    cell = predictor.model.config.cell
    named = {"gru": ("update gate keeps", "update"), "lstm": ("forget gate keeps", "forget"), "rnn": ("tanh", "states")}
    words, gate = named[cell]
    share = float((t[gate].abs() > 0.95).float().mean() if cell == "rnn" else t[gate].mean())
    assert words in header["finding"] and percent(share) in header["finding"]
    assert len(numbers(header["finding"])) == (2 if "0.95" in header["finding"] else 1)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("keeps", [-4.0, 0.5, 4.0])
def test_what_a_gate_is_said_to_keep_is_kept(kind, keeps):
    """With a gate held open or shut, the share of the old state in the new one is the share reported."""
    torch.manual_seed(0)
    gates, width = {"gru": 3, "lstm": 4}[kind], 5
    into, back = torch.zeros(gates * width, 3), torch.zeros(gates * width, width)
    bias = torch.zeros(gates, width)
    bias[1] = keeps  # of a GRU: reset, update, new; of an LSTM: input, forget, candidate, output
    bias[0], bias[2] = -1.5, 2.0
    t = recurrent.of_layer(kind, torch.randn(6, 3), (into, back, bias.flatten(), torch.zeros(gates * width)))
    state = t["states"] if kind == "gru" else t["cell"]
    fresh = t["new"] if kind == "gru" else t["candidate"]
    slope = (state[2] - state[1]) / (state[1] - state[0])  # what comes new is the same at each step, and cancels
    assert fresh[1].equal(fresh[2])
    sentence = recurrent.finding(kind, t)
    assert percent(float(slope.mean())) in sentence and percent(float(torch.tensor(keeps).sigmoid())) in sentence


# -- attention ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt", "llama", "masked", "classifier", "transformer", "lstm-translator"])
def test_the_sentence_about_attention_counts_from_one(open_model, name):
    view = look(open_model(name), Question(text=TEXT, target="Ein Mann"))
    text = view.finding["attention"]
    for kind, attention in view.attention.items():
        tables = [look_.weights()[0] for look_ in attention.layers]  # H T S each
        if tables[0].ndim == 2:
            tables = [table[None] for table in tables]
        sharp = torch.stack([table.amax(-1).mean(-1) for table in tables])  # L H
        resting = torch.stack([table[..., 0].mean(-1) for table in tables])
        layer, head = divmod(int((sharp - resting).argmax()), sharp.size(1))
        assert (
            f"head {head + 1} of layer {layer + 1}: on average a token gives {percent(float(sharp[layer, head]))}"
            in text
        )
        if kind == "self" and float(resting.mean()) > 0.3:
            assert f"{percent(float(resting.mean()))} of all weight rests on the first token" in text
        else:
            assert kind != "self" or "rests on the first token." not in text


@pytest.mark.parametrize(("resting", "reported"), [(0.29, False), (0.31, True), (0.45, True)])
def test_resting_attention_is_reported_above_30_percent(resting, reported):
    sharpness, table = torch.tensor([[0.6, 0.9]]), torch.full((1, 2), resting)
    sentence = of_attention("self", Overview(torch.zeros(1, 2, 1, 1), 1.0, sharpness, table))
    assert (f"{percent(resting)} of all weight rests on the first token." in sentence) == reported
    assert "rests" not in of_attention("cross", Overview(torch.zeros(1, 2, 1, 1), 1.0, sharpness, table))


# -- answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt", "llama", "lstm", "gru"])
def test_the_sentence_about_the_next_token(open_model, name):
    writer = open_model(name)
    text = look(writer, Question(text=TEXT)).finding["next"]
    ids = torch.tensor(writer.encode(TEXT))
    with torch.no_grad():
        logits = writer.model.logits(writer.model(ids[None]))[0]
    best = int(logits[-1].argmax())
    nats = F.cross_entropy(logits[:-1], ids[1:], reduction="none")
    named = writer.tokenizer.piece
    surprising = named(int(ids[1 + int(nats.argmax())])).strip()
    assert f"“{named(best).strip()}”, with {float(logits[-1].softmax(-1)[best]):.1%}" in text
    assert f"The most surprising one was “{surprising}”, with {float(nats.max()):.1f} nats" in text


def test_the_first_token_surprises_nobody():
    """Nothing stands before it, so it has no surprisal, and cannot be the most surprising one."""
    chips = [{"text": "x"}, {"text": "y"}, {"text": "z"}]
    text = of_next({"top": [{"text": "a", "p": 0.25}], "surprisal": [None, 0.5, 3.25]}, chips)
    assert text == "The likeliest next token is “a”, with 25.0%. The most surprising one was “z”, with 3.2 nats."
    assert "surprising" not in of_next({"top": [{"text": "a", "p": 0.25}], "surprisal": [None]}, chips[:1])


@pytest.mark.parametrize("name", ["classifier", "pair", "lstm-classifier"])
def test_the_sentence_about_classes_names_the_likeliest(open_model, name):
    second = "A cat." if name == "pair" else ""
    (answer,) = open_model(name).classify([TEXT], [second] if second else None)
    text = look(open_model(name), Question(text=TEXT, second=second)).finding["classes"]
    assert text == f"The likeliest class is {answer.label}, with {answer.probabilities[answer.label]:.1%}."


def test_the_sentence_about_tags_counts_the_marked(open_model):
    words = open_model("tagger").tag(TEXT)
    marked = [f"{w.word} ({w.label})" for w in words if w.label != "O"]
    text = look(open_model("tagger"), Question(text=TEXT)).finding["tags"]
    assert text.startswith(f"{len(marked)} of {len(words)} words are marked: " if marked else "None of")
    assert all(mark in text for mark in marked[:8]) and (" and more" in text) == (len(marked) > 8)


@pytest.mark.parametrize("count", [0, 1, 8, 9])
def test_tags_finding_lists_the_first_eight(count):
    tags = [{"word": f"w{i}", "label": "X" if i < count else "O"} for i in range(12)]
    seen = SimpleNamespace(overviews={}, results={"tags": tags}, finding={})
    add_findings(seen)
    listed = ", ".join(f"w{i} (X)" for i in range(min(count, 8)))
    more = " and more" if count > 8 else ""
    expected = f"{count} of 12 words are marked: {listed}{more}." if count else "None of 12 words is marked."
    assert seen.finding["tags"] == expected


def test_the_sentences_about_gaps_and_likeness(open_model):
    for text in ("The [MASK] drank the milk.", "The [MASK] drank the [MASK]."):
        gaps = open_model("masked").fill(text, top=1)
        text = look(open_model("masked"), Question(text=text)).finding["fill"]
        assert all(f"{gap[0].piece} ({gap[0].probability:.1%})" in text for gap in gaps)
        assert text.startswith("The likeliest word is" if len(gaps) == 1 else "The likeliest words are")
    (near,) = open_model("masked").similar(TEXT, [OTHER])
    text = look(open_model("masked"), Question(text=TEXT, second=OTHER)).finding["similar"]
    assert text == f"The cosine of the two texts' vectors is {near.score:.3f}."


@pytest.mark.parametrize("given", ["", "Ein Mann liest"])
def test_translation_finding_names_its_least_likely_piece(open_model, given):
    translator = open_model("transformer")
    view = look(translator, Question(text=TEXT, target=given, beam=4))
    best = view.results["translation"]["hypotheses"][0]
    text = given or translator.translate([TEXT], beam=4)[0]
    ids = (
        [*translator.encode_targets([text])[0], translator.tokenizer.eos]
        if given
        else [t["id"] for t in best["tokens"]]
    )
    source = torch.tensor([[*translator.encode([TEXT])[0], translator.tokenizer.eos]])
    with torch.no_grad():
        target = torch.tensor([ids])
        words = translator.model.logits(translator.model(source, None, translator.shifted(target)))[0].log_softmax(-1)
    worst = int(words.gather(1, target.T)[:, 0].argmin())
    assert f"The {'translation given' if given else 'best translation'} is" in view.finding["translation"]
    assert best["tokens"][worst]["id"] == ids[worst]
    assert view.finding["translation"].endswith(f"“{best['tokens'][worst]['text'].strip()}”.")


# -- positions, pairs, gradients ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["gpt", "gpt-sines", "transformer", "prenorm", "masked", "llama", "gpt-alibi", "gpt-none"]
)
def test_the_sentence_about_places(open_model, name):
    header, t = positions(open_model(name).model, 20)
    text = header["finding"]
    if name == "gpt-none":
        assert text.startswith("This model adds nothing")
    elif name == "gpt-alibi":
        assert f"{float(t['slopes'].min()):.3g} to {float(t['slopes'].max()):.3g} off a score" in text
    else:
        rows = t["table"] if "table" in t else torch.cat((t["angles"].cos(), t["angles"].sin()), 1)
        near = torch.cosine_similarity(rows[:-1], rows[1:], dim=-1).mean()
        far = torch.cosine_similarity(rows[0], rows[-1], dim=0)
        assert f"neighbours have a cosine of {near:.2f}, the first and number {len(rows)} of {far:.2f}" in text
        assert header["scheme"] in text


@pytest.mark.parametrize("name", ["masked", "classifier", "transformer", "gpt", "llama", "lstm"])
def test_the_sentence_about_another_order(open_model, name):
    permuted = permute(open_model(name), Question(text=TEXT), lambda: None)
    kept, without = (min(permuted[way]["cosine"]) for way in ("with", "without"))
    text = permuted["finding"]
    if name == "lstm":
        assert "no positions to take away" in text
        return
    assert f"cosine of {kept:.2f} to its own; without positions {without:.2f}" in text
    assert ("sees a set of words" in text) == (without > 0.9999) == (name not in ("gpt", "llama"))


@pytest.mark.parametrize("name", ["masked", "gpt", "transformer"])
def test_the_sentence_about_a_word_in_two_texts(open_model, name):
    header, t = pair(open_model(name), (TEXT, 6), ("It was hungry. The milk, the cat, it drank", 0), lambda: None)
    first, last = header["cosine"][0], header["cosine"][-1]
    assert f"a cosine of {first:.2f} at the start and {last:.2f} at the end" in header["finding"]
    best = header["heads"][0]
    assert best["difference"] == max(h["difference"] for h in header["heads"])
    place = f"head {best['head'] + 1} of layer {best['layer'] + 1}: {percent(best['difference'])} of the weight"
    assert place in header["finding"] and len(header["heads"]) == t["row_a"][..., 0].numel()


def test_gradient_finding_compares_farthest_and_nearest():
    """Distance 0 is the last token itself: the comparison begins with its neighbour."""
    curves = [
        {"name": "a", "norms": [9.0, 2.0, 1.0, 0.5]},
        {"name": "b", "norms": [7.0, 4.0, 0.0002]},
        {"name": "short", "norms": [3.0, 1.0]},
        {"name": "deaf", "norms": [3.0, 0.0, 0.0]},
    ]
    text = reach_finding(curves)
    assert text.endswith("relative to distance 1: 0.25 in a (over 3 steps), 5e-05 in b (over 2 steps).")
    assert reach_finding(curves[2:]) == ""
