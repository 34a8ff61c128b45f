"""The validation loss of every objective is the plain loss of a target, whatever is added for training."""

import dataclasses

import numpy as np
import pytest
import torch
from tests.contract import cases
from tests.reference.test_masked_token import batch_of
from torch import nn

from regard.data.batch import Samples, Tokens, collate, collate_labelled
from regard.models import build
from regard.models.bert import BertConfig
from regard.models.plain import MLPConfig
from regard.models.rnn_classifier import RecurrentClassifierConfig
from regard.objectives.caption import CaptionLoss
from regard.objectives.classify import ClassifyLoss, ClassifySamples
from regard.objectives.masked_token import MaskedToken
from regard.objectives.next_token import NextToken
from regard.objectives.regularised import Regularised
from regard.objectives.tag import TagLoss
from regard.objectives.translate import TranslateLoss


def pairs(sizes: list[tuple[int, int]]):
    rng = np.random.default_rng(0)
    rows = [[rng.integers(1, 20, n).tolist() for n in pair] for pair in sizes]
    return collate([a for a, _ in rows], [b for _, b in rows], eos=cases.EOS, pad=cases.PAD)


def tokens(count: int, length: int):
    rng = np.random.default_rng(0)
    ids = torch.from_numpy(rng.integers(0, cases.VOCAB, (count, length + 1)))
    return Tokens(ids=ids, counts=torch.from_numpy(rng.random((count, length)) < 0.7))


def captioned(lengths: list[int]):
    rng = np.random.default_rng(0)
    targets = torch.full((len(lengths), 6), -1)
    for row, n in zip(targets, lengths, strict=True):
        row[:n] = torch.from_numpy(rng.integers(0, 22, n))
    pixels = torch.from_numpy(rng.integers(0, 256, (len(lengths), 2, 8, 8), np.uint8))
    inputs = torch.cat((torch.full_like(targets[:, :1], 22), targets[:, :-1].clamp(min=0)), 1)
    return Samples((pixels, inputs), targets, np.arange(len(lengths)))


def labelled(sizes: list[int], per_piece: bool, first: int):
    rng = np.random.default_rng(0)
    rows = np.arange(first, first + len(sizes))
    marks = [rng.integers(0, 3, n).tolist() if per_piece else [int(rng.integers(3))] for n in sizes]
    marks = [[-1, *m[1:-1], -1] if per_piece else m for m in marks]
    return collate_labelled([(rng.integers(5, 20, n).tolist(), n, m) for n, m in zip(sizes, marks, strict=True)], 0,
                            per_piece, rows)  # fmt: skip


def samples(count: int, first: int):
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.normal(size=(count, 5)).astype(np.float32)), torch.from_numpy(rng.integers(0, 3, count))
    return Samples((x,), y, np.arange(first, first + count))


LABELS = ("a", "b", "c")
LSTM = RecurrentClassifierConfig(vocab=20, embedding=8, width=8, dropout=0.3, labels=LABELS)
BERT = BertConfig(vocab=90, width=16, layers=1, heads=2, ffn=16, max_length=24, head="masked")
WEIGHTS = (0.2, 1.0, 3.0)
CASES = {  # a model, batches of unequal sizes, the plain objective, and what training may make of it
    "translate": lambda: (
        cases.TRANSLATORS["transformer"],
        [pairs([(3, 4), (5, 2)]), pairs([(2, 9)] * 3)],
        TranslateLoss(0.0),
        [TranslateLoss(0.1), TranslateLoss(0.5), Regularised(TranslateLoss(0.1), 5.0)],
    ),
    "translate-lstm": lambda: (
        cases.TRANSLATORS["lstm"],
        [pairs([(3, 4), (5, 2)]), pairs([(2, 9)])],
        TranslateLoss(0.0),
        [TranslateLoss(0.1)],
    ),
    "lm": lambda: (
        cases.LANGUAGE_MODELS["gpt-learned"],
        [tokens(2, 5), tokens(1, 12)],
        NextToken(0.0),
        [NextToken(0.1), Regularised(NextToken(0.1), 5.0)],
    ),
    "lm-lstm": lambda: (cases.LANGUAGE_MODELS["lstm"], [tokens(2, 5), tokens(1, 12)], NextToken(0.0), [NextToken(0.1)]),
    "mlm": lambda: (BERT, [batch_of(False)], MaskedToken(0.0), [MaskedToken(0.1)]),
    "caption": lambda: (
        cases.CAPTIONERS["captioner"],
        [captioned([2, 6]), captioned([4])],
        CaptionLoss(0.0),
        [CaptionLoss(0.1), Regularised(CaptionLoss(0.1), 5.0)],
    ),
    "classify": lambda: (
        LSTM,
        [labelled([5, 3, 4], False, 0), labelled([7], False, 3)],
        ClassifyLoss(0.0),
        [
            ClassifyLoss(0.1),
            ClassifyLoss(0.0, WEIGHTS),
            ClassifyLoss(0.1, WEIGHTS),
            Regularised(ClassifyLoss(0.1), 5.0),
        ],
    ),
    "tag": lambda: (
        dataclasses.replace(LSTM, head="token"),
        [labelled([5, 3, 4], True, 0), labelled([9], True, 3)],
        TagLoss(0.0),
        [TagLoss(0.1), TagLoss(0.1, WEIGHTS), Regularised(TagLoss(0.1), 5.0)],
    ),
    "samples": lambda: (
        MLPConfig(shape=(5,), width=8, layers=1, dropout=0.3, labels=LABELS),
        [samples(4, 0), samples(1, 4)],
        ClassifySamples(0.0),
        [ClassifySamples(0.1), ClassifySamples(0.1, WEIGHTS), Regularised(ClassifySamples(0.1), 5.0)],
    ),
}


@pytest.fixture(params=CASES, ids=list(CASES))
def case(request):
    """Heads and tables are scaled up too: a model that is not sure of anything is smooth already."""
    config, batches, plain, others = CASES[request.param]()
    torch.manual_seed(0)
    model = build(config)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(15.0 if p.ndim > 1 else 1.0)
    return model, batches, plain, others


def test_validation_loss_is_plain_cross_entropy(case):
    """No smoothing, no class weights, no consistency, no dropout; a target counts once, in whatever batch it comes."""
    model, batches, plain, others = case
    model.eval()
    with torch.no_grad():
        total = sum(plain.loss_sum(model, batch).item() for batch in batches)
    expected = total / sum(plain.count(batch) for batch in batches)
    model.train()
    for objective in (plain, *others):
        assert objective.held_out(model, batches)["loss"] == pytest.approx(expected, rel=1e-5)
        assert model.training, "it comes back as it was"


def test_training_loss_is_not_the_validation_loss(case):
    """Or the test above compares nothing."""
    model, batches, plain, others = case
    model.eval()
    with torch.no_grad():
        for objective in others:
            changed = objective.loss_sum(model, batches[0]).item()
            assert changed != pytest.approx(plain.loss_sum(model, batches[0]).item(), rel=1e-3)


def test_a_model_at_rest_is_left_at_rest(case):
    model, batches, plain, _ = case
    plain.held_out(model.eval(), batches)
    assert not any(module.training for module in model.modules() if isinstance(module, nn.Dropout))
