"""A tiny config of every model. A new model joins all contract tests by adding a line."""

import pytest
import torch
from torch import nn

from regard.models import build
from regard.models.gpt import POSITIONS, GPTConfig
from regard.models.llama import LlamaConfig
from regard.models.rnn_lm import RecurrentLMConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.transformer import TransformerConfig
from regard.nn.recurrent import GATES

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

flat = dict(vocab=VOCAB, width=16, layers=2, heads=4, ffn=24, context=32, dropout=0.1)
TINY_LM = {  # language models: their contract is test_language_models.py
    **{f"gpt-{positions}": GPTConfig(**flat, positions=positions) for positions in POSITIONS},
    "llama": LlamaConfig(**flat, kv_heads=2, head_width=6),
    "llama-untied": LlamaConfig(**flat, kv_heads=4, head_width=4, tied=False),
    **{cell: RecurrentLMConfig(vocab=VOCAB, cell=cell, embedding=12, width=16, dropout=0.1) for cell in GATES},
    "lstm-deep": RecurrentLMConfig(vocab=VOCAB, cell="lstm", embedding=12, width=16, layers=3, dropout=0.1),
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


@pytest.fixture(params=TINY_LM, ids=list(TINY_LM))
def lm_config(request):
    return TINY_LM[request.param]


@pytest.fixture
def lm(lm_config, shake) -> nn.Module:
    """As `model`, with words that differ enough from each other to be told apart."""
    model = build(lm_config)
    with torch.no_grad():
        model.token.weight.mul_(0.5 / model.token.weight[:VOCAB].std())
    return shake(model, 2.0 if isinstance(lm_config, RecurrentLMConfig) else 8.0).double().eval()
