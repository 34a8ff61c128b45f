"""Embeddings, positions, recurrent states and gradients, against the model's own layers and torch's."""

import math
import re

import pytest
import torch
from torch import nn
from torch.testing import assert_close as close

from regard.errors import ConfigError, DataError
from regard.inside import recurrent
from regard.inside.look import look
from regard.inside.looked import Question
from regard.inside.positions import permute, positions
from regard.inside.reach import curve, estimated
from regard.inside.recurrent import unrolled
from regard.lab.gradients import model_reach

TEXT = "The cat drank the milk because it was hungry."
FIRST = {"gpt": "blocks.0", "gpt-sines": "blocks.0", "llama": "blocks.0", "gpt-alibi": "blocks.0", "masked": "layers.0",
         "pair": "layers.0", "transformer": "encoder.0", "prenorm": "encoder.0"}  # fmt: skip


@pytest.mark.parametrize("name", FIRST)
def test_the_input_is_what_the_first_layer_reads(open_model, name):
    predictor, read = open_model(name), []
    hook = predictor.model.get_submodule(FIRST[name]).register_forward_pre_hook(
        lambda _, given: read.append(given[0][0])
    )
    view = look(predictor, Question(text=TEXT, second="It was." if name == "pair" else "", target="Ein"))
    hook.remove()
    e = view.embeddings.get("text") or view.embeddings["source"]
    close(e.input if e.normed is None else e.normed, read[-1])
    parts = [part for part in (e.token, e.position, e.sentence) if part is not None]
    close(sum(parts), e.input)


def test_the_decoders_input_has_its_own_positions(open_model):
    predictor, read = open_model("transformer"), []
    hook = predictor.model.decoder[0].register_forward_pre_hook(lambda _, given: read.append(given[0][0]))
    view = look(predictor, Question(text=TEXT, target="Ein Mann"))
    hook.remove()
    close(view.embeddings["inputs"].input, read[-1])


def wave(p: int, column: int, width: int) -> float:
    """Vaswani et al. 2017, section 3.5, one number at a time."""
    angle = p / 10000 ** ((column // 2) * 2 / width)
    return math.cos(angle) if column % 2 else math.sin(angle)


@pytest.mark.parametrize("name", ["transformer", "prenorm", "gpt-sines"])
def test_waves_come_in_both_layouts(open_model, name):
    header, t = positions(open_model(name).model, 20)
    printed = torch.tensor([[wave(p, c, 16) for c in range(16)] for p in range(20)])
    close(t["interleaved"], printed)
    close(t["halves"], torch.cat((printed[:, 0::2], printed[:, 1::2]), 1))
    close(t["table"], t[header["layout"]])
    close(t["similarity"], torch.cosine_similarity(printed[:, None], printed[None], dim=-1))


def test_other_schemes_tell_what_they_have(open_model):
    header, t = positions(open_model("llama").model, 7)
    assert header["scheme"] == "rotary"
    close(t["angles"], torch.tensor([[p * 10000 ** (-2 * i / 4) for i in range(2)] for p in range(7)]))
    close(t["similarity"][2, 5], torch.tensor(sum(math.cos(3 * 10000 ** (-2 * i / 4)) for i in range(2)) / 2))
    header, t = positions(open_model("gpt-alibi").model, 7)
    close(t["slopes"], torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256]))
    header, t = positions(open_model("gpt").model, 500)
    assert header["n"] == 64, "no more places than the model has"
    close(t["table"], open_model("gpt").model.place.table.detach())
    for name in ("lstm", "gpt-none"):
        header, t = positions(open_model(name).model, 7)
        assert header["scheme"] == "none" and not t


def test_angles_are_worked_out_where_the_model_is(open_model):
    model = open_model("llama").model
    with torch.device("meta"):  # where whatever is made without a word about its device goes now
        _, t = positions(model, 7)
    assert {tensor.device.type for tensor in t.values()} == {"cpu"}


@pytest.mark.parametrize("name", ["masked", "classifier", "transformer"])
def test_without_positions_an_encoder_sees_a_set(open_model, name):
    permuted = permute(open_model(name), Question(text=TEXT), lambda: None)
    assert sorted(permuted["order"]) == list(range(len(permuted["tokens"]))) != permuted["order"]
    assert min(permuted["without"]["cosine"]) > 0.99999 > min(permuted["with"]["cosine"])
    words = re.findall(r"\w+", TEXT.lower())
    assert sorted(re.findall(r"\w+", permuted["shuffled"].lower())) == sorted(words), "words stay words"
    if name == "classifier":
        before, after = ({o["text"]: o["p"] for o in permuted["without"][way]} for way in ("original", "shuffled"))
        assert before == pytest.approx(after, abs=1e-5)
        assert before != {o["text"]: o["p"] for o in permuted["with"]["original"]}
        (answer,) = open_model(name).classify([TEXT])
        assert {o["text"]: o["p"] for o in permuted["with"]["original"]} == pytest.approx(answer.probabilities)


@pytest.mark.parametrize("name", ["gpt", "gpt-alibi", "llama", "lstm", "lstm-translator", "tagger", "lstm-classifier"])
def test_order_still_matters_to_who_reads_one_way(open_model, name):
    permuted = permute(open_model(name), Question(text=TEXT), lambda: None)
    assert min(permuted["with"]["cosine"]) < 0.9999
    if name in ("gpt", "gpt-alibi", "llama", "lstm"):
        assert min(permuted["without"]["cosine"]) < 0.9999
        best = open_model(name).next(TEXT, top=5)
        assert [o["p"] for o in permuted["with"]["original"]] == pytest.approx([c.probability for c in best])
    with pytest.raises(DataError, match="one word"):
        permute(open_model(name), Question(text="The"), lambda: None)


# -- recurrent ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm", "lstm-classifier"])
def test_states_are_those_of_torchs_layers(open_model, name):
    predictor = open_model(name)
    model, c = predictor.model, predictor.model.config
    header, t = unrolled(look(predictor, Question(text=TEXT)))
    theirs = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[c.cell](c.embedding, c.width, c.layers, batch_first=True)
    with torch.no_grad():
        for i, cell in enumerate(model.cells):
            for part, own in (("weight_ih", cell.W_xh), ("weight_hh", cell.W_hh), ("bias_ih", cell.b_h)):
                getattr(theirs, f"{part}_l{i}").copy_(own)
            getattr(theirs, f"bias_hh_l{i}").zero_()
        ids = [chip["id"] for chip in look(predictor, Question(text=TEXT)).streams["text"]]
        hidden, last = theirs(model.token(torch.tensor([ids])))
    close(t["states"][-1], hidden[0])
    first = last[0] if c.cell == "lstm" else last
    close(t["states"][:, -1], first[:, 0])
    if c.cell == "lstm":
        close(t["cell"][:, -1], last[1][:, 0])
        close(t["cell"][:, 1:], t["forget"][:, 1:] * t["cell"][:, :-1] + t["input"][:, 1:] * t["candidate"][:, 1:])
        close(t["states"], t["output"] * t["cell"].tanh())
    if c.cell == "gru":
        close(t["states"][:, 1:], (1 - t["update"][:, 1:]) * t["new"][:, 1:] + t["update"][:, 1:] * t["states"][:, :-1])
    assert (header["cell"], header["layers"], header["rows"]) == (c.cell, c.layers, len(ids))


@pytest.mark.parametrize("name", ["lstm-translator", "gru-bottleneck"])
def test_a_translators_reader_is_unrolled_from_left_to_right(open_model, name):
    predictor = open_model(name)
    view = look(predictor, Question(text=TEXT, target="Ein"))
    _, t = unrolled(view)
    ids = torch.tensor([[chip["id"] for chip in view.streams["source"]]])
    with torch.no_grad():
        close(t["states"][0], predictor.model.encoder[0].forwards(predictor.model.token(ids))[0][0])


def test_second_layer_reads_the_hidden_end_of_a_text(open_model, monkeypatch):
    monkeypatch.setattr(recurrent, "STEPS", 4)
    predictor = open_model("two-readers")
    view = look(predictor, Question(text=TEXT, target="Ein"))
    header, t = unrolled(view)
    ids = torch.tensor([[chip["id"] for chip in view.streams["source"]]])
    with torch.no_grad():
        whole, _, _ = predictor.model.encode(ids, None)
    assert header["rows"] == 4 < ids.size(1)
    close(t["states"][1], whole[0, :4, : header["width"]])


def test_attention_has_no_cell(open_model):
    with pytest.raises(ConfigError, match="no recurrent cell"):
        unrolled(look(open_model("gpt"), Question(text=TEXT)))


# -- gradients ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_gradients_are_the_jacobians(open_model, name):
    writer = open_model(name)
    actual = curve(writer, TEXT, 6, lambda: None)
    ids = torch.tensor(writer.encode(TEXT)[-7:])
    table = writer.model.token.weight.detach()

    def last(x):
        hook = writer.model.token.register_forward_hook(lambda *_: x)
        try:
            return writer.model(ids[None])[0, -1]
        finally:
            hook.remove()

    jacobian = torch.autograd.functional.jacobian(last, table[ids][None])  # D 1 T E
    close(torch.tensor(actual["norms"]), jacobian[:, 0].norm(dim=(0, 2)).flip(0), rtol=1e-3, atol=1e-6)
    assert actual["distances"] == list(range(7)) and actual["exact"]


def test_a_few_directions_come_near_the_norms(open_model, monkeypatch):
    monkeypatch.setattr("regard.inside.reach.DIRECTIONS", 400)
    model, ids = open_model("gpt").model, torch.tensor(open_model("gpt").encode(TEXT)[:6])
    close(estimated(model, ids), model_reach(model, ids).double(), rtol=0.15, atol=0)


def test_gradients_are_for_language_models(open_model):
    with pytest.raises(ConfigError, match="language models"):
        curve(open_model("masked"), TEXT, 5, lambda: None)
