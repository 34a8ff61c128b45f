"""Int8 linear layers for CPUs, where decoding is bound by reading weights: a quarter of the bytes.

Every output has its own scale, and so has every row of the input: a row's result is bit-for-bit independent of the
other rows. Before x and W are rounded, both are rotated by the same Hadamard matrix, block by block:
(x H)(W H)ᵀ = x H Hᵀ Wᵀ. The product is unchanged, and an outlier is spread over its block, so that one scale fits the
whole row (QuaRot, Ashkboos et al. 2024).
"""

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.nn.linear import linear

# AVX2 adds products in pairs, in 16 bits: unsigned x, up to 2 · 90, times w, up to 91, twice, is 32,760 of 32,767.
# With the full 255 · 127, sums overflow silently; taking bits from w or x alone loses more accuracy than from both.
X_LEVELS, W_LEVELS = 90, 91
BLOCK = 32  # the largest Hadamard matrix: 64 is 4 % slower and hardly more accurate, 16 is 3 % faster and less so
GRID = 256  # `turn` adds this many row maxima


def hadamard(size: int) -> Tensor:
    """Sylvester's matrix of 1 and -1, `size` a power of two: H H = size · I."""
    H = torch.ones(1, 1)
    while len(H) < size:
        H = torch.cat((torch.cat((H, H), 1), torch.cat((H, -H), 1)))
    return H


def turn(x: Tensor, H: Tensor) -> Tensor:
    """x H for every block of the last dimension, to 15 bits of a row's maximum.

    Adding a large number and subtracting it rounds a row to multiples of one step. Sums of those are exact in float32,
    so the order of summation, which a matrix product chooses by the number of rows, cannot matter.
    """
    most = x.abs().amax(-1, keepdim=True)
    steps = torch.add(x, most, alpha=GRID).sub_(most, alpha=GRID)
    return linear(steps.reshape(-1, len(H)), H.T).view(x.shape)


class Product:
    """x Wᵀ for x in [-1, 1], rounded to ±`X_LEVELS`, and integer W with scales; sums are exact (FBGEMM)."""

    kernel = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default

    def __init__(self, whole: Tensor, scale: Tensor):  # N K int8, N
        if torch.backends.quantized.engine not in ("x86", "fbgemm"):
            raise ConfigError("int8 needs an x86 CPU with AVX2; leave out --weights")
        zero = torch.zeros(len(scale), dtype=torch.long)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch deprecates quantised tensors
            weight = torch._make_per_channel_quantized_tensor(whole, scale.double(), zero, 0)
            self.packed: Any = torch.ops.quantized.linear_prepack(weight, None)

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim == 1:  # the kernel refuses a single vector
            return self(x[None])[0]
        return Product.kernel(x, 1 / X_LEVELS, X_LEVELS, self.packed)  # … K -> … N


class Int8Linear(nn.Module):
    """x Wᵀ + b, for inference. Holds no parameters: W is int8, and b is stored with it."""

    def __init__(self, product: Product, bias: Tensor | None, H: Tensor, shape: torch.Size):
        super().__init__()
        self.product, self.bias, self.H = product, bias, H
        self.out_features, self.in_features = shape
        self.parts = [self.out_features]  # as a FusedLinear has

    @classmethod
    @torch.no_grad()
    def from_linear(cls, weight: Tensor, bias: Tensor | None = None) -> "Int8Linear":
        """From the weight, N K, and bias, N, of an `nn.Linear`."""
        if weight.device.type != "cpu":
            raise ConfigError(f"int8 is for CPUs, and these weights are on {weight.device}; type --device cpu")
        H = hadamard(math.gcd(weight.size(1), BLOCK))
        turned = turn(weight.float(), H / len(H))
        scale = turned.abs().amax(1).clamp_min(1e-30) / W_LEVELS
        whole = (turned / scale[:, None]).round().to(torch.int8)
        return cls(Product(whole, scale), None if bias is None else bias.detach().float(), H, weight.shape)

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad and torch.is_grad_enabled():
            raise ConfigError("a model in int8 has no gradients; leave out --weights")
        turned = turn(x.float(), self.H)
        scale = turned.abs().amax(-1, keepdim=True)
        y = self.product(turned.div_(scale))  # 0/0 in a row of zeros becomes some integer, then times 0
        y = y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale)
        return y.to(x.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of W, a scale per output, and b."""
        return self.out_features * (self.in_features + 4 + (0 if self.bias is None else 4))

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
