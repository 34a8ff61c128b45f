"""Cross-entropy of a linear head, summed: plain, and chunked, which never holds all logits at once."""

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.fp8 import (
    BACKWARD,
    FORWARD,
    SIXTEEN,
    Eight,
    eight,
    forward8,
    largest,
    plain_eight,
    product,
    takes8,
)
from regard.nn.gpu import TRITON
from regard.nn.products import ROWS, fast_products, in_blocks, onednn_is_faster


def plain_cross_entropy_sum(
    x: Tensor, weight: Tensor, targets: Tensor, smoothing: float = 0.0, bias: Tensor | None = None, vocab: int = 0
) -> Tensor:
    """M D states, V D head, M targets. Szegedy et al. 2016: `smoothing` of the mass is spread over all tokens.

    Of a padded head only the first `vocab` rows are tokens; 0: all. Negative targets do not count.
    """
    logits = F.linear(x, weight, bias)[:, : vocab or None].float()  # M V
    return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing, ignore_index=-1)


def sampled_cross_entropy_sum(
    x: Tensor, weight: Tensor, targets: Tensor, sampled: int, smoothing: float = 0.0
) -> Tensor:
    """As `plain_cross_entropy_sum`, over the targets of the batch and `sampled` other tokens (Jean et al. 2015).

    The others are drawn uniformly and weighted up for those not drawn, so the expected partition function is that of
    the whole vocabulary.
    """
    chosen, places, shift = sample(weight.size(0), targets, sampled)
    words = len(chosen)
    if x.device.type == "cpu" and onednn_is_faster():
        x, places, chosen, shift = in_blocks(x), in_blocks(places, -1), in_blocks(chosen), in_blocks(shift)
    rows = rows_at_once(len(x), len(chosen), x.device)
    return _Chunked.apply(x, weight[chosen], places, smoothing, rows, words, shift)


def sample(vocab: int, targets: Tensor, sampled: int) -> tuple[Tensor, Tensor, Tensor]:
    """The N tokens in a sampled softmax, the place of each target among them, and what is added to their N logits."""
    words, places = targets.unique(return_inverse=True)
    absent = torch.ones(vocab, dtype=torch.bool, device=targets.device)
    absent[words] = False
    others = absent.nonzero()[:, 0]
    drawn = others[torch.randperm(len(others), device=targets.device)[:sampled]]
    shift = torch.zeros(len(words) + len(drawn), device=targets.device)
    shift[len(words) :] = math.log(max(1, len(others)) / max(1, len(drawn)))
    return torch.cat((words, drawn)), places, shift


def picked(x: Tensor, chosen: Tensor | None) -> Tensor:
    """The positions of B T … that count, row by row: M …"""
    flat = x.flatten(0, 1)
    return flat if chosen is None else flat[chosen]


def _loss_and_error(logits: Tensor, targets: Tensor, first: int, smoothing: float, vocab: int) -> tuple[Tensor, Tensor]:
    """R V logits and the R targets from `first` on to R losses and their gradient by the logits, R V: softmax minus
    smoothed targets."""
    if logits.is_cuda and TRITON:
        from regard.nn.kernels import softmax_error

        return softmax_error(logits, targets, smoothing, vocab, first)
    targets = targets[first : first + len(logits)]
    dtype, target, real = logits.dtype, targets.clamp(min=0)[:, None], targets[:, None] >= 0
    logits = logits.float()
    logits[:, vocab:] = -torch.inf  # padding of the head
    log_sum = logits.logsumexp(-1, keepdim=True)
    loss = log_sum - (1 - smoothing) * logits.gather(1, target)
    if smoothing:
        loss -= smoothing * logits[:, :vocab].mean(-1, keepdim=True)
    error = logits.sub_(log_sum).exp_()
    if smoothing:
        error[:, :vocab] -= smoothing / vocab
    error.scatter_add_(1, target, torch.full_like(log_sum, smoothing - 1))
    return (loss * real)[:, 0], (error * real).to(dtype)


def _added(dw: Tensor, error: Tensor, chunk: Tensor) -> Tensor:
    """V D, R V and R D: dw + errorᵀ · chunk."""
    if torch.compiler.is_compiling():  # torch 2.11 loses in-place changes made before saving for backward
        return dw + error.T @ chunk
    return dw.addmm_(error.T, chunk) if error.dtype == torch.float32 else dw.add_(error.T @ chunk)


def in_chunks(x: Tensor, rows: int) -> Iterable[tuple[int, Tensor]]:
    """Chunks of `rows` rows, and where each begins. A single one needs no loop, which would make torch.compile compile
    anew for every number of rows."""
    return [(0, x)] if rows >= x.size(0) else zip(range(0, x.size(0), rows), x.split(rows), strict=True)


class _Chunked(torch.autograd.Function):
    """Logits of a few rows at a time; their gradient is computed at once, so no M x V tensor exists. `shift`, V, is
    added to them."""

    @staticmethod
    def forward(
        ctx,
        x: Tensor,
        weight: Tensor,
        targets: Tensor,
        smoothing: float,
        rows: int,
        vocab: int,
        shift: Tensor | None = None,
    ) -> Tensor:
        device_type, learn_head = x.device.type, ctx.needs_input_grad[1]  # LoRA freezes the head
        dtype = torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else x.dtype
        with torch.autocast(device_type, enabled=False), fast_products():
            xs, w = x.to(dtype), weight.to(dtype)
            dw = torch.zeros_like(weight if learn_head else weight[:0], dtype=torch.float32)
            total, dxs = torch.zeros((), device=x.device), []
            for first, chunk in in_chunks(xs, rows):
                logits = chunk @ w.T if shift is None else torch.addmm(shift.to(dtype), chunk, w.T)
                loss, error = _loss_and_error(logits, targets, first, smoothing, vocab)
                total = total + loss.sum()
                dxs.append(error @ w)
                if learn_head:
                    dw = _added(dw, error, chunk)
            dx = torch.cat(dxs)
        ctx.save_for_backward(dx, dw)
        ctx.dtypes = x.dtype, weight.dtype
        return total

    @staticmethod
    def backward(ctx, grad: Tensor):  # pyrefly: ignore[bad-override]
        dx, dw = ctx.saved_tensors
        dw = (dw * grad).to(ctx.dtypes[1]) if ctx.needs_input_grad[1] else None
        return (dx * grad).to(ctx.dtypes[0]), dw, *[None] * (len(ctx.needs_input_grad) - 2)


def _loss_and_error8(logits: Tensor, targets: Tensor, first: int, smoothing: float, vocab: int) -> tuple[Tensor, Eight]:
    """As `_loss_and_error`, with the gradient in FP8. It lies in [-1, 1], so its scale is fixed."""
    scale = torch.full((), 1 / ERRORS, device=logits.device)
    if logits.is_cuda and TRITON:
        from regard.nn.kernels8 import softmax_error8

        loss, rows, columns = softmax_error8(logits, targets, smoothing, vocab, first, ERRORS)
        return loss, Eight(rows, columns, scale, None)
    loss, error = _loss_and_error(logits, targets, first, smoothing, vocab)
    return loss, plain_eight(error, scale * torch.finfo(BACKWARD).max, BACKWARD)


class _Chunked8(torch.autograd.Function):
    """`_Chunked` in FP8. `rows` is a multiple of 16."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, targets: Tensor, smoothing: float, rows: int, vocab: int) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            x8, w8, targets = eight(x, largest(x), FORWARD), forward8(weight), targets.contiguous()
            dw, total, dxs = torch.zeros_like(weight, dtype=torch.float32), torch.zeros((), device=x.device), []
            for first in range(0, len(x), rows):
                logits = product(x8.rows[first : first + rows], x8.scale, w8.rows, w8.scale, fast=True)
                loss, error = _loss_and_error8(logits, targets, first, smoothing, vocab)
                total = total + loss.sum()
                dxs.append(product(error.rows, error.scale, w8.columns, w8.scale))
                chunk = x8.columns[:, first : first + rows].contiguous()
                dw = dw + product(error.columns, error.scale, chunk, x8.scale, dtype=torch.float32)
            dx = torch.cat(dxs)
        ctx.save_for_backward(dx, dw)
        ctx.dtypes = x.dtype, weight.dtype
        return total

    backward = staticmethod(_Chunked.backward)  # pyrefly: ignore[bad-override]


ERRORS = 2.0**15  # times an error of 1 is within the range of e5m2


def chunked_cross_entropy_sum(
    x: Tensor, weight: Tensor, targets: Tensor, smoothing: float = 0.0, rows: int = 0, vocab: int = 0
) -> Tensor:
    """As `plain_cross_entropy_sum`, `rows` positions at a time (0: what fits a CPU's cache, or fills a GPU)."""
    rows = rows or rows_at_once(len(x), weight.size(0), x.device)
    if takes8(weight):
        rows = -(-rows // SIXTEEN) * SIXTEEN
        return _Chunked8.apply(x, weight, targets, smoothing, rows, vocab or weight.size(0))
    return _Chunked.apply(x, weight, targets, smoothing, rows, vocab or weight.size(0))


def rows_at_once(count: int, vocab: int, device: torch.device) -> int:
    """How many of `count` positions to compute at a time: what fits a CPU's cache, or fills a GPU."""
    most = max(32, (2**30 if device.type == "cuda" else 2**20) // vocab)
    chunks = max(1, -(-count // most))
    rows = max(1, -(-count // chunks))
    return -(-rows // ROWS) * ROWS if count % ROWS == 0 else rows
