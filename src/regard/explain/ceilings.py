"""Measure this machine's matrix products and memory, for `regard plan --measure`."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from regard.explain.fleet import BANDWIDTH, DEVICES, Device

TRAINING = 0.95  # of the rate of one large product, sustained by those of a training step
SECONDS = 1.0  # per measurement, about


def measure() -> Device:
    """The first GPU, or without one the CPU with torch's threads; the links are assumed to be an H200's."""
    cuda = torch.cuda.is_available()
    device, dtype = ("cuda", torch.bfloat16) if cuda else ("cpu", torch.float32)
    size = 8192 if cuda else 1024
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    products = 2 * size**3 / best(lambda: a @ b, cuda)
    data = torch.zeros((1 << 30) if cuda else (1 << 26), device=device, dtype=torch.uint8)
    copied = torch.empty_like(data)
    bandwidth = 2 * data.numel() / best(lambda: copied.copy_(data), cuda)
    memory = torch.cuda.get_device_properties(0).total_memory if cuda else float(total_memory())
    peak = named_peak(torch.cuda.get_device_name()) if cuda else 0.0
    base = DEVICES["h200"]
    return replace(
        base, peak=peak or products, sustained=TRAINING * products, memory=memory, memory_rate=bandwidth / BANDWIDTH
    )


def best(work: Callable[[], Any], cuda: bool) -> float:
    """Seconds of the fastest of many calls."""
    wait = torch.cuda.synchronize if cuda else lambda: None
    work()
    wait()
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    return min(times)


def named_peak(name: str) -> float:
    """The peak in the data sheet, in FLOP/s; 0 if the device is not in the table."""
    from regard.training.peaks import PEAKS

    return 1e12 * next((peak for part, peak in PEAKS.items() if part in name), 0.0)


def total_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
