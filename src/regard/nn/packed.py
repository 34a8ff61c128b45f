"""Linear layers with weights packed once for a CPU's kernels, not at every call: the same values, slightly faster."""

import copy
from typing import Any, TypeVar

from torch import Tensor, nn

from regard.nn.blocks import FeedForward
from regard.nn.linear import OPS, PLAIN, by_onednn, head_of

M = TypeVar("M", bound=nn.Module)


class PackedLinear(nn.Module):
    """x Wᵀ + b, for inference; `then`, "gelu" or "relu", is computed with it. Holds no parameters."""

    def __init__(self, weight: Tensor, bias: Tensor | None, then: str = "none"):
        super().__init__()
        self.then, self.bias = then, None if bias is None else bias.detach()
        self.parts = [len(weight)]  # as a FusedLinear has
        self.weight: Any = OPS._reorder_linear_weight(weight.detach().contiguous())

    @classmethod
    def of(cls, linear: nn.Linear, then: str = "none") -> "PackedLinear":
        made = cls(linear.weight, linear.bias, then)
        made.parts = getattr(linear, "parts", made.parts)
        return made

    def forward(self, x: Tensor) -> Tensor:
        return by_onednn(x, self.weight, self.bias, self.then)


def packed(model: M) -> M:
    """A copy of `model` for inference. It shares all but the linear layers, and does not see later changes to those."""
    shared = {id(t): t for t in (*model.parameters(), *model.buffers())}
    twin = copy.deepcopy(model, shared)
    pack_(twin)
    return twin


def pack_(model: nn.Module) -> None:
    """Pack the linear layers of `model` in place, and the head of a text generator, for inference only: it can no
    longer be trained or saved."""
    for part in list(model.modules()):
        if isinstance(part, FeedForward) and isinstance(part.up, nn.Linear) and (then := fused(part.act)):
            part.set_submodule("up", PackedLinear.of(part.up, then))
            part.set_submodule("act", nn.Identity())
    linears = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    for name, linear in linears.items():
        if type(linear).forward in PLAIN:
            model.set_submodule(name, PackedLinear.of(linear))
    lm: Any = model
    if getattr(model, "stored_head", model) is None:
        lm.stored_head = PackedLinear(*head_of(lm))


def fused(act: nn.Module) -> str:
    """The name of an activation that oneDNN computes with the product before it, or ""."""
    if isinstance(act, nn.GELU):
        return "gelu" if act.approximate == "none" else ""
    return "relu" if isinstance(act, nn.ReLU) else ""
