"""The precision of a step's products. Weights and optimiser are fp32 in all of them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from regard.nn.fp8 import Fp8

PRECISIONS: dict[str, Callable[[torch.device], AbstractContextManager]] = {
    "fp32": lambda _: nullcontext(),
    "bf16": lambda device: torch.autocast(device.type, torch.bfloat16),
    "fp8": Fp8,
}
