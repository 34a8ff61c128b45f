"""The best of many scores: `topk`, by what is fastest for the shape and the device."""

import torch
import torch.nn.functional as F
from torch import Tensor


def best_few(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`topk` of short rows; on a GPU sorting takes a third of the time."""
    if not scores.is_cuda:
        return scores.topk(k, 1)
    best, order = scores.sort(dim=1, descending=True, stable=True)
    return best[:, :k], order[:, :k]


def best_of(scores: Tensor, k: int, width: int = 64) -> tuple[Tensor, Tensor]:
    """Exact `topk` of long rows: the k best lie in the k blocks with the largest maxima. B M -> B k, B k"""
    B, M = scores.shape
    if k * width * 8 > M:
        return scores.topk(k, 1)
    if M % width:
        scores = F.pad(scores, (0, -M % width), value=-torch.inf)
    blocks = scores.view(B, -1, width)
    inside = blocks.amax(-1).topk(k, 1).indices  # B k
    inside = inside.sort(1).values  # ties go to the smaller index, as in a plain scan
    values, places = blocks.gather(1, inside[:, :, None].expand(-1, -1, width)).flatten(1).topk(k, 1)
    return values, (inside.gather(1, places // width) * width + places % width).clamp(max=M - 1)
