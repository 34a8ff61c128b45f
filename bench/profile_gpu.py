"""Where a GPU's time goes: the kernels of one call of a row of peers.py, and the time of a call without the profiler.

python bench/profile_gpu.py gpt2-train-fp8        # ours
python bench/profile_gpu.py gpt2-decode-64 transformers
"""

import sys
from collections import defaultdict

import torch
from _common import seconds
from peers import GPU
from torch.profiler import ProfilerActivity, profile

SHOWN = 30


def main(name: str, side: str) -> None:
    work, units = GPU[name].side(side or GPU[name].ours)
    wall = min(seconds(work, repeat=5, warm=6))
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        work()
        torch.cuda.synchronize()
    kernels: dict[str, list[float]] = defaultdict(list)
    for event in profiled.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels[event.name].append(event.device_time / 1e3)
    busy = sum(map(sum, kernels.values()))
    count = sum(map(len, kernels.values()))
    print(f"{name}: {wall * 1e3:.3f} ms a call, {units / wall:,.0f} units/s; {count} kernels take {busy:.3f} ms")
    for kernel, times in sorted(kernels.items(), key=lambda item: -sum(item[1]))[:SHOWN]:
        print(f"{sum(times):9.3f} ms {len(times):6} times {kernel[:100]}")


if __name__ == "__main__":
    main(sys.argv[1], *(sys.argv[2:] or [""]))
