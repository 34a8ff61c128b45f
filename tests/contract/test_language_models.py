"""What is asked of language models alone: reading with a cache, documents, the lens."""

import pytest
import torch

from regard.errors import ConfigError, ShapeError
from regard.models import build
from regard.models.base import Decoder, padded
from regard.models.gemma import GemmaConfig
from regard.models.gpt import GPTConfig
from regard.models.llama import LlamaConfig
from regard.nn.cache import Past
from regard.nn.taps import watch

from .case import VOCAB
from .cases import IDS

close = torch.testing.assert_close
LENGTHS = torch.tensor([9, 2, 6])


@pytest.fixture
def ids():
    return IDS


@pytest.fixture(params=["growing", "fixed"])
def begin(request):
    """ "fixed" is how a GPU reads: places are known on the device only, and all of the cache is looked at."""

    def begin(lm, rows, capacity):
        state = lm.begin(rows, capacity)
        if request.param == "fixed" and isinstance(state, Past):
            state.fixed = True
            state.cache.clear(slice(None))
        return state

    return begin


def test_outputs_have_the_promised_shape(lm, ids):
    hidden = lm(ids)
    assert hidden.shape == (3, 12, lm.config.width) and lm.logits(hidden).shape == (3, 12, VOCAB)
    assert lm.head.size(0) == lm.token.weight.size(0) == padded(VOCAB) == 64


def test_parameters_are_counted_by_the_papers_formula(lm_config):
    c, V = lm_config, VOCAB
    if isinstance(c, GPTConfig):
        D = c.width
        block = 4 * D * D + 4 * D + 2 * D * c.ffn + c.ffn + D + 4 * D
        want = V * D + c.layers * block + 2 * D + c.context * D * (c.positions == "learned")
    elif isinstance(c, LlamaConfig):
        D, q, kv = c.width, c.heads * c.head_width, c.kv_heads * c.head_width
        block = 2 * D * q + 2 * D * kv + 3 * D * c.ffn + 2 * D
        block += (q + 2 * kv) * c.qkv_bias + 2 * c.head_width * c.qk_norm
        want = V * D * (1 if c.tied else 2) + D + c.layers * block
    elif isinstance(c, GemmaConfig):
        D, q, kv = c.width, c.heads * c.head_width, c.kv_heads * c.head_width
        want = V * D + D + c.layers * (2 * D * q + 2 * D * kv + 3 * D * c.ffn + 4 * D + 2 * c.head_width)
    else:
        D, gates = c.width, {"rnn": 1, "gru": 3, "lstm": 4}[c.cell]
        cell = lambda inputs: gates * D * (inputs + D + 1)  # noqa: E731
        want = V * c.embedding + cell(c.embedding) + (c.layers - 1) * cell(D) + V * D + V
    assert build(c).size() == want


def test_every_position_depends_on_all_it_should(lm, ids):
    """The gradient of what is said at t reaches words 0…t of the same row, and nothing else."""
    tables = []

    def remember(module, args, output):
        output.retain_grad()
        tables.append(output)

    lm.token.register_forward_hook(remember)
    lm.logits(lm(ids))[1, 7].square().sum().backward()
    reach = tables[0].grad.abs().sum(-1)  # B T
    assert (reach[1, :8] > 0).all() and (reach[1, 8:] == 0).all() and reach[[0, 2]].sum() == 0


@pytest.mark.parametrize("sizes", [[1] * 12, [12], [5, 1, 1, 4, 1], [1, 11]], ids=str)
def test_reading_in_chunks_is_reading_at_once(lm, ids, begin, sizes):
    state, whole = begin(lm, 3, 13), lm.logits(lm(ids))
    parts = [lm.logits(lm.read(chunk, state)) for chunk in ids.split(sizes, 1)]
    close(torch.cat(parts, 1), whole)
    assert state.places.tolist() == [12] * 3


def test_rows_of_different_lengths_are_read_as_if_each_were_alone(lm, ids, begin):
    """Padded on the right, then one word each, then several, then some rows nothing: against the whole rows."""
    whole, state = lm(ids), begin(lm, 3, 12)
    first = lm.read(ids[:, :9], state, LENGTHS)
    for b, n in enumerate(LENGTHS):
        close(first[b, :n], whole[b, :n])
    done = LENGTHS.clone()
    for more in ([1, 1, 1], [0, 3, 2], [2, 0, 1], [0, 4, 0]):
        lengths, width = torch.tensor(more), max(more)
        chunk = torch.full((3, width), 7)
        for b, n in enumerate(more):
            chunk[b, :n] = ids[b, done[b] : done[b] + n]
        got = lm.read(chunk, state, None if min(more) == width else lengths)
        for b, n in enumerate(more):
            close(got[b, :n], whole[b, done[b] : done[b] + n])
        done += lengths
        assert torch.equal(state.places, done)


def test_padding_may_reach_beyond_the_capacity(lm, ids, begin):
    """Rows are cut into equal chunks; what sticks out of the last one is padding and lands nowhere."""
    whole, state = lm(ids[:, :6]), begin(lm, 3, 6)
    lm.read(ids[:, :5], state, torch.tensor([5, 3, 5]))
    chunk = torch.full((3, 5), 9)
    chunk[0, 0], chunk[1, :2], chunk[2, 0] = ids[0, 5], ids[1, 3:5], ids[2, 5]
    got = lm.read(chunk, state, torch.tensor([1, 2, 1]))
    close(got[0, 0], whole[0, 5])
    close(got[1, :2], whole[1, 3:5])
    close(lm.read(ids[:, 5:6], state, torch.tensor([0, 1, 0]))[1, 0], whole[1, 5])


def test_documents_in_one_row_know_nothing_of_each_other(lm, ids):
    documents = torch.tensor([[0] * 5 + [1] * 7, [3] * 12, [2] + [5] * 4 + [2] * 4 + [9] * 3])
    packed, want = lm(ids, documents), []
    for b in range(3):
        for start, stop in {0: [(0, 5), (5, 12)], 1: [(0, 12)], 2: [(0, 1), (1, 5), (9, 12)]}[b]:
            want.append((packed[b, start:stop], lm(ids[b : b + 1, start:stop])[0]))
    for mine, alone in want:
        close(mine, alone)
    close(lm(ids, torch.full_like(ids, 3)), lm(ids))


def test_kept_rows_go_on_in_any_order_and_number(lm, ids, begin):
    whole, state = lm(ids), begin(lm, 3, 12)
    lm.read(ids[:, :9], state, LENGTHS)
    texts, places = torch.arange(3), LENGTHS  # which text a row is, and how far it has come
    for rows in ([2, 0, 2, 1, 2], [3, 1], [1, 0, 0]):
        state.select(torch.tensor(rows))
        texts, places = texts[rows], places[rows]
        assert torch.equal(state.places, places)
        close(lm.read(ids[texts, places][:, None], state)[:, 0], whole[texts, places])
        places = places + 1

    state = begin(lm, 1, 12)  # one prompt, several answers, each its own
    lm.read(ids[:1, :4], state)
    state.select(torch.zeros(3, dtype=torch.long))
    got = lm.read(ids[:, 4:], state)
    close(got, lm(torch.cat((ids[:1, :4].expand(3, -1), ids[:, 4:]), 1))[:, 4:])


def test_two_readers_do_not_disturb_each_other(lm, ids, begin):
    whole, a, b = lm(ids), begin(lm, 1, 12), begin(lm, 2, 12)
    lm.read(ids[:1, :5], a)
    lm.read(ids[1:, :8], b)
    close(lm.read(ids[:1, 5:], a), whole[:1, 5:])
    close(lm.read(ids[1:, 8:], b), whole[1:, 8:])


def test_ids_that_are_no_words_are_never_said(lm, ids):
    new, before = build(lm.config), lm.logits(lm(ids))
    assert not any(table[VOCAB:].any() for table in (new.token.weight, new.head, new.bias) if table is not None)
    with torch.no_grad():
        for table in (lm.token.weight, lm.head, lm.bias):
            if table is not None:
                table[VOCAB:] = 1e3
    assert torch.equal(lm.logits(lm(ids)), before)


def test_what_was_looked_at_is_what_was_mixed(lm, ids, begin):
    """The weights worked out for a watcher, times the values, are what the fused kernel gave; also with a cache."""
    if not isinstance(lm, Decoder):
        return
    attention, found = lm.blocks[0].attention, {}
    attention.out.register_forward_pre_hook(lambda module, args: found.update(mixed=args[0]))
    attention.qkv.register_forward_hook(lambda module, args, out: found.update(fused=out))
    state = begin(lm, 3, 12)
    for chunk in (ids[:, :8], ids[:, 8:]):
        with watch(lm, "blocks.0.attention.look") as seen:
            lm.read(chunk, state)
    (look,) = seen["blocks.0.attention.look"]
    lm(ids)
    values = found["fused"].split(attention.qkv.parts, -1)[2].unflatten(-1, (attention.kv_heads, -1)).transpose(1, 2)
    values = values.repeat_interleave(attention.heads // attention.kv_heads, 1)
    mixed = look.weights().double()[..., :12] @ values
    close(mixed.transpose(1, 2).flatten(2), found["mixed"][:, 8:], rtol=1e-5, atol=1e-5)  # weights are float32


def test_the_lens_of_the_last_layer_is_the_model_itself(lm, ids):
    with watch(lm, "*out") as seen:
        words = lm.logits(lm(ids))
    streams = [calls[0] for calls in seen.values()]
    assert len(streams) == (lm.config.layers if isinstance(lm, Decoder) else 1)
    close(lm.lens(streams[-1]), words)
    assert all((lm.lens(stream) - words).abs().max() > 1e-3 for stream in streams[:-1])


def test_too_long_a_text_is_told_how_long_it_may_be(lm):
    long = torch.zeros(1, 33, dtype=torch.long)
    if not lm.config.context:
        assert lm(long).shape[1] == 33  # a state has one size
        return
    with pytest.raises(ConfigError, match=r"33 tokens.*32 positions.*model\.context=33"):
        lm(long)
    with pytest.raises(ConfigError, match="40 tokens"):
        lm.begin(1, 40)
    state = lm.begin(1, 5)
    lm.read(long[:, :4], state)
    with pytest.raises(ConfigError, match=r"6 tokens do not fit.*for 5"):
        lm.read(long[:, :2], state)
    assert state.places.tolist() == [4]


def test_rows_that_do_not_match_the_state_are_refused(lm, ids):
    with pytest.raises(ShapeError, match="B=2"):
        lm.read(ids, lm.begin(2, 12))
