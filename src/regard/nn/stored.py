"""How a CPU stores the weights of a model for inference: as they are (fp32), in fp16, or in int8."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from regard.errors import ConfigError
from regard.nn.half import HalfLinear, in_range
from regard.nn.linear import PLAIN, head_of
from regard.nn.lora import LoraLinear
from regard.nn.quantised import Int8Linear

Stored = HalfLinear | Int8Linear
STORES: dict[str, Callable[[Tensor, Tensor | None], Stored]] = {"fp16": HalfLinear, "int8": Int8Linear.from_linear}
WEIGHTS = ("fp32", *STORES)


@dataclass(frozen=True)
class Report:
    """The names of the layers that were replaced, and the bytes of the whole model before and after."""

    names: list[str]
    before: int
    after: int


def check_weights(weights: str) -> None:
    if weights not in WEIGHTS:
        raise ConfigError(f"no weights {weights!r}; there are: {', '.join(WEIGHTS)}")


def store_(model: nn.Module, weights: str) -> Report:
    """Store every linear layer of `model`, and the head of a text generator, as `weights`, "fp16" or "int8".

    Embeddings, norms and the patches of an image stay; so does a layer with weights that fp16 cannot hold.
    """
    store, fits = STORES[weights], in_range if weights == "fp16" else lambda _: True
    before = sum(p.nbytes for p in model.parameters())
    linears = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    for name, linear in linears.items():
        if isinstance(linear, LoraLinear):
            raise ConfigError(f"{name} is a LoraLinear, not a plain linear layer; merge_(model) first")
    small: dict[str, Stored] = {}
    for name, linear in linears.items():
        if type(linear).forward in PLAIN and fits(linear.weight):
            small[name] = store(linear.weight, linear.bias)
            small[name].parts = list(getattr(linear, "parts", [linear.out_features]))
            model.set_submodule(name, small[name])
    lm: Any = model
    if hasattr(model, "stored_head") and fits(lm.head):
        lm.stored_head = small["head"] = store(*head_of(lm))
    model.requires_grad_(False)
    after = sum(p.nbytes for p in model.parameters()) + sum(m.nbytes for m in small.values())
    return Report(list(small), before, after)


def is_stored(model: nn.Module) -> bool:
    """Whether some of the model's weights are in fp16 or int8."""
    return any(isinstance(m, Stored) for m in model.modules())
