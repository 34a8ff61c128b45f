"""The input of a model's first layer: the vectors of the tokens and of their positions, and their sum."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.nn.positions import Interleaved, Learned, Sinusoidal

ROWS = 32  # per response


@dataclass(frozen=True)
class Embedded:
    """The embedding and its summands, T D each. BERT also adds the vector of the `sentence`, and norms the sum."""

    token: Tensor
    input: Tensor
    scheme: str
    position: Tensor | None = None
    sentence: Tensor | None = None
    normed: Tensor | None = None
    layout: str = ""

    def part(self, start: int, stop: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """At most `ROWS` positions, for `pack`."""
        start = min(max(start, 0), len(self.token) - 1)
        rows = slice(start, max(start + 1, min(stop, start + ROWS)))
        names = ("token", "position", "input", "sentence", "normed")
        about = {"scheme": self.scheme, "layout": self.layout, "rows_from": start, "rows": len(self.token)}
        tensors = {name: t[rows].float() for name in names if (t := getattr(self, name)) is not None}
        return {**about, "width": self.token.size(1)}, tensors


def scheme(model: Any, side: str = "text") -> tuple[str, str, Any]:
    """How a model encodes positions: the name, the order of a table's columns, and the table's module if it has one."""
    place = getattr(model, "encoder_place" if side == "source" else "decoder_place", getattr(model, "place", None))
    if isinstance(place, Sinusoidal | Interleaved):
        return "sinusoidal", "interleaved" if isinstance(place, Interleaved) else "halves", place
    if isinstance(place, Learned):
        return "learned", "", place
    if getattr(model, "rotary", None) is not None:
        return "rotary", "halves", None
    if getattr(model, "alibi", None) is not None:
        return "alibi", "", None
    return "none", "", None


@torch.inference_mode()
def embedded(model: Any, ids: Tensor, side: str = "text", sentences: Tensor | None = None) -> Embedded:
    """The embedding of T ids on one side of a model."""
    name, layout, place = scheme(model, side)
    token = model.token(ids) * getattr(model, "scale", 1.0)
    position = None if place is None else place(torch.arange(len(ids), device=ids.device))
    total = token if position is None else token + position
    if getattr(model, "sentence", None) is not None:
        numbered = sentences is not None and model.config.types > 1
        sentence = model.sentence(sentences if numbered else torch.zeros_like(ids))
        total = total + sentence
        return Embedded(token, total, name, position, sentence, model.norm(total), layout)
    return Embedded(token, total, name, position, layout=layout)
