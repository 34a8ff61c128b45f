"""The linear maps of GPT-2 124M, each shape alone: fp32, torch's dynamic int8 (a scale for the whole batch), and ours.

python bench/int8_linear.py              # one thread, batch 1 and 8: microseconds, GB/s of weights, error, tokens/s
python bench/int8_linear.py 2 1 4 64     # two threads, batch 1, 4 and 64

FBGEMM_ENABLE_INSTRUCTIONS=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 in front measures as if the CPU
had no AVX-512. With one thread CPU time is taken, which a busy neighbour disturbs less.
"""

import sys
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.nn.quantised import Int8Linear

SHAPES = {"qkv": (768, 2304), "out": (768, 768), "up": (768, 3072), "down": (3072, 768), "head": (768, 50257)}
LAYERS, ROUNDS = 12, 30  # as many matrices of a shape as GPT-2 has: they do not stay in the cache
Map = Callable[[Tensor], Tensor]


def dynamic(linear: nn.Linear) -> Map:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(linear), {nn.Linear}, torch.qint8)


def build() -> dict[str, dict[str, list[Map]]]:
    torch.manual_seed(0)
    maps_of: dict[str, dict[str, list[Map]]] = {}
    for shape, (width, out) in SHAPES.items():
        linears = [nn.Linear(width, out) for _ in range(1 if shape == "head" else LAYERS)]
        maps_of[shape] = {
            "fp32": list(linears),
            "torch": [dynamic(x) for x in linears],
            "regard": [Int8Linear.from_linear(x.weight, x.bias) for x in linears],
        }
    return maps_of


@torch.inference_mode()
def measure(maps_of: dict[str, dict[str, list[Map]]], rows: int) -> None:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    total: dict[str, float] = {}
    for shape, (width, out) in SHAPES.items():
        x = torch.randn(rows, width)
        best: dict[str, float] = {}
        for _ in range(ROUNDS):
            for name, maps in maps_of[shape].items():  # in turn, so that a slow moment affects all
                start = clock()
                for f in maps:
                    f(x)
                best[name] = min(best.get(name, 1e9), (clock() - start) / len(maps))
        for name, maps in maps_of[shape].items():
            wanted = maps_of[shape]["fp32"][0](x)
            error = ((maps[0](x) - wanted).norm() / wanted.norm()).item()
            size = width * out * (4 if name == "fp32" else 1)
            speed = f"{best[name] * 1e6:8,.0f} us {size / best[name] / 1e9:6.1f} GB/s"
            print(f"batch {rows:2} {shape:5} {width:5} x {out:5} {name:7} {speed}   error {error:.4f}")
            total[name] = total.get(name, 0.0) + best[name] * len(maps)
    rates = [f"{name} {rows / t:,.0f} tokens/s ({total['fp32'] / t:.1f}x)" for name, t in total.items()]
    print(f"batch {rows:2} all linear maps: {' · '.join(rates)}", flush=True)


if __name__ == "__main__":
    numbers = [int(x) for x in sys.argv[1:]] or [1]
    torch.set_num_threads(numbers[0])
    maps = build()
    for rows in numbers[1:] or [1, 8]:
        measure(maps, rows)
