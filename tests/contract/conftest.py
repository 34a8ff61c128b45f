"""A tiny config of every model. A new model joins all contract tests by adding a line."""

import pytest
import torch
from torch import nn

from regard.models import build
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.transformer import TransformerConfig

VOCAB, PAD, EOS = 23, 22, 0
small = dict(vocab=VOCAB, width=16, heads=2, ffn=24, encoder_layers=2, decoder_layers=2, max_length=32)
TINY = {
    "transformer": TransformerConfig(**small),
    "transformer-pre": TransformerConfig(**small, norm="pre"),
    "transformer-interleaved": TransformerConfig(**small, positions="interleaved"),
    "transformer-learned": TransformerConfig(**small, positions="learned", activation="gelu"),
    **{
        cell + name: Seq2SeqConfig(vocab=VOCAB, cell=cell, attention=attention, embedding=12, width=16)
        for name, attention in (("", True), ("-bottleneck", False))
        for cell in ("rnn", "gru", "lstm")
    },
    "lstm-deep": Seq2SeqConfig(vocab=VOCAB, cell="lstm", embedding=12, width=16, encoder_layers=2),
}


@pytest.fixture(params=TINY, ids=list(TINY))
def config(request):
    return TINY[request.param]


@pytest.fixture
def model(config, shake) -> nn.Module:
    """Matrices scaled up, in float64, so that a wrong path shows; the transformer takes more before it saturates."""
    return shake(build(config), 2.0).double().eval()


class Ragged:
    """Three sources and targets of different lengths, padded on the right."""

    lengths = torch.tensor([7, 4, 2])
    target_lengths = torch.tensor([6, 3, 5])

    def __init__(self):
        g = torch.Generator().manual_seed(3)
        self.source = torch.randint(1, PAD, (3, 7), generator=g)
        self.target = torch.randint(1, PAD, (3, 6), generator=g)
        self.source[torch.arange(3), self.lengths - 1] = EOS
        self.source[torch.arange(7) >= self.lengths[:, None]] = PAD
        self.target[torch.arange(3), self.target_lengths - 1] = EOS
        self.real = torch.arange(6) < self.target_lengths[:, None]
        self.target[~self.real] = PAD
        self.inputs = torch.cat((torch.full((3, 1), PAD), self.target[:, :-1]), 1)


@pytest.fixture
def ragged() -> Ragged:
    return Ragged()
