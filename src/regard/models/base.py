"""What every model promises. Training sees `forward`; decoding sees `begin` and `step`, or `begin` and `read`."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard import limits
from regard.errors import ConfigError
from regard.nn.blocks import compute_dtype
from regard.nn.cache import Cache, Past, Step
from regard.nn.linear import linear
from regard.nn.positions import reach_
from regard.shapes import check


class DecodingState(Protocol):
    """All that a decoder carries from word to word, for B sentences with N hypotheses each. Owned by the caller."""

    def reorder(self, parents: Tensor) -> None:
        """Hypothesis n of sentence b goes on from hypothesis `parents[b, n]`, B N; there may be more than before."""
        ...

    def select(self, rows: Tensor) -> None:
        """Keep these sentences; the others are finished and leave the batch."""
        ...


class EncoderDecoder(nn.Module):
    """Source ids to target ids. `forward` returns hidden states; `logits` is the head, tied to the embedding."""

    config: Any
    token: nn.Embedding
    bias: Tensor | None  # of the head; only some published models have one

    def forward(self, source: Tensor, lengths: Tensor | None, inputs: Tensor) -> Tensor:
        """B S ids, their lengths (None: no padding anywhere), B T decoder inputs -> B T D."""
        raise NotImplementedError

    @property
    def head(self) -> Tensor:
        return self.token.weight  # V D

    def logits(self, hidden: Tensor) -> Tensor:
        return linear(hidden, self.head, self.bias)  # … D -> … V

    def begin(self, source: Tensor, lengths: Tensor | None, beams: int, capacity: int) -> Any:
        """Read the sources once: a `DecodingState` of one hypothesis each, and room for `capacity` words of `beams`."""
        raise NotImplementedError

    def step(self, ids: Tensor, state: Any) -> Tensor:
        """One more word of every hypothesis: B N -> B N D. `state` moves on in place."""
        raise NotImplementedError


class State(Protocol):
    """All that a language model carries from token to token, for B rows of text. Owned by the caller."""

    places: Tensor  # B, on the model's device: tokens read so far

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order. A row may be taken more than once: they go on separately."""
        ...

    def restart(self) -> None:
        """Nothing is read yet, in the same memory."""
        ...

    def part(self, rows: slice, reach: int = 0, fresh: bool = False) -> "State":
        """These rows, in the same memory. None comes further than `reach`; `fresh`: none has read anything yet."""
        ...

    def reserve(self, stop: int) -> None:
        """Rows may look at the first `stop` tokens of any row, before all of them are read."""
        ...

    def copy(self, source: Tensor, target: Tensor, stop: int) -> None:
        """The rows `target` go on from where the rows `source` are; none of them has read more than `stop`."""
        ...

    def rewind(self, rows: slice) -> None:
        """These rows have read nothing yet."""
        ...


class LanguageModel(nn.Module):
    """Ids to the next id. `forward` returns hidden states; `logits` is the head.

    The tables of words have more rows than there are words, up to a multiple of 64, which is what matrix units like;
    `logits` never shows the rest.
    """

    config: Any  # has .vocab, .width, .context (the longest text; 0: no limit)
    token: nn.Embedding

    def __init__(self):
        super().__init__()
        self.int8_head: nn.Module | None = None  # … D -> … V: takes the place of `head` in `logits`

    def forward(self, ids: Tensor, documents: Tensor | None = None) -> Tensor:
        """B T -> B T D, all at once. Tokens with different `documents` numbers, B T, know nothing of each other."""
        raise NotImplementedError

    @property
    def head(self) -> Tensor:
        return self.token.weight  # padded(V) D

    @property
    def bias(self) -> Tensor | None:
        """Of the head: padded(V). Only recurrent models have one."""
        return None

    def logits(self, hidden: Tensor) -> Tensor:
        if self.int8_head is not None:
            return self.int8_head(hidden)
        return linear(hidden, self.head, self.bias)[..., : self.config.vocab]  # … D -> … V

    def lens(self, stream: Tensor) -> Tensor:
        """What the head makes of the stream after any layer (nostalgebraist 2020): … D -> … V."""
        raise NotImplementedError

    def begin(self, rows: int, capacity: int) -> Any:
        """A `State` of `rows` rows that have read nothing yet, with room for `capacity` tokens each."""
        raise NotImplementedError

    def read(self, ids: Tensor, state: Any, lengths: Tensor | None = None) -> Tensor:
        """B T more tokens of every row -> B T D; `state` moves on in place.

        With `lengths`, B, only the first `lengths[b]` tokens of row b are real and it moves on by as many.
        """
        raise NotImplementedError

    def size(self) -> int:
        """Parameters, without the rows that only fill the tables of words up."""
        spare = padded(self.config.vocab) - self.config.vocab
        tables = {id(t): t for t in (self.token.weight, self.head, self.bias) if t is not None}
        return sum(p.numel() for p in self.parameters()) - sum(spare * t[0].numel() for t in tables.values())


class Decoder(LanguageModel):
    """A language model of attention layers: it reads with a cache of keys and values."""

    norm: nn.Module

    def forward(self, ids: Tensor, documents: Tensor | None = None, step: Step | None = None) -> Tensor:
        """All at once; with the `step` of a state, what is new."""
        raise NotImplementedError

    def lens(self, stream: Tensor) -> Tensor:
        return self.logits(self.norm(stream))

    def check_length(self, tokens: int) -> None:
        if tokens > self.config.context:
            raise ConfigError(
                f"a text of {tokens} tokens, but this model has {self.config.context} positions; "
                f"cut the text, or train with --set model.context={tokens}"
            )

    def new_past(self, layers: int, rows: int, heads: int, head_width: int, capacity: int) -> Past:
        self.check_length(capacity)
        like = compute_dtype(self.token.weight[:0].detach())
        cache = new_cache(layers, rows, heads, capacity + 1, head_width, like)
        reach_(self, capacity)
        return Past(cache)

    def read(self, ids: Tensor, state: Past, lengths: Tensor | None = None) -> Tensor:
        check(ids, "B T", B=state.places.size(0))
        return self(ids, step=state.grow(ids.size(1), lengths))


def new_cache(layers: int, rows: int, heads: int, capacity: int, head_width: int, like: Tensor) -> Cache:
    """Room for the keys and values of `rows` texts, after a look at how much memory there is."""
    if like.device.type == "cpu":
        size = 2 * layers * rows * heads * capacity * head_width * like.element_size()
        hint = "lower --max-tokens or --beam, of a server --context or --slots"
        limits.require(size, f"the keys and values of {rows:,} × {capacity:,} tokens", hint)
    return Cache(layers, rows, heads, capacity, head_width, like)


def padded(vocab: int) -> int:
    return -(-vocab // 64) * 64


def clear_padding_(model: LanguageModel) -> None:
    """Zeros in the rows of no word: the last line of a constructor, after the weights are drawn."""
    with torch.no_grad():
        for table in (model.token.weight, model.head, model.bias):
            if table is not None:
                table[model.config.vocab :] = 0.0
