"""From a look-up to attention, one short function per step. Nothing below needs training, a class or a batch.

A sentence is a matrix: T words in rows, D numbers each. Every step of the ladder returns the new rows and the weights
they were mixed with, T x T, where row i says how much word i looks at each word j. `nn/attention.py` goes on from the
last step, with many heads and many sentences at once.
"""

import math

import torch
from torch import Tensor

Mixed = tuple[Tensor, Tensor]  # the new rows, and the weights


def lookup(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """A soft dictionary without softmax: values, each as much as its key agrees with the query. … D, S D, S V -> … V"""
    return query @ keys.mT @ values


def look_at_all(x: Tensor) -> Mixed:
    """Step 1: every word becomes a mix of all words, itself included; words alike look at each other."""
    weights = (x @ x.mT).softmax(-1)  # softmax over j of x_i · x_j
    return weights @ x, weights


def look_at_others(x: Tensor) -> Mixed:
    """Step 2: the same without j = i, for a word agrees with nothing as much as with itself."""
    itself = torch.eye(len(x), dtype=torch.bool, device=x.device)
    scores = (x @ x.mT).masked_fill(itself, torch.finfo(x.dtype).min)
    weights = scores.softmax(-1).masked_fill(itself, 0.0)  # a sentence of one word has nobody to look at: zeros
    return weights @ x, weights


def with_values(x: Tensor, value: Tensor) -> Mixed:
    """Step 3, from step 1: what a word gives (a map D V of it) need not be what it is found by."""
    weights = (x @ x.mT).softmax(-1)
    return weights @ (x @ value), weights


def with_queries_and_keys(x: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Mixed:
    """Step 4: what a word looks for and what it is found by are two maps, D K each; looking is no longer mutual."""
    weights = ((x @ query) @ (x @ key).mT).softmax(-1)
    return weights @ (x @ value), weights


def scaled(x: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Mixed:
    """Step 5: divided by √d. The spread of q·k grows with √d and would leave the softmax nearly all or nothing."""
    weights = ((x @ query) @ (x @ key).mT / math.sqrt(key.size(-1))).softmax(-1)
    return weights @ (x @ value), weights
