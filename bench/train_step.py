"""Training a translator: target tokens per second vs. torch's nn.Transformer and transformers' Marian.

python bench/train_step.py           # base, 512 pairs of 64+64 tokens, bf16, compiled on a GPU; tiny, ragged on a CPU
python bench/train_step.py torch     # vs. one of them
"""

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from _common import in_turn, pair, report, training_step
from torch import Tensor, nn

from regard.data.batch import Pairs, collate
from regard.models import build, config_for
from regard.nn.positions import POSITIONS
from regard.objectives.translate import TranslateLoss


def step(loss, optimiser, cuda: bool):
    def work() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=cuda):
            value = loss()
        value.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return work


def batch_of(device: str, vocab: int) -> Pairs:
    """64+64 tokens without padding on a GPU; sentences of 4 to 28 words, as in Multi30k, on a CPU."""
    random = np.random.default_rng(0)
    rows, low, high = (512, 63, 64) if device == "cuda" else (128, 4, 29)
    lengths = np.sort(random.integers(low, high, rows))
    sides = [[random.integers(2, vocab - 1, n) for n in lengths] for _ in range(2)]
    return collate(sides[0], sides[1], eos=0, pad=vocab - 1).to(device)


class Torchs(nn.Module):
    """torch's Transformer with what it leaves out: one embedding for both sides and the output, and sinusoids."""

    def __init__(self, c):
        super().__init__()
        self.token, self.scale = nn.Embedding(c.vocab, c.width), math.sqrt(c.width)
        self.place, self.drop = POSITIONS[c.positions](c.max_length, c.width), nn.Dropout(c.dropout)
        self.layers = nn.Transformer(
            c.width, c.heads, c.encoder_layers, c.decoder_layers, c.ffn, c.dropout, batch_first=True
        )

    def forward(self, source: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        sides = [self.drop(self.token(ids) * self.scale + self.place(torch.arange(ids.size(1), device=ids.device)))
                 for ids in (source, inputs)]  # fmt: skip
        later = torch.ones(inputs.size(1), inputs.size(1), dtype=torch.bool, device=inputs.device).triu(1)
        x = self.layers(*sides, tgt_mask=later, tgt_is_causal=True)
        logits = F.linear(x, self.token.weight).flatten(0, 1).float()
        return F.cross_entropy(logits, labels.flatten(), label_smoothing=0.1, ignore_index=-100)


def contenders(device: str) -> tuple[int, dict[str, Callable[[], Callable[[], Any]]]]:
    """Targets per step, and by name what makes a step, with equal weights where possible."""
    cuda = device == "cuda"
    torch.set_float32_matmul_precision("high")
    size, vocab = ("base", 32000) if cuda else ("tiny", 10000)
    batch, config = batch_of(device, vocab), config_for("transformer", size, vocab)
    attention = batch.source != batch.pad
    labels = batch.target.masked_fill(batch.target == batch.pad, -100)

    def regard():
        torch.manual_seed(0)
        model, objective = build(config).to(device).train(), TranslateLoss(0.1)
        if cuda:
            objective.compile()
            return training_step(model, objective, batch, batch.targets_count)
        return step(lambda: objective.loss_sum(model, batch) / batch.targets_count, adam(model), cuda)

    def transformers():
        model = pair(size, vocab)[1].to(device).train()
        if cuda:
            model.compile()
        how = dict(attention_mask=attention, decoder_input_ids=batch.inputs, labels=labels)
        return step(lambda: model(batch.source, **how).loss, adam(model), cuda)

    def torchs():
        model = Torchs(config).to(device).train()
        run = torch.compile(model) if cuda else model
        return step(lambda: run(batch.source, batch.inputs, labels), adam(model), cuda)

    builders = {"regard": regard, "transformers": transformers}
    if cuda:  # on ragged sentences it would compute padding, too
        builders["torch"] = torchs
    return batch.targets_count, builders


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    targets, builders = contenders(device)
    steps = {name: make() for name, make in builders.items() if name in ("regard", *sys.argv[1:]) or not sys.argv[1:]}
    report(f"train-{'base' if device == 'cuda' else 'tiny'}", device, "target tokens/s", targets, **in_turn(steps))


if __name__ == "__main__":
    main()
