"""The perplexity of a language model on a text, with the context it depends on."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.blocks import TextRows
from regard.data.loader import in_order
from regard.data.text import TokenFile
from regard.errors import ConfigError, DataError
from regard.models.base import LanguageModel
from regard.objectives.losses import picked
from regard.ticks import tick


@dataclass(frozen=True, kw_only=True)
class Perplexity:
    """Perplexity per token, and in units that do not depend on the tokenizer (0: bytes or words are unknown)."""

    loss: float  # nats per target
    perplexity: float  # e to the loss
    bits_per_byte: float
    word_perplexity: float
    targets: int
    context: int
    stride: int

    def __str__(self) -> str:
        lines = [f"loss {self.loss:.4f} and perplexity {self.perplexity:.2f} per token"]
        if self.bits_per_byte:
            lines.append(f"{self.bits_per_byte:.4f} bits per byte")
        if self.word_perplexity:
            lines.append(f"perplexity {self.word_perplexity:.2f} per word")
        return "\n".join((*lines, f"{self.targets:,} targets; context {self.context}, stride {self.stride}"))


@torch.no_grad()
def perplexity(
    model: LanguageModel,
    ids: Any,
    context: int,
    stride: int,
    tokens_per_batch: int = 8192,
    device: torch.device | str = "cpu",
    bytes: int = 0,
    words: int = 0,
) -> Perplexity:
    """One deterministic pass over a text of token ids (an array, or anything with a length and slices).

    Windows of `context` ids start every `stride` ids, and each scores the targets that no earlier one has scored: the
    first window all of its own, the others their last `stride`, each with at least context - stride ids before it. With
    `stride` = `context` windows do not overlap, which is cheapest and gives the highest perplexity. Every id is a
    target exactly once, except the first of the text. `bytes` and `words` are those of the targets' text.
    """
    check(model, ids, context, stride)
    training = model.training
    model.eval()
    total, count = torch.zeros((), dtype=torch.float64, device=device), len(ids) - 1
    rows = max(1, tokens_per_batch // context)
    for (_, skip), alike in groupby(windows(count, context, stride), key=lambda w: (w[1] - w[0], w[2] - w[0])):
        spans = list(alike)
        for first in range(0, len(spans), rows):
            batch = np.stack([np.asarray(ids[a : b + 1], dtype=np.int64) for a, b, _ in spans[first : first + rows]])
            if batch.max() >= model.config.vocab:
                raise DataError(
                    f"the text holds the id {batch.max()}, but the model has only ids below {model.config.vocab}; "
                    "the text was prepared for another tokenizer, prepare it with the model's own"
                )
            x = torch.from_numpy(batch).to(device)  # B T+1
            hidden = model(x[:, :-1])[:, skip:]
            total += loss_sum(model, hidden.flatten(0, 1), x[:, 1 + skip :].flatten())
            tick(hidden.size(0) * hidden.size(1))
    model.train(training)
    return summarise(total.item(), count, context, stride, bytes, words)


@torch.no_grad()
def perplexity_of_answers(
    model: LanguageModel,
    records: TokenFile,
    context: int,
    tokens_per_batch: int = 8192,
    device: torch.device | str = "cpu",
    bytes: int = 0,
    words: int = 0,
) -> Perplexity:
    """The same for the answers of records: each answer after its own prompt, without the other records."""
    check(model, records, context, context)
    training = model.training
    model.eval()
    total, count = torch.zeros((), dtype=torch.float64, device=device), 0
    rows = TextRows(records, context, tokens_per_batch)
    for batch in (batch.to(device) for batch in in_order(rows, rows.plan)):
        hidden = picked(model(batch.inputs, batch.documents), batch.chosen)
        total += loss_sum(model, hidden, picked(batch.targets, batch.chosen))
        count += batch.count
        tick(batch.count)
    model.train(training)
    return summarise(total.item(), count, context, context, bytes, words)


def summarise(nats: float, count: int, context: int, stride: int, bytes: int, words: int) -> Perplexity:
    return Perplexity(
        loss=nats / count,
        perplexity=exp(nats / count),
        bits_per_byte=nats / math.log(2) / bytes if bytes else 0.0,
        word_perplexity=exp(nats / words) if words else 0.0,
        targets=count,
        context=context,
        stride=stride,
    )


def windows(count: int, context: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """(start, stop, first): a window's inputs, and the first one whose target it scores. Input i has target i + 1."""
    done = 0
    for start in range(0, count, stride):
        if done < count:
            stop = min(start + context, count)
            yield start, stop, done
            done = stop


def loss_sum(model: LanguageModel, hidden: Tensor, targets: Tensor) -> Tensor:
    """The summed cross-entropy of M D states, a few logits at a time, by the model's own head (also in int8)."""
    rows = max(32, (2**27 if hidden.is_cuda else 2**20) // model.config.vocab)
    total = torch.zeros((), dtype=torch.float64, device=hidden.device)
    for states, right in zip(hidden.split(rows), targets.split(rows), strict=True):
        logits = model.logits(states)  # R V
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        total += F.cross_entropy(logits, right, reduction="sum")
    return total


def check(model: LanguageModel, ids: Any, context: int, stride: int) -> None:
    most = model.config.context  # 0: no limit
    if context < 1 or (most and context > most):
        raise ConfigError(f"context is {context}; this model reads 1 to {most or 'any number of'} tokens at once")
    if not 1 <= stride <= context:
        raise ConfigError(
            f"stride {stride} with context {context}; expected 1 (slow, most context) to {context} (fast)"
        )
    if len(ids) < 2:
        raise DataError(f"a text of {len(ids)} ids; expected at least two, since the first is never predicted")


def exp(x: float) -> float:
    return math.exp(min(x, 700.0))
