"""Logits to an id, as pure functions of a batch; none waits for the device.

Numbers may be floats or, where a captured step must serve many settings, tensors without dimensions.
"""

import math

import numpy as np
import torch
from torch import Tensor

Number = float | Tensor


def likeliest(logits: Tensor) -> Tensor:
    """The best id, the first of equals: … V -> …"""
    if logits.is_cuda:
        return logits.argmax(-1)
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    return torch.from_numpy(np.asarray(logits.numpy().argmax(-1)))  # torch's own takes ten times as long on a CPU


def top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k likeliest words (Fan et al. 2018); 0 keeps all. … V"""
    if not 0 < k < logits.size(-1):
        return logits
    return logits.masked_fill(logits < logits.topk(k, -1).values[..., -1:], -torch.inf)


def top_p(logits: Tensor, p: Number, total: Tensor | None = None) -> Tensor:
    """Keep the smallest set of words whose probability reaches p (Holtzman et al. 2020); 1 keeps all. … V

    `total`, … 1, is the log of the mass of all words where `logits` holds only some of them.
    """
    if not isinstance(p, Tensor) and p >= 1.0:
        return logits
    ordered, order = logits.sort(-1, descending=True)
    probabilities = ordered.softmax(-1) if total is None else (ordered - total).exp()
    before = probabilities.cumsum(-1) - probabilities  # mass of the likelier words: the likeliest always stays
    cut = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, (before >= p) & (before > 0))
    return logits.masked_fill(cut, -torch.inf)


def min_p(logits: Tensor, least: Number) -> Tensor:
    """Keep words at least `least` times as likely as the likeliest (Nguyen et al. 2024); 0 keeps all. … V"""
    if not isinstance(least, Tensor) and least <= 0.0:
        return logits
    log = least.log() if isinstance(least, Tensor) else math.log(least)
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + log, -torch.inf)


def repetition_penalty(logits: Tensor, seen: Tensor, penalty: Number) -> Tensor:
    """Words that were `seen` (… V) lose: their logit is divided by `penalty`, or multiplied where it is negative.

    Keskar et al. 2019, section 4.1, in the form every library uses.
    """
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def cooled(logits: Tensor, temperature: Number) -> Tensor:
    """Logits over temperature, the best at 0: however cold, nothing overflows but what becomes impossible. … V"""
    logits = logits - logits.amax(-1, keepdim=True)
    return logits if not isinstance(temperature, Tensor) and temperature == 1.0 else logits / temperature


def narrowed(logits: Tensor, temperature: float = 1.0, k: int = 0, p: float = 1.0, least: float = 0.0) -> Tensor:
    """What `choose` draws from: logits after temperature, top-k, top-p and min-p; -inf for what cannot come. … V"""
    logits = logits.float() if logits.dtype != torch.float64 else logits
    if temperature == 0:
        best = likeliest(logits)[..., None]
        return torch.full_like(logits, -torch.inf).scatter(-1, best, 0.0)
    return min_p(top_p(top_k(cooled(logits, temperature), k), p), least)


def choose(
    logits: Tensor, uniform: Tensor, temperature: Number = 1.0, k: int = 0, p: Number = 1.0, least: Number = 0.0
) -> Tensor:
    """`draw(narrowed(logits, …), uniform)` with less work: few words are sorted, or even looked at. B V, B -> B

    The same ids, but that exactly k stay where several equals stand at the edge of the k likeliest.
    """
    logits = cooled(logits.float() if logits.dtype != torch.float64 else logits, temperature)
    total = ids = None
    if 0 < k < logits.size(-1):
        ids = logits.topk(k).indices.sort(-1).values  # in the order in which `draw` would meet them
        logits = logits.gather(-1, ids)
    elif not isinstance(p, Tensor) and p < 1.0 and not logits.is_cuda:
        total = logits.logsumexp(-1, keepdim=True)  # B 1
        columns = within_reach(logits - total, p)
        logits, ids = logits[:, columns], columns.expand(len(logits), -1)
    places = draw(min_p(top_p(logits, p, total), least), uniform)
    return places if ids is None else ids.gather(1, places[:, None]).squeeze(1)


def within_reach(words: Tensor, p: float) -> Tensor:
    """The ids that top-p could keep in some row, few of many: B V log-probabilities -> M.

    All words below (1 - p) / V together weigh less than 1 - p, so p is reached before any of them is needed.
    """
    edge = math.log(max(1.0 - p, 1e-12) / words.size(1)) - 0.01  # the margin is for rounding
    return (words >= edge).any(0).nonzero().squeeze(1)


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


def luck_of(prompt: list[int], nth: int, seed: int, steps: int) -> Tensor:
    """Uniform numbers for the n-th completion of a prompt: they know nothing of its place or company. steps"""
    return torch.from_numpy(np.random.default_rng([seed % 2**64, nth, *prompt]).random(steps))
