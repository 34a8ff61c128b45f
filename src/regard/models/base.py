"""What every encoder-decoder promises: training sees `forward`, decoding sees `begin` and `step`."""

from typing import Any, Protocol

import torch.nn.functional as F
from torch import Tensor, nn


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
        return F.linear(hidden, self.head, self.bias)  # … D -> … V

    def begin(self, source: Tensor, lengths: Tensor | None, beams: int, capacity: int) -> Any:
        """Read the sources once: a `DecodingState` of one hypothesis each, and room for `capacity` words of `beams`."""
        raise NotImplementedError

    def step(self, ids: Tensor, state: Any) -> Tensor:
        """One more word of every hypothesis: B N -> B N D. `state` moves on in place."""
        raise NotImplementedError
