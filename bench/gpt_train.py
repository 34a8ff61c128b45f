"""Training GPT-2 124M at T=1024: tokens per second vs. transformers' GPT-2, compiled, and nanoGPT's recorded rate.

python bench/gpt_train.py            # a GPU: rates, peak memory, and 200 steps compared with a float32 reference
python bench/gpt_train.py rates      # only the rates
python bench/gpt_train.py loss IDS   # 2,000 steps in bf16 and in fp8 on the token ids of a .npy file: their losses
"""

import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from _common import RESULTS, report, seconds

from regard.data.batch import Tokens
from regard.models import build, config_for
from regard.objectives.next_token import NextToken
from regard.training.optim import Optimiser
from regard.training.precision import PRECISIONS
from regard.training.recorded import RecordedStep
from regard.training.settings import Optim

VOCAB, LENGTH, STEPS = 50257, 1024, 4  # steps per timing: training never waits for the device
NANOGPT, MATMUL = 533_000, 807.0  # nanoGPT's tokens/s at batch 64 and the matmul TFLOP/s of the machine it ran on
ADAM = Optim(name="adamw", lr=6e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, clip=1.0)


def matmul_rate() -> float:
    """bf16 TFLOP/s of a large product, the best of several sizes."""
    rates = []
    for size in (4096, 8192, 16384):
        a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        rates.append(2 * size**3 / min(seconds(lambda a=a, b=b: a @ b, 20, 5)) / 1e12)
    return max(rates)


def ours(precision: str = "bf16", set_lr: Callable[[Optimiser], None] = lambda _: None, compiled: bool = True):
    torch.manual_seed(0)
    model = build(config_for("gpt", "gpt2", VOCAB, task="lm")).cuda().train()
    task, optimiser, precise = NextToken(), Optimiser(model, ADAM), PRECISIONS[precision](torch.device("cuda"))
    if compiled:
        task.compile()

    def whole(batches: list[Tokens], count) -> tuple[torch.Tensor, ...]:
        with precise:
            loss = task.loss_sum(model, batches[0]) / count
        loss.backward()
        return (loss.detach(), *optimiser.update(loss.detach()))

    recorded = RecordedStep(whole, torch.device("cuda"), fills=False)

    def step(ids: torch.Tensor) -> torch.Tensor:
        set_lr(optimiser)
        return recorded([Tokens(ids=ids)], ids.size(0) * LENGTH)[0].clone()

    return model, step


def theirs(precision: bool = True, compiled: bool = True):
    import transformers

    config = transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = transformers.GPT2LMHeadModel(config).cuda().train()
    if compiled:
        model.compile()
    optimiser = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step(ids: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=precision):
            targets = ids[:, 1:].contiguous()
            loss = model(ids[:, :-1], labels=targets, shift_labels=targets).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    return model, step


def rate(step, rows: int) -> tuple[list[float], float]:
    ids = torch.randint(0, VOCAB, (rows, LENGTH + 1), device="cuda")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    times = seconds(lambda: [step(ids) for _ in range(STEPS)], repeat=5, warm=2)
    return [t / STEPS for t in times], torch.cuda.max_memory_allocated() / 2**30


def rates(batches: list[int]) -> None:
    torch.set_float32_matmul_precision("high")
    machine = matmul_rate()
    print(f"bf16 matmul {machine:.0f} TFLOP/s", flush=True)
    _, step = ours()
    results, memory = {}, {}
    for rows in batches:
        torch._dynamo.reset()
        results[rows], memory[rows] = rate(step, rows)
        print(
            f"ours, batch {rows}: {rows * LENGTH / min(results[rows]):,.0f} tokens/s, {memory[rows]:.1f} GiB",
            flush=True,
        )
    del step
    torch._dynamo.reset()
    _, step = theirs()
    reference, used = rate(step, 32)
    print(f"transformers, batch 32: {32 * LENGTH / min(reference):,.0f} tokens/s, {used:.1f} GiB", flush=True)
    nano = NANOGPT * machine / MATMUL
    for rows, times in results.items():
        line = report(
            f"train-gpt2-124M-{rows}x{LENGTH}", "cuda", "tokens/s", 1, regard=[t / rows / LENGTH for t in times],
            transformers=[t / 32 / LENGTH for t in reference],
        )  # fmt: skip
        ratio = line["regard"] / nano
        print(f"batch {rows}: {ratio:.3f}x nanoGPT scaled to this machine ({nano:,.0f} tokens/s)", flush=True)
        with RESULTS.open("a") as f:
            extra = dict(bench=f"train-gpt2-124M-{rows}x{LENGTH}-nanogpt", date=line["date"], machine=line["machine"])
            extra |= dict(matmul_tflops=round(machine, 1), nanogpt_scaled=round(nano), ratio=round(ratio, 3))
            f.write(json.dumps(extra | dict(peak_gib=round(memory[rows], 2), commit=line["commit"])) + "\n")


def text_like(rows: int, steps: int) -> torch.Tensor:
    """Ids with something to learn: Zipf frequencies, and every other token determined by the one before."""
    g = torch.Generator().manual_seed(0)
    rank = torch.arange(1, VOCAB + 1, dtype=torch.float64)
    ids = torch.multinomial((1 / rank).float(), steps * rows * (LENGTH + 1), replacement=True, generator=g)
    follow = torch.randperm(VOCAB, generator=g)
    ids[1::2] = torch.where(
        torch.rand(len(ids[1::2]), generator=g) < 0.7, follow[ids[0::2][: len(ids[1::2])]], ids[1::2]
    )
    return ids.view(steps, rows, LENGTH + 1)


def parity(steps: int = 200, rows: int = 4) -> None:
    """The same batches through ours (bf16, fast) and through transformers in float32 with torch's AdamW."""
    from regard.models.published import published_weights

    batches = text_like(rows, steps).cuda()
    model, step = ours()
    reference, plain = theirs(precision=False, compiled=False)
    reference.load_state_dict({k: v.cuda() for k, v in published_weights(model).items()}, strict=False)
    reference.tie_weights()
    torch._dynamo.reset()
    fast = torch.stack([step(ids) for ids in batches])
    torch.set_float32_matmul_precision("highest")
    start = time.time()
    exact = torch.stack([plain(ids) for ids in batches])
    apart = (fast - exact).abs()
    last = slice(steps - 50, steps)
    results = dict(bench="gpt2-124M-bf16-against-fp32", steps=steps, loss=round(fast[last].mean().item(), 4),
                 reference=round(exact[last].mean().item(), 4), largest_difference=round(apart.max().item(), 4),
                 mean_difference=round(apart.mean().item(), 4))  # fmt: skip
    print(results, f"(reference took {time.time() - start:.0f} s)", flush=True)
    with RESULTS.open("a") as f:
        f.write(json.dumps(results) + "\n")


def compare_losses(path: str, steps: int = 2000, rows: int = 4) -> None:
    """Two models with the same weights on the same batches, in bf16 and in fp8: their loss over the last hundred
    steps, and their validation loss in bf16."""
    taken = 0

    def set_lr(optimiser: Optimiser) -> None:
        optimiser.set_lr(ADAM.lr * min(1, taken / 100) * (0.55 + 0.45 * math.cos(math.pi * taken / steps)))

    ids = torch.from_numpy(np.load(path).astype(np.int32)).cuda()
    windows = (len(ids) - 1) // LENGTH - 64
    starts = np.random.default_rng(0).integers(0, windows * LENGTH - 1, (steps, rows))
    places = torch.arange(LENGTH + 1, device="cuda")
    models = {precision: ours(precision, set_lr, compiled=False) for precision in ("bf16", "fp8")}
    losses: dict[str, list[torch.Tensor]] = {precision: [] for precision in models}

    def mean(precision: str) -> float:
        return torch.stack(losses[precision][-100:]).mean().item()

    for at in torch.from_numpy(starts).cuda():
        taken += 1
        batch = ids[at[:, None] + places].long()
        for precision, (_, step) in models.items():
            losses[precision].append(step(batch))
        if taken % 200 == 0:
            print(f"step {taken}: bf16 {mean('bf16'):.4f}, fp8 {mean('fp8'):.4f}", flush=True)
    valid = [Tokens(ids=ids[(windows + i) * LENGTH :][: LENGTH + 1].long()[None]) for i in range(64)]
    line: dict[str, Any] = dict(bench="gpt2-124M-fp8-against-bf16", steps=steps, rows=rows)
    for precision, (model, _) in models.items():
        with torch.autocast("cuda", torch.bfloat16):
            scores = NextToken().held_out(model, valid)
        line[precision] = dict(train=round(mean(precision), 4), valid=round(scores["loss"], 4))
    print(line, flush=True)
    with RESULTS.open("a") as f:
        f.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    if "loss" in sys.argv:
        compare_losses(sys.argv[-1])
        sys.exit()
    rates([64, 128])
    if "rates" not in sys.argv:
        torch.cuda.empty_cache()
        parity()
