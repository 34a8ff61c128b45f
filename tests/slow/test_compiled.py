"""Compiled equals eager: the loss and every gradient, for batches of several shapes."""

import shutil

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from regard.data.batch import Tokens, collate
from regard.data.loader import Loader
from regard.data.masked import SentenceIds
from regard.data.masking import MaskedRows, Rules
from regard.models import build, config_for
from regard.models.bert import BertConfig
from regard.models.transformer import TransformerConfig
from regard.objectives.masked_token import MaskedToken
from regard.objectives.next_token import NextToken
from regard.objectives.regularised import Regularised
from regard.objectives.translate import TranslateLoss
from regard.training.placement import DEEP, checkpoint_blocks, compile_loss

PAD = 22


def batch_of(*sizes: tuple[int, int]):
    sources = [torch.randint(1, PAD, (s,)).tolist() for s, _ in sizes]
    targets = [torch.randint(1, PAD, (t,)).tolist() for _, t in sizes]
    return collate(sources, targets, eos=0, pad=PAD, multiple=4)


compiles = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="torch.compile needs a C++ compiler"
)


def compare(model, task, batches) -> None:
    def gradients():
        results = []
        for batch in batches:
            model.zero_grad()
            loss = task.loss_sum(model, batch)
            loss.backward()
            results += [loss.detach(), *(p.grad.clone() for p in model.parameters())]
        return results

    eager = gradients()
    task.compile()
    for mine, other in zip(gradients(), eager, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@compiles
@pytest.mark.parametrize(
    "task", [TranslateLoss(0.1), Regularised(TranslateLoss(0.1), 5.0)], ids=["plain", "consistent"]
)
def test_compiled_equals_eager(task):
    model = build(
        TransformerConfig(vocab=23, width=16, heads=2, ffn=24, encoder_layers=1, decoder_layers=1, dropout=0.0)
    )
    batches = [batch_of((5, 3), (2, 6)), batch_of((3, 3), (3, 3)), batch_of((9, 4), (2, 2), (7, 11))]

    compare(model, task, batches)


@compiles
def test_compiled_pre_training_equals_eager():
    random = np.random.default_rng(0)
    text = SentenceIds.of(
        [[random.integers(5, 90, random.integers(2, 10)).tolist() for _ in range(4)] for _ in range(30)]
    )
    rules = Rules(24, np.arange(90) < 5, np.zeros(90, bool), 0, 2, 3, 4)
    source = MaskedRows(text, rules, 24 * 8, packed=True)
    rows = Loader(source, source.plan, 0)
    config = BertConfig(
        vocab=90,
        width=16,
        layers=1,
        heads=2,
        ffn=24,
        max_length=24,
        dropout=0.0,
        attention_dropout=0.0,
        head="pretraining",
    )
    compare(build(config), MaskedToken(), [next(rows) for _ in range(3)])


@compiles
@pytest.mark.parametrize("arch", ["gpt", "llama"])
def test_a_compiled_language_model_equals_an_eager_one(arch):
    model = build(config_for(arch, "tiny", 97, task="lm", context=32))
    compare(model, NextToken(), [Tokens(ids=torch.randint(0, 97, (rows, 33))) for rows in (4, 3)])


@compiles
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("arch", ["gpt", "llama"])
def test_deep_models_compile_one_block_for_all(arch, checkpoint):
    model = build(config_for(arch, "tiny", 97, task="lm", context=32, layers=DEEP + 1))
    objective, batch = NextToken(), Tokens(ids=torch.randint(0, 97, (4, 33)))

    def gradients():
        model.zero_grad()
        loss = objective.loss_sum(model, batch)
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    expected = gradients()
    torch._dynamo.reset()
    counters.clear()
    compile_loss(model, objective, by_block=False)
    if checkpoint:
        checkpoint_blocks(model)
    torch.testing.assert_close(gradients(), expected, rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] <= 2
