"""Large language models on one GPU: what torchrun costs, tokens/s, share of the matmul rate, and the largest that fits.

python bench/scale.py torchrun   # GPT-2 124M: the plain command, under torchrun, with checkpointing, with FSDP2
python bench/scale.py sizes      # GPT-2 350M, 774M and 1.5B at T=1024, each at its best micro-batch
python bench/scale.py 7b         # Llama 2 7B: weights, gradients and AdamW's moments in fp32 take 100 GiB
python bench/scale.py sizes large 48 64   # one size, with these micro-batches; "whole" compiles it as one graph

The step is that of `regard train` on random token ids, new ones in every step, so that the loss stays near the
logarithm of the vocabulary: a wide model memorises a repeated batch within six steps. Nothing is saved. Each
line is compared with `regard plan`. Without a GPU all of it runs on toy models, only as a check.
"""

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from typing import Any

import torch
import torch.distributed as dist

from regard.cli.plan import find_shape
from regard.data.batch import Tokens
from regard.data.settings import TextConfig
from regard.explain.fleet import DEVICES, GIB, Fleet, estimate
from regard.models import build, config_for
from regard.nn.products import fast_products
from regard.objectives.next_token import NextToken
from regard.training import placement
from regard.training.optim import Optimiser
from regard.training.parallel import World
from regard.training.parts import Parts
from regard.training.precision import PRECISIONS
from regard.training.progress import Progress
from regard.training.run import Run
from regard.training.settings import Optim, Parallel
from regard.training.step import Stepper

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
ADAM = Optim(name="adamw", lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, clip=1.0)
SHARED: dict[str, Any] = {"date": date.today().isoformat(), "torch": torch.__version__}


def main(part: str) -> None:
    torch.set_float32_matmul_precision("high")
    SHARED["machine"] = torch.cuda.get_device_name() if GPU else "CPU"
    if part == "torchrun":
        under_torchrun()
        return
    if part == "step":  # in a process that `torchrun` below starts
        one_step(sys.argv[2])
        return
    SHARED["matmul_tflops"] = round(matmul_rate(), 1)
    words = sys.argv[2:]
    chosen = tuple(int(word) for word in words if word.isdecimal())
    if "whole" in words:
        placement.DEEP = 1000
    if part == "sizes":
        for size, batches in {"medium": (64, 128), "large": (32, 64), "xl": (16, 24)}.items():
            if size in words or not {"medium", "large", "xl"} & {*words}:
                best_batch("gpt", size, 1024, chosen or batches)
    else:
        best_batch("llama", "llama2-7b", 4096, chosen or (4, 8), checkpoint=True)


def matmul_rate() -> float:
    """TFLOP/s of a large product, the best of several sizes: in bf16 on a GPU, in fp32 on a CPU."""
    rates = []
    for size in (4096, 8192, 16384) if GPU else (2048,):
        a, b = (torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16 if GPU else torch.float) for _ in range(2))
        with fast_products():
            a @ b
            rates.append(2 * size**3 / min(timed(lambda a=a, b=b: a @ b, 20)) / 1e12)
    return max(rates)


def timed(work: Callable[[], Any], repeat: int) -> list[float]:
    wait = torch.cuda.synchronize if GPU else lambda: None
    times = []
    for _ in range(repeat):
        wait()
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    return times


def config_of(arch: str, size: str, length: int) -> Any:
    if not GPU:
        return config_for(arch, "tiny", 97, task="lm", context=length, layers=4 if size == "gpt2" else 18)
    return config_for(arch, size, 50257 if arch == "gpt" else 32000, task="lm", context=length)


class Training:
    """The step of `regard train lm --set precision=bf16 --set compile=true` with a new model."""

    def __init__(
        self, config: Any, rows: int, length: int, checkpoint: bool = False, sharded: bool = False,
        precision: str = "bf16", compiled: bool = True,
    ):  # fmt: skip
        with torch.device(DEVICE):
            model = build(config).train()
        how = Parallel(checkpoint=checkpoint)
        data = TextConfig(context=length)
        shared: Any = dict(precision=precision, compile=compiled, optim=ADAM, parallel=how)
        run = Run(task="lm", model=config, data=data, steps=1, **shared)
        parts = Parts(run=run, model=model, objective=NextToken(), loader=[], valid_batches=list, save_model=print)  # pyrefly: ignore
        if sharded:
            held = placement.layout(placement.LossModule(model, parts.objective), World(), DEVICE, (1,), bf16=True)
            placement.compile_loss(model, parts.objective, by_block=True)
        else:
            held = placement.place(parts, World(), DEVICE)
        self.at, optimiser = Progress(), Optimiser(model, ADAM)
        self.step = Stepper(parts, optimiser, PRECISIONS[precision](DEVICE), self.at, DEVICE, print, World(), held)
        if sharded:
            self.step.work = self.step.exchanged
        self.vocab, self.shape = config.vocab, (rows, length + 1)
        self.tokens, self.parameters = rows * length, model.size()

    def batch(self) -> Tokens:
        return Tokens(ids=torch.randint(0, self.vocab, self.shape, device=DEVICE))

    def measure(self, repeat: int, steps: int) -> dict[str, Any]:
        """Times of groups of `steps` steps: training does not wait for the device between steps."""
        if GPU:
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        for _ in range(5):  # compiled, then recorded
            loss = self.step([self.batch()], self.tokens)[0]
        first = loss.item()
        warm = time.perf_counter() - start
        times = timed(lambda: [self.step([self.batch()], self.tokens) for _ in range(steps)], repeat)
        if self.at.limit:
            raise MemoryError("the batch was cut")
        last = self.step([self.batch()], self.tokens)[0].item()
        return dict(
            tokens_per_second=round(steps * self.tokens / min(times)),
            median_over_best=round(sorted(times)[len(times) // 2] / min(times), 3),
            peak_gib=round(torch.cuda.max_memory_allocated() / GIB, 2) if GPU else 0,
            warm_up_s=round(warm, 1), loss=[round(first, 3), round(last, 3)],
        )  # fmt: skip


def measured(arch: str, size: str, rows: int, length: int, repeat: int, steps: int, **how: bool) -> dict[str, Any]:
    """One line: what was measured, and the estimate of `regard plan`."""
    torch._dynamo.reset()
    line: dict[str, Any] = SHARED | dict(model=f"{arch} {size}", rows=rows, length=length) | how
    try:
        training = Training(config_of(arch, size, length), rows, length, **how)
        states = torch.cuda.memory_allocated() / GIB if GPU else 0.0
        line |= dict(parameters=training.parameters, weights_and_moments_gib=round(states, 2))
        line |= training.measure(repeat, steps)
    except Exception as e:
        line["failed"] = f"{type(e).__name__}: {e}"[:400]
    else:
        shape = find_shape(arch, size if GPU else "tiny", "", 50304 if arch == "gpt" else 32000, length)
        plan = estimate(shape, Fleet(device=DEVICES["h200"], gpus=1), "ddp", "checkpoint" in how, rows * length, rows)
        line |= dict(plan_tokens_per_second=round(plan.tokens_per_second), plan_gib=round(plan.memory.most / GIB, 2))
        if rate := SHARED.get("matmul_tflops"):
            achieved = line["tokens_per_second"] * shape.flops / 1e12
            full = line["tokens_per_second"] * (shape.flops + shape.attention_flops) / 1e12  # Chowdhery et al. 2022
            line |= dict(of_matmul=round(achieved / rate, 4), of_matmul_palm=round(full / rate, 4))
    print(json.dumps(line), flush=True)
    training = None
    gc.collect()
    if GPU:
        torch.cuda.empty_cache()
    return line


def best_batch(arch: str, size: str, length: int, batches: tuple[int, ...], **how: bool) -> None:
    """Each micro-batch in turn, until one does not fit or is slower than the one before."""
    length, best = length if GPU else 32, 0
    for rows in batches if GPU else batches[:1]:
        line = measured(arch, size, rows if GPU else 2, length, 3, 3, **how)
        if (rate := line.get("tokens_per_second", 0)) <= best:
            return
        best = rate


def under_torchrun() -> None:
    """The same step in a plain process and under torchrun, in turn; then the others under torchrun."""
    here = [sys.executable, __file__, "step"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", *here[1:]]
    rates: dict[str, float] = {}
    for name, command in {"plain": [*here, "plain"], "torchrun": [*torchrun, "all"]}.items():
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        for line in filter(lambda text: text.startswith("{"), done.stdout.splitlines()):
            print(json.dumps({"under": name} | json.loads(line)), flush=True)
            rates.setdefault(name, json.loads(line).get("tokens_per_second", 0))
    if all(rates.values()) and len(rates) == 2:
        print(json.dumps(SHARED | {"torchrun_costs": round(1 - rates["torchrun"] / rates["plain"], 4)}), flush=True)


def one_step(which: str) -> None:
    rows, length = (64, 1024) if GPU else (2, 32)
    measured("gpt", "gpt2", rows, length, 5, 8)
    if which == "all":
        measured("gpt", "gpt2", rows, length, 3, 5, checkpoint=True)
        if GPU:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl" if GPU else "gloo")
        measured("gpt", "gpt2", rows, length, 3, 5, sharded=True)
        dist.destroy_process_group()


if __name__ == "__main__":
    for name in sys.argv[1:2] or ("torchrun", "sizes", "7b"):
        main(name)
