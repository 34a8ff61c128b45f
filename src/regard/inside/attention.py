"""Attention, one head at a time: its scores, scaled, masked and after the softmax, and its output."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.errors import ConfigError
from regard.inside.tensors import as_bytes, pooled
from regard.nn.attention import AdditiveLook, Look
from regard.nn.masks import Mask, additive

EDGE, ROOM = 64, 600_000  # limits of thumbnails: 64 x 64 each, and bytes of all together
MOST_KEYS = 64  # keys whose vectors are sent with a row


@dataclass(frozen=True)
class Attention:
    """All layers of one kind of attention; `rows` and `columns` are the names of its streams."""

    kind: str
    rows: str
    columns: str
    layers: Sequence[Look | AdditiveLook]

    @property
    def heads(self) -> int:
        look = self.layers[0]
        return 1 if isinstance(look, AdditiveLook) else look.q.size(1)

    @property
    def weights(self) -> Tensor:
        """The weights of every layer and head: L H T S."""
        every = [torch.stack([stages(look, head)["weights"] for head in range(self.heads)]) for look in self.layers]
        return torch.stack(every)

    @property
    def causal(self) -> bool:
        return self.kind == "decoder" or (self.kind == "self" and not _open(self.layers[0]))

    def layer(self, layer: int, head: int) -> Look | AdditiveLook:
        """A layer, if it has the requested head; both count from 0."""
        if not (0 <= layer < len(self.layers) and 0 <= head < self.heads):
            raise ConfigError(
                f"no layer {layer} with a head {head} in {self.kind} attention",
                f"there are layers 0 to {len(self.layers) - 1} with heads 0 to {self.heads - 1}",
            )
        return self.layers[layer]


def _open(look: Look | AdditiveLook) -> bool:
    """Whether the first query may see the last key."""
    if isinstance(look, AdditiveLook) or (table := look.mask.dense()) is None:
        return True
    return bool(table.expand(*look.q.shape[:3], look.k.size(2))[0, 0, 0, -1]) or look.q.size(2) == 1


def vectors(look: Look | AdditiveLook, head: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries T K, keys S K and values S K of one head, in float32."""
    if isinstance(look, AdditiveLook):
        return look.q[0].float(), look.k[0].float(), look.v[0].float()
    shared = head // (look.q.size(1) // look.k.size(1))
    return look.q[0, head].float(), look.k[0, shared].float(), look.v[0, shared].float()


def stages(look: Look | AdditiveLook, head: int, rows: slice = slice(None)) -> dict[str, Tensor]:
    """The scores of some queries, T S each: q·k, divided by √K, biased and masked (NaN), and after the softmax."""
    if isinstance(look, AdditiveLook):  # Bahdanau et al. 2015 score with a small network and do not scale
        scores = look.scores[0, rows].float()
        masked = scores.masked_fill(scores == torch.finfo(look.scores.dtype).min, torch.nan)
        return {"scores": scores, "scaled": scores, "masked": masked, "weights": scores.softmax(-1)}
    q, k, _ = vectors(look, head)
    full = (1, look.q.size(1), q.size(0), k.size(0))
    scores = q[rows] @ k.mT
    scaled = scores / math.sqrt(q.size(-1))
    lean, table = look.mask.bias(), look.mask.dense()
    leaning = scaled if lean is None else scaled + lean.expand(full)[0, head, rows]
    if table is None:
        return {"scores": scores, "scaled": scaled, "masked": leaning, "weights": leaning.softmax(-1)}
    hidden = ~table.expand(full)[0, head, rows]
    weights = leaning.masked_fill(hidden, -torch.inf).softmax(-1).nan_to_num(nan=0.0)
    masked = leaning.masked_fill(hidden, torch.nan)
    return {"scores": scores, "scaled": scaled, "masked": masked, "weights": weights}


def row(look: Look | AdditiveLook, head: int, query: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Everything about one query, for `pack`: the lecture's search, with this model's numbers."""
    q, k, v = vectors(look, head)
    if not 0 <= query < len(q):
        raise ConfigError(f"no query {query}", f"there are 0 to {len(q) - 1}")
    rows = {name: table[0] for name, table in stages(look, head, slice(query, query + 1)).items()}
    keys = rows["weights"].topk(min(MOST_KEYS, len(k))).indices.sort().values
    tensors = {**rows, "q": q[query], "k": k[keys], "v": v[keys], "out": rows["weights"] @ v}
    return {"head_width": q.size(1), "query": query}, {**tensors, "keys": keys.int()}


@dataclass(frozen=True)
class Overview:
    """Thumbnails of every head of a kind of attention, L H r c as bytes, and how sharp and how idle each is."""

    thumbs: Tensor
    scale: float
    sharpness: Tensor  # L H: the mean over queries of their largest weight
    resting: Tensor  # L H: the mean weight of the first key, where a head without a target rests

    @property
    def sharpest(self) -> tuple[int, int]:
        """The layer and head to show first: the sharpest, disregarding weight on the first key."""
        layer, head = divmod(int((self.sharpness - self.resting).argmax()), self.sharpness.size(1))
        return layer, head


def overview(attention: Attention, check: Callable[[], None]) -> Overview:
    """All heads, one at a time through the same two buffers, so that a head's table stays in the CPU's cache."""
    shape = len(attention.layers), attention.heads
    edge = min(EDGE, math.isqrt(ROOM // (shape[0] * shape[1])))
    small, sharp, rest = [], [], []
    summands: dict[int, Tensor | None] = {}  # by mask, which layers share
    room: list[Tensor] = []
    for look in attention.layers:
        check()
        for head in range(attention.heads):
            weights = quick_weights(look, head, summands, room)
            small.append(pooled(weights, edge, edge).clone())  # a small table is the buffer itself
            sharp.append(weights.amax(-1).mean())
            rest.append(weights[:, 0].mean())
    thumbs, scale = as_bytes(torch.stack(small).view(*shape, *small[0].shape))
    return Overview(thumbs, scale, torch.stack(sharp).view(shape), torch.stack(rest).view(shape))


def quick_weights(
    look: Look | AdditiveLook, head: int, summands: dict[int, Tensor | None], room: list[Tensor]
) -> Tensor:
    """The weights of `stages` for a text without padding, T S, valid until the next call."""
    if isinstance(look, AdditiveLook):
        return stages(look, head)["weights"]
    q, k, _ = vectors(look, head)
    if not room:
        room += [q.new_empty(len(q), len(k)) for _ in range(2)]
    if id(look.mask) not in summands:
        summands[id(look.mask)] = summand(look.mask)
    scale, added = 1 / math.sqrt(q.size(1)), summands[id(look.mask)]
    if added is None:
        scores = torch.mm(q * scale, k.mT, out=room[0])
    else:
        own = added.expand(1, look.q.size(1), len(q), len(k))[0, head]
        scores = torch.addmm(own, q, k.mT, alpha=scale, out=room[0])
    return torch.softmax(scores, -1, out=room[1])


def summand(mask: Mask) -> Tensor | None:
    """What a mask adds to scores: its bias, and minus infinity where attention is not allowed."""
    table, lean = mask.dense(), mask.bias()
    if table is None or lean is None:
        return lean if table is None else additive(table, torch.float32)
    return lean.masked_fill(~table, -torch.inf)
