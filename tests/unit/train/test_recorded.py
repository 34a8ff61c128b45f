"""Recorded passes, with a recording that a CPU can make: it does again what it did, into the same tensors."""

from functools import partial

import numpy as np
import pytest
import torch

from regard.data.blocks import Blocks
from regard.data.store import Shards, TokenFile
from regard.models import build, config_for
from regard.tasks.next_token import NextToken
from regard.train.optim import Optim, Optimiser
from regard.train.recorded import WARM, RecordedPass

CPU = torch.device("cpu")


class DoneAgain(RecordedPass):
    def captured(self):
        work, before = self.marked, torch.get_rng_state()
        loss = work(self.batch, self.count)
        grads = [p.grad for p in self.parameters]
        torch.set_rng_state(before)  # a recording computes nothing

        def replay():
            for p in self.parameters:
                p.grad = None
            loss.copy_(work(self.batch, self.count))
            for grad, p in zip(grads, self.parameters, strict=True):
                grad.copy_(p.grad)

        return loss, replay

    def has_room(self):
        return True


@pytest.mark.parametrize("arch", ["gpt", "lstm"])
def test_replayed_passes_train_as_launched_ones_do(arch):
    """Batches of a text, some not full, one of another shape, and one whose gradients are added to others."""
    text, found = np.random.default_rng(0).integers(0, 97, 1000), []
    for kind in (None, DoneAgain):
        torch.manual_seed(0)
        blocks = Blocks(TokenFile(Shards([text])), 32, 8 * 32, seed=0)
        batches = [next(blocks) for _ in range(10)]
        assert {batch.counts is None for batch in batches} == {True, False} and len({len(b) for b in batches}) == 1
        batches.insert(7, batches[0].part(slice(3)))
        model = build(config_for(arch, "tiny", 97, task="lm", dropout=0.1)).train()
        optimiser, task = Optimiser(model, Optim(lr=1e-2, eps=1e-2)), NextToken()  # eps: rounding alone moves no bias

        def share(batch, count, loss_sum=task.loss_sum, model=model):
            loss = loss_sum(model, batch) / count
            loss.backward()
            return loss.detach()

        work = share if kind is None else kind(share, partial(share, loss_sum=task.marked_loss_sum), model, CPU)
        losses = []
        for i, batch in enumerate(batches):
            losses.append(work(batch, batch.count).clone())
            if i == 8:
                work(batches[2], batches[2].count)
            optimiser.step()
            optimiser.zero_grad()
        found.append((torch.stack(losses), *(p.detach() for p in model.parameters())))
    assert work.replay is not None and work.passes == 10 and WARM < 7
    for plain, replayed in zip(*found, strict=True):
        torch.testing.assert_close(replayed, plain, rtol=1e-4, atol=1e-6)
