"""Attention masks. `True` means "may look", everywhere.

A mask is a small object, so that each kernel gets the form it is fast with; `dense()` is the boolean table,
broadcastable to B H T S. `bias()`, if any, is added to the scores that are not masked.
"""

import torch
from torch import Tensor


class Mask:
    restricts = False  # whether part of the past is masked or biased: a kernel that attends to all of it will not do

    def dense(self) -> Tensor | None:
        """The boolean table, or None when nothing is masked."""
        raise NotImplementedError

    def bias(self) -> Tensor | None:
        """Added to the scores, broadcastable to B H T S; None: nothing."""
        return None

    def sdpa(self, dtype: torch.dtype) -> dict:
        """The mask as arguments of torch's `scaled_dot_product_attention`, for queries of this dtype."""
        table = self.dense()
        return {"attn_mask": None if table is None else additive(table, dtype)}

    def select(self, rows: Tensor) -> "Mask":
        """The mask for these rows of the batch."""
        return self


class Everything(Mask):
    def dense(self) -> None:
        return None


class Causal(Mask):
    """Position t sees itself and the past: the decoder's mask in training."""

    def __init__(self, size: int, device: torch.device | str = "cpu"):
        self.size, self.device = size, device

    def dense(self) -> Tensor:
        return torch.ones(self.size, self.size, dtype=torch.bool, device=self.device).tril()

    def sdpa(self, dtype: torch.dtype) -> dict:
        return {"is_causal": True} if self.size > 1 else {}  # a single token sees all; a traced `>` is not a bool


class TableMask(Mask):
    """Any boolean table, broadcastable to B H T S. Converted for the kernels once, for all layers."""

    def __init__(self, table: Tensor):
        self.table = table
        self.summand: Tensor | None = None

    def dense(self) -> Tensor:
        return self.table

    def sdpa(self, dtype: torch.dtype) -> dict:
        if self.summand is None or self.summand.dtype != dtype:
            self.summand = additive(self.dense(), dtype)
        return {"attn_mask": self.summand}

    def rows(self, q: Tensor) -> Tensor:
        """The table for queries B H T K, the same for all heads: B T S."""
        return self.dense()[:, 0].expand(q.size(0), q.size(2), -1)

    def select(self, rows: Tensor) -> "TableMask":
        return TableMask(self.dense()[rows])


class UpTo(TableMask):
    """Of `size` keys, those up to each query's position, B T. Our kernels use the positions and build no table."""

    def __init__(self, places: Tensor, size: int):
        self.places, self.size = places, size
        self.made: Tensor | None = None
        self.summand = None

    def dense(self) -> Tensor:
        if self.made is None:
            keys = torch.arange(self.size, device=self.places.device)
            self.made = (keys <= self.places[:, :, None])[:, None]  # B 1 T S
        return self.made


class Lengths(TableMask):
    """The first `lengths[b]` of `size` keys are real, the rest padding."""

    def __init__(self, lengths: Tensor, size: int):
        self.lengths, self.size = lengths, size
        places = torch.arange(size, device=lengths.device)
        super().__init__((places < lengths[:, None])[:, None, None, :])  # B 1 1 S

    def select(self, rows: Tensor) -> "Lengths":
        return Lengths(self.lengths[rows], self.size)


class Documents(TableMask):
    """Causal within each document: a row holds several, numbered by `documents`, B T."""

    def __init__(self, documents: Tensor):
        own = documents[:, :, None] == documents[:, None, :]
        super().__init__(own.tril()[:, None])  # B 1 T T


class Packed(TableMask):
    """Bidirectional within each document: a row holds several, one after the other, without padding.

    `starts`, R+1 of int32, are the offsets of the documents and, last, `size`; a document may be empty. None has more
    than `longest` tokens.
    """

    def __init__(self, starts: Tensor, size: int, longest: int):
        self.starts, self.size, self.longest = starts, size, longest
        self.summand: Tensor | None = None

    def dense(self) -> Tensor:
        own = owners(self.starts, self.size)
        return (own[:, None] == own)[None, None]  # 1 1 T T

    def has_kernel(self, q: Tensor) -> bool:
        """Whether a kernel that reads `starts` instead of a table supports these queries."""
        return q.is_cuda and q.dtype in (torch.bfloat16, torch.float16) and q.size(-1) % 8 == 0


def owners(starts: Tensor, size: int) -> Tensor:
    """Which of the documents that begin at `starts` each of `size` tokens belongs to: T."""
    where = torch.arange(size, device=starts.device, dtype=starts.dtype)
    return torch.searchsorted(starts, where, right=True) - 1  # not starts[1:]: the compiler loses its offset


class Window(TableMask):
    """A mask restricted to keys less than `size` positions away (Beltagy et al. 2020).

    Queries and keys are positions: T or B T, and S or B S.
    """

    restricts = True

    def __init__(self, mask: Mask, queries: Tensor, keys: Tensor, size: int):
        near = (queries[..., :, None] - keys[..., None, :]).abs() < size  # T S or B T S
        near = near if near.ndim == 2 else near[:, None]
        table = mask.dense()
        super().__init__(near if table is None else table & near)


class Leaning(TableMask):
    """A mask with a bias, `lean`, added to the scores: 1 H T S or B H T S."""

    restricts = True

    def __init__(self, mask: Mask, lean: Tensor):
        table = mask.dense()
        super().__init__(torch.ones((), dtype=torch.bool, device=lean.device) if table is None else table)
        self.lean = lean

    def bias(self) -> Tensor:
        return self.lean

    def sdpa(self, dtype: torch.dtype) -> dict:
        if self.summand is None or self.summand.dtype != dtype:
            self.summand = torch.where(self.table, self.lean.to(dtype), -torch.inf)
        return {"attn_mask": self.summand}


def additive(table: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where the table is True, -inf elsewhere: torch's kernels would convert a boolean table at every call."""
    return torch.zeros(table.shape, dtype=dtype, device=table.device).masked_fill_(~table, -torch.inf)


def pooled(hidden: Tensor, lengths: Tensor | None, pooling: str) -> Tensor:
    """One vector for each row of B T D, of which the first `lengths`, B, are real: B D."""
    if pooling == "cls":
        return hidden[:, 0]
    if lengths is None:
        return hidden.mean(1) if pooling == "mean" else hidden.amax(1)
    real = (torch.arange(hidden.size(1), device=hidden.device) < lengths[:, None])[:, :, None]  # B T 1
    if pooling == "mean":
        return hidden.masked_fill(~real, 0.0).sum(1) / lengths[:, None]
    return hidden.masked_fill(~real, -torch.inf).amax(1)
