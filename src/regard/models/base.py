"""The interface of every model. Training calls `forward`; decoding calls `begin` and `step`, or `begin` and `read`."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard import limits
from regard.errors import ConfigError
from regard.nn.blocks import compute_dtype
from regard.nn.cache import Cache, Past, Step, at_once
from regard.nn.linear import linear
from regard.nn.positions import reach_
from regard.shapes import check


class DecodingState(Protocol):
    """All that a decoder carries from token to token, for B sentences with N hypotheses each. Owned by the caller."""

    def reorder(self, parents: Tensor) -> None:
        """Let hypothesis n of sentence b continue hypothesis `parents[b, n]`, B N; N may grow."""
        ...

    def select(self, rows: Tensor) -> None:
        """Keep these sentences; the others are finished."""
        ...


class EncoderDecoder(nn.Module):
    """Source ids to target ids. `forward` returns hidden states; `logits` is the head, tied to the embedding."""

    config: Any
    token: nn.Embedding
    bias: Tensor | None  # of the head; only some published models have it

    def __init__(self):
        super().__init__()
        self.stored_head: nn.Module | None = None  # … D -> … V: replaces `head` in `logits`

    def forward(self, source: Tensor, lengths: Tensor | None, inputs: Tensor) -> Tensor:
        """B S ids, their lengths (None: no padding anywhere), B T decoder inputs -> B T D."""
        raise NotImplementedError

    @property
    def head(self) -> Tensor:
        return self.token.weight  # V D

    def logits(self, hidden: Tensor) -> Tensor:
        if self.stored_head is not None:
            return self.stored_head(hidden)
        return linear(hidden, self.head, self.bias)  # … D -> … V

    def begin(self, source: Tensor, lengths: Tensor | None, beams: int, capacity: int) -> Any:
        """Encode the sources: a `DecodingState` with one hypothesis each, and room for `capacity` tokens of `beams`."""
        raise NotImplementedError

    def step(self, ids: Tensor, state: Any) -> Tensor:
        """Decode one more token of every hypothesis: B N -> B N D. Updates `state` in place."""
        raise NotImplementedError


class State(Protocol):
    """All that a language model carries from token to token, for B rows of text. Owned by the caller."""

    places: Tensor  # B, on the model's device: tokens read so far

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order. A row may be taken more than once; the copies continue separately."""
        ...

    def restart(self) -> None:
        """Empty all rows, keeping the memory."""
        ...

    def part(self, rows: slice, reach: int = 0, fresh: bool = False) -> "State":
        """A view of these rows. None gets further than `reach`; `fresh`: all are empty."""
        ...

    def reserve(self, stop: int) -> None:
        """Make the first `stop` positions safe to read in every row, before all of them are written."""
        ...

    def copy(self, source: Tensor, target: Tensor, stop: int) -> None:
        """Let the rows `target` continue from the rows `source`, none of which has read more than `stop` tokens."""
        ...

    def rewind(self, rows: slice) -> None:
        """Empty these rows."""
        ...


class LanguageModel(nn.Module):
    """Ids to the next id. `forward` returns hidden states; `logits` is the head.

    Embedding tables are padded to a multiple of 64 rows, which matrix units like; `logits` drops the padding.
    """

    config: Any  # has .vocab, .width, .context (the longest text; 0: no limit)
    token: nn.Embedding
    forgets = False  # whether a state can go back by some tokens

    def __init__(self):
        super().__init__()
        self.stored_head: nn.Module | None = None  # … D -> … V: replaces `head` in `logits`

    def forward(self, ids: Tensor, documents: Tensor | None = None) -> Tensor:
        """B T -> B T D in one pass. Tokens with different `documents` numbers, B T, do not see each other."""
        raise NotImplementedError

    @property
    def head(self) -> Tensor:
        return self.token.weight  # padded(V) D

    @property
    def bias(self) -> Tensor | None:
        """Of the head: padded(V). Only recurrent models have one."""
        return None

    def logits(self, hidden: Tensor) -> Tensor:
        if self.stored_head is not None:
            return self.stored_head(hidden)
        return linear(hidden, self.head, self.bias)[..., : self.config.vocab]  # … D -> … V

    def lens(self, stream: Tensor) -> Tensor:
        """The logit lens (nostalgebraist 2020): the head applied to the residual stream after any layer, … D -> … V."""
        raise NotImplementedError

    def begin(self, rows: int, capacity: int) -> Any:
        """A `State` of `rows` empty rows with room for `capacity` tokens each."""
        raise NotImplementedError

    def read(self, ids: Tensor, state: Any, lengths: Tensor | None = None) -> Tensor:
        """Read B T more tokens -> B T D. Updates `state` in place.

        With `lengths`, B, only the first `lengths[b]` tokens of row b are real, and it advances by that many.
        """
        raise NotImplementedError

    def size(self) -> int:
        """The number of parameters, without the padding of the embedding tables."""
        spare = padded(self.config.vocab) - self.config.vocab
        tables = {id(t): t for t in (self.token.weight, self.head, self.bias) if t is not None}
        return sum(p.numel() for p in self.parameters()) - sum(spare * t[0].numel() for t in tables.values())


class Decoder(LanguageModel):
    """A language model of attention layers, with a cache of keys and values."""

    norm: nn.Module
    blocks: Any  # a list of the layers
    forgets = True

    def forward(self, ids: Tensor, documents: Tensor | None = None, step: Step | None = None) -> Tensor:
        """B T -> B T D: a whole text, or with the `step` of a state, the new tokens."""
        raise NotImplementedError

    def lens(self, stream: Tensor) -> Tensor:
        return self.logits(self.norm(stream))

    def check_length(self, tokens: int) -> None:
        if tokens > self.config.context:
            raise ConfigError(
                f"a text of {tokens} tokens, but this model has {self.config.context} positions; "
                f"cut the text, or train with --set model.context={tokens}"
            )

    def at_once(self, ids: Tensor, documents: Tensor | None) -> Step:
        """The step of reading all of B T at the same time."""
        self.check_length(ids.size(1))
        reach_(self, ids.size(1))
        return at_once(ids, documents, len(self.blocks))

    def begin(self, rows: int, capacity: int) -> Past:
        self.check_length(capacity)
        c, like = self.config, compute_dtype(self.token.weight[:0].detach())
        cache = new_cache(c.layers, rows, getattr(c, "kv_heads", c.heads), capacity + 1, c.head_width, like)
        reach_(self, capacity)
        return Past(cache)

    def read(self, ids: Tensor, state: Past, lengths: Tensor | None = None) -> Tensor:
        check(ids, "B T", B=state.places.size(0))
        return self(ids, step=state.grow(ids.size(1), lengths))


def new_cache(layers: int, rows: int, heads: int, capacity: int, head_width: int, like: Tensor) -> Cache:
    """A cache for `rows` texts; `LimitError` if memory has no room for it."""
    if like.device.type == "cpu":
        size = 2 * layers * rows * heads * capacity * head_width * like.element_size()
        hint = "lower --max-tokens or --beam; for a server, --context or --slots"
        limits.require(size, f"the keys and values of {rows:,} × {capacity:,} tokens", hint)
    return Cache(layers, rows, heads, capacity, head_width, like)


def padded(vocab: int) -> int:
    return -(-vocab // 64) * 64


def clear_padding_(model: LanguageModel) -> None:
    """Zero the padding rows of the embedding tables: the last line of a constructor, after initialisation."""
    with torch.no_grad():
        for table in (model.token.weight, model.head, model.bias):
            if table is not None:
                table[model.config.vocab :] = 0.0
