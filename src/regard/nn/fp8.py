"""FP8 matrix products for training (Micikevicius et al. 2022): e4m3 forward, e5m2 for gradients, one scale per tensor,
recomputed in every step. Weights and optimiser stay fp32; norms, attention and softmax bf16.

On an H200 GPT-2's products take 45 instead of 73 ms of a step of 64 x 1,024 tokens. Scales are powers of two, so that
scaling rounds nothing, and come from the largest magnitude or from an upper bound on it: FP8's exponent has range to
spare.
"""

from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import ConfigError
from regard.nn.gpu import TRITON

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
TINY = 1e-30  # avoids 0/0
ROUNDED = 1.2  # bounds how much rounding two factors to FP8 can enlarge their product
STEEPEST = 1.13  # the largest slope of GELU
SIXTEEN = 16  # matrix sizes must be multiples of this
HEAD = 64  # and q, k and v widths of this, to be read as one matrix


class Fp8:
    """`with Fp8(device):` trained linear layers multiply in FP8, all else is bf16."""

    active: ClassVar[bool] = False

    def __init__(self, device: torch.device):
        if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 9):
            name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"a {device.type.upper()}"
            raise ConfigError(
                f"precision fp8 needs an NVIDIA GPU of compute capability 8.9 or higher, got {name}; "
                "type: --set precision=bf16"
            )
        self.autocast = torch.autocast(device.type, torch.bfloat16)

    def __enter__(self) -> None:
        Fp8.active = True
        self.autocast.__enter__()

    def __exit__(self, *error: Any) -> None:
        Fp8.active = False
        self.autocast.__exit__(*error)


def takes8(*weights: Tensor) -> bool:
    """Whether products with these matrices, N K, currently run in FP8."""
    if not Fp8.active or not torch.is_grad_enabled():
        return False
    return all(w.is_cuda and w.size(0) % SIXTEEN == 0 and w.size(1) % SIXTEEN == 0 for w in weights)


class Eight(NamedTuple):
    """A matrix in FP8: R C, and its transpose C R (R padded to a multiple of 16) for products over rows, both to be
    multiplied by `scale`. A gradient's `sums`, C, are its column sums before rounding."""

    rows: Tensor
    columns: Tensor
    scale: Tensor
    sums: Tensor | None


def largest(x: Tensor) -> Tensor:
    return x.abs().amax().float()


def longest(x: Tensor, dim: int) -> Tensor:
    """The largest norm of the vectors along `dim`."""
    return torch.linalg.vector_norm(x, dim=dim, dtype=torch.float32).amax()


def plain_eight(x: Tensor, top: Tensor, dtype: torch.dtype) -> Eight:
    """x, R C, in FP8; `top` bounds its magnitudes."""
    most = torch.finfo(dtype).max
    factor = torch.exp2(torch.floor(torch.log2(most / top.clamp(min=TINY))))
    rows = (x.float() * factor).clamp(-most, most).to(torch.bfloat16).to(dtype)
    padding = torch.zeros(-len(x) % SIXTEEN, x.size(1), device=x.device).to(dtype)
    sums = x.float().sum(0) if dtype == BACKWARD else None
    return Eight(rows, torch.cat((rows, padding)).T.contiguous(), 1 / factor, sums)


def eight(x: Tensor, top: Tensor, dtype: torch.dtype) -> Eight:
    if not (x.is_cuda and TRITON):
        return plain_eight(x, top, dtype)
    from regard.nn.kernels8 import eight

    return Eight(*eight(x.contiguous(), top, dtype))


def eight_heads(parts: tuple[Tensor, ...]) -> Eight:
    """Gradients of queries, keys and values, B H T K, concatenated as B·T C."""
    top = torch.stack([largest(x) for x in parts]).amax()
    if not (parts[0].is_cuda and TRITON):
        return plain_eight(torch.cat([x.transpose(1, 2).flatten(2) for x in parts], -1).flatten(0, 1), top, BACKWARD)
    from regard.nn.kernels8 import eight_heads

    return Eight(*eight_heads(parts, top, BACKWARD))


def activated(h: Tensor, bias: Tensor, activation: str, top: Tensor) -> Eight:
    """The activation of h + b, R C, in FP8."""
    if not (h.is_cuda and TRITON):
        return plain_eight(ACTIVATIONS[activation](h.float() + bias), top, FORWARD)
    from regard.nn.kernels8 import eight

    return Eight(*eight(h, top, FORWARD, bias, activation))


def activated_grad(da: Tensor, h: Tensor, bias: Tensor, activation: str, top: Tensor) -> Eight:
    """The gradient with respect to h, from that of the activations."""
    if not (h.is_cuda and TRITON):
        with torch.enable_grad():
            x = (h.float() + bias).detach().requires_grad_()
            (dh,) = torch.autograd.grad(ACTIVATIONS[activation](x), x, da.float())
        return plain_eight(dh, top, BACKWARD)
    from regard.nn.kernels8 import eight

    return Eight(*eight(da, top, BACKWARD, bias, activation, h))


ACTIVATIONS = {"gelu": F.gelu, "gelu-tanh": lambda x: F.gelu(x, approximate="tanh")}


def product(
    a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, bias: Tensor | None = None, *,
    dtype: torch.dtype = torch.bfloat16, fast: bool = False,
) -> Tensor:  # fmt: skip
    """A Bᵀ + bias of R K and C K: R C. `fast` accumulates with fewer bits."""
    if not a.is_cuda:
        y = (a.float() * a_scale) @ (b.float() * b_scale).T
        return (y if bias is None else y + bias).to(dtype)
    bias = None if bias is None else bias.to(dtype)
    return torch._scaled_mm(a, b.T, a_scale, b_scale, bias=bias, out_dtype=dtype, use_fast_accum=fast)


def forward8(weight: Tensor) -> Eight:
    return eight(weight, largest(weight), FORWARD)


class _Linear8(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x8, w8 = eight(x, largest(x), FORWARD), forward8(weight)
        ctx.save_for_backward(x8.columns, x8.scale, w8.columns, w8.scale)
        ctx.biased = bias is not None
        return product(x8.rows, x8.scale, w8.rows, w8.scale, bias, fast=True)

    @staticmethod
    def backward(ctx, dy: Tensor):  # pyrefly: ignore[bad-override]
        x, x_scale, w, w_scale = ctx.saved_tensors
        d8 = eight(dy, largest(dy), BACKWARD)
        dx, dw = product(d8.rows, d8.scale, w, w_scale), None
        if ctx.needs_input_grad[1]:
            dw = product(d8.columns, d8.scale, x, x_scale, dtype=torch.float32)
        return dx, dw, d8.sums if ctx.biased else None


def linear8(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b, … K -> … N."""
    y = _Linear8.apply(x.to(torch.bfloat16).flatten(0, -2), weight, bias)
    return y.view(*x.shape[:-1], -1)


class _Heads8(torch.autograd.Function):
    """A linear layer whose gradient arrives in parts, read in place."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor, parts: list[int], width: int) -> tuple[Tensor, ...]:
        x8, w8 = eight(x.flatten(0, 1), largest(x), FORWARD), forward8(weight)
        ctx.save_for_backward(x8.columns, x8.scale, w8.columns, w8.scale)
        y = product(x8.rows, x8.scale, w8.rows, w8.scale, bias, fast=True).view(*x.shape[:2], -1)
        return tuple(part.unflatten(-1, (-1, width)).transpose(1, 2) for part in y.split(parts, -1))

    @staticmethod
    def backward(ctx, *grads: Tensor):
        x, x_scale, w, w_scale = ctx.saved_tensors
        d8 = eight_heads(tuple(g if g.stride(-1) == 1 else g.contiguous() for g in grads))
        dx = product(d8.rows, d8.scale, w, w_scale).view(grads[0].size(0), grads[0].size(2), -1)
        return dx, product(d8.columns, d8.scale, x, x_scale, dtype=torch.float32), d8.sums, None, None


def takes_heads8(map: Any, width: int) -> bool:
    """Whether queries, keys and values with heads of this width are currently one FP8 product."""
    trained = map.weight.requires_grad and map.bias is not None
    return trained and takes8(map.weight) and len(map.parts) == 3 and all(p % HEAD == p % width == 0 for p in map.parts)


def heads8(x: Tensor, map: Any, width: int) -> tuple[Tensor, ...]:
    """The three parts of map(x), split into heads: B T D -> three of B H T K."""
    return _Heads8.apply(x.to(torch.bfloat16), map.weight, map.bias, map.parts, width)


class _FeedForward8(torch.autograd.Function):
    """Up, activation and down; the hidden layer exists in FP8 only, scaled by its Cauchy-Schwarz bound before it is
    computed."""

    @staticmethod
    def forward(
        ctx, x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor, activation: str
    ) -> Tensor:
        x8, up8, down8 = eight(x, largest(x), FORWARD), forward8(up), forward8(down)
        h = product(x8.rows, x8.scale, up8.rows, up8.scale, fast=True)
        a8 = activated(h, up_bias, activation, longest(x, 1) * longest(up, 1) * ROUNDED + largest(up_bias))
        y = product(a8.rows, a8.scale, down8.rows, down8.scale, down_bias, fast=True)
        ctx.save_for_backward(
            x8.columns, x8.scale, h, up_bias, a8.columns, a8.scale, up8.columns, up8.scale, down8.columns, down8.scale,
            longest(down, 0),
        )  # fmt: skip
        ctx.activation = activation
        return y

    @staticmethod
    def backward(ctx, dy: Tensor):  # pyrefly: ignore[bad-override]
        x, x_scale, h, up_bias, a, a_scale, up, up_scale, down, down_scale, column = ctx.saved_tensors
        dy8 = eight(dy, largest(dy), BACKWARD)
        da = product(dy8.rows, dy8.scale, down, down_scale)
        top = longest(dy, 1) * column * ROUNDED * STEEPEST
        dh8 = activated_grad(da, h, up_bias, ctx.activation, top)
        return (
            product(dh8.rows, dh8.scale, up, up_scale),
            product(dh8.columns, dh8.scale, x, x_scale, dtype=torch.float32),
            dh8.sums,
            product(dy8.columns, dy8.scale, a, a_scale, dtype=torch.float32),
            dy8.sums,
            None,
        )


def feed_forward8(x: Tensor, up: Any, down: Any, activation: str) -> Tensor:
    """Two linear layers with biases and an activation between them, … K -> … N."""
    flat = x.to(torch.bfloat16).flatten(0, -2)
    y = _FeedForward8.apply(flat, up.weight, up.bias, down.weight, down.bias, activation)
    return y.view(*x.shape[:-1], -1)
