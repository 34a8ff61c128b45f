"""LoRA adapters without their base model, as PEFT stores them: adapter_config.json, adapter_model.safetensors.

PEFT's names are those of the published tensors, so an adapter is added to a model in its published layout.
"""

import math
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from regard.config import ADAPTER
from regard.errors import CheckpointError
from regard.jsonfile import read_json, write_json
from regard.models.published.layout import Layout
from regard.models.published.weights import read_file
from regard.nn.lora import LoraLinear, adapters

CONFIG = "adapter_config.json"
PREFIX = "base_model.model."  # of all of PEFT's names


def is_adapter(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and (folder / ADAPTER).is_file()


# -- out ------------------------------------------------------------------------------------------------------------


def write_adapter(folder: Path, model: nn.Module, layout: Layout | None, base: tuple[str, str], have: set[str]) -> None:
    """Write both files of a model with LoRA on the model that `base` names, with its revision ("": none).

    `have` are the tensors that it shares with that model; all others are written whole.
    """
    maps, tensors, ranks = adapters(model), {}, {}
    for name, lora in maps.items():
        for module, A, B in published_maps(name, lora, layout, model):
            tensors |= {f"{PREFIX}{module}.lora_A.weight": A, f"{PREFIX}{module}.lora_B.weight": B}
            ranks[module] = len(A)
    rank, scale = next((lora.rank, lora.scale) for lora in maps.values())
    others = {module: r for module, r in ranks.items() if r != rank}
    whole = whole_tensors(model, layout, have)
    settings = {
        "peft_type": "LORA",
        "base_model_name_or_path": base[0],
        "revision": base[1] or None,
        "task_type": None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": scale * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(ranks),
        "rank_pattern": others,
        "alpha_pattern": {module: scale * r for module, r in others.items()},
        "fan_in_fan_out": bool(layout and layout.transposed),
        "modules_to_save": sorted({name.rpartition(".")[0] for name in whole}) or None,
    }
    tensors |= {PREFIX + name: tensor for name, tensor in whole.items()}
    host = {name: tensor.detach().float().cpu().contiguous() for name, tensor in tensors.items()}
    write_json(folder / CONFIG, settings)
    (folder / ADAPTER).write_bytes(save(host, metadata={"format": "pt"}))


def published_maps(name: str, lora: LoraLinear, layout: Layout | None, model: Any) -> list[tuple[str, Tensor, Tensor]]:
    """Published module, A and B: one for each part of a fused layer, or one for all if theirs is fused too."""
    names = [f"{name}.weight"] if layout is None else theirs(f"{name}.weight", layout, model.config)
    modules = [their.removesuffix(".weight") for their in names]
    A, B = lora.A.split(lora.rank), lora.B.split(lora.parts)
    if len(modules) == len(A):
        return list(zip(modules, A, B, strict=True))
    return [(modules[0], lora.A, torch.block_diag(*B))]  # of rank n r: no part sees another's A


def theirs(name: str, layout: Layout, config: Any) -> list[str]:
    return [layout.prefixed(their, config) for their in layout.names(name, config)]


def whole_tensors(model: Any, layout: Layout | None, have: set[str]) -> dict[str, Tensor]:
    """By published name: layers trained in addition to LoRA, and tensors that the base does not have."""
    own = {f"{name}.{letter}" for name in adapters(model) for letter in "AB"}
    trained = {name.rpartition(".")[0] for name, p in model.named_parameters() if p.requires_grad and name not in own}
    state = {name: tensor for name, tensor in model.state_dict().items() if name not in own}
    kept = {n: t for n, t in state.items() if n not in have or n.rpartition(".")[0] in trained}
    return kept if layout is None else Layout.to_weights(layout, kept, model.config)  # without copies of tied weights


# -- in -------------------------------------------------------------------------------------------------------------


def base_of(folder: Path) -> str:
    """The adapter's base model: a folder, a name of the catalogue, or one of the hub with its revision."""
    settings = read_json(folder / CONFIG)
    name, revision = str(settings.get("base_model_name_or_path") or ""), settings.get("revision")
    if not name:
        raise CheckpointError(f"{folder / CONFIG}: there is no base_model_name_or_path; name the model it belongs to")
    return f"hf:{name}@{revision}" if revision else name


def with_adapter(published: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """The weights of a model with an adapter merged: W + (α/r) B A, computed in float64 and rounded once."""
    settings, tensors = read_json(folder / CONFIG), read_file(folder / ADAPTER)
    where = str(folder / CONFIG)
    if str(settings.get("peft_type", "LORA")).upper() != "LORA" or settings.get("use_dora"):
        what = "DoRA" if settings.get("use_dora") else settings["peft_type"]
        raise CheckpointError(f"{where}: a {what} adapter; we read only LoRA")
    result = dict(published)
    for key, A in tensors.items():
        name = re.sub(r"\.(default\.)?weight$", "", key.removeprefix(PREFIX))
        if name.endswith(".lora_B"):
            continue
        if not name.endswith(".lora_A"):
            result[matching(key.removeprefix(PREFIX), published, new=True)] = A
            continue
        module, B = name.removesuffix(".lora_A"), tensors.get(key.replace("lora_A", "lora_B"))
        if B is None or A.ndim != 2:
            raise CheckpointError(f"{folder / ADAPTER}: {key} has no lora_B, or is not a matrix; we read linear layers")
        weight = matching(f"{module}.weight", published)
        delta = scale_of(settings, module, len(A)) * (B.double() @ A.double())
        delta = delta.T if settings.get("fan_in_fan_out") else delta
        if delta.shape != published[weight].shape:
            got, expected = tuple(delta.shape), tuple(published[weight].shape)
            raise CheckpointError(f"{folder / ADAPTER}: {key} has the shape {got}, the model's matrix {expected}")
        result[weight] = (result[weight].double() + delta).to(published[weight].dtype)
    return result


def scale_of(settings: dict[str, Any], module: str, rank: int) -> float:
    patterns = settings.get("alpha_pattern") or {}
    alpha = next((a for p, a in patterns.items() if re.fullmatch(rf"(.*\.)?({p})", module)), settings["lora_alpha"])
    return alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)


def matching(name: str, published: dict[str, Tensor], new: bool = False) -> str:
    """The model's tensor that an adapter's `name` refers to; either may have an extra prefix."""
    candidates = [own for own in published if own == name or own.endswith(f".{name}") or name.endswith(f".{own}")]
    if not candidates and not new:
        raise CheckpointError(f"the adapter changes {name}, which the model does not have; is it for another model?")
    return name if name in published or not candidates else candidates[0]
