"""Recorded steps, with a recording that a CPU can make: it does again what it did, into the same tensors."""

from functools import partial

import numpy as np
import pytest
import torch

from regard.data.blocks import TextRows
from regard.data.loader import Loader
from regard.data.store import Flat
from regard.data.text import TokenFile
from regard.models import build, config_for
from regard.objectives.next_token import NextToken
from regard.training.optim import Optimiser
from regard.training.recorded import WARM, RecordedStep
from regard.training.settings import Optim


class DoneAgain(RecordedStep):
    def apart(self, batches, count):
        return self.marked(batches, count)

    def captured(self, batch, count):
        return lambda: self.marked([batch], count)

    def has_room(self):
        return True


@pytest.mark.parametrize("arch", ["gpt", "lstm"])
def test_replayed_steps_train_as_launched_ones_do(arch):
    """Batches of a text, some not full, one of another shape, and one that two are accumulated in."""
    text, results = np.random.default_rng(0).integers(0, 97, 1000), []
    for recorded in (False, True):
        torch.manual_seed(0)
        rows = TextRows(TokenFile(Flat([text])), 32, 8 * 32)
        loader = Loader(rows, rows.plan, seed=0)
        batches = [[next(loader)] for _ in range(10)]
        assert {b.counts is None for (b,) in batches} == {True, False} and len({len(b) for (b,) in batches}) == 1
        batches.insert(7, [batches[0][0].part(slice(3))])
        batches.insert(8, [batches[1][0], batches[2][0]])
        model = build(config_for(arch, "tiny", 97, task="lm", dropout=0.1)).train()
        optimiser, objective = Optimiser(model, Optim(lr=1e-2, eps=1e-2)), NextToken()  # eps: no bias moves by rounding

        def step(batches, count, loss_sum=objective.loss_sum, model=model, optimiser=optimiser):
            loss = torch.zeros(())
            for batch in batches:
                part = loss_sum(model, batch) / count
                part.backward()
                loss += part.detach()
            return loss, *optimiser.update(loss)

        marked = partial(step, loss_sum=objective.marked_loss_sum)
        work = DoneAgain(step, marked, torch.device("cpu")) if recorded else step
        losses = [work(micros, sum(b.count for b in micros))[0].clone() for micros in batches]
        results.append((torch.stack(losses), *(p.detach() for p in model.parameters())))
    assert len(work.recordings) == 1 and sorted(work.seen.values()) == [1, WARM + 1] and WARM < 7
    for plain, replayed in zip(*results, strict=True):
        torch.testing.assert_close(replayed, plain, rtol=1e-4, atol=1e-6)
