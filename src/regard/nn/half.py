"""Linear layers with weights in fp16, for CPUs: half the bytes, of which a product of few rows reads every one."""

from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ConfigError

LIMIT = torch.finfo(torch.half).max  # 65,504


class HalfLinear(nn.Module):
    """x Wᵀ + b, for inference: W rounded to fp16, x, b and the sums in fp32 (FBGEMM). Holds no parameters.

    With MiniLM's matrices, 42 MB in fp32, 8 rows take 0.52 of the time of packed fp32 weights, 24 rows 0.73, 64 rows
    0.88, and 256 rows the same (AMD EPYC with AVX-512, 2 threads, 2026-11-18).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None):  # N K, N
        super().__init__()
        if weight.device.type != "cpu":
            raise ConfigError(f"fp16 weights are for CPUs, and these are on {weight.device}; type --device cpu")
        if torch.backends.quantized.engine not in ("x86", "fbgemm"):
            raise ConfigError("fp16 weights need an x86 CPU with AVX2; leave out --weights")
        self.out_features, self.in_features = weight.shape
        self.parts = [self.out_features]  # as a FusedLinear has
        bias = None if bias is None else bias.detach().float()
        self.nbytes = 2 * weight.numel() + (0 if bias is None else bias.nbytes)
        self.packed: Any = torch.ops.quantized.linear_prepack_fp16(weight.detach().float().contiguous(), bias)

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad and torch.is_grad_enabled():
            raise ConfigError("a model with fp16 weights has no gradients; leave out --weights")
        if x.ndim == 1:  # the kernel refuses a single vector
            return self(x[None])[0]
        return torch.ops.quantized.linear_dynamic_fp16(x.float(), self.packed).to(x.dtype)  # … K -> … N

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def in_range(weight: Tensor) -> bool:
    """Whether fp16 can hold these weights; larger ones would be cut to the largest it has."""
    return bool(weight.abs().max() <= LIMIT) if weight.numel() else True
