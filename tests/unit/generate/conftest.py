"""Toy models small enough to enumerate everything they can say, and a tokenizer whose texts are numbers."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from regard.models import build
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.transformer import TransformerConfig

EOS, PAD = 0, 5  # words 1 to 4
CONFIGS = {
    "transformer": TransformerConfig(
        vocab=6, width=8, heads=2, ffn=12, encoder_layers=1, decoder_layers=2, max_length=16
    ),
    "lstm": Seq2SeqConfig(vocab=6, embedding=8, width=8),
    "lstm-bottleneck": Seq2SeqConfig(vocab=6, embedding=8, width=8, attention=False),
}


@pytest.fixture(params=CONFIGS)
def model(request, shake):
    torch.manual_seed(7)
    return shake(build(CONFIGS[request.param]), 2.5).eval()


@pytest.fixture
def batch():
    """Three sources of different lengths, padded."""
    lengths = torch.tensor([5, 3, 1])
    source = torch.tensor([[3, 1, 4, 2, 0], [2, 2, 0, 5, 5], [0, 5, 5, 5, 5]])
    return SimpleNamespace(source=source, lengths=lengths, row=lambda b: source[b : b + 1, : lengths[b]])


@torch.no_grad()
def log_probability(model, source, ids: tuple[int, ...]) -> float:
    """Of one whole sentence, from the full pass in float64: nothing of the search is used."""
    target = torch.tensor([ids])
    inputs = torch.cat((torch.full((1, 1), PAD), target[:, :-1]), 1)
    words = model.logits(model(source, None, inputs)).double().log_softmax(-1)
    return words[0].gather(1, target.T).sum().item()


@pytest.fixture
def everything():
    """All sentences of at most `limit` words with the log-probability of each."""

    def enumerate_all(model, source, limit: int, begin: tuple[int, ...] = ()) -> dict[tuple[int, ...], float]:
        free = range(limit - len(begin))
        sentences = [(*begin, *s, EOS) for n in free for s in itertools.product(range(1, PAD), repeat=n)]
        return {s: log_probability(model, source, s) for s in sentences}

    return enumerate_all


class Numbers:
    """A tokenizer whose texts are numbers."""

    eos, pad, size = EOS, PAD, PAD + 1

    def encode(self, text):
        return [int(w) for w in text.split()]

    def encode_batch(self, texts):
        return [self.encode(text) for text in texts]

    encode_targets = encode_batch

    def decode(self, ids):
        return " ".join(str(i) for i in ids if i not in (self.eos, self.pad))


@pytest.fixture
def numbers():
    return Numbers()
