"""Our parts are torch's: weights copied, outputs and gradients equal, in float64 and on ragged batches."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models import build
from regard.models.seq2seq import BothWays, Seq2Seq, Seq2SeqConfig
from regard.models.transformer import TransformerConfig
from regard.nn.attention import CrossAttention, SelfAttention
from regard.nn.masks import Causal, Everything, Lengths
from regard.nn.recurrent import FAST_CELLS, LAYERS, PLAIN_CELLS, unroll
from regard.nn.taps import watch
from regard.objectives.losses import chunked_cross_entropy_sum, plain_cross_entropy_sum

close = torch.testing.assert_close
WIDTH, HEADS, FFN = 12, 3, 20


def numbers(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64) * scale


# -- attention ---------------------------------------------------------------------------------------------------------


Pairs = list[tuple[tuple[Tensor, ...], Tensor]]  # ours, stacked, are one of theirs


def give_attention(theirs: nn.MultiheadAttention, ours: SelfAttention | CrossAttention) -> Pairs:
    """Copy our weights into torch's; returns which are whose, for comparing gradients."""
    maps = (ours.qkv,) if isinstance(ours, SelfAttention) else (ours.query, ours.kv)
    return copy(
        [
            (tuple(m.weight for m in maps), theirs.in_proj_weight),
            (tuple(m.bias for m in maps), theirs.in_proj_bias),
            *linear(ours.out, theirs.out_proj),
        ]
    )


def linear(ours: nn.Module, theirs: nn.Module) -> Pairs:
    return [((ours.weight,), theirs.weight), ((ours.bias,), theirs.bias)]


def copy(pairs: Pairs) -> Pairs:
    with torch.no_grad():
        for ours, theirs in pairs:
            theirs.copy_(torch.cat(ours))
    return pairs


def same_gradients(mine: Tensor, other: Tensor, pairs: Pairs, *inputs: Tensor) -> None:
    """A random change of the outputs asks the same of all weights, and of `inputs`, which both have read."""
    pairs = [*pairs, *(((x,), x) for x in inputs)]
    reference = torch.randn_like(mine)
    a = iter(torch.autograd.grad(mine, [x for ours, _ in pairs for x in ours], reference))
    b = torch.autograd.grad(other, [theirs for _, theirs in pairs], reference)
    for (ours, _), expected in zip(pairs, b, strict=True):
        assert expected.abs().sum() > 0
        close(torch.cat([next(a) for _ in ours]), expected)


@pytest.mark.parametrize("masked", ["everything", "causal", "lengths"])
def test_self_attention_is_torchs_multihead_attention(masked, shake):
    ours = shake(SelfAttention(WIDTH, HEADS, 4, 4), 3.0).double()
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).double()
    pairs = give_attention(theirs, ours)
    x = numbers(3, 5, WIDTH).requires_grad_()
    lengths = torch.tensor([5, 3, 1])
    mask = {"everything": Everything(), "causal": Causal(5), "lengths": Lengths(lengths, 5)}[masked]
    hidden = torch.arange(5) >= lengths[:, None]  # torch's True means "may not look"
    with watch(ours) as seen:
        mine = ours(x, mask)
    other, weights = theirs(
        x,
        x,
        x,
        attn_mask=~Causal(5).dense() if masked == "causal" else None,
        key_padding_mask=hidden if masked == "lengths" else None,
        average_attn_weights=False,
    )
    close(mine, other)
    close(seen["look"][0].weights(), weights, check_dtype=False, rtol=1e-5, atol=1e-6)  # a look is in float32
    same_gradients(mine, other, pairs, x)


def test_cross_attention_is_torchs_multihead_attention(shake):
    ours = shake(CrossAttention(WIDTH, HEADS, 4, 4), 3.0).double()
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).double()
    pairs = give_attention(theirs, ours)
    x, memory = numbers(3, 4, WIDTH).requires_grad_(), numbers(3, 6, WIDTH).requires_grad_()
    lengths = torch.tensor([6, 2, 5])
    mine = ours(x, ours.keys_values(memory), Lengths(lengths, 6))
    other, _ = theirs(x, memory, memory, key_padding_mask=torch.arange(6) >= lengths[:, None])
    close(mine, other)
    same_gradients(mine, other, pairs, x, memory)


# -- the whole Transformer ---------------------------------------------------------------------------------------------


def give_layer(theirs: nn.Module, ours: nn.Module, decoder: bool) -> Pairs:
    pairs = give_attention(theirs.self_attn, ours.attention)
    if decoder:
        pairs += give_attention(theirs.multihead_attn, ours.cross)
    parts = [("norm1", "norm1"), ("norm2", "norm2"), ("mlp.up", "linear1"), ("mlp.down", "linear2")]
    if decoder:
        parts.append(("norm3", "norm3"))
    for mine, other in parts:
        pairs += copy(linear(ours.get_submodule(mine), theirs.get_submodule(other)))
    return pairs


def torchs_transformer(norm_first: bool, activation: str) -> nn.Transformer:
    """torch's, without the norm it adds after post-norm stacks, which figure 1 of the paper does not have."""
    how = dict(dropout=0.0, activation=activation, batch_first=True, norm_first=norm_first)
    norm = (lambda: nn.LayerNorm(WIDTH)) if norm_first else (lambda: None)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(WIDTH, HEADS, FFN, **how), 2, norm(), enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, HEADS, FFN, **how), 3, norm())
    return nn.Transformer(WIDTH, HEADS, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)


@pytest.mark.parametrize(("norm", "activation"), [("post", "relu"), ("pre", "relu"), ("pre", "gelu")])
def test_transformer_is_torchs(norm, activation, shake):
    config = TransformerConfig(
        vocab=17,
        width=WIDTH,
        heads=HEADS,
        ffn=FFN,
        encoder_layers=2,
        decoder_layers=3,
        dropout=0.0,
        norm=norm,
        activation=activation,
        max_length=10,
    )
    ours = shake(build(config), 2.0).double()
    theirs = torchs_transformer(norm == "pre", activation).double()
    pairs = []
    for a, b in zip(ours.encoder, theirs.encoder.layers, strict=True):
        pairs += give_layer(b, a, decoder=False)
    for a, b in zip(ours.decoder, theirs.decoder.layers, strict=True):
        pairs += give_layer(b, a, decoder=True)
    if norm == "pre":
        for a, b in ((ours.encoder_norm, theirs.encoder.norm), (ours.decoder_norm, theirs.decoder.norm)):
            pairs += copy(linear(a, b))

    lengths = torch.tensor([7, 4, 1])
    source, inputs = torch.randint(0, 17, (3, 7)), torch.randint(0, 17, (3, 5))
    mine = ours(source, lengths, inputs)
    hidden = torch.arange(7) >= lengths[:, None]
    other = theirs(
        ours.embed(source, ours.encoder_place),
        ours.embed(inputs, ours.decoder_place),
        tgt_mask=~Causal(5).dense(),
        src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
    )
    close(mine, other)
    same_gradients(mine, other, pairs, ours.token.weight)


def test_embeddings_are_scaled_and_placed_as_section_3_4_says():
    """The part torch's Transformer does not have: √D times the embedding, plus sines and cosines."""
    config = TransformerConfig(
        vocab=17, width=WIDTH, heads=HEADS, ffn=FFN, encoder_layers=1, decoder_layers=1, positions="interleaved"
    )
    model = build(config).eval()
    got = model.embed(torch.tensor([[5, 9]]), model.encoder_place)
    rate = 10000 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
    for p, word in enumerate((5, 9)):
        place = torch.stack(((p * rate).sin(), (p * rate).cos()), 1).flatten()
        close(got[0, p], F.embedding(torch.tensor(word), model.token.weight) * WIDTH**0.5 + place)


# -- recurrent networks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [PLAIN_CELLS, FAST_CELLS], ids=["plain", "fast"])
@pytest.mark.parametrize("name", LAYERS)
def test_unrolled_cells_are_torchs_sequence_layers(name, kind):
    cell, layer = kind[name](5, 4).double(), LAYERS[name](5, 4, batch_first=True).double()
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    pairs = copy([((getattr(cell, n),), getattr(layer, f"{n}_l0")) for n in names])
    x = numbers(3, 6, 5).requires_grad_()
    first = tuple(numbers(3, 4) for _ in range(2 if name == "lstm" else 1))
    mine, last = unroll(cell, x, first)
    other, end = layer(x, tuple(h[None] for h in first) if name == "lstm" else first[0][None])
    close(mine, other)
    for a, b in zip(last, end if name == "lstm" else (end,), strict=True):
        close(a, b[0])
    same_gradients(mine, other, pairs, x)


@pytest.mark.parametrize(("name", "theirs"), [("rnn", nn.RNNCell), ("gru", nn.GRUCell), ("lstm", nn.LSTMCell)])
def test_one_step_is_torchs_cell(name, theirs):
    cell, other = PLAIN_CELLS[name](5, 4).double(), theirs(5, 4).double()
    other.load_state_dict(cell.state_dict())
    x, state = numbers(3, 5), tuple(numbers(3, 4) for _ in range(2 if name == "lstm" else 1))
    got = other(x, state if name == "lstm" else state[0])
    for a, b in zip(cell(x, state), got if name == "lstm" else (got,), strict=True):
        close(a, b)


@pytest.mark.parametrize("name", LAYERS)
def test_bidirectional_layer_equals_torchs_on_packed_sequences(name):
    ours = BothWays(name, 5, 4).double()
    theirs = LAYERS[name](5, 4, batch_first=True, bidirectional=True).double()
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    pairs = [((getattr(ours.forwards, n),), getattr(theirs, n)) for n in names]
    pairs = copy(pairs + [((getattr(ours.backwards, n),), getattr(theirs, f"{n}_reverse")) for n in names])
    lengths, x = torch.tensor([6, 4, 1]), numbers(3, 6, 5).requires_grad_()
    where = torch.arange(6).expand(3, 6)
    real = where < lengths[:, None]
    mine = ours(x, torch.where(real, lengths[:, None] - 1 - where, where)) * real[:, :, None]
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    other, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    close(mine, other)
    same_gradients(mine, other, pairs, x)


def test_seq2seq_encodes_as_torchs_bidirectional_lstm(shake):
    """The model's memory and first state, from the outside: a two-layer bidirectional LSTM of torch."""
    model = shake(Seq2Seq(Seq2SeqConfig(vocab=17, embedding=5, width=4, encoder_layers=2)), 1.5).double().eval()
    theirs = nn.LSTM(5, 4, num_layers=2, batch_first=True, bidirectional=True).double()
    for i, layer in enumerate(model.encoder):
        for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            there, back = getattr(layer.forwards, f"{n}_l0"), getattr(layer.backwards, f"{n}_l0")
            copy([((there,), getattr(theirs, f"{n}_l{i}")), ((back,), getattr(theirs, f"{n}_l{i}_reverse"))])
    lengths, source = torch.tensor([6, 4, 1]), torch.randint(0, 17, (3, 6))
    state = model.begin(source, lengths, 2, 5)
    packed = nn.utils.rnn.pack_padded_sequence(model.token(source), lengths, batch_first=True)
    other, (h, _) = theirs(packed)
    memory, _ = nn.utils.rnn.pad_packed_sequence(other, batch_first=True)
    close(state.memory * (torch.arange(6) < lengths[:, None])[:, :, None], memory)
    first = torch.tanh(F.linear(torch.cat((h[2], h[3]), -1), model.bridge.weight, model.bridge.bias))
    close(state.cell[0], first[:, None])


# -- the loss ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def head():
    torch.manual_seed(4)
    x, weight = torch.randn(13, 8) * 2, torch.randn(29, 8)
    return x.requires_grad_(), weight.requires_grad_(), torch.randint(0, 29, (13,))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_both_losses_are_torchs_smoothed_cross_entropy(head, smoothing):
    """Against float64; the losses themselves work in float32."""
    x, weight, targets = head
    logits = x.double() @ weight.double().T
    expected = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    gradients = torch.autograd.grad(expected, [x, weight])
    for loss in (plain_cross_entropy_sum, chunked_cross_entropy_sum):
        got = loss(x, weight, targets, smoothing)
        close(got, expected, check_dtype=False, rtol=1e-5, atol=1e-5)
        for a, b in zip(torch.autograd.grad(got, [x, weight]), gradients, strict=True):
            close(a, b, rtol=1e-4, atol=1e-5)


def test_smoothing_by_hand(head):
    """1 - s of the mass on the right word, s spread evenly over all words (the right one too)."""
    x, weight, targets = head
    words = (x @ weight.T).log_softmax(-1)
    expected = -sum(
        (0.9 * (w == t) + 0.1 / 29) * words[m, w] for m, t in enumerate(targets.tolist()) for w in range(29)
    )
    close(plain_cross_entropy_sum(x, weight, targets, 0.1), expected)


@pytest.mark.parametrize("rows", [1, 4, 13, 100])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_chunks_change_neither_value_nor_gradient(head, smoothing, rows):
    x, weight, targets = head
    plain = plain_cross_entropy_sum(x, weight, targets, smoothing) / 7
    chunked = chunked_cross_entropy_sum(x, weight, targets, smoothing, rows) / 7
    close(chunked, plain)
    for a, b in zip(torch.autograd.grad(chunked, [x, weight]), torch.autograd.grad(plain, [x, weight]), strict=True):
        close(a, b, rtol=1e-4, atol=1e-6)


def test_chunks_keep_the_dtype_of_what_they_were_given(head):
    x, weight, targets = (t.detach().bfloat16().requires_grad_() if t.is_floating_point() else t for t in head)
    chunked = chunked_cross_entropy_sum(x, weight, targets, 0.1, 4)
    assert chunked.dtype == torch.float32
    expected = plain_cross_entropy_sum(x, weight, targets, 0.1)
    close(chunked, expected, rtol=1e-2, atol=1e-2)
    for a, b in zip(torch.autograd.grad(chunked, [x, weight]), torch.autograd.grad(expected, [x, weight]), strict=True):
        assert a.dtype == torch.bfloat16
        assert (a - b).norm() < 0.02 * b.norm()
