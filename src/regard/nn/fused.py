"""Residual sum, dropout and norm, which a GPU does in one pass over memory, beside their plain form.

Training Transformer-base with it (512 pairs of 64 + 64 tokens) takes 35.2 ms a step instead of 38.4 on an H200.
"""

import torch
from torch import Tensor, nn

from regard.nn.attention import TRITON


def fuses(x: Tensor) -> bool:
    """Whether there are kernels for what is done to `x`: on a GPU, in training; without gradients they buy nothing."""
    return TRITON and x.is_cuda and torch.is_grad_enabled()


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, y: Tensor, scale: Tensor, bias: Tensor, eps: float, drop: float, seed: Tensor):
        from regard.nn.kernels import add_norm

        total, out, mean, spread = add_norm(x, y, scale, bias, eps, drop, seed)
        ctx.save_for_backward(total, scale, mean, spread, seed)
        ctx.drop = drop
        return out

    @staticmethod
    def backward(ctx, dn: Tensor):  # pyrefly: ignore[bad-override]
        from regard.nn.kernels import add_norm_grad

        total, scale, mean, spread, seed = ctx.saved_tensors
        dx, dy, ds, db = add_norm_grad(dn.contiguous(), None, total, scale, mean, spread, ctx.drop, seed)
        return dx, dy, ds.to(scale.dtype), db.to(scale.dtype), None, None, None


class _AddThenNorm(torch.autograd.Function):
    """The same; the sum is handed on too."""

    @staticmethod
    def forward(ctx, x: Tensor, y: Tensor, scale: Tensor, bias: Tensor, eps: float, drop: float, seed: Tensor):
        from regard.nn.kernels import add_norm

        total, out, mean, spread = add_norm(x, y, scale, bias, eps, drop, seed)
        ctx.save_for_backward(total, scale, mean, spread, seed)
        ctx.drop = drop
        return total, out

    @staticmethod
    def backward(ctx, dtotal: Tensor, dn: Tensor):  # pyrefly: ignore[bad-override]
        from regard.nn.kernels import add_norm_grad

        total, scale, mean, spread, seed = ctx.saved_tensors
        dx, dy, ds, db = add_norm_grad(dn.contiguous(), dtotal.contiguous(), total, scale, mean, spread, ctx.drop, seed)
        return dx, dy, ds.to(scale.dtype), db.to(scale.dtype), None, None, None


def _chance(drop: nn.Module) -> float:
    return getattr(drop, "p", 0.0) if drop.training else 0.0


def _settings(x: Tensor, y: Tensor, drop: nn.Module, norm: nn.LayerNorm):
    chance = _chance(drop)
    seed = torch.randint(2**31 - 1, (1,), device=x.device) if chance else x
    flat = x.flatten(0, -2).contiguous(), y.flatten(0, -2).contiguous()
    return *flat, norm.weight, norm.bias, norm.eps, chance, seed


def add_norm(x: Tensor, y: Tensor, drop: nn.Module, norm: nn.Module) -> Tensor:
    """norm(x + dropout(y)), … D."""
    if not fuses(x) or x.dtype != y.dtype or not isinstance(norm, nn.LayerNorm):
        return norm(x + drop(y))
    return _AddNorm.apply(*_settings(x, y, drop, norm)).view_as(x)


def add_then_norm(x: Tensor, y: Tensor, drop: nn.Module, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """x + dropout(y), and its norm: … D twice."""
    if not fuses(x) or x.dtype != y.dtype or not isinstance(norm, nn.LayerNorm) or not _chance(drop):
        total = x + drop(y)
        return total, norm(total)
    total, out = _AddThenNorm.apply(*_settings(x, y, drop, norm))
    return total.view_as(x), out.view_as(x)
