"""The engine of `regard serve` without HTTP: requests of any length, all at once and as a Poisson stream.

    python bench/serve_engine.py                    # GPT-2 124M in bf16 on a GPU, 512 requests; 80 seconds
    python bench/serve_engine.py --requests 16      # on a CPU, in fp32

Compared with transformers' `generate` on batches of 64 sorted by the length of their outputs, which is unknown in
practice, and with our own static batches: of the same requests, and of texts that all have the mean number of tokens,
so that no row ever waits for another. Random weights.
"""

import argparse
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from _common import report
from gpt_decode import VOCAB, reference, weights

from regard.generate.engine import Engine, Sampling
from regard.generate.scheduler import Scheduler

PROMPT, OUTPUT = (32, 512), (16, 256)
CAPACITY = 768
BATCH = 64  # of transformers
Requests = list[tuple[list[int], int]]  # ids, and how many to write


def make_requests(count: int) -> Requests:
    rng = random.Random(0)
    sizes = [(rng.randint(*PROMPT), rng.randint(*OUTPUT)) for _ in range(count)]
    return [([rng.randrange(VOCAB) for _ in range(prompt)], output) for prompt, output in sizes]


def sync() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Run:
    """Requests through a scheduler, each added at its time: total seconds, and seconds to the first token of each."""

    def __init__(self, scheduler: Scheduler, requests: Requests, moments: Sequence[float]):
        self.texts: dict[int, list[int]] = defaultdict(list)
        self.waits: list[float] = []
        sync()
        begin = time.perf_counter()
        came: dict[int, float] = {}
        waiting = [*zip(moments, requests, strict=True)][::-1]
        keys = []
        while waiting or scheduler.active:
            now = time.perf_counter() - begin
            while waiting and waiting[-1][0] <= now:
                moment, (prompt, tokens) = waiting.pop()
                keys.append(scheduler.add(prompt, Sampling(max_tokens=tokens, temperature=0.0)))
                came[keys[-1]] = moment
            if not scheduler.active:
                time.sleep(max(0.0, waiting[-1][0] - now))
                continue
            for event in scheduler.step():
                if event.row not in self.texts:
                    self.waits.append(time.perf_counter() - begin - came[event.row])
                self.texts[event.row] += event.ids
        sync()
        self.seconds = time.perf_counter() - begin
        self.outputs = [self.texts[key] for key in keys]
        assert [len(text) for text in self.outputs] == [tokens for _, tokens in requests]


def where_time_goes(scheduler: Scheduler, requests: Requests) -> str:
    """Milliseconds of the parts of a run, with the host waiting for each."""
    spent: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)

    def timed(name: str) -> None:
        work = getattr(scheduler, name)

        def run(*args: Any) -> Any:
            begin = time.perf_counter()
            result = work(*args)
            sync()
            spent[name] += time.perf_counter() - begin
            calls[name] += 1
            return result

        setattr(scheduler, name, run)

    for name in ("compact", "admit", "read_prompts", "decode"):
        timed(name)
    whole = Run(scheduler, requests, [0.0] * len(requests)).seconds
    for name in spent:
        delattr(scheduler, name)
    parts = [f"{name} {1000 * spent[name]:.0f} ({calls[name]} calls)" for name in spent]
    rest = whole - spent["compact"] - spent["read_prompts"] - spent["decode"]
    return f"milliseconds, waiting after each: all {1000 * whole:.0f}; {', '.join(parts)}, rest {1000 * rest:.0f}"


def static(engine: Engine, requests: Requests, even: bool) -> float:
    """Seconds of static batches: `even` texts all have the mean length, others the requested one."""
    lengths = [tokens for _, tokens in requests]
    made = [0] * len(requests)

    def enough(row: int, _: int) -> bool:
        made[row] += 1
        return made[row] == lengths[row]

    sync()
    begin = time.perf_counter()
    most = round(statistics.mean(lengths)) if even else max(lengths)
    settings = Sampling(max_tokens=most, temperature=0.0)
    engine.generate([prompt for prompt, _ in requests], settings, None if even else enough)
    sync()
    return time.perf_counter() - begin


def transformers(model: Any, requests: Requests, device: torch.device) -> float:
    """Seconds of `generate` on batches sorted by output length, padded on the left."""
    ordered = sorted(requests, key=lambda request: (request[1], len(request[0])))
    sync()
    begin = time.perf_counter()
    for start in range(0, len(ordered), BATCH):
        batch = ordered[start : start + BATCH]
        longest, new = max(len(prompt) for prompt, _ in batch), max(tokens for _, tokens in batch)
        pads = [longest - len(prompt) for prompt, _ in batch]
        ids = torch.tensor([[0] * pad + prompt for pad, (prompt, _) in zip(pads, batch, strict=True)]).to(device)
        mask = (torch.arange(longest) >= torch.tensor(pads)[:, None]).long().to(device)
        model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=new, min_new_tokens=new)
    sync()
    return time.perf_counter() - begin


@torch.inference_mode()
def compare_texts(model: Any, requests: Requests, slots: int) -> None:
    """How many texts equal those of a request alone, and how close the two words are where others first differ."""
    few = requests[:16]
    engine, near = Engine(model), []
    alone = [engine.generate([p], Sampling(max_tokens=n, temperature=0.0))[0][0].ids for p, n in few]
    scheduler = Scheduler(model, slots=slots, capacity=CAPACITY)
    together = Run(scheduler, few, [0.02 * i for i in range(len(few))]).outputs
    for (prompt, _), one, other in zip(few, alone, together, strict=True):
        place = next((i for i, (x, y) in enumerate(zip(one, other, strict=True)) if x != y), -1)
        if place >= 0:
            ids = torch.tensor([prompt + one[:place]], device=model.token.weight.device)
            logits = model.logits(model(ids)[:, -1])[0].float()
            gap = (logits[one[place]] - logits[other[place]]).abs()
            near.append(float(gap / logits.abs().max() / torch.finfo(model.token.weight.dtype).eps))
    print(
        f"{model.token.weight.dtype}: {len(few) - len(near)} of {len(few)} texts are those of each request alone",
        end="",
    )
    print(f"; the others differ first where two words are {max(near):.1f} roundings apart or less" if near else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--slots", type=int, nargs="+", default=[64])
    parser.add_argument("--ours", action="store_true", help="leave transformers out")
    args = parser.parse_args()
    gpu = torch.cuda.is_available()
    device = torch.device("cuda" if gpu else "cpu")
    requests, model = make_requests(args.requests), weights().to(device)
    tokens = sum(n for _, n in requests)
    if gpu:
        compare_texts(model, requests, 16)
        model = model.bfloat16()
        compare_texts(model, requests, 16)
    theirs: dict[str, list[float]] = {}
    if not args.ours:
        published = reference(weights()).to(device, model.token.weight.dtype)
        transformers(published, requests[:BATCH], device)  # warm
        theirs = {"transformers": [transformers(published, requests, device)]}
        del published
        print(f"transformers: {tokens / theirs['transformers'][0]:,.0f} tokens/s", flush=True)
    at_once = [0.0] * len(requests)
    for slots in args.slots:
        engine, scheduler = Engine(model, batch=slots), Scheduler(model, slots=slots, capacity=CAPACITY)
        for _ in range(2 if gpu else 1):  # warm
            Run(scheduler, requests, at_once)
            static(engine, requests, True)
            static(engine, requests, False)
        times: dict[str, list[float]] = defaultdict(list)
        waits: list[float] = []
        for _ in range(3 if gpu else 1):
            times["at_once"].append(Run(scheduler, requests, at_once).seconds)
            times["static_even"].append(static(engine, requests, True))
            times["static_ragged"].append(static(engine, requests, False))
            rng, moments = random.Random(1), [0.0]
            for _ in requests[1:]:
                moments.append(moments[-1] + rng.expovariate(len(requests) / min(times["at_once"])))
            stream = Run(scheduler, requests, moments)
            times["poisson"].append(stream.seconds)
            waits += stream.waits
        last = sorted(waits)[int(0.95 * len(waits))]
        print(
            f"{slots} slots, Poisson: first token after {statistics.median(waits):.3f} s (median), {last:.3f} s (95 %)"
        )
        print(where_time_goes(scheduler, requests))
        order = ("at_once", "poisson", "static_even", "static_ragged")
        report(f"serve-engine-{slots}slots", device.type, "tokens/s", tokens, **{n: times[n] for n in order}, **theirs)
        shares = [f"{min(times[name]) / min(times['at_once']):.0%} of {name}" for name in order[2:]]
        print(f"at once: {', '.join(shares)}", flush=True)
        del engine, scheduler


if __name__ == "__main__":
    main()
