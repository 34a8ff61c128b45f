"""Every head's numbers against the forward pass itself, whose attention is torch's fused kernel."""

import math
from dataclasses import replace

import pytest
import torch
from tests.packed import unpack
from tests.unit.inside.tiny import CONFIGS
from torch.testing import assert_close as close

from regard.inside import look as looking
from regard.inside.attention import Overview, row, stages, vectors
from regard.inside.findings import of_attention
from regard.inside.look import look
from regard.inside.looked import Question
from regard.nn.attention import AdditiveAttention, AdditiveLook, CrossAttention, SelfAttention

TEXT = "The cat drank the milk because it was hungry."
WATCHED = [name for name in CONFIGS if name not in ("rnn", "gru", "lstm", "lstm-classifier", "gru-bottleneck")]
QUESTION = Question(text=TEXT, target="Ein Mann liest.")


PLACES = {"self": ("blocks.{}.attention", "layers.{}.attention"), "additive": ("attention",)}
PLACES |= {"encoder": ("encoder.{}.attention",), "decoder": ("decoder.{}.attention",), "cross": ("decoder.{}.cross",)}


@pytest.fixture(params=WATCHED)
def seen(request, open_model):
    """A look, and what the attentions of that very pass gave, by the names of their modules."""
    predictor, outputs = open_model(request.param), {}
    kinds = (SelfAttention, CrossAttention, AdditiveAttention)
    hooks = [
        m.register_forward_hook(lambda m, _, out, name=name: outputs.setdefault(name, (m, []))[1].append(out))
        for name, m in predictor.model.named_modules()
        if isinstance(m, kinds)
    ]
    view = look(predictor, replace(QUESTION, second="I crashed.") if request.param == "pair" else QUESTION)
    for hook in hooks:
        hook.remove()
    return view, outputs


def test_weights_times_values_is_what_the_forward_pass_gave(seen):
    actual, outputs = seen
    for kind, attention in actual.attention.items():
        for place, layer in enumerate(attention.layers):
            (name,) = [n for n in (form.format(place) for form in PLACES[kind]) if n in outputs]
            module, gave = outputs.pop(name)
            mixed = [stages(layer, h)["weights"] @ vectors(layer, h)[2] for h in range(attention.heads)]
            whole = torch.cat(mixed, -1) if kind == "additive" else module.out(torch.cat(mixed, -1))
            close(whole, torch.cat(gave, 1)[0], rtol=1e-4, atol=1e-5)
    assert not outputs, "an attention of the pass that was not looked at"


def test_rows_sum_to_one_and_stages_follow_from_each_other(seen):
    actual, _ = seen
    for attention in actual.attention.values():
        for layer in attention.layers:
            for head in range(attention.heads):
                s = stages(layer, head)
                q, k, _ = vectors(layer, head)
                close(s["weights"].sum(-1), torch.ones(len(q)))
                close(s["masked"].nan_to_num(nan=-math.inf).softmax(-1), s["weights"])
                if not isinstance(layer, AdditiveLook):
                    close(s["scores"], torch.tensor([[sum(a * b) for b in k] for a in q]), rtol=1e-4, atol=1e-4)
                    close(s["scaled"] * math.sqrt(q.size(1)), s["scores"])
                future = torch.ones(s["weights"].shape).triu(1).bool()
                assert torch.equal(s["masked"].isnan(), future if attention.causal else torch.zeros_like(future))


def test_a_lean_is_the_slope_times_the_distance(open_model):
    view = look(open_model("gpt-alibi"), QUESTION)
    s = stages(view.attention["self"].layers[1], 2)
    lean = (s["masked"] - s["scaled"]).tril()
    T = len(lean)
    close(lean, -(2.0 ** (-8 * 3 / 4)) * torch.tensor([[float(max(i - j, 0)) for j in range(T)] for i in range(T)]))


def test_heads_that_share_keys_share_them_with_their_neighbour(open_model):
    layer = look(open_model("llama"), QUESTION).attention["self"].layers[0]
    keys = [vectors(layer, h)[1] for h in range(4)]
    assert torch.equal(keys[0], keys[1]) and torch.equal(keys[2], keys[3]) and not torch.equal(keys[1], keys[2])


def test_a_row_is_a_search(seen):
    actual, _ = seen
    for attention in actual.attention.values():
        layer, query = attention.layers[-1], 2
        header, t = row(layer, attention.heads - 1, query)
        for name, table in stages(layer, attention.heads - 1).items():
            close(t[name], table[query], equal_nan=True)
        q, k, v = vectors(layer, attention.heads - 1)
        assert header == {"head_width": q.size(1), "query": query}
        close(t["q"], q[query])
        close(t["k"], k[t["keys"].long()])
        close(t["out"], sum(w * x for w, x in zip(t["weights"], v, strict=True)))


def test_a_long_row_tells_of_the_keys_of_greatest_weight(open_model, monkeypatch):
    monkeypatch.setattr("regard.inside.attention.MOST_KEYS", 3)
    layer = look(open_model("encoder"), QUESTION).attention["self"].layers[0]
    _, t = row(layer, 1, 4)
    assert sorted(t["keys"].tolist()) == sorted(sorted(range(len(t["weights"])), key=lambda i: -t["weights"][i])[:3])
    assert t["k"].shape == t["v"].shape == (3, 8)


def brute(x, rows, columns):
    """The greatest of each cell, place by place."""
    T, S = x.shape
    cell = lambda i, n, of: range(i * of // n, math.ceil((i + 1) * of / n))  # noqa: E731
    return torch.tensor(
        [
            [max(x[a, b] for a in cell(i, rows, T) for b in cell(j, columns, S)) for j in range(columns)]
            for i in range(rows)
        ]
    )


@pytest.mark.parametrize("edge", [5, 64])
@pytest.mark.parametrize("name", ["gpt", "gpt-alibi", "llama", "transformer", "lstm-translator"])
def test_thumbnails_are_the_pooled_weights(open_model, monkeypatch, name, edge):
    monkeypatch.setattr("regard.inside.attention.EDGE", edge)
    view = look(open_model(name), QUESTION)
    header, tensors = unpack(view.bytes())
    for about in header["attention"]:
        thumbs, scale = tensors[about["thumbs"]], header["scales"][about["thumbs"]]
        attention = view.attention[about["kind"]]
        for place, layer in enumerate(attention.layers):
            for head in range(attention.heads):
                whole = stages(layer, head)["weights"]
                small = torch.tensor(thumbs[place, head]) * scale / 255
                close(small, brute(whole, *small.shape), rtol=0, atol=scale / 255 / 2 + 1e-6)
        tables = [[stages(x, h)["weights"] for h in range(attention.heads)] for x in attention.layers]
        sharpest = [
            [w.max(-1).values.mean() - w[:, 0].mean() for w in row] for row in tables
        ]  # not resting on the first
        best = max(((x, i, h) for i, r in enumerate(sharpest) for h, x in enumerate(r)), key=lambda t: t[0])
        assert about["sharpest"] == {"layer": best[1], "head": best[2]}
        assert (about["layers"], about["heads"]) == (len(attention.layers), attention.heads)


def test_the_head_called_sharpest_is_or_what_was_left_aside_is_said():
    thumbs, sharp = torch.zeros(1, 2, 1, 1), torch.tensor([[0.9, 0.6]])
    resting = Overview(thumbs, 1.0, sharp, torch.tensor([[0.9, 0.1]]))  # the first head rests on the first token
    assert resting.sharpest == (0, 1) and "disregarding" in of_attention("self", resting)
    looking = Overview(thumbs, 1.0, sharp, torch.tensor([[0.1, 0.1]]))
    assert looking.sharpest == (0, 0) and "disregarding" not in of_attention("self", looking)


def test_looking_leaves_no_trace(open_model):
    writer = open_model("gpt")
    ids = writer.encode(TEXT)
    before = writer.model.logits(writer.hidden(ids))
    look(writer, QUESTION)
    assert torch.equal(writer.model.logits(writer.hidden(ids)), before)
    for module in writer.model.modules():
        assert not module._forward_pre_hooks and not module._forward_hooks
        assert getattr(module, "seen", None) is None


@pytest.mark.parametrize("name", ["gpt", "masked", "transformer", "lstm-translator"])
def test_a_look_can_be_stopped_between_layers(open_model, name):
    calls = []

    def check():
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        looking.look(open_model(name), QUESTION, check)
    assert len(calls) == 2
    look(open_model(name), QUESTION)  # and nothing is left behind
