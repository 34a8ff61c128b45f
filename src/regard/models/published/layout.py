"""A published way to write a model down: what its settings and its weights are called."""

from typing import Any

from torch import Tensor


class Layout:
    name: str  # model_type in config.json

    def fits(self, config: Any) -> bool:
        """Whether a model of ours is exactly one of these."""
        raise NotImplementedError

    def to_config(self, config: Any, eos: int | None) -> dict[str, Any]:
        """config.json; `eos` is the id that ends a text."""
        raise NotImplementedError

    def from_config(self, values: dict[str, Any], where: str) -> Any:
        """Our config; `CheckpointError` for what we do not compute."""
        raise NotImplementedError

    def seen(self, config: Any, published: dict[str, Tensor]) -> Any:
        """Our config, once the weights have told what config.json leaves open."""
        return config

    def to_weights(self, state: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
        """Our names to theirs."""
        raise NotImplementedError

    def from_weights(self, published: dict[str, Tensor], wanted: list[str], config: Any) -> dict[str, Tensor]:
        """Theirs to ours, for the `wanted` names; `KeyError` for one that is missing, `RuntimeError` for too many."""
        raise NotImplementedError
