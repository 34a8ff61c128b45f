"""Linear layers with weights packed once for a CPU's kernels, not at every call: the same values, slightly faster."""

import copy
from typing import Any, TypeVar

from torch import Tensor, nn

from regard.nn.blocks import FeedForward
from regard.nn.linear import OPS, PLAIN, by_onednn

M = TypeVar("M", bound=nn.Module)


class PackedLinear(nn.Module):
    """x Wᵀ + b, for inference; `then="gelu"` fuses GELU. Holds no parameters."""

    def __init__(self, linear: nn.Linear, then: str = "none"):
        super().__init__()
        self.then, self.bias = then, None if linear.bias is None else linear.bias.detach()
        self.parts = getattr(linear, "parts", [linear.out_features])  # as a FusedLinear has
        self.weight: Any = OPS._reorder_linear_weight(linear.weight.detach().contiguous())

    def forward(self, x: Tensor) -> Tensor:
        return by_onednn(x, self.weight, self.bias, self.then)


def packed(model: M) -> M:
    """A copy of `model` for inference. It shares all but the linear layers, and does not see later changes to those."""
    shared = {id(t): t for t in (*model.parameters(), *model.buffers())}
    twin = copy.deepcopy(model, shared)
    pack_(twin)
    return twin


def pack_(model: nn.Module) -> None:
    """Pack the linear layers of `model` in place, for inference only: it can no longer be trained or saved."""
    for part in list(model.modules()):
        exact = isinstance(part, FeedForward) and isinstance(part.act, nn.GELU) and part.act.approximate == "none"
        if exact and isinstance(part.up, nn.Linear):
            part.set_submodule("up", PackedLinear(part.up, "gelu"))
            part.set_submodule("act", nn.Identity())
    linears = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    for name, linear in linears.items():
        if type(linear).forward in PLAIN:
            model.set_submodule(name, PackedLinear(linear))
