"""Training: target tokens per second beside transformers' Marian, same weights, same batch, same optimiser.

python bench/train_step.py        # base, 64+64 tokens, bf16, compiled on a GPU; tiny, ragged, fp32 on a CPU
"""

import numpy as np
import torch
from _common import pair, report, seconds

from regard.data.batch import Pairs, collate
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
    rows, low, high = (256, 63, 64) if device == "cuda" else (128, 4, 29)
    lengths = np.sort(random.integers(low, high, rows))
    sides = [[random.integers(2, vocab - 1, n) for n in lengths] for _ in range(2)]
    return collate(sides[0], sides[1], eos=0, pad=vocab - 1).to(device)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cuda = device == "cuda"
    torch.set_float32_matmul_precision("high")
    size, vocab = ("base", 32000) if cuda else ("tiny", 10000)
    ours, theirs = pair(size, vocab)
    ours, theirs = ours.to(device).train(), theirs.to(device).train()
    batch = batch_of(device, vocab)
    task = Translate(0.1)
    if cuda:
        task.compile()
        theirs.compile()
    attention = batch.source != batch.pad
    labels = batch.target.masked_fill(batch.target == batch.pad, -100)

    def our_loss():
        return task.loss_sum(ours, batch) / batch.targets_count

    def their_loss():
        return theirs(batch.source, attention_mask=attention, decoder_input_ids=batch.inputs, labels=labels).loss

    times: dict[str, list[float]] = {"regard": [], "transformers": []}
    steps = {}
    for name, loss, model in (("regard", our_loss, ours), ("transformers", their_loss, theirs)):
        steps[name] = step(loss, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), cuda)
        seconds(steps[name], repeat=0, warm=3)
    for _ in range(10):  # in turn, so that a slow minute of the machine falls on both
        for name, work in steps.items():
            times[name] += seconds(work, repeat=3 if cuda else 1, warm=0)
    report(f"train-{size}", device, "target tokens/s", batch.targets_count, **times)


if __name__ == "__main__":
    main()
