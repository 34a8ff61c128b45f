"""Batches: padded tensors, with what the host needs kept on the host.

A batch class describes its fields (`on_device`, `on_host`); moving and splitting follow from that.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from regard.data.settings import NONE

Ids = Sequence[int] | np.ndarray
LENGTHS = 4  # lengths of filled batches are multiples of it


def on_device(longest: int | None = None, per_row: bool = True, fill: int = 0) -> dict[str, Any]:
    """Describes a field that `to` moves: a tensor, a tuple of tensors, or None.

    `per_row`: its first axis is the examples of the batch. `longest`: its second axis, if any, is padded to the longest
    example; the lengths are this column of `host_lengths`. `fill` is what `filled` pads it with.
    """
    return {"moves": True, "per_row": per_row, "longest": longest, "fill": fill}


def on_host(longest: int | None = None, fill: int = 0) -> dict[str, Any]:
    """Describes a field that stays on the host: an array."""
    return {"moves": False, "per_row": True, "longest": longest, "fill": fill}


def moved(x: Tensor, device: torch.device | str) -> Tensor:
    """`x` on `device`, copied to a GPU without synchronising."""
    device = torch.device(device)
    pin = device.type == "cuda" and x.device.type == "cpu"
    return (x.pin_memory() if pin else x).to(device, non_blocking=pin)


def true_places(mask: np.ndarray, device: torch.device) -> Tensor | None:
    """The indices of true elements in the flattened `mask`, on `device`; None if all are true."""
    return None if mask.all() else moved(torch.from_numpy(np.flatnonzero(mask)), device)


def few(count: int) -> int:
    """`count` rounded up to one of few numbers: at most by an eighth."""
    step = 1 << max(0, (count - 1).bit_length() - 4)
    return -(-count // step) * step


@dataclass(frozen=True, eq=False)
class Batch:
    """Examples to be processed together; `rows` are their indices in the source, -1 for padding.

    Fields without a description are the same for every part of the batch. `ragged`: batches have many shapes, and
    `marked` fills them up to a few.
    """

    ragged: ClassVar[bool] = False

    def __len__(self) -> int:
        return len(vars(self)["rows"])

    def to(self, device: torch.device | str) -> Self:
        """The batch on `device`; a copy to a GPU overlaps with computation."""
        return self._changed("moves", lambda x, _: moved(x, device))

    @property
    def shape(self) -> Any:
        """All that a step depends on except values on the device: steps of one shape can replay one CUDA graph. None:
        this batch cannot."""
        return tuple(None if x is None else (*x.shape, x.dtype) for x in self._on_device())

    def marked(self) -> Self:
        """The batch in a form whose shapes do not depend on what counts: that is masked, not left out."""
        return self

    def filled(self) -> Self:
        """The batch with padding up to one of few shapes: `few` rows, lengths that are multiples of `LENGTHS`."""

        def fill(x: Any, about: Mapping[str, Any]) -> Any:
            shape = [few(len(x)), *x.shape[1:]]
            if about["longest"] is not None and x.ndim > 1:
                shape[1] = -(-shape[1] // LENGTHS) * LENGTHS
            new = x.new_full(shape, about["fill"]) if isinstance(x, Tensor) else np.full(shape, about["fill"], x.dtype)
            new[tuple(map(slice, x.shape))] = x
            return new

        return self._changed("per_row", fill)

    def still(self, device: torch.device) -> Self:
        """A copy on `device`, into which others of its shape can be written."""
        return self._changed("moves", lambda x, _: x.to(device, copy=True))

    def take(self, other: Self) -> None:
        """Copy `other` into this batch's tensors; a copy to a GPU overlaps with computation."""
        for here, new in zip(self._on_device(), other._on_device(), strict=True):
            if here is not None and new is not None:
                here.copy_(moved(new, here.device))

    def _on_device(self) -> list[Tensor | None]:
        values = [getattr(self, f.name) for f in fields(self) if f.metadata.get("moves")]
        return [x for value in values for x in (value if isinstance(value, tuple) else (value,))]

    def split(self) -> list[Self]:
        """Two halves, for a device that runs out of memory; a single example stays whole."""
        middle = len(self) // 2
        return [self.part(slice(0, middle)), self.part(slice(middle, len(self)))] if middle else [self]

    def part(self, rows: slice) -> Self:
        """Some of the examples, without the padding they no longer need."""

        def cut(x: Any, about: Mapping[str, Any]) -> Any:
            longest = about["longest"]
            if longest is None or x.ndim < 2:
                return x[rows]
            lengths: Any = vars(self)["host_lengths"][rows]
            most = int((lengths if lengths.ndim == 1 else lengths[:, longest]).max())
            return x[rows, : max(1, most)]  # rows of padding alone have one token

        return self._changed("per_row", cut)

    def twice(self) -> Self:
        """The batch followed by itself: one pass, two samples of dropout."""
        return self._changed("per_row", lambda x, _: (torch.cat if isinstance(x, Tensor) else np.concatenate)([x, x]))

    def _changed(self, which: str, change: Callable[[Any, Mapping[str, Any]], Any]) -> Self:
        """A copy with `change` applied to the tensors and arrays of all fields described as `which`, and to their
        descriptions."""
        new = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and f.metadata.get(which):
                new[f.name] = (
                    tuple(None if x is None else change(x, f.metadata) for x in value)
                    if isinstance(value, tuple)
                    else change(value, f.metadata)
                )
        return replace(self, **new)


@dataclass(frozen=True, eq=False)
class Pairs(Batch):
    """Sources and targets of B sentence pairs, each ending in `</s>` and padded at the end."""

    source: Tensor = field(metadata=on_device(longest=0))  # B S
    source_lengths: Tensor = field(metadata=on_device(fill=1))  # B; a filled row attends to one token
    target: Tensor = field(metadata=on_device(longest=1))  # B T
    target_lengths: Tensor = field(metadata=on_device())  # B
    rows: np.ndarray = field(metadata=on_host(fill=NONE))  # B
    host_lengths: np.ndarray = field(metadata=on_host())  # B 2: both lengths, on the host
    start: int
    fixed: bool = False  # of few shapes: padding is masked in `labels`
    ragged = True

    def marked(self) -> "Pairs":
        return self if self.fixed else replace(self.filled(), fixed=True)

    @property
    def labels(self) -> Tensor:
        """The target, B T, where a fixed batch has `NONE` for padding."""
        if not self.fixed:
            return self.target
        places = torch.arange(self.target.size(1), device=self.target.device)
        return self.target.masked_fill(places >= self.target_lengths[:, None], NONE)

    @property
    def inputs(self) -> Tensor:
        """The decoder's input, B T: the target shifted right, after `start` (`<pad>` for Marian and T5)."""
        return torch.cat([self.target.new_full((len(self), 1), self.start), self.target[:, :-1]], 1)

    @property
    def targets_count(self) -> int:
        """Target tokens in the batch, with `</s>`, without padding."""
        return int(self.host_lengths[:, 1].sum())

    @property
    def shape(self) -> Any:
        return super().shape, self.full_source

    @property
    def full_source(self) -> bool:
        """Whether no source is padded, so that no mask is needed."""
        return not self.fixed and bool((self.host_lengths[:, 0] == self.source.size(1)).all())

    @property
    def chosen(self) -> Tensor | None:
        """The indices of real targets in the flattened B T target, M; None if all are real, or the batch is fixed.

        Computed on the host, so that the device is not synchronised.
        """
        return (
            None
            if self.fixed
            else true_places(np.arange(self.target.size(1)) < self.host_lengths[:, 1:], self.target.device)
        )


@dataclass(frozen=True, eq=False)
class Tokens(Batch):
    """B rows of T inputs and their T targets, the same ids shifted by one. `None` means all count, all one document."""

    ids: Tensor = field(metadata=on_device())  # B T+1
    counts: Tensor | None = field(default=None, metadata=on_device())  # B T: which targets count
    documents: Tensor | None = field(default=None, metadata=on_device())  # B T: tokens see those with the same number
    rows: np.ndarray = field(default=None, metadata=on_host())  # pyrefly: ignore[bad-assignment]
    host_counts: np.ndarray | None = field(default=None, metadata=on_host())  # B T: `counts` on the host
    fixed: bool = False  # targets that do not count are masked in `labels`

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
            return replace(self, fixed=True)
        real = np.ones(tuple(self.targets.shape), bool)
        counts = torch.ones_like(self.targets, dtype=torch.bool)
        return replace(self, counts=counts, host_counts=real, fixed=True)

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
    def labels(self) -> Tensor:
        """The targets, B T, where a fixed batch has `NONE` for those that do not count."""
        return self.targets if not self.fixed or self.counts is None else self.targets.masked_fill(~self.counts, NONE)

    @property
    def chosen(self) -> Tensor | None:
        """The indices of targets that count in the flattened B T, M, computed on the host; None if all count, or the
        batch is fixed."""
        if self.fixed or self.host_counts is None:
            return None
        return moved(torch.from_numpy(np.flatnonzero(self.host_counts)), self.ids.device)


@dataclass(frozen=True, eq=False)
class Labelled(Batch):
    """B texts with a label each, or one per token."""

    ids: Tensor = field(metadata=on_device(longest=0))  # B T
    lengths: Tensor | None = field(metadata=on_device(fill=1))  # B; None: no padding
    sentences: Tensor | None = field(metadata=on_device(longest=0))  # B T segments; None: all 0
    labels: Tensor = field(metadata=on_device(longest=0, fill=NONE))  # B, or B T with `NONE` where nothing counts
    rows: np.ndarray = field(metadata=on_host(fill=NONE))  # B
    host_lengths: np.ndarray = field(metadata=on_host(fill=1))  # B: `lengths` on the host
    host_labels: np.ndarray = field(metadata=on_host(longest=0, fill=NONE))  # as `labels`
    fixed: bool = False  # of few shapes, and never without `lengths`
    ragged = True

    def __post_init__(self):
        if not self.fixed and (self.host_lengths == self.ids.size(1)).all():
            object.__setattr__(self, "lengths", None)

    def marked(self) -> "Labelled":
        if self.fixed:
            return self
        lengths = torch.from_numpy(self.host_lengths).to(self.ids.device) if self.lengths is None else self.lengths
        return replace(self, lengths=lengths, fixed=True).filled()

    @property
    def count(self) -> int:
        """Labels that count."""
        return int((self.host_labels != NONE).sum())

    @property
    def chosen(self) -> Tensor | None:
        """The indices of labels that count in the flattened labels, M, computed on the host; None if all count, or the
        batch is fixed."""
        return None if self.fixed else true_places(self.host_labels != NONE, self.ids.device)


@dataclass(frozen=True, eq=False)
class Samples(Batch):
    """B images, clips, series or rows of a table: `inputs` are the model's arguments, `targets` what it predicts."""

    inputs: tuple[Tensor | None, ...] = field(metadata=on_device())  # B … each; None: missing
    targets: Tensor = field(metadata=on_device())  # B classes, or B … numbers
    rows: np.ndarray = field(metadata=on_host())  # B


# Lists of ids to batches


def packed(texts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """The ids of texts packed into one row, 1 T, and their offsets, R+1, in int32."""
    ends = np.cumsum([0, *map(len, texts)])
    return torch.tensor([[i for ids in texts for i in ids]]), torch.from_numpy(ends.astype(np.int32))


def collate(
    sources: Sequence[Ids], targets: Sequence[Ids], eos: int, pad: int, multiple: int = 1, rows: Ids | None = None,
    start: int | None = None,
) -> Pairs:  # fmt: skip
    """A batch of ids without end tokens: `</s>` is added, lengths are padded to a multiple of `multiple`. The decoder's
    first input is `start`, or `pad`."""
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
    texts: Sequence[tuple[Ids, int, Ids]], pad: int, per_piece: bool, rows: np.ndarray | None = None,
    types: Sequence[Ids] | None = None,
) -> Labelled:  # fmt: skip
    """A batch of (ids, start of the second text, label or labels). `types` are segments instead of first and second
    texts."""
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
    if types is not None:
        segments = np.zeros(inside.shape, np.int64)
        segments[inside] = np.concatenate(types)
    elif (seconds < sizes).any():
        segments = ((places >= seconds[:, None]) & inside).astype(np.int64)
    else:
        segments = None
    return Labelled(
        ids=torch.from_numpy(ids),
        lengths=torch.from_numpy(sizes),
        sentences=None if segments is None else torch.from_numpy(segments),
        labels=torch.from_numpy(labels),
        rows=np.arange(len(texts)) if rows is None else rows,
        host_lengths=sizes,
        host_labels=labels,
    )
