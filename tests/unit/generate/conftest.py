"""Toy models small enough to enumerate everything they can say, and a tokenizer whose texts are numbers."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from regard.generate import replay
from regard.models import build
from regard.models.base import LanguageModel
from regard.models.gpt import GPTConfig
from regard.models.llama import LlamaConfig
from regard.models.rnn_lm import RecurrentLMConfig
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


class Pairs(LanguageModel):
    """A table: the logits of the next id depend on the last two and on the place. Knows when it is asked too much."""

    def __init__(self, vocab=6, context=24, spread=2.0):
        super().__init__()
        self.config = SimpleNamespace(vocab=vocab, width=vocab, context=context)
        self.token = torch.nn.Embedding(vocab, 1)
        noise = torch.Generator().manual_seed(5)
        self.table = spread * torch.randn(vocab + 1, vocab, vocab, generator=noise)  # the last: nothing was before
        self.places = torch.randn(5, vocab, generator=noise)

    def forward(self, ids, documents=None):
        before = torch.nn.functional.pad(ids[:, :-1], (1, 0), value=self.config.vocab)
        return self.look_up(before, ids, torch.arange(ids.size(1)).expand_as(ids))

    def look_up(self, before, ids, places):
        return self.table[before, ids] + self.places[places % 5]

    def logits(self, hidden):
        return hidden

    def begin(self, rows, capacity):
        assert not self.config.context or capacity <= self.config.context
        return PairsState(rows, capacity, self.config.vocab)

    def read(self, ids, state, lengths=None):
        sizes = torch.full_like(state.places, ids.size(1)) if lengths is None else lengths
        assert ids.shape[0] == len(state.places) and (state.places + sizes <= state.capacity).all()
        before = torch.cat((state.before[:, None], ids[:, :-1]), 1)
        hidden = self.look_up(before, ids, state.places[:, None] + torch.arange(ids.size(1)))
        last = ids.gather(1, (sizes - 1).clamp(min=0)[:, None]).squeeze(1)
        state.before = torch.where(sizes > 0, last, state.before)
        state.places += sizes
        return hidden


class PairsState:
    def __init__(self, rows, capacity, vocab):
        self.capacity, self.vocab = capacity, vocab
        self.places = torch.zeros(rows, dtype=torch.long)
        self.before = torch.full((rows,), vocab)

    def select(self, rows):
        self.places, self.before = self.places[rows], self.before[rows]

    def restart(self):
        self.places.zero_()
        self.before.fill_(self.vocab)


LANGUAGE_MODELS = {
    "gpt": GPTConfig(vocab=11, width=16, heads=2, ffn=32, layers=2, context=24),
    "alibi": GPTConfig(vocab=11, width=16, heads=2, ffn=32, layers=1, context=24, positions="alibi"),
    "llama": LlamaConfig(vocab=11, width=16, heads=4, kv_heads=2, head_width=4, ffn=32, layers=1, context=24),
    "lstm": RecurrentLMConfig(vocab=11, cell="lstm", embedding=8, width=16, layers=2),
}


def doubled(name, shake):
    """In double precision: rounding decides nothing."""
    torch.manual_seed(3)
    if name == "pairs":
        return Pairs().double()
    return shake(build(LANGUAGE_MODELS[name]), 4.0).eval().double()


@pytest.fixture(params=["pairs", *LANGUAGE_MODELS])
def lm(request, shake):
    """Every kind of language model, and a table."""
    return doubled(request.param, shake)


@pytest.fixture(params=LANGUAGE_MODELS)
def real_lm(request, shake):
    return doubled(request.param, shake)


@pytest.fixture
def pairs():
    return Pairs


class OnePlace(replay.Replay):
    """As on a GPU, but run in place instead of being captured and replayed: it takes the way it took the first time,
    and what it changes on the host is forgotten but for what a `Replay` knows of."""

    def __call__(self):
        self.calls += 1
        if self.calls <= replay.EAGER_FIRST:
            self.step()
            return
        tensors = [{k: v for k, v in vars(h).items() if isinstance(v, torch.Tensor)} for h in self.holders]
        whole = [{k: v for k, v in vars(h).items() if isinstance(v, int)} for h in self.holders]
        first = self.calls == replay.EAGER_FIRST + 1
        if first:
            self.begun = whole
        for holder, numbers in zip(self.holders, self.begun, strict=True):
            vars(holder).update(numbers)
        self._step_in_place()
        for holder, old, numbers in zip(self.holders, tensors, whole, strict=True):
            assert all(getattr(holder, name) is tensor for name, tensor in old.items()), "memory has moved"
            vars(holder).update({} if first else numbers)
        self._set_numbers()


@pytest.fixture
def one_place():
    return OnePlace
