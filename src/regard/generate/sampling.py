"""Logits to an id, as pure functions of a batch; none synchronises.

Settings are floats or, where a captured step must serve many, zero-dimensional tensors.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.gpu import TRITON

Number = float | Tensor

GAMMA, MIX_1, MIX_2 = (x - 2**64 for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))  # SplitMix64
BLOCK = 128  # tokens; few blocks of few tokens need little noise


def likeliest(logits: Tensor) -> Tensor:
    """The argmax, ties to the first: … V -> …"""
    if logits.is_cuda:
        if TRITON and not torch.compiler.is_compiling():
            from regard.nn.batched import best_word, takes_words

            if takes_words(logits):
                return best_word(logits)
        return logits.argmax(-1)
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    return torch.from_numpy(np.asarray(logits.numpy().argmax(-1)))  # torch's own takes ten times as long on a CPU


def top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k likeliest tokens (Fan et al. 2018); 0 keeps all. … V"""
    if not 0 < k < logits.size(-1):
        return logits
    return logits.masked_fill(logits < logits.topk(k, -1).values[..., -1:], -torch.inf)


def top_p(logits: Tensor, p: Number, total: Tensor | None = None) -> Tensor:
    """Keep the smallest set of tokens whose probability reaches p (Holtzman et al. 2020); 1 keeps all. … V

    `total`, … 1, is the log-sum-exp over all tokens where `logits` holds only some of them.
    """
    if not isinstance(p, Tensor) and p >= 1.0:
        return logits
    ordered, order = logits.sort(-1, descending=True)
    probabilities = ordered.softmax(-1) if total is None else (ordered - total).exp()
    before = probabilities.cumsum(-1) - probabilities  # mass of the likelier tokens: the likeliest always stays
    cut = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, (before >= p) & (before > 0))
    return logits.masked_fill(cut, -torch.inf)


def min_p(logits: Tensor, least: Number) -> Tensor:
    """Keep tokens at least `least` times as likely as the likeliest (Nguyen et al. 2024); 0 keeps all. … V"""
    if not isinstance(least, Tensor) and least <= 0.0:
        return logits
    log = least.log() if isinstance(least, Tensor) else math.log(least)
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + log, -torch.inf)


def repetition_penalty(logits: Tensor, seen: Tensor, penalty: Number) -> Tensor:
    """Divide the logits of tokens `seen` (… V) by `penalty`, or multiply them if negative.

    Keskar et al. 2019, section 4.1, in the form every library uses.
    """
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def no_repeat_ngrams(logits: Tensor, ids: Tensor, lengths: Tensor, n: int) -> Tensor:
    """Rule out every token that would complete an n-gram for the second time (Paulus et al. 2018, section 2.5).

    … V logits of the token that follows the first `lengths`, … or 1, of `ids`, … T.
    """
    if ids.size(-1) < n:
        return logits
    windows = ids.unfold(-1, n, 1)  # … T-n+1 n
    starts = torch.arange(windows.size(-2), device=ids.device)
    last = (lengths[..., None] - torch.arange(n - 1, 0, -1, device=ids.device)).clamp(0, ids.size(-1) - 1)  # … n-1
    last = ids.gather(-1, last.expand(*ids.shape[:-1], n - 1))
    repeats = (windows[..., :-1] == last[..., None, :]).all(-1) & (starts + n <= lengths[..., None])
    penalty = torch.where(repeats, -torch.inf, torch.inf).to(logits.dtype)
    return logits.scatter_reduce(-1, windows[..., -1].clamp(0, logits.size(-1) - 1), penalty, "amin")


def cooled(logits: Tensor, temperature: Number) -> Tensor:
    """Logits over temperature, the best at 0: at any temperature, only impossible tokens overflow. … V"""
    logits = logits - logits.amax(-1, keepdim=True)
    return logits if not isinstance(temperature, Tensor) and temperature == 1.0 else logits / temperature


def narrowed(logits: Tensor, temperature: float = 1.0, k: int = 0, p: float = 1.0, least: float = 0.0) -> Tensor:
    """What `choose` samples from: logits after temperature, top-k, top-p and min-p; -inf if ruled out. … V"""
    logits = logits.float() if logits.dtype != torch.float64 else logits
    if temperature == 0:
        best = likeliest(logits)[..., None]
        return torch.full_like(logits, -torch.inf).scatter(-1, best, 0.0)
    return min_p(top_p(top_k(cooled(logits, temperature), k), p), least)


def choose(
    logits: Tensor, uniform: Tensor, temperature: Number = 1.0, k: int = 0, p: Number = 1.0, least: Number = 0.0
) -> Tensor:
    """`draw(narrowed(logits, …), uniform)` with less work: few tokens are sorted, or even read. B V, B -> B

    The same ids, except that exactly k stay where there are ties at the edge of the k likeliest.
    """
    logits = cooled(logits.float() if logits.dtype != torch.float64 else logits, temperature)
    total = ids = None
    words = logits.size(-1)
    if 0 < k < words:
        logits, ids = logits.topk(k)
    elif not isinstance(p, Tensor) and p < 1.0 and not logits.is_cuda:
        total = logits.logsumexp(-1, keepdim=True)  # B 1
        columns = within_reach(logits - total, p)
        logits, ids = logits[:, columns], columns.expand(len(logits), -1)
    logits = min_p(top_p(logits, p, total), least)
    if ids is not None:
        logits = logits.new_full((len(logits), words), -torch.inf).scatter(1, ids, logits)
    return draw(logits, uniform)


def choose_each(logits: Tensor, uniform: Tensor, settings: Tensor) -> Tensor:
    """`choose` with each row's own temperature, top-k, top-p and min-p, B 4: B V, B -> B.

    Nothing is decided on the host, so a captured step serves any settings. Temperature 0 is greedy.
    """
    best, logits = likeliest(logits), logits.float() if logits.dtype != torch.float64 else logits
    temperature, k, p, least = settings.to(logits.dtype).split(1, 1)  # B 1 each
    logits = cooled(logits, temperature.where(temperature > 0, 1))
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    beyond = (torch.arange(logits.size(-1), device=logits.device) >= k) & (k > 0)
    probabilities = ordered.masked_fill(beyond, -torch.inf).softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    cut = beyond | ((before >= p) & (before > 0) & (p < 1))
    logits = logits.masked_fill(torch.zeros_like(cut).scatter(-1, order, cut), -torch.inf)
    return torch.where(temperature.squeeze(1) > 0, draw(min_p(logits, least), uniform), best)


def within_reach(words: Tensor, p: float) -> Tensor:
    """The few ids that top-p could keep in some row: B V log-probabilities -> M.

    All tokens below (1 - p) / V together have less than 1 - p, so p is reached before any of them is needed.
    """
    edge = math.log(max(1.0 - p, 1e-12) / words.size(1)) - 0.01  # the margin is for rounding
    return (words >= edge).any(0).nonzero().squeeze(1)


def draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """One id per row with the probabilities of a softmax: … V, … -> …

    First a block of the vocabulary, then a token of it: where log-probability plus Gumbel noise is largest. The caller
    supplies one number in [0, 1) per draw, so a row's choice cannot depend on the other rows.

    In another batch a row is rounded slightly differently. Inverting a cumulative distribution, the errors of all
    tokens before a boundary would move it, and a draw would flip by the sum over V boundaries. Here it flips only where
    the two largest sums are closer than the error e of a logit: at either level with a probability below 2e. No way of
    sampling gets below e / 2, and rounding logits to a coarser grid would not help: they jump less often, but further.
    """
    blocks = F.pad(logits, (0, -logits.size(-1) % BLOCK), value=-torch.inf).unflatten(-1, (-1, BLOCK))  # … G BLOCK
    uniform, inside = uniform[..., None], torch.arange(BLOCK, device=logits.device)
    masses = blocks.logsumexp(-1).double()  # … G
    best = likeliest(masses + gumbel(uniform, -1 - torch.arange(masses.size(-1), device=logits.device)))[..., None]
    words = blocks.gather(-2, best[..., None].expand(*best.shape, BLOCK)).squeeze(-2).double()  # … BLOCK
    ids = best * BLOCK + inside
    return ids.gather(-1, likeliest(words + gumbel(uniform, ids))[..., None]).squeeze(-1)


def gumbel(uniform: Tensor, keys: Tensor) -> Tensor:
    """Standard Gumbel noise, a function of a draw's uniform number and a key only: … 1, … K -> … K"""
    bits = splitmix(splitmix(uniform.double().view(torch.int64)) + keys * GAMMA)
    inside = ((bits >> 12 & (1 << 52) - 1).double() + 0.5) * 2.0**-52  # neither 0 nor 1
    return -(-inside.log()).log()


def splitmix(bits: Tensor) -> Tensor:
    """The mixing function of SplitMix64 (Steele, Lea and Flood 2014), with wrapping int64 for unsigned numbers."""
    bits = (bits ^ (bits >> 30 & (1 << 34) - 1)) * MIX_1
    bits = (bits ^ (bits >> 27 & (1 << 37) - 1)) * MIX_2
    return bits ^ (bits >> 31 & (1 << 33) - 1)


def row_uniforms(rows: list[int], steps: int, seed: int) -> Tensor:
    """Uniform numbers for each row and step, from the row's own stream: R steps."""
    draws = []
    for row in rows:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + row)
        draws.append(torch.rand(steps, generator=generator, dtype=torch.double))
    return torch.stack(draws)


def prompt_uniforms(prompt: list[int], nth: int, seed: int, steps: int) -> Tensor:
    """Uniform numbers for the n-th completion of a prompt, independent of its row in a batch: steps."""
    return torch.from_numpy(np.random.default_rng([seed % 2**64, nth, *prompt]).random(steps))
