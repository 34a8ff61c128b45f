"""The best of many scores: `topk`, by what is fastest for the shape and the device."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.models.base import EncoderDecoder

BLOCK = 64  # tokens whose largest logit is compared with that of other blocks
SCANNED = 64  # torch's `topk` of k scans rows of 64 k or more, and partly sorts shorter ones, which takes longer
LARGE = 4096  # tokens from which on blocks are faster than `topk` of all
LOG2 = math.log(2)
SAFE = 96.0  # 2 to this power, summed over any vocabulary, does not overflow


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


def bits(model: EncoderDecoder, hidden: Tensor) -> Tensor:
    """Logits / log 2, … D -> … V."""
    return model.logits(hidden / LOG2) if model.bias is None else model.logits(hidden).div_(LOG2)


def best_words(bits: Tensor, scores: Tensor, k: int, never: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k best of scores + log-softmax of each sentence, from logits / log 2, without writing them all.

    b N V, overwritten, and b N -> scores, hypotheses and tokens, b k each. A block of tokens competes by its largest
    logit. The token `never` has a probability, but is not chosen.
    """
    N, V = bits.shape[1:]
    full, rest = divmod(V, BLOCK)
    blocks = max(full + bool(rest), -(-SCANNED * k // N))
    most = bits.new_full((*bits.shape[:2], blocks), -torch.inf)
    torch.amax(bits[..., : full * BLOCK].unflatten(-1, (full, BLOCK)), -1, out=most[..., :full])
    if rest:
        torch.amax(bits[..., full * BLOCK :], -1, out=most[..., full])
    shift = scores / LOG2 - log2_sum(bits, most.amax(-1))  # b N
    bits[..., never] = -torch.inf
    block = never % V // BLOCK
    most[..., block] = bits[..., block * BLOCK : (block + 1) * BLOCK].amax(-1)
    inside = most.add_(shift[:, :, None]).flatten(1).topk(k, 1, sorted=False).indices  # b k
    parent = inside // blocks
    start = inside.sub_(parent, alpha=blocks).mul_(BLOCK)
    tokens = start[:, :, None] + torch.arange(BLOCK)  # b k BLOCK
    places = (tokens + (parent * V)[:, :, None]).clamp_(max=N * V - 1).flatten(1)
    words = bits.flatten(1).gather(1, places).view_as(tokens)
    words += shift.gather(1, parent)[:, :, None]
    if rest:
        words.masked_fill_(tokens >= V, -torch.inf)
    best, chosen = words.flatten(1).topk(k, 1)
    where = places.gather(1, chosen)
    return best.mul_(LOG2), where // V, where % V


def log2_sum(bits: Tensor, most: Tensor) -> Tensor:
    """log2 Σ 2^bits, … V -> …, given the largest. On a CPU torch's exp2 takes a quarter of the time of exp."""
    if most.abs().max() < SAFE:
        return bits.exp2().sum(-1).log2_()
    return (bits - most[..., None]).exp2_().sum(-1).log2_().add_(most)
