"""Compiled losses: one graph without a break, and a few of them however many shapes the batches have."""

import dataclasses

import pytest
import torch
from tests.unit.objectives.test_held_out import BERT, CASES, captioned, labelled, pairs, tokens
from torch._dynamo.testing import CompileCounter

from regard.models import build
from regard.objectives.regularised import Regularised

SHAPES = range(6)
BATCHES = {
    "translate": [pairs([(3 + n, 4 + n % 3)] * (2 + n % 4) + [(2, 3)]) for n in SHAPES],
    "lm": [tokens(2 + n % 3, 5 + n) for n in SHAPES],
    "caption": [captioned([2 + n % 3, 6, 3][: 2 + n % 2]) for n in SHAPES],
    "classify": [labelled([5 + n, 3, 4][: 2 + n % 2], False, 0) for n in SHAPES],
    "tag": [labelled([5 + n, 3, 4][: 2 + n % 2], True, 0) for n in SHAPES],
}
HEADS = {"classify": "sequence", "tag": "token"}
FEW = 3  # graphs: of the first shape, and of shapes that vary


@pytest.mark.parametrize("regularised", [False, True], ids=["plain", "r-drop"])
@pytest.mark.parametrize("name", BATCHES)
def test_batches_of_all_shapes_share_a_few_graphs(name, regularised, monkeypatch):
    config, _, objective, _ = CASES[name]()
    if name in HEADS:
        config = dataclasses.replace(BERT, head=HEADS[name], labels=config.labels)
    objective = Regularised(objective, 1.0) if regularised else objective
    torch.manual_seed(0)
    model, counter, compiled = build(config).train(), CompileCounter(), torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda f, dynamic: compiled(f, dynamic=dynamic, backend=counter, fullgraph=True)
    )
    torch._dynamo.reset()
    objective.compile()
    for batch in BATCHES[name]:
        objective.loss_sum(model, batch)
    assert counter.frame_count <= FEW
