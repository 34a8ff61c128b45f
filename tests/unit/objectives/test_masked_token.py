"""Packed rows of one length are read as rows without padding: the same loss and gradients."""

import numpy as np
import torch

from regard.data.masked import SentenceIds
from regard.data.masking import MaskedRows, Rules
from regard.models import build
from regard.models.bert import BertConfig
from regard.objectives.masked_token import MaskedToken, text_of


def batches(length: int, *sizes: int):
    """Of texts of so many words, packed into 64 tokens."""
    words = np.random.default_rng(0).integers(5, 50, sum(sizes)).tolist()
    ends = np.cumsum(sizes)
    texts = SentenceIds.of([[words[end - size : end]] for end, size in zip(ends.tolist(), sizes, strict=True)])
    rules = Rules(length, np.arange(50) < 5, np.zeros(50, bool), 0, 2, 3, 4, next_sentence=False)
    rows = MaskedRows(texts, rules, 64, packed=True).fixed()
    return rows.batch(np.arange(len(rows)))


def test_even_rows_are_read_without_packing():
    torch.manual_seed(0)
    config = BertConfig(
        vocab=50, width=16, layers=2, heads=2, ffn=32, max_length=16, dropout=0.0, attention_dropout=0.0, head="masked"
    )
    model, objective, batch = build(config), MaskedToken(), batches(16, 14, 14, 14, 14)
    ids, lengths, sentences, starts = text_of(batch)
    assert ids.shape == sentences.shape == (4, 16) and lengths is None and starts is None
    objective.loss_sum(model, batch).backward()
    even = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    text = batch.ids, batch.lengths, batch.sentences, batch.starts
    objective.device_loss(model, *text, batch.chosen, batch.targets, None)[0].backward()
    for name, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(even[name], p.grad, atol=1e-5, rtol=1e-4, msg=name)


def test_rows_of_other_lengths_and_filled_up_batches_stay_packed():
    for batch in (batches(16, 14, 13, 14, 14), batches(16, 14, 14, 14)):
        assert text_of(batch)[3] is batch.starts
