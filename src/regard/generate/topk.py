"""The best of many scores: `topk`, by what is fastest for the shape and the device."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 64  # tokens whose largest logit is compared with that of other blocks
SCANNED = 64  # torch's `topk` of k scans rows of 64 k elements or more, and partly sorts shorter ones, which takes longer
LARGE = 4096  # tokens from which on blocks are faster than `topk` of all
LOG2E = math.log2(math.e)

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


def best_words(logits: Tensor, scores: Tensor, k: int, never: int) -> tuple[Tensor, Tensor]:
    """The k best of scores + log-softmax(logits) of each sentence, without writing them all; overwrites `logits`.

    b N V and b N -> b k, b k, as `best_of` the flattened b N·V. A block of tokens competes by its largest logit. The
    token `never` has a probability, but is not chosen.
    """
    N, V = logits.shape[1:]
    full, rest = divmod(V, BLOCK)
    blocks = max(full + bool(rest), -(-SCANNED * k // N))
    most = logits.new_full((*logits.shape[:2], blocks), -torch.inf)
    torch.amax(logits[..., : full * BLOCK].unflatten(-1, (full, BLOCK)), -1, out=most[..., :full])
    if rest:
        torch.amax(logits[..., full * BLOCK :], -1, out=most[..., full])
    shift = scores - log_sum(logits, most.amax(-1))  # b N
    logits[..., never] = -torch.inf
    block = never % V // BLOCK
    most[..., block] = logits[..., block * BLOCK : (block + 1) * BLOCK].amax(-1)
    inside = most.add_(shift[:, :, None]).flatten(1).topk(k, 1, sorted=False).indices  # b k
    parent = inside // blocks
    start = inside.sub_(parent, alpha=blocks).mul_(BLOCK)
    tokens = start[:, :, None] + torch.arange(BLOCK)  # b k BLOCK
    places = (tokens + (parent * V)[:, :, None]).clamp_(max=N * V - 1).flatten(1)
    words = logits.flatten(1).gather(1, places).view_as(tokens)
    words += shift.gather(1, parent)[:, :, None]
    if rest:
        words.masked_fill_(tokens >= V, -torch.inf)
    best, chosen = words.flatten(1).topk(k, 1)
    return best, places.gather(1, chosen)


def log_sum(logits: Tensor, most: Tensor) -> Tensor:
    """log Σ exp(logits), … V -> …, given the largest. On a CPU torch's exp2 takes a quarter of the time of exp."""
    powers = torch.add(most[..., None] * -LOG2E, logits, alpha=LOG2E).exp2_()
    return powers.sum(-1).log_().add_(most)
