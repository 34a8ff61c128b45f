"""Linear maps: torch's own; in training with fp8 those of `nn.fp8`; without gradients on a CPU oneDNN's, which is
faster where W is large."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.fp8 import linear8, takes8

LARGE = 1 << 18  # numbers in W: a smaller one is multiplied before oneDNN has found its kernel
OPS = torch.ops.mkldnn
ONEDNN = torch.backends.mkldnn.is_available() and all(
    hasattr(OPS, name) for name in ("_linear_pointwise", "_reorder_linear_weight")
)


def takes(weight: Tensor) -> bool:
    """Whether oneDNN is here, and multiplies by a matrix like this one."""
    return ONEDNN and weight.device.type == "cpu" and weight.dtype == torch.float


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b, … K -> … N.

    A text is written with one row, or a few, times every matrix of the model: oneDNN then reads W about twice as fast
    as MKL, which torch takes.
    """
    if takes8(weight):
        return linear8(x, weight, bias)
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or weight.numel() < LARGE or not takes(weight):
        return F.linear(x, weight, bias)
    if x.dtype != torch.float or x.ndim < 2 or not x.numel():
        return F.linear(x, weight, bias)
    return OPS._linear_pointwise(x, weight, bias, "none", [], "none")


class Linear(nn.Linear):
    """`nn.Linear`, by whichever product is faster."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


class FusedLinear(Linear):
    """Several maps of one input as one product (one wide matmul beats three); `parts` are their output widths."""

    def __init__(self, width: int, parts: list[int], bias: bool = True):
        super().__init__(width, sum(parts), bias)
        self.parts = parts


PLAIN = (nn.Linear.forward, Linear.forward)  # of a map that is its weight and bias, and nothing else
