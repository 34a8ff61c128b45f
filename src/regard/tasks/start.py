"""A model that starts from another one: its weights, LoRA, and frozen parts."""

import fnmatch
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from regard.data.folders import Say
from regard.errors import ConfigError
from regard.models.vit import ViTConfig, interpolated
from regard.nn.lora import add_lora_
from regard.words import count


def begin_(model: Any, theirs: Mapping[str, Tensor], leave_out: Collection[str] = ()) -> list[str]:
    """Copy all tensors, except the modules in `leave_out`; returns the modules that were not copied."""
    mine = model.state_dict()
    copied = {name: t for name, t in theirs.items() if name in mine and name.split(".")[0] not in leave_out}
    if mismatched := next((name for name, t in copied.items() if t.shape != mine[name].shape), ""):
        raise ConfigError(
            f"{mismatched} has the shape {tuple(mine[mismatched].shape)}, in the model to start from "
            f"{tuple(copied[mismatched].shape)}; fine-tuning keeps a model's sizes"
        )
    model.load_state_dict({name: copied.get(name, tensor) for name, tensor in mine.items()})
    return sorted({name.split(".")[0] for name in mine if name not in copied})


def state_of(started: Any, config: Any) -> dict[str, Tensor]:
    """The weights of a model to start from; a ViT's positions are interpolated to the image size of `config`.

    Dosovitskiy et al. 2021, section 3.2.
    """
    state = started.state_dict()
    if isinstance(config, ViTConfig) and config.positions == "learned" and started.config.grid != config.grid:
        state["place.table"] = interpolated(state["place.table"], config.tokens, config.grid)
    return state


def with_types(state: dict[str, Tensor], types: int) -> dict[str, Tensor]:
    """The weights with a table of `types` segments. A model whose segments tell first from second texts begins with
    the first one for all."""
    table = state.get("sentence.weight")
    if table is None or len(table) == types:
        return state
    return state | {"sentence.weight": table[:1].repeat(types, 1)}


def freeze_(model: Any, run: Any, heads: Collection[str], say: Say, targets: tuple[str, ...] = ("*",)) -> None:
    """Freeze all but what the run trains: with LoRA its matrices and the `heads`, for a probe the heads alone."""
    if run.lora:
        torch.manual_seed(run.seed)
        names = add_lora_(model, run.lora, alpha=2.0 * run.lora, targets=targets)
        model.saves_trained = not run.merge  # unmerged, frozen weights are the base's and not saved again
        but = " but the head" if heads else ""
        say(f"LoRA of rank {run.lora} on {count(len(names), 'matrix', 'matrices')}; everything else{but} is frozen")
    if run.frozen:
        model.requires_grad_(False)
        say("the encoder is frozen; only a linear head is trained")
    if run.lora or run.frozen:
        for name, p in model.named_parameters():
            if name.split(".")[0] in heads:
                p.requires_grad_(True)
    for pattern in run.freeze:
        names = [name for name, _ in model.named_parameters() if fnmatch.fnmatchcase(name, pattern)]
        if not names:
            some = ", ".join(sorted({name.split(".")[0] for name, _ in model.named_parameters()}))
            raise ConfigError(f"freeze: no parameter is named like {pattern!r}; the parts of the model are: {some}")
        for name in names:
            model.get_parameter(name).requires_grad_(False)
    if run.freeze and not any(p.requires_grad for p in model.parameters()):
        raise ConfigError("freeze leaves nothing to train; leave out some of its patterns")
