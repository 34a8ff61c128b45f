"""The cost of a model: its parameters by part, and the memory of a training step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from regard.models.published import rows_of


def parameters_by_part(model: nn.Module) -> dict[str, int]:
    """The number of parameters of each top-level part; shared weights are counted once, and padding rows of the
    vocabulary not at all."""
    parts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = name.split(".", 1)[0]
        parts[part] = parts.get(part, 0) + parameter[: rows_of(model, name)].numel()
    return parts


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one training step, estimated without the kernels' scratch space and the allocator's slack."""

    weights: int
    gradients: int
    optimiser: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimiser + self.activations


def training_memory(
    make: Callable[[], tuple[nn.Module, Any]], loss: Callable[[nn.Module, Any], Tensor], *, momenta: int, bf16: bool
) -> Memory:
    """Count what the backward pass would keep, on fake tensors, so that nothing is computed or allocated.

    `make` returns a model and a batch; `momenta` is how many numbers the optimiser keeps per weight (Adam 2, Muon 1).
    """
    kept: dict[int, torch.UntypedStorage] = {}  # by address; holding them keeps addresses from being reused

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage
        return tensor

    with FakeTensorMode():
        model, batch = make()
        model.train()
        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t)
        with hooks, torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            total = loss(model, batch)
        owned = {p.untyped_storage()._cdata for p in model.parameters()}
        activations = sum(storage.nbytes() for address, storage in kept.items() if address not in owned)
        del total  # it kept the graph alive, and with it every address
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return Memory(weights=weights, gradients=trained, optimiser=momenta * trained, activations=activations)


def readable(size: float) -> str:
    """Bytes with a unit."""
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size = size / 1000
    return f"{size:.1f} GB"
