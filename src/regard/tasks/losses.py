"""Cross-entropy of a linear head, summed. Plain beside chunked: the chunked one never holds all logits at once."""

import torch
import torch.nn.functional as F
from torch import Tensor


def plain_cross_entropy_sum(
    x: Tensor, weight: Tensor, targets: Tensor, smoothing: float = 0.0, bias: Tensor | None = None
) -> Tensor:
    """M D states, V D head, M targets. Szegedy et al. 2016: `smoothing` of the mass is spread over all words."""
    logits = F.linear(x, weight, bias).float()  # M V
    return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)


class _Chunked(torch.autograd.Function):
    """Logits of a few rows at a time; their gradient is worked out on the spot, so nothing M x V survives."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, targets: Tensor, smoothing: float, rows: int) -> Tensor:
        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        with torch.autocast(kind, enabled=False):
            xs, w = x.to(dtype), weight.to(dtype)
            dx, dw = torch.empty_like(xs), torch.zeros_like(weight, dtype=torch.float32)
            total = torch.zeros((), device=x.device)
            for part in range(0, len(xs), rows):
                chunk, target = xs[part : part + rows], targets[part : part + rows, None]
                logits = (chunk @ w.T).float()  # R V
                log_sum = logits.logsumexp(-1, keepdim=True)
                right = logits.gather(1, target)
                total += (log_sum - (1 - smoothing) * right).sum()
                if smoothing:
                    total -= smoothing * logits.mean(-1).sum()
                error = logits.sub_(log_sum).exp_()  # softmax, in place
                if smoothing:
                    error -= smoothing / error.size(1)
                error.scatter_add_(1, target, torch.full_like(right, smoothing - 1))
                error = error.to(dtype)
                torch.mm(error, w, out=dx[part : part + rows])
                dw.addmm_(error.T, chunk) if dtype == torch.float32 else dw.add_(error.T @ chunk)
        ctx.save_for_backward(dx, dw)
        ctx.dtypes = x.dtype, weight.dtype
        return total

    @staticmethod
    def backward(ctx, grad: Tensor):  # pyrefly: ignore[bad-override]
        dx, dw = ctx.saved_tensors
        return (dx * grad).to(ctx.dtypes[0]), (dw * grad).to(ctx.dtypes[1]), None, None, None


def chunked_cross_entropy_sum(
    x: Tensor, weight: Tensor, targets: Tensor, smoothing: float = 0.0, rows: int = 0
) -> Tensor:
    """As `plain_cross_entropy_sum`, `rows` positions at a time (0: what fits a CPU's cache, or fills a GPU)."""
    rows = rows or max(32, (2**27 if x.is_cuda else 2**20) // weight.size(0))
    return _Chunked.apply(x, weight, targets, smoothing, rows)
