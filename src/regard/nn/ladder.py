"""From a look-up to attention, one short function per step. Nothing below needs training, a class or a batch.

A sentence is a matrix: T words in rows, D numbers each. Every step returns the new rows and the weights they were
mixed with, T x T, where row i is how much word i looks at each word j. `nn/attention.py` continues from the last step,
with many heads and many sentences at once.
"""

import math

import torch
from torch import Tensor

Mixed = tuple[Tensor, Tensor]  # the new rows, and the weights


def lookup(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """A soft dictionary without softmax: values, weighted by how well their keys match. … D, S D, S V -> … V"""
    return query @ keys.mT @ values


def look_at_all(x: Tensor) -> Mixed:
    """Step 1: every word becomes a mix of all words, itself included; similar words look at each other."""
    weights = (x @ x.mT).softmax(-1)  # softmax over j of x_i · x_j
    return weights @ x, weights


def look_at_others(x: Tensor) -> Mixed:
    """Step 2: the same without j = i, since a word matches itself best."""
    itself = torch.eye(len(x), dtype=torch.bool, device=x.device)
    scores = (x @ x.mT).masked_fill(itself, torch.finfo(x.dtype).min)
    weights = scores.softmax(-1).masked_fill(itself, 0.0)  # a single word has nothing to look at: zeros
    return weights @ x, weights


def with_values(x: Tensor, value: Tensor) -> Mixed:
    """Step 3, from step 1: what a word contributes, through a map D V, need not be what it is matched by."""
    weights = (x @ x.mT).softmax(-1)
    return weights @ (x @ value), weights


def with_queries_and_keys(x: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Mixed:
    """Step 4: queries and keys are two projections, D K each, so attention is no longer symmetric."""
    weights = ((x @ query) @ (x @ key).mT).softmax(-1)
    return weights @ (x @ value), weights


def scaled(x: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Mixed:
    """Step 5: divide by √d. The spread of q·k grows with √d and would saturate the softmax."""
    weights = ((x @ query) @ (x @ key).mT / math.sqrt(key.size(-1))).softmax(-1)
    return weights @ (x @ value), weights
