"""Linear layers by the fastest product: torch's; `nn.fp8`'s when training in fp8; on a CPU oneDNN's, without gradients
where W or the product is large, with gradients where `nn.products` finds it faster."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.fp8 import linear8, takes8
from regard.nn.products import ROWS, fast_linear, in_blocks, takes_fast

# Below this, looking up oneDNN's kernel costs more than it gains.
LARGE = 1 << 18  # elements of W, which few rows of x wait for
WORK = 1 << 21  # multiplications of many rows
OPS = torch.ops.mkldnn
ONEDNN = torch.backends.mkldnn.is_available() and all(
    hasattr(OPS, name) for name in ("_linear_pointwise", "_reorder_linear_weight")
)


def takes(weight: Tensor) -> bool:
    """Whether oneDNN is available and supports this matrix."""
    return ONEDNN and weight.device.type == "cpu" and weight.dtype == torch.float


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b, … K -> … N.

    Decoding multiplies one row, or a few, by every matrix of the model; there oneDNN reads W about twice as fast as
    MKL, torch's default. Many rows it multiplies 1.1 times as fast with AVX2, and 2.3 times on an AMD CPU with AVX-512.
    """
    if takes8(weight):
        return linear8(x, weight, bias)
    if takes_fast(x, weight):
        return fast_linear(x, weight, bias)
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or not takes(weight):
        return F.linear(x, weight, bias)
    if x.dtype != torch.float or x.ndim < 2 or not x.numel():
        return F.linear(x, weight, bias)
    if weight.numel() < LARGE and x.numel() * len(weight) < WORK:
        return F.linear(x, weight, bias)
    return by_onednn(x, weight, bias)


def by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None, then: str = "none") -> Tensor:
    """x Wᵀ + b, … K -> … N, of a matrix that may be packed.

    Many rows are filled up to blocks: oneDNN makes a kernel for each number of rows, and batches of all sizes would
    take gigabytes.
    """
    rows = x.numel() // max(1, x.size(-1))
    if rows <= ROWS or rows % ROWS == 0:
        return OPS._linear_pointwise(x, weight, bias, then, [], "none")
    y = OPS._linear_pointwise(in_blocks(x.flatten(0, -2)), weight, bias, then, [], "none")
    return y[:rows].view(*x.shape[:-1], -1)


class Linear(nn.Linear):
    """`nn.Linear`, by whichever product is faster."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


class FusedLinear(Linear):
    """Several projections of one input as one product, which is faster; `parts` are their output widths."""

    def __init__(self, width: int, parts: list[int], bias: bool = True):
        super().__init__(width, sum(parts), bias)
        self.parts = parts


def head_of(lm: Any) -> tuple[Tensor, Tensor | None]:
    """The weight and bias of a text generator's head, without the padding of its vocabulary: V D, V."""
    return lm.head[: lm.config.vocab], None if lm.bias is None else lm.bias[: lm.config.vocab]


PLAIN = (nn.Linear.forward, Linear.forward)  # forwards that compute x Wᵀ + b and nothing else
