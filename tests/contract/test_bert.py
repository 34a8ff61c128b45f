"""What is asked of BERT alone: padded and packed rows, its heads."""

import pytest
import torch

from regard.errors import ConfigError, ShapeError
from regard.models import build
from regard.models.base import padded
from regard.models.bert import BertConfig
from regard.nn.taps import watch

from .case import PAD, VOCAB

close = torch.testing.assert_close
LENGTHS = torch.tensor([9, 2, 6])
REAL = torch.arange(9) < LENGTHS[:, None]
tiny = dict(vocab=VOCAB, width=16, layers=2, heads=4, ffn=24, max_length=12, dropout=0.1)


@pytest.fixture
def bert(shake):
    return shake(build(BertConfig(**tiny, head="pretraining")), 8.0).double().eval()


@pytest.fixture
def ids():
    ids = torch.randint(1, PAD, (3, 9), generator=torch.Generator().manual_seed(4))
    return ids.masked_fill(~REAL, PAD)


@pytest.fixture
def sentences():
    return torch.tensor([[0] * 4 + [1] * 5, [0] * 9, [0, 0, 0, 1, 1, 1, 0, 0, 0]])


def test_outputs_have_the_promised_shape(bert, ids):
    hidden = bert(ids, LENGTHS)
    assert hidden.shape == (3, 9, 16) and bert.logits(hidden[REAL]).shape == (17, VOCAB)
    assert bert.follows(hidden[:, 0]).shape == (3, 2) and bert.pooled(hidden[:, 0]).shape == (3, 16)
    assert bert.head.size(0) == bert.bias.size(0) == padded(VOCAB) == 64
    for head, want in (("sequence", (3, 5)), ("token", (3, 9, 5))):
        model = build(BertConfig(**tiny, head=head, labels=tuple("abcde"))).double()
        assert model.scores(hidden[:, 0] if head == "sequence" else hidden).shape == want


def test_what_padding_holds_changes_nothing(bert, ids, sentences):
    other = bert(ids.masked_fill(~REAL, 3), LENGTHS, sentences)
    close(bert(ids, LENGTHS, sentences)[REAL], other[REAL], rtol=0, atol=0)


def test_packed_texts_know_nothing_of_each_other(bert, ids, sentences):
    """The third, the first and the second text in one row, two of padding after them, and a text of nothing."""
    apart = bert(ids, LENGTHS, sentences)
    order = [2, 0, 1]
    row = torch.cat([*(ids[b, : LENGTHS[b]] for b in order), torch.full((2,), PAD)])[None]
    where = torch.cat([*(sentences[b, : LENGTHS[b]] for b in order), torch.zeros(2, dtype=torch.long)])[None]
    starts = torch.tensor([0, 6, 15, 17, 19, 19], dtype=torch.int32)
    packed = bert(row, sentences=where, starts=starts)[0]
    for b, start in zip(order, starts.tolist(), strict=False):
        close(packed[start : start + int(LENGTHS[b])], apart[b, : LENGTHS[b]])


def test_a_packed_row_may_be_longer_than_a_text_may_be(bert):
    ids = torch.randint(1, PAD, (1, 20))
    halves = torch.cat((bert(ids[:, :10]), bert(ids[:, 10:])), 1)
    close(bert(ids, starts=torch.tensor([0, 10, 20])), halves)
    with pytest.raises(ConfigError, match=r"13 tokens.*12 positions"):
        bert(ids, starts=torch.tensor([0, 7, 20]))


def test_every_position_depends_on_all_of_its_row_and_nothing_else(bert, ids):
    tables = []

    def remember(module, args, output):
        output.retain_grad()
        tables.append(output)

    bert.token.register_forward_hook(remember)
    bert(ids, LENGTHS)[2, 1].square().sum().backward()
    reach = tables[0].grad.abs().sum(-1)  # B T
    assert (reach[2, :6] > 0).all() and (reach[2, 6:] == 0).all() and reach[:2].sum() == 0


def test_order_and_sentence_matter(bert, ids, sentences):
    swapped = ids.clone()
    swapped[0, [2, 3]] = ids[0, [3, 2]]
    assert (bert(swapped, LENGTHS)[0, 0] - bert(ids, LENGTHS)[0, 0]).abs().max() > 1e-3
    assert (bert(ids, LENGTHS, sentences)[0, 0] - bert(ids, LENGTHS)[0, 0]).abs().max() > 1e-3
    close(bert(ids, LENGTHS, torch.zeros_like(ids)), bert(ids, LENGTHS))


def test_rows_that_pad_the_table_get_no_gradient(bert, ids, sentences):
    bert.logits(bert(ids, LENGTHS, sentences)[REAL]).square().sum().backward()
    assert bert.token.weight.grad[:VOCAB].any() and not bert.token.weight.grad[VOCAB:].any()


def test_kept_states_are_those_the_taps_see(bert, ids):
    unwatched, kept = bert(ids, LENGTHS), []
    with watch(bert) as seen:
        assert torch.equal(bert(ids, LENGTHS, kept=kept), unwatched)
    assert torch.equal(kept[-1], unwatched) and len(kept) == 3
    assert all(torch.equal(seen[f"layers.{i}.out"][0], kept[i + 1]) for i in range(2))


def test_ids_that_are_no_words_are_never_said(bert, ids):
    before = bert.logits(bert(ids))
    with torch.no_grad():
        bert.token.weight[VOCAB:] = 1e3
        bert.bias[VOCAB:] = 1e3
    assert torch.equal(bert.logits(bert(ids)), before)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (dict(width=15), "15 is not divisible by 4 heads"),
        (dict(layers=0), "model.layers is 0"),
        (dict(eps=0.0), "model.eps"),
        (dict(activation="sine"), "no activation 'sine'"),
        (dict(head="tail"), "no head 'tail'; there are: none, pooler"),
        (dict(head="sequence"), "head 'sequence' with 0 labels"),
        (dict(head="masked", labels=("a",)), "labels go with sequence and token"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        BertConfig(**{**tiny, **settings})


def test_what_does_not_fit_is_said(bert, ids):
    with pytest.raises(ConfigError, match=r"13 tokens.*12 positions.*model\.max_length=13"):
        bert(torch.zeros(1, 13, dtype=torch.long))
    with pytest.raises(ConfigError, match="not both"):
        bert(ids, LENGTHS, starts=torch.tensor([0, 9]))
    with pytest.raises(ShapeError, match="B=1"):
        bert(ids, starts=torch.tensor([0, 9]))
    with pytest.raises(ConfigError, match="no classifier: its head is 'pretraining'"):
        bert.scores(bert(ids))
    with pytest.raises(ConfigError, match="no masked-word head"):
        build(BertConfig(**tiny)).logits(bert(ids))
