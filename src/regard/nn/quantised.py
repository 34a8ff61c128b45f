"""Int8 linear layers for CPUs, where decoding is bound by reading weights: a quarter of the bytes.

Every output has its own scale, and so has every row of the input: a row's result is bit-for-bit independent of the
other rows. Before wide x and W are rounded, both are rotated by the same Hadamard matrix, block by block:
(x H)(W H)ᵀ = x H Hᵀ Wᵀ. The product is unchanged, and an outlier is spread over its block, so that one scale fits the
whole row (QuaRot, Ashkboos et al. 2024).
"""

import math
import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.nn.linear import linear
from regard.nn.products import ROWS, in_blocks

# AVX2 adds products in pairs, in 16 bits: unsigned x, up to 2 · 90, times w, up to 91, twice, is 32,760 of 32,767.
# With the full 255 · 127, sums overflow silently; taking bits from w or x alone loses more accuracy than from both.
X_LEVELS, W_LEVELS = 90, 91
BLOCK = 32  # the largest Hadamard matrix: 64 is 4 % slower and hardly more accurate, 16 is 3 % faster and less so
GRID = 256  # `turn` adds this many row maxima
DEEP = 256  # narrower x is not rotated: the demo then translates more sentences as in fp32 (949 instead of 945)


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
    """x Wᵀ for x rounded to ±`x_levels` of a row's maximum, and integer W with scales; sums are exact (FBGEMM)."""

    x_levels, w_levels = X_LEVELS, W_LEVELS
    kernel = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default

    def __init__(self, whole: Tensor, scale: Tensor):  # N K int8, N
        if torch.backends.quantized.engine not in ("x86", "fbgemm"):
            raise ConfigError("int8 needs an x86 CPU with AVX2; leave out --weights")
        zero = torch.zeros(len(scale), dtype=torch.long)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # torch deprecates quantised tensors
            weight = torch._make_per_channel_quantized_tensor(whole, scale.double(), zero, 0)
            self.packed: Any = torch.ops.quantized.linear_prepack(weight, None)

    def __call__(self, x: Tensor, most: Tensor) -> Tensor:
        """… K -> … N, to be multiplied by `most`, … 1, the largest of each row."""
        return self.kernel(x / most, 1 / self.x_levels, self.x_levels, self.packed)


class WideProduct:
    """`Product` with all of 8 bits (oneDNN), where the CPU adds four products at a time in 32 bits (AVX-512 VNNI).

    For 640 rows, the demo's head, 128 to 8,000, takes 1.7 instead of 4.7 ms of one core, and 128 to 384 0.09 instead of
    0.13. With deeper sums FBGEMM is about as fast.
    """

    x_levels, w_levels = 127, 127
    MIDDLE = 128  # oneDNN takes unsigned x
    kernel = torch.ops.onednn.qlinear_pointwise.default

    def __init__(self, whole: Tensor, scale: Tensor):  # N K int8, N
        self.packed: Any = torch.ops.onednn.qlinear_prepack(whole.contiguous(), None)
        self.scale, self.zero = scale, torch.zeros(len(scale), dtype=torch.long)

    def __deepcopy__(self, _: object) -> "WideProduct":
        return self  # nothing changes it, and what is packed cannot be copied

    @staticmethod
    def takes(shape: torch.Size) -> bool:
        """Whether it gains for W of this shape, N K: few sums each, or many outputs."""
        return has_vnni() and (shape[1] < DEEP or shape[0] >= 8 * shape[1])

    def __call__(self, x: Tensor, most: Tensor) -> Tensor:
        """… K -> … N, to be multiplied by `most`, … 1, the largest of each row."""
        if not x.numel():
            return x.new_zeros(*x.shape[:-1], len(self.scale))
        whole = (x * (self.x_levels / most)).round_().to(torch.int8).view(torch.uint8).flatten(0, -2)
        rows = len(whole)
        whole = (in_blocks(whole) if rows > ROWS else whole).bitwise_xor_(self.MIDDLE)  # plus 128
        given = whole, 1 / self.x_levels, self.MIDDLE, self.packed, self.scale, self.zero
        y = self.kernel(*given, None, 1.0, 0, torch.float, "none", [], "")  # no bias, fp32 out, nothing after it
        return y[:rows].view(*x.shape[:-1], -1)


@cache
def has_vnni() -> bool:
    return torch.backends.mkldnn.is_available() and torch.cpu._is_vnni_supported()


class Int8Linear(nn.Module):
    """x Wᵀ + b, for inference. Holds no parameters: W is int8, and b is stored with it."""

    def __init__(self, product: Product | WideProduct, bias: Tensor | None, H: Tensor, shape: torch.Size):
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
        H = hadamard(math.gcd(weight.size(1), BLOCK) if weight.size(1) >= DEEP else 1)
        turned = turn(weight.float(), H / len(H))
        kind = WideProduct if WideProduct.takes(weight.shape) else Product
        scale = turned.abs().amax(1).clamp_min(1e-30) / kind.w_levels
        whole = (turned / scale[:, None]).round().to(torch.int8)
        return cls(kind(whole, scale), None if bias is None else bias.detach().float(), H, weight.shape)

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad and torch.is_grad_enabled():
            raise ConfigError("a model in int8 has no gradients; leave out --weights")
        if x.ndim == 1:  # the kernels refuse a single vector
            return self(x[None])[0]
        turned = turn(x.float(), self.H) if len(self.H) > 1 else x.float()
        most = turned.abs().amax(-1, keepdim=True)
        y = self.product(turned, most)  # 0/0 in a row of zeros becomes some integer, then times 0
        y = y.mul_(most) if self.bias is None else torch.addcmul(self.bias, y, most)
        return y.to(x.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of W, a scale per output, and b."""
        return self.out_features * (self.in_features + 4 + (0 if self.bias is None else 4))

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
