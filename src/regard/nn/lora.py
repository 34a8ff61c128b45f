"""LoRA (Hu et al. 2021): W is frozen, and the learned update has low rank: y = W x + (α/r) B A x.

A is r x in and random, B is out x r and zero, so training starts from the model's own outputs. `merge_` adds the
product to W: a merged model is a plain one, no slower and no larger.
"""

import fnmatch
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.nn.dropout import Dropout


class LoraLinear(nn.Linear):
    """A linear layer plus a low-rank one. `weight` and `bias` are those of `base`, under their old names.

    Each part of a fused layer has its own A and B, stacked like the parts: for q, k and v in one product this is LoRA
    on q, on k and on v. They share the dropout of their input.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float, dropout: float = 0.0):
        nn.Module.__init__(self)
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias = base.weight, base.bias
        self.base = (base,)  # in a tuple, so that it is not part of the model: `merge_` puts it back
        self.parts: list[int] = list(getattr(base, "parts", [base.out_features]))
        self.rank, self.scale = rank, alpha / rank
        self.drop = Dropout(dropout)
        self.A = nn.Parameter(base.weight.new_empty(len(self.parts) * rank, base.in_features))
        self.B = nn.Parameter(base.weight.new_zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))  # torch's init of a Linear; depends on `in` alone
        self.train(base.training)

    def forward(self, x: Tensor) -> Tensor:
        low = F.linear(self.drop(x), self.A).split(self.rank, -1)  # … r for each part
        updates = [F.linear(a, b) for a, b in zip(low, self.B.split(self.parts), strict=True)]
        return super().forward(x) + self.scale * (updates[0] if len(updates) == 1 else torch.cat(updates, -1))

    @torch.no_grad()
    def merged(self) -> Tensor:
        """W + (α/r) B A, computed in float64 and rounded once: out in."""
        A, B = self.A.double().split(self.rank), self.B.double().split(self.parts)
        low = torch.cat([b @ a for a, b in zip(A, B, strict=True)])
        return (self.weight.double() + self.scale * low).to(self.weight.dtype)


def add_lora_(
    model: nn.Module, rank: int, alpha: float, dropout: float = 0.0, targets: tuple[str, ...] = ("*",)
) -> list[str]:
    """Freeze the model and add trainable low-rank updates to its linear layers; returns the names of these layers.

    `targets` are patterns of dotted names, such as `*.attention.*`. Embeddings, and heads tied to them, stay frozen.
    """
    if rank < 1 or not alpha > 0 or not 0 <= dropout < 1:
        raise ConfigError(
            f"LoRA of rank {rank}, alpha {alpha} and dropout {dropout}; "
            "expected a rank of at least 1, an alpha above 0, and a dropout in [0, 1)"
        )
    if adapters(model):
        raise ConfigError("this model already has LoRA; merge it first: merge_(model)")
    linears = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear) and name}
    names = [name for name in linears if any(fnmatch.fnmatchcase(name, pattern) for pattern in targets)]
    if not names:
        some = ", ".join(list(linears)[:4]) + (", …" if len(linears) > 4 else "")
        raise ConfigError(
            f"no linear layer is named like {' or '.join(map(repr, targets))}; "
            + (f"there are: {some}" if linears else f"a {type(model).__name__} has none, so train all of it")
        )
    if rank > (most := max(min(linears[name].weight.shape) for name in names)):
        raise ConfigError(f"LoRA of rank {rank}; the matrices it is added to have a rank of at most {most}")
    model.requires_grad_(False)
    for name in names:
        model.set_submodule(name, LoraLinear(linears[name], rank, alpha, dropout))
    return names


def merge_(model: nn.Module) -> None:
    """Merge the low-rank updates into the weights: the original layers and names, all trainable again."""
    for name, lora in adapters(model).items():
        (base,) = lora.base
        lora.weight.data.copy_(lora.merged())
        base.weight, base.bias = lora.weight, lora.bias  # they may have moved to another device since
        model.set_submodule(name, base.train(lora.training))
    model.requires_grad_(True)


def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """The `state_dict` after `merge_`, without changing the model. Tensors that merging does not change are shared."""
    state, lora_maps = model.state_dict(), adapters(model)
    merged = {f"{name}.weight": lora.merged() for name, lora in lora_maps.items()}
    own = {f"{name}.{letter}" for name in lora_maps for letter in "AB"}
    return {name: merged.get(name, tensor) for name, tensor in state.items() if name not in own}


def adapters(model: nn.Module) -> dict[str, LoraLinear]:
    return {name: m for name, m in model.named_modules() if isinstance(m, LoraLinear)}
