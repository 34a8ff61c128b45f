"""Who may look at whom. `True` means "may look", everywhere.

A mask is a small object, so that the fast kernels get what they are fast with; `dense()` is the boolean table,
broadcastable to B H T S.
"""

import torch
from torch import Tensor


class Mask:
    def dense(self) -> Tensor | None:
        """The boolean table, or None when everybody may look at everything."""
        raise NotImplementedError

    def sdpa(self) -> dict:
        """The same as arguments of torch's `scaled_dot_product_attention`."""
        return {"attn_mask": self.dense()}

    def select(self, rows: Tensor) -> "Mask":
        """The mask of some of the batch's rows."""
        return self


class Everything(Mask):
    def dense(self) -> None:
        return None


class Causal(Mask):
    """Position t may look at itself and at the past: the decoder's mask while training."""

    def __init__(self, size: int, device: torch.device | str = "cpu"):
        self.size, self.device = size, device

    def dense(self) -> Tensor:
        return torch.ones(self.size, self.size, dtype=torch.bool, device=self.device).tril()

    def sdpa(self) -> dict:
        return {"is_causal": True}


class Lengths(Mask):
    """The first `lengths[b]` of `size` keys are real, the rest is padding."""

    def __init__(self, lengths: Tensor, size: int):
        self.lengths, self.size = lengths, size
        places = torch.arange(size, device=lengths.device)
        self.table = (places < lengths[:, None])[:, None, None, :]  # B 1 1 S

    def dense(self) -> Tensor:
        return self.table

    def select(self, rows: Tensor) -> "Lengths":
        return Lengths(self.lengths[rows], self.size)


class Table(Mask):
    """Any boolean table, B H T S or smaller."""

    def __init__(self, table: Tensor):
        self.table = table

    def dense(self) -> Tensor:
        return self.table

    def select(self, rows: Tensor) -> "Table":
        return Table(self.table[rows])
