"""Training a translator: target tokens per second beside torch's nn.Transformer and transformers' Marian.

python bench/train_step.py           # base, 512 pairs of 64+64 tokens, bf16, compiled on a GPU; tiny, ragged on a CPU
python bench/train_step.py torch     # beside one of them
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from _common import pair, report, seconds
from torch import Tensor, nn

from regard.data.batch import Pairs, collate
from regard.nn.positions import POSITIONS
from regard.objectives.translate import Translate


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
    """torch's own Transformer with what it leaves out: one embedding for both sides and the output, and sines."""

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


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cuda = device == "cuda"
    torch.set_float32_matmul_precision("high")
    size, vocab = ("base", 32000) if cuda else ("tiny", 10000)
    ours, marian = pair(size, vocab)
    ours, marian, torchs = ours.to(device).train(), marian.to(device).train(), Torchs(ours.config).to(device).train()
    batch, objective = batch_of(device, vocab), Translate(0.1)
    attention = batch.source != batch.pad
    labels = batch.target.masked_fill(batch.target == batch.pad, -100)
    run = torch.compile(torchs) if cuda else torchs
    if cuda:
        objective.compile()
        marian.compile()

    def marian_loss():
        return marian(batch.source, attention_mask=attention, decoder_input_ids=batch.inputs, labels=labels).loss

    def adam(model):
        return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    steps = {
        "regard": step(lambda: objective.loss_sum(ours, batch) / batch.targets_count, adam(ours), cuda),
        "transformers": step(marian_loss, adam(marian), cuda),
    }
    if cuda:  # ragged sentences are no match for one that does not leave padding out
        steps["torch"] = step(lambda: run(batch.source, batch.inputs, labels), adam(torchs), cuda)
    steps = {name: work for name, work in steps.items() if name in ("regard", *sys.argv[1:]) or len(sys.argv) == 1}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for work in steps.values():
        seconds(work, repeat=0, warm=5)
    for _ in range(10):  # in turn, so that a slow minute of the machine falls on all
        for name, work in steps.items():
            times[name] += seconds(work, repeat=3 if cuda else 1, warm=0)
    report(f"train-{size}", device, "target tokens/s", batch.targets_count, **times)


if __name__ == "__main__":
    main()
