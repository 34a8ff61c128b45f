"""A published layout as tables: the names of its settings and tensors, and what our model cannot compute.

A layout is a subclass that fills in the tables. What a table cannot express (a transposed matrix, a setting derived
from two others) overrides the method it concerns.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.errors import CheckpointError

Names = str | tuple[str, ...]
ACTIVATIONS = {"silu": "swish", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh"}
ACTIVATIONS["quick_gelu"] = "quick-gelu"  # theirs to ours
PUBLISHED_ACTIVATIONS = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
MOST_LABELS = 1_000_000
COMMON = {  # settings with the same name in most layouts
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "ffn": "intermediate_size",
}


class Misfit(ValueError):
    """The tensors do not match the model that config.json describes."""


class Layout:
    name: str  # model_type in config.json
    architecture: str  # the class of transformers
    config: type[Any]  # ours
    settings: Mapping[str, Names]  # our field -> their name, or several that must agree
    optional: Collection[str] = ()  # our fields that a file may omit, which then have our defaults
    fixed: Mapping[str, Any] = {}  # written; a file with another value is refused
    written: Mapping[str, Any] = {}  # written, not read
    tensors: Mapping[str, Names]  # our module or tensor -> theirs, several for a fused layer; * is the layer's index
    transposed = False  # whether their linear layers are stored with the inputs first
    prefix = ""  # of their names, which some files leave out
    spare = "(?!)"  # a regular expression for tensors that are not read, such as copies of tied ones

    def classes(self) -> tuple[str, ...]:
        """The classes of transformers with this layout."""
        return (self.architecture,)

    def class_of(self, values: dict[str, Any], where: str) -> str:
        """The one of them named in config.json, by default `architecture`; `CheckpointError` for any other."""
        architecture = (values.get("architectures") or [self.architecture])[0]
        if architecture not in self.classes():
            names = ", ".join(dict.fromkeys(self.classes()))
            raise CheckpointError(f"{where}: {architecture} is not one we read; there are: {names}")
        return architecture

    def fits(self, config: Any) -> bool:
        """Whether this model of ours can be written in this layout."""
        return isinstance(config, self.config)

    # -- config.json ----------------------------------------------------------------------------------------------

    def to_config(self, config: Any, eos: int | None) -> dict[str, Any]:
        """config.json; `eos` is the id that ends a text."""
        values: dict[str, Any] = {"model_type": self.name, "architectures": [self.architecture]}
        for field, names in self.settings.items():
            value = getattr(config, field)
            value = PUBLISHED_ACTIVATIONS.get(value, value) if field == "activation" else value
            values |= dict.fromkeys(several(names), value)
        return {**values, **self.fixed, **self.written, **self.extra_settings(config, eos), "dtype": "float32"}

    def extra_settings(self, config: Any, eos: int | None) -> dict[str, Any]:
        """Their settings that no table can derive from ours."""
        return {}

    def from_config(self, values: dict[str, Any], where: str) -> Any:
        """Our config; `CheckpointError` for what we do not compute, `KeyError` for a setting that is missing."""
        check_fixed(values, self.fixed, where)
        fields = {}
        for field, names in self.settings.items():
            if field in self.optional and not values.keys() & several(names):
                continue
            first, *others = (values[name] for name in several(names))
            if any(other != first for other in others):
                raise CheckpointError(f"{where}: {' and '.join(names)} differ; we read only equal ones")
            fields[field] = ACTIVATIONS.get(first, first) if field == "activation" else first
        return self.config(**fields | self.extra_fields(values, where))

    def extra_fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        """Our fields that no table can derive from theirs."""
        return {}

    def complete(self, config: Any, published: dict[str, Tensor]) -> Any:
        """Our config, completed by what only the tensors show."""
        return config

    # -- model.safetensors ----------------------------------------------------------------------------------------

    def to_weights(self, state: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
        """Our tensors as theirs, by their names."""
        published = {}
        for name, tensor in state.items():
            names = self.names(name, config)
            pieces = tensor.split(self.rows(name, len(tensor), len(names), config)) if len(names) > 1 else [tensor]
            for their, piece in zip(names, pieces, strict=True):
                published[self.prefixed(their, config)] = self.to_theirs(name, piece, config).contiguous()
        return published

    def from_weights(self, published: dict[str, Tensor], expected: list[str], config: Any) -> dict[str, Tensor]:
        """Their tensors as ours, for the `expected` names; `Misfit` if some are missing or left over."""
        left = {new: t for name, t in published.items() if not self.ignored(new := self.current(name), config)}
        ours = {}
        for name in expected:
            names = self.names(name, config)
            if missing := [their for their in names if their not in left]:
                raise Misfit(f"it has no {missing[0]}")
            pieces = [left.pop(their) for their in names]
            ours[name] = self.to_ours(name, joined(pieces), config)
        if left:
            raise Misfit(f"unexpected tensors: {', '.join(sorted(left)[:3])}")
        return ours

    def names(self, name: str, config: Any) -> tuple[str, ...]:
        """Our name of a tensor -> their names, without the prefix."""
        index = re.search(r"(?<=\.)\d+(?=\.)", name)
        pattern = f"{name[: index.start()]}*{name[index.end() :]}" if index else name
        module, _, suffix = pattern.rpartition(".")
        if pattern in self.tensors:
            names = several(self.tensors[pattern])
        else:
            names = tuple(f"{their}.{suffix}" for their in several(self.tensors[module]))
        return tuple(their.replace("*", index[0]) for their in names) if index else names

    def rows(self, name: str, rows: int, pieces: int, config: Any) -> Any:
        """How many rows of a fused layer each of their tensors has: equally many."""
        return rows // pieces

    def prefixed(self, name: str, config: Any) -> str:
        return self.prefix + name

    def current(self, name: str) -> str:
        """A name in a file, possibly an old one -> the name in `tensors`."""
        return name.removeprefix(self.prefix)

    def ignored(self, name: str, config: Any) -> bool:
        return re.search(self.spare, name) is not None

    def to_theirs(self, name: str, tensor: Tensor, config: Any) -> Tensor:
        """The tensor with our `name`, in their shape."""
        return tensor

    def to_ours(self, name: str, tensor: Tensor, config: Any) -> Tensor:
        """The inverse of `to_theirs`."""
        return tensor


def joined(pieces: Sequence[Tensor]) -> Tensor:
    """The rows of all pieces. On the meta device `torch.cat` would import torch's compiler, which takes seconds."""
    if len(pieces) == 1 or not pieces[0].is_meta:
        return pieces[0] if len(pieces) == 1 else torch.cat(tuple(pieces))
    return pieces[0].new_empty((sum(map(len, pieces)), *pieces[0].shape[1:]))


def several(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def with_prefix(prefix: str, table: Mapping[str, Names], their_prefix: str) -> dict[str, Names]:
    """A table with a prefix on either side, such as `layers.*.` and `encoder.layer.*.`."""
    return {prefix + ours: tuple(their_prefix + name for name in several(names)) for ours, names in table.items()}


def check_fixed(values: dict[str, Any], fixed: Mapping[str, Any], where: str) -> None:
    for name, value in fixed.items():
        if values.get(name, value) != value:
            raise CheckpointError(f"{where}: {name} is {values[name]!r}, we read only {value!r}")


def label_settings(labels: tuple[str, ...]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}


def read_labels(values: dict[str, Any]) -> tuple[str, ...]:
    """The class names in the order of their indices; LABEL_0 and so on if they have none."""
    named = values.get("id2label") or {}
    if not named:
        if (count := values.get("num_labels", 2)) > MOST_LABELS:
            raise CheckpointError(f"num_labels is {count:,}; we read at most {MOST_LABELS:,}")
        return tuple(f"LABEL_{i}" for i in range(count))
    return tuple(str(label) for _, label in sorted((int(i), label) for i, label in named.items()))
