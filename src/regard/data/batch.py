"""Batches: padded tensors, with what the host must know kept on the host.

A batch class describes its fields (`on_device`, `on_host`); moving, cutting and repeating follow from that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from regard.data.settings import NONE

Ids = Sequence[int] | np.ndarray


def on_device(longest: int | None = None, per_row: bool = True) -> dict[str, Any]:
    """Describes a field that `to` moves: a tensor, a tuple of tensors, or None.

    `per_row`: its first axis is the examples of the batch. `longest`: its second axis, where it has one, is padded to
    the longest example; their lengths are this column of `host_lengths`.
    """
    return {"moves": True, "per_row": per_row, "longest": longest}


def on_host(longest: int | None = None) -> dict[str, Any]:
    """The same for an array that stays on the host."""
    return {"moves": False, "per_row": True, "longest": longest}


def moved(x: Tensor, device: torch.device | str) -> Tensor:
    """`x` on `device`, without waiting where that is a GPU."""
    device = torch.device(device)
    pin = device.type == "cuda" and x.device.type == "cpu"
    return (x.pin_memory() if pin else x).to(device, non_blocking=pin)


def true_places(mask: np.ndarray, device: torch.device) -> Tensor | None:
    """Where `mask` is true in its flattened form, on `device`; None where it is true everywhere."""
    return None if mask.all() else moved(torch.from_numpy(np.flatnonzero(mask)), device)


@dataclass(frozen=True, eq=False)
class Batch:
    """Examples side by side; `rows` are their numbers in the source, -1 for padding.

    A field that is not described is the same for every part of the batch.
    """

    def __len__(self) -> int:
        return len(vars(self)["rows"])

    def to(self, device: torch.device | str) -> Self:
        """The batch on `device`; a copy to a GPU overlaps with computation."""
        return self._changed("moves", lambda x, _: moved(x, device))

    @property
    def shape(self) -> Any:
        """All that a step depends on besides the numbers on the device: steps of one shape can be replayed as one CUDA
        graph. None: not this one."""
        return tuple(None if x is None else (*x.shape, x.dtype) for x in self._on_device())

    def marked(self) -> Self:
        """The batch with everything that does not count marked by a tensor of its own, even where all counts."""
        return self

    def still(self, device: torch.device) -> Self:
        """A copy on `device`, for others of its shape to be written to."""
        return self._changed("moves", lambda x, _: x.to(device, copy=True))

    def take(self, other: Self) -> None:
        """Become `other`, in place, on the device; a copy to a GPU overlaps with computation."""
        for here, new in zip(self._on_device(), other._on_device(), strict=True):
            if here is not None and new is not None:
                here.copy_(moved(new, here.device))

    def _on_device(self) -> list[Tensor | None]:
        values = [getattr(self, f.name) for f in fields(self) if f.metadata.get("moves")]
        return [x for value in values for x in (value if isinstance(value, tuple) else (value,))]

    def split(self) -> list[Self]:
        """Two halves, for a device that cannot hold the whole; a single example stays whole."""
        middle = len(self) // 2
        return [self.part(slice(0, middle)), self.part(slice(middle, len(self)))] if middle else [self]

    def part(self, rows: slice) -> Self:
        """Some of the examples, without the padding they no longer need."""

        def cut(x: Any, longest: int | None) -> Any:
            if longest is None or x.ndim < 2:
                return x[rows]
            lengths: Any = vars(self)["host_lengths"][rows]
            return x[rows, : int((lengths if lengths.ndim == 1 else lengths[:, longest]).max())]

        return self._changed("per_row", cut)

    def _changed(self, which: str, change: Callable[[Any, int | None], Any]) -> Self:
        """A copy with `change` applied to the tensors and arrays of all fields described as `which`."""
        new = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and f.metadata.get(which):
                longest = f.metadata["longest"]
                new[f.name] = (
                    tuple(None if x is None else change(x, longest) for x in value)
                    if isinstance(value, tuple)
                    else change(value, longest)
                )
        return replace(self, **new)


@dataclass(frozen=True, eq=False)
class Pairs(Batch):
    """Sources and targets of B sentence pairs, each ending in `</s>` and padded at the end."""

    source: Tensor = field(metadata=on_device(longest=0))  # B S
    source_lengths: Tensor = field(metadata=on_device())  # B
    target: Tensor = field(metadata=on_device(longest=1))  # B T
    target_lengths: Tensor = field(metadata=on_device())  # B
    rows: np.ndarray = field(metadata=on_host())  # B
    host_lengths: np.ndarray = field(metadata=on_host())  # B 2: both lengths, on the host
    start: int

    @property
    def inputs(self) -> Tensor:
        """What the decoder reads, B T: the target shifted right, after `start` (of Marian and T5 `<pad>`)."""
        return torch.cat([self.target.new_full((len(self), 1), self.start), self.target[:, :-1]], 1)

    @property
    def targets_count(self) -> int:
        """Target tokens in the batch, `</s>` included, padding not."""
        return int(self.host_lengths[:, 1].sum())

    @property
    def shape(self) -> Any:
        return super().shape, self.full_source

    @property
    def full_source(self) -> bool:
        """Whether no source is padded, so that no mask is needed."""
        return bool((self.host_lengths[:, 0] == self.source.size(1)).all())

    @property
    def chosen(self) -> Tensor | None:
        """Where the real targets stand in the flattened B T target, M; None where all are real.

        Made on the host, so there is no wait for the device.
        """
        return true_places(np.arange(self.target.size(1)) < self.host_lengths[:, 1:], self.target.device)

    def twice(self) -> "Pairs":
        """Every pair once more, after all of them: one pass, two samples of dropout."""
        return self._changed("per_row", lambda x, _: (torch.cat if isinstance(x, Tensor) else np.concatenate)([x, x]))


@dataclass(frozen=True, eq=False)
class Tokens(Batch):
    """B rows of T inputs and their T targets, the same ids shifted by one. `None` means all count, all one document."""

    ids: Tensor = field(metadata=on_device())  # B T+1
    counts: Tensor | None = field(default=None, metadata=on_device())  # B T: which targets count
    documents: Tensor | None = field(default=None, metadata=on_device())  # B T: a token sees those of its own number
    rows: np.ndarray = field(default=None, metadata=on_host())  # pyrefly: ignore[bad-assignment]
    host_counts: np.ndarray | None = field(default=None, metadata=on_host())  # B T: `counts` on the host

    def __post_init__(self):
        if self.rows is None:
            object.__setattr__(self, "rows", np.arange(self.ids.size(0)))
        if self.host_counts is None and self.counts is not None:
            object.__setattr__(self, "host_counts", self.counts.cpu().numpy())

    @property
    def shape(self) -> Any:
        return super().shape if self.documents is None else None

    def marked(self) -> "Tokens":
        if self.counts is not None:
            return self
        real = np.ones(tuple(self.targets.shape), bool)
        return replace(self, counts=torch.ones_like(self.targets, dtype=torch.bool), host_counts=real)

    @cached_property
    def count(self) -> int:
        """Targets that count."""
        return self.targets.numel() if self.host_counts is None else int(self.host_counts.sum())

    @property
    def inputs(self) -> Tensor:
        return self.ids[:, :-1]

    @property
    def targets(self) -> Tensor:
        return self.ids[:, 1:]

    @property
    def chosen(self) -> Tensor | None:
        """Where the targets that count stand in the flattened B T, M; None where all count. Made on the host."""
        if self.host_counts is None:
            return None
        return moved(torch.from_numpy(np.flatnonzero(self.host_counts)), self.ids.device)


@dataclass(frozen=True, eq=False)
class Labelled(Batch):
    """B texts with a label each, or one for each of their pieces."""

    ids: Tensor = field(metadata=on_device(longest=0))  # B T
    lengths: Tensor | None = field(metadata=on_device())  # B; None: no padding
    sentences: Tensor | None = field(metadata=on_device(longest=0))  # B T; None: no second texts
    labels: Tensor = field(metadata=on_device(longest=0))  # B, or B T with `NONE` where nothing counts
    rows: np.ndarray = field(metadata=on_host())  # B
    host_lengths: np.ndarray = field(metadata=on_host())  # B: `lengths` on the host
    host_labels: np.ndarray = field(metadata=on_host(longest=0))  # as `labels`

    def __post_init__(self):
        if (self.host_lengths == self.ids.size(1)).all():
            object.__setattr__(self, "lengths", None)

    @property
    def count(self) -> int:
        """Labels that count."""
        return int((self.host_labels != NONE).sum())

    @property
    def chosen(self) -> Tensor | None:
        """Where the labels that count stand in the flattened labels, M; None where all count. Made on the host."""
        return true_places(self.host_labels != NONE, self.ids.device)


@dataclass(frozen=True, eq=False)
class Samples(Batch):
    """B images, clips, series or rows of a table: the model's arguments in `inputs`, what it predicts in `targets`."""

    inputs: tuple[Tensor | None, ...] = field(metadata=on_device())  # B … each; None: this one is missing
    targets: Tensor = field(metadata=on_device())  # B classes, or B … numbers
    rows: np.ndarray = field(metadata=on_host())  # B


# Lists of ids to batches


def packed(texts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """The ids of texts one after the other, 1 T, and where each begins and the last one ends, R+1, in 32 bits."""
    ends = np.cumsum([0, *map(len, texts)])
    return torch.tensor([[i for ids in texts for i in ids]]), torch.from_numpy(ends.astype(np.int32))


def collate(
    sources: Sequence[Ids], targets: Sequence[Ids], eos: int, pad: int, multiple: int = 1, rows: Ids | None = None,
    start: int | None = None,
) -> Pairs:  # fmt: skip
    """A batch of ids without end marks: `</s>` is added, lengths are padded up to a multiple of `multiple`. The decoder
    reads `start` first, or `pad`."""
    source, source_lengths = _padded(sources, eos, pad, multiple)
    target, target_lengths = _padded(targets, eos, pad, multiple)
    return Pairs(
        source=torch.from_numpy(source),
        source_lengths=torch.from_numpy(source_lengths),
        target=torch.from_numpy(target),
        target_lengths=torch.from_numpy(target_lengths),
        rows=np.arange(len(sources)) if rows is None else np.asarray(rows),
        host_lengths=np.stack([source_lengths, target_lengths], 1),
        start=pad if start is None else start,
    )


def _padded(sentences: Sequence[Ids], eos: int, pad: int, multiple: int) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(s) for s in sentences], np.int64) + 1
    width = -(-int(lengths.max()) // multiple) * multiple
    out = np.full((len(sentences), width), pad, np.int64)
    inside = np.arange(width) < lengths[:, None] - 1  # B S
    out[inside] = np.concatenate(sentences) if lengths.sum() > len(lengths) else []
    out[np.arange(len(sentences)), lengths - 1] = eos
    return out, lengths


def collate_labelled(
    texts: Sequence[tuple[Ids, int, Ids]], pad: int, per_piece: bool, rows: np.ndarray | None = None
) -> Labelled:
    """A batch of (ids, where the second text begins, label or labels)."""
    sizes = np.array([len(ids) for ids, _, _ in texts], np.int64)
    seconds = np.array([second for _, second, _ in texts], np.int64)
    places = np.arange(sizes.max())
    inside = places < sizes[:, None]  # B T
    ids, labels = np.full(inside.shape, pad, np.int64), np.full(inside.shape, NONE, np.int64)
    ids[inside] = np.concatenate([pieces for pieces, _, _ in texts])
    if per_piece:
        labels[inside] = np.concatenate([marks for _, _, marks in texts])
    else:
        labels = np.array([label[0] for _, _, label in texts], np.int64)
    second = (places >= seconds[:, None]) & inside  # B T
    return Labelled(
        ids=torch.from_numpy(ids),
        lengths=torch.from_numpy(sizes),
        sentences=torch.from_numpy(second.astype(np.int64)) if (seconds < sizes).any() else None,
        labels=torch.from_numpy(labels),
        rows=np.arange(len(texts)) if rows is None else rows,
        host_lengths=sizes,
        host_labels=labels,
    )
