"""Logits to a random id, as pure functions."""

import torch
from torch import Tensor


def top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k likeliest words (Fan et al. 2018); 0 keeps all. … V"""
    if not 0 < k < logits.size(-1):
        return logits
    return logits.masked_fill(logits < logits.topk(k, -1).values[..., -1:], -torch.inf)


def top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the smallest set of words whose probability reaches p (Holtzman et al. 2020); 1 keeps all. … V"""
    if p >= 1.0:
        return logits
    ordered, order = logits.sort(-1, descending=True)
    probabilities = ordered.softmax(-1)
    before = probabilities.cumsum(-1) - probabilities  # mass of the likelier words: the likeliest always stays
    cut = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, (before >= p) & (before > 0))
    return logits.masked_fill(cut, -torch.inf)


def draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """One id per row by inverting the cumulative distribution at `uniform` in [0, 1): … V, … -> …

    One number per draw, made by the caller: a row's luck cannot depend on the rows beside it.
    """
    heap = logits.double().softmax(-1).cumsum(-1)
    ids = torch.searchsorted(heap, uniform[..., None].double() * heap[..., -1:], right=True).squeeze(-1)
    return ids.clamp(max=logits.size(-1) - 1)


def luck(rows: list[int], steps: int, seed: int) -> Tensor:
    """Uniform numbers for each row and step, from the row's own stream: R steps."""
    draws = []
    for row in rows:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + row)
        draws.append(torch.rand(steps, generator=generator))
    return torch.stack(draws)
