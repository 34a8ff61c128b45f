"""The record of one text's pass through a model, and how it is made."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.inside.attention import Attention, Overview
from regard.inside.embedding import Embedded
from regard.inside.findings import of_attention
from regard.inside.tensors import pack
from regard.inside.tokens import Token
from regard.nn.attention import AdditiveLook
from regard.nn.taps import watch

LONGEST = 1024  # tokens of a text

Check = Callable[[], None]  # raises once the result is not needed any more


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to look at. `target` is a given translation; `prefix` is how the translation must begin.

    For a model that does not read text: a `file`, the row of a table as `text`, or the `number` of an example of its
    test set.
    """

    text: str = ""
    second: str = ""
    target: str = ""
    prefix: str = ""
    beam: int = 5
    number: int = 0
    file: Path | None = None


@dataclass
class Looked:
    """What a model computed for one text. Weights are computed from `attention` head by head, on demand."""

    predictor: Any
    streams: dict[str, list[Token]] = field(default_factory=dict)
    embeddings: dict[str, Embedded] = field(default_factory=dict)
    attention: dict[str, Attention] = field(default_factory=dict)
    overviews: dict[str, Overview] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    finding: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    picture: dict[str, Any] | None = None  # how an input that is not text is drawn
    example: dict[str, Any] | None = None  # which one of a test set it is
    compared: tuple[dict[str, Any], dict[str, Tensor]] | None = None  # with a second text: what `pair` returns
    seconds: float = 0.0

    @property
    def size(self) -> int:
        """Bytes of the vectors kept of all layers."""
        return sum(t.nbytes for a in self.attention.values() for look in a.layers for t in (look.q, look.k, look.v))

    def draw(self, path: str | Path, layer: int = 0, head: int = 0) -> Path:
        """Write a picture; `layer` and `head` count from 1, and 0 is the sharpest layer with all of its heads."""
        from regard.inside.figure import draw

        return draw(self, path, layer=layer, head=head)

    def bytes(self, **more: Any) -> bytes:
        """The first response to the page: tokens, thumbnails of all heads, results, and `more` from the caller."""
        about, tensors, scales = [], dict(self.tensors), {}
        for kind, a in self.attention.items():
            overview = self.overviews[kind]
            tensors[f"thumbs_{kind}"], scales[f"thumbs_{kind}"] = overview.thumbs, overview.scale
            layer, head = overview.sharpest
            about.append({
                "kind": kind, "rows": a.rows, "columns": a.columns, "layers": len(a.layers), "heads": a.heads,
                "causal": a.causal, "thumbs": f"thumbs_{kind}", "sharpest": {"layer": layer, "head": head},
                "finding": of_attention(kind, overview),
            })  # fmt: skip
        header = {
            **more, "seconds": self.seconds, "streams": {k: {"tokens": v} for k, v in self.streams.items()},
            "attention": about, "results": self.results, "finding": self.finding, "notes": self.notes,
            "picture": self.picture, "example": self.example,
        }  # fmt: skip
        return pack(header, tensors, scales)


@contextmanager
def interruptible(model: nn.Module, check: Check) -> Iterator[None]:
    """Call `check` before every layer, and before every step of a decoder's cell."""
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList)]
    parts = [part for parent in lists for part in parent] + [p for n, p in model.named_children() if n == "cell"]
    with ExitStack() as hooks:
        for part in parts:
            hooks.enter_context(part.register_forward_pre_hook(lambda *_: check()))
        yield


@contextmanager
def captured(attention: dict[str, Attention], model: nn.Module, streams: dict[str, tuple[str, str]]) -> Iterator[None]:
    """Record attention by kind during the block; `streams` are the names along the rows and columns of each kind."""
    with watch(model, "*look") as seen:
        yield
    layers: dict[str, list[Any]] = {}
    for name, calls in seen.items():
        if calls:
            layers.setdefault(kind_of(name), []).append(merged(calls))
    attention |= {kind: Attention(kind, *streams[kind], looks) for kind, looks in layers.items()}


def kind_of(tap: str) -> str:
    """decoder.0.cross.look -> cross; attention outside blocks is "additive", that of blocks "self"."""
    parts = tap.split(".")
    if "cross" in parts or parts[0] in ("encoder", "decoder"):
        return "cross" if "cross" in parts else parts[0]
    return "additive" if len(parts) == 2 else "self"


def merged(calls: list[Any]) -> Any:
    """All calls of a tap as one: a recurrent decoder attends once per word."""
    first = calls[0]
    if not isinstance(first, AdditiveLook):
        return first
    q, scores = (torch.cat([getattr(call, name) for call in calls], 1) for name in ("q", "scores"))
    return AdditiveLook(q, first.k, first.v, scores)
