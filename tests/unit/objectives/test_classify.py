"""The losses of labels, worked out by hand on ragged batches."""

import numpy as np
import pytest
import torch
from torch import nn

from regard.data.batch import collate_labelled
from regard.models import build, config_for
from regard.objectives.classify import ClassifyLoss, balanced_weights
from regard.objectives.tag import TagLoss

TEXTS = [([2, 7, 8, 3], 4), ([2, 9, 3], 3), ([2, 7, 3, 5, 6, 3], 3)]
LABELS = ("a", "b", "c")
close = torch.testing.assert_close


class Table(nn.Module):
    """Scores that depend on a token's id alone, so that losses can be worked out by hand."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(10, 3, generator=torch.Generator().manual_seed(0)))

    def forward(self, ids, lengths=None, sentences=None):
        return self.table[ids]

    def summary(self, hidden, lengths=None):
        return hidden[:, 1]

    def scores(self, hidden):
        return hidden


def by_hand(table, ids, labels, weights=(1, 1, 1)):
    each = [weights[y] * (torch.logsumexp(table[i], 0) - table[i][y]) for i, y in zip(ids, labels, strict=True)]
    return sum(each)


def test_a_text_has_one_label():
    model, batch = Table(), collate_labelled([(*t, [y]) for t, y in zip(TEXTS, (0, 2, 1), strict=True)], 0, False)
    task = ClassifyLoss()
    assert task.count(batch) == 3
    close(task.loss_sum(model, batch), by_hand(model.table, (7, 9, 7), (0, 2, 1)))
    weighted = ClassifyLoss(weights=(0.5, 2.0, 1.0))
    close(weighted.loss_sum(model, batch), by_hand(model.table, (7, 9, 7), (0, 2, 1), (0.5, 2.0, 1.0)))
    metrics = weighted.held_out(model, [batch])
    assert metrics["loss"] == pytest.approx(by_hand(model.table, (7, 9, 7), (0, 2, 1)).item() / 3), (
        "held-out loss is plain"
    )


def test_tags_count_at_first_pieces_only():
    marks = [[-1, 1, -1, -1], [-1, 0, -1], [-1, 2, -1, 1, -1, -1]]
    model, batch = Table(), collate_labelled([(*t, m) for t, m in zip(TEXTS, marks, strict=True)], 0, True)
    task = TagLoss()
    assert task.count(batch) == 4
    close(task.loss_sum(model, batch), by_hand(model.table, (7, 9, 7, 5), (1, 0, 2, 1)))
    halves = sum(task.loss_sum(model, half) for half in batch.split())
    close(halves, task.loss_sum(model, batch))


def test_held_out_labels_come_in_the_order_of_the_file():
    marks = [[-1, 1, -1, -1], [-1, 0, -1], [-1, 2, -1, 1, -1, -1]]
    seen = {}
    task = TagLoss(scores=lambda true, guessed: seen.update(true=true.tolist()) or {"f": 1.0})
    rows = np.array([2, 0, 1])
    batches = [collate_labelled([(*TEXTS[i], marks[i])], 0, True, rows[i : i + 1]) for i in range(3)]
    metrics = task.held_out(Table(), batches)
    assert seen["true"] == [0, 2, 1, 1] and metrics["f"] == 1.0 and 0 <= metrics["accuracy"] <= 1


def test_balanced_weights_have_a_mean_of_one_over_the_examples():
    weights = balanced_weights([90, 10])
    assert weights == [pytest.approx(100 / 180), pytest.approx(5.0)]
    assert sum(w * n for w, n in zip(weights, (90, 10), strict=True)) == pytest.approx(100)


@pytest.mark.parametrize("arch", ["transformer", "lstm", "gru", "rnn", "lstm-last"])
@pytest.mark.parametrize("task", ["classify", "tag"])
class TestModels:
    """What every labeller promises: padding changes nothing, a row is a row, parts are used, parts add up."""

    def model(self, arch, task):
        torch.manual_seed(0)
        head = "token" if task == "tag" else "sequence"
        how = dict(pooling="last") if arch.endswith("-last") else {}
        arch = arch.removesuffix("-last")
        return build(config_for(arch, "tiny", 12, task=task, dropout=0.0, head=head, labels=LABELS, **how)).eval()

    def batch(self, task, which=(0, 1, 2)):
        marks = {0: [-1, 1, 2, -1], 1: [-1, 0, -1], 2: [-1, 2, -1, 1, 0, -1]}
        return collate_labelled([(*TEXTS[i], marks[i] if task == "tag" else [i]) for i in which], 0, task == "tag")

    def make(self, task):
        return TagLoss() if task == "tag" else ClassifyLoss()

    def test_padding_changes_nothing_and_a_row_is_itself_alone(self, arch, task):
        model, made = self.model(arch, task), self.make(task)
        together = made.logits(model, self.batch(task))
        alone = torch.cat([made.logits(model, self.batch(task, [i])) for i in range(3)])
        close(together, alone, atol=1e-5, rtol=1e-4)
        padded = self.batch(task)
        ids = padded.ids.clone()
        ids[torch.arange(6) >= padded.lengths[:, None]] = 9
        close(made.logits(model, type(padded)(**{**vars(padded), "ids": ids})), together)

    def test_every_parameter_learns_and_micro_batches_add_up(self, arch, task):
        model, made = self.model(arch, task), self.make(task)

        def gradient(batches):
            model.zero_grad()
            for batch in batches:
                made.loss_sum(model, batch).backward()
            return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

        whole, parts = gradient([self.batch(task)]), gradient([self.batch(task, [i]) for i in range(3)])
        assert set(whole) == {name for name, _ in model.named_parameters()}
        assert all(g.abs().sum() > 0 for g in whole.values())
        for name in whole:
            close(whole[name], parts[name], atol=1e-5, rtol=1e-3)

    def test_the_first_loss_is_that_of_a_guess(self, arch, task):
        batch = self.batch(task)
        loss = self.make(task).loss_sum(self.model(arch, task), batch).item() / batch.count
        assert loss == pytest.approx(np.log(3), rel=0.4)


def test_a_recurrent_tagger_knows_the_past_and_not_the_future():
    torch.manual_seed(0)
    model = build(config_for("gru", "tiny", 12, task="tag", head="token", labels=LABELS)).eval()
    one, two = torch.tensor([[2, 7, 8, 3]]), torch.tensor([[2, 7, 5, 3]])
    a, b = model(one), model(two)
    close(a[:, :2], b[:, :2])
    assert (a[:, 2:] - b[:, 2:]).abs().max() > 1e-3
