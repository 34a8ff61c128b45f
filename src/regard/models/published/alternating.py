"""Local layers with every n-th global, as the settings of ModernBERT and Gemma 3 describe them."""

from typing import Any

from regard.errors import CheckpointError

LOCAL, GLOBAL = "sliding_attention", "full_attention"


def layer_types(layers: int, global_every: int, first: bool) -> list[str]:
    """Of every `global_every` layers, the first is global if `first`, otherwise the last."""
    at = 0 if first else global_every - 1
    return [GLOBAL if number % global_every == at else LOCAL for number in range(layers)]


def alternating_settings(config: Any, first: bool) -> dict[str, Any]:
    thetas = {LOCAL: config.local_theta, GLOBAL: config.theta}
    return {
        "layer_types": layer_types(config.layers, config.global_every, first),
        "rope_parameters": {name: {"rope_type": "default", "rope_theta": theta} for name, theta in thetas.items()},
    }


def alternating_fields(
    values: dict[str, Any], where: str, first: bool, every: int, thetas: dict[str, Any]
) -> dict[str, Any]:
    """Our fields; `every` and `thetas`, by type of layer, are for older files without layer_types."""
    rope = values.get("rope_parameters") or {}
    for scaled in (values.get("rope_scaling") or {}, *(part for part in rope.values() if isinstance(part, dict))):
        if (rope_type := scaled.get("rope_type", "default")) != "default":
            raise CheckpointError(f"{where}: rotary frequencies are scaled ({rope_type!r}); we read only plain ones")
    types, layers = values.get("layer_types"), values["num_hidden_layers"]
    if types and types != layer_types(layers, every, first):
        every = period(types, first)
        if types != layer_types(layers, every, first):
            raise CheckpointError(f"{where}: layer_types is irregular; we read models with every n-th layer global")
    theta, local = (float(rope.get(name, {}).get("rope_theta", thetas[name])) for name in (GLOBAL, LOCAL))
    return {"global_every": every, "theta": theta, "local_theta": local}


def period(types: list[str], first: bool) -> int:
    """The period of the global layers, as far as the list shows it."""
    places = [place for place, name in enumerate(types) if name == GLOBAL]
    if len(places) > 1:
        return places[1] - places[0]
    return len(types) + 1 if first or not places else places[0] + 1
