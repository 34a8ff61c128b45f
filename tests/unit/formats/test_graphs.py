"""The graphs against the models' own ways of computing the same."""

from pathlib import Path

import pytest
import torch
from tests.unit.formats.graph_cases import built

from regard.errors import ConfigError
from regard.formats.graphs import graphs_of
from regard.models import build
from regard.models.published.sentence import Sentences
from regard.models.seq2seq import Seq2SeqConfig
from regard.nn.masks import pooled

IDS = torch.randint(1, 50, (3, 7), generator=torch.Generator().manual_seed(0))


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def graphs(model):
    return graphs_of(model, Path("no such folder"))


def no_past(graph):
    """Keys and values of nothing read yet."""
    sizes = {"batch": len(IDS), "past": 0, "length": 1, "past + length": 1}
    return [tensor for name, tensor in graph.example(sizes).items() if name.startswith("past")]


@pytest.mark.parametrize("name", ["gpt2", "alibi", "llama", "mistral", "gemma"])
@torch.no_grad()
def test_a_text_read_in_parts_has_the_logits_of_the_whole(name):
    model = built(name)
    (graph,) = graphs(model)
    ones = torch.ones_like(IDS)
    expected = model.logits(model(IDS))
    close(graph(IDS, ones, *no_past(graph))[0], expected)
    first, *past = graph(IDS[:, :4], ones[:, :4], *no_past(graph))
    second, *past = graph(IDS[:, 4:6], ones[:, :6], *past)
    third, *_ = graph(IDS[:, 6:], ones, *past)
    close(torch.cat((first, second, third), 1), expected)


@pytest.mark.parametrize("name", ["gpt2", "mistral"])
@torch.no_grad()
def test_padding_on_the_left_changes_nothing(name):
    model = built(name)
    (graph,) = graphs(model)
    padded = torch.cat((torch.zeros(3, 2, dtype=torch.long), IDS), 1)
    mask = torch.ones_like(padded)
    mask[:, :2] = 0
    logits, *past = graph(padded, mask, *no_past(graph))
    close(logits[:, 2:], model.logits(model(IDS)))
    assert all(x.isfinite().all() for x in (logits, *past))


@pytest.mark.parametrize("name", ["embed", "fill", "modernbert", "pretraining", "classify", "mean", "tag"])
@torch.no_grad()
def test_an_encoder_computes_what_its_head_does(name):
    model = built(name)
    (graph,) = graphs(model)
    lengths = torch.tensor([7, 3, 5])
    mask = (torch.arange(7) < lengths[:, None]).long()
    types = torch.arange(7).expand(3, 7) // 4
    got = graph(IDS, mask, *([types] if model.config.types > 1 else []))
    hidden = model(IDS, lengths, types if model.config.types > 1 else None)
    if name == "embed":
        assert Sentences().normalise
        vector = pooled(hidden, lengths, "mean")
        close(got[1], vector / vector.norm(dim=1, keepdim=True))
        close(got[0], hidden)
    elif name == "pretraining":
        close(got[0], model.logits(hidden))
        close(got[1], model.follows(hidden[:, 0]))
    elif name in ("fill", "modernbert"):
        close(got, model.logits(hidden))
    else:
        close(got, model.scores(hidden if name == "tag" else model.summary(hidden, lengths)))


@pytest.mark.parametrize("name", ["marian", "bart", "t5", "whisper", "captioner", "gpt-captioner"])
@torch.no_grad()
def test_a_decoder_goes_on_from_its_past(name):
    """In one pass as in training, then one word at a time."""
    model = built(name)
    encoder, decoder, after = graphs(model)
    source = encoder.example({"batch": 3, "source": 5})
    memory = encoder(*source.values())
    mask = [source["attention_mask"]] if "attention_mask" in source else []
    lengths = mask[0].sum(1) if mask else None
    expected = model.logits(model(next(iter(source.values())), lengths, IDS))
    logits, *present = decoder(IDS, memory, *mask)
    close(logits, expected)
    logits, *present = decoder(IDS[:, :3], memory, *mask)
    close(logits, expected[:, :3])
    own, cross = present[: len(present) // 2], present[len(present) // 2 :]
    for t in range(3, 7):
        logits, *own = after(IDS[:, t : t + 1], *mask, *own, *cross)
        close(logits[:, 0], expected[:, t])


@torch.no_grad()
def test_images_get_the_scores_of_their_classes():
    model = built("vit")
    (graph,) = graphs(model)
    pixels = graph.example({"batch": 2})["pixel_values"]
    close(graph(pixels), model.scores(model(pixels)))


def test_a_model_without_graphs_is_refused():
    model = build(Seq2SeqConfig(vocab=20, embedding=8, width=8))
    with pytest.raises(ConfigError, match="Seq2Seq has no ONNX graph yet; there are graphs for: Bert"):
        graphs(model)
