"""Batches of sentence pairs and of running text: padded tensors, with what the host must know kept on the host."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Pairs:
    """Sources and targets of B sentence pairs, each ending in `</s>` and padded at the end."""

    source: Tensor  # B S
    source_lengths: Tensor  # B
    target: Tensor  # B T
    target_lengths: Tensor  # B
    rows: np.ndarray  # B: where each pair stands in its corpus
    pad: int
    host_lengths: np.ndarray = field(default=None)  # type: ignore[assignment]  # B 2: both lengths, known without asking the device

    def __post_init__(self):
        if self.host_lengths is None:
            lengths = torch.stack([self.source_lengths, self.target_lengths], 1).cpu().numpy()
            object.__setattr__(self, "host_lengths", lengths)

    def __len__(self) -> int:
        return self.source.size(0)

    @property
    def inputs(self) -> Tensor:
        """What the decoder reads, B T: the target shifted right, with `<pad>` for the start (as Marian does)."""
        return torch.cat([self.target.new_full((len(self), 1), self.pad), self.target[:, :-1]], 1)

    @property
    def targets_count(self) -> int:
        """Target tokens in the batch, `</s>` included, padding not."""
        return int(self.host_lengths[:, 1].sum())

    @property
    def full_source(self) -> bool:
        """Whether no source is padded, so that no mask is needed."""
        return bool((self.host_lengths[:, 0] == self.source.size(1)).all())

    @property
    def chosen(self) -> Tensor | None:
        """Where the real targets stand in the flattened B T target, M; None where all are real.

        Made on the host, so there is no wait for the device.
        """
        real = np.arange(self.target.size(1)) < self.host_lengths[:, 1:]
        if real.all():
            return None
        return moved(torch.from_numpy(np.flatnonzero(real)), self.target.device)

    def twice(self) -> "Pairs":
        """Every pair once more, after all of them: one pass, two draws of dropout."""
        doubled = {name: getattr(self, name).repeat(2, 1) for name in ("source", "target")}
        doubled |= {name: getattr(self, name).repeat(2) for name in ("source_lengths", "target_lengths")}
        return replace(self, **doubled, rows=np.tile(self.rows, 2), host_lengths=np.tile(self.host_lengths, (2, 1)))

    def to(self, device: torch.device | str) -> "Pairs":
        """The batch on `device`; towards a GPU the copy runs beside the computation."""
        names = ("source", "source_lengths", "target", "target_lengths")
        return replace(self, **{name: moved(getattr(self, name), device) for name in names})

    def split(self) -> list["Pairs"]:
        """Two halves, for a device that cannot hold the whole; a single pair stays whole."""
        if len(self) < 2:
            return [self]
        return [self.part(slice(None, len(self) // 2)), self.part(slice(len(self) // 2, None))]

    def part(self, rows: slice) -> "Pairs":
        """Some of the pairs, without the padding they no longer need."""
        lengths = self.host_lengths[rows]
        s, t = lengths.max(0)
        return Pairs(
            source=self.source[rows, :s],
            source_lengths=self.source_lengths[rows],
            target=self.target[rows, :t],
            target_lengths=self.target_lengths[rows],
            rows=self.rows[rows],
            pad=self.pad,
            host_lengths=lengths,
        )


@dataclass(frozen=True, eq=False)
class Tokens:
    """B rows of T inputs and their T targets, the same ids shifted by one. `None` means all count, all one document."""

    ids: Tensor  # B T+1
    counts: Tensor | None = None  # B T: which targets count
    documents: Tensor | None = None  # B T: numbers; inputs of another number are not to be seen
    rows: np.ndarray = field(default=None)  # type: ignore[assignment]  # B: which row of the epoch's plan; -1 is padding
    host_counts: np.ndarray | None = None  # B T: `counts`, known without asking the device
    count: int = -1  # targets that count

    def __post_init__(self):
        if self.rows is None:
            object.__setattr__(self, "rows", np.arange(len(self)))
        if self.host_counts is None and self.counts is not None:
            object.__setattr__(self, "host_counts", self.counts.cpu().numpy())
        if self.count < 0:
            real = self.targets.numel() if self.host_counts is None else int(self.host_counts.sum())
            object.__setattr__(self, "count", real)

    def __len__(self) -> int:
        return self.ids.size(0)

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

    def to(self, device: torch.device | str) -> "Tokens":
        """The batch on `device`; towards a GPU the copy runs beside the computation."""
        names = ("ids", "counts", "documents")
        there = {name: moved(x, device) for name in names if (x := getattr(self, name)) is not None}
        return replace(self, **there)

    def split(self) -> list["Tokens"]:
        """Two halves, for a device that cannot hold the whole; a single row stays whole."""
        if len(self) < 2:
            return [self]
        return [self.part(slice(None, len(self) // 2)), self.part(slice(len(self) // 2, None))]

    def part(self, rows: slice) -> "Tokens":
        """Some of the rows."""
        names = ("ids", "counts", "documents", "rows", "host_counts")
        return Tokens(**{name: x[rows] for name in names if (x := getattr(self, name)) is not None})


def moved(x: Tensor, device: torch.device | str) -> Tensor:
    """`x` on `device`, without waiting where that is a GPU."""
    device = torch.device(device)
    pin = device.type == "cuda" and x.device.type == "cpu"
    return (x.pin_memory() if pin else x).to(device, non_blocking=pin)


def packed(texts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """The ids of texts one after the other, 1 T, and where each begins and the last one ends, R+1, in 32 bits."""
    ends = np.cumsum([0, *map(len, texts)])
    return torch.tensor([[i for ids in texts for i in ids]]), torch.from_numpy(ends.astype(np.int32))


def collate(
    sources: Sequence[np.ndarray | Sequence[int]],
    targets: Sequence[np.ndarray | Sequence[int]],
    eos: int,
    pad: int,
    multiple: int = 1,
    rows: Sequence[int] | np.ndarray | None = None,
) -> Pairs:
    """A batch of ids without end marks: `</s>` is added, lengths are padded up to a multiple of `multiple`."""
    source, source_lengths = _padded(sources, eos, pad, multiple)
    target, target_lengths = _padded(targets, eos, pad, multiple)
    return Pairs(
        source=torch.from_numpy(source),
        source_lengths=torch.from_numpy(source_lengths),
        target=torch.from_numpy(target),
        target_lengths=torch.from_numpy(target_lengths),
        rows=np.arange(len(sources)) if rows is None else np.asarray(rows),
        pad=pad,
        host_lengths=np.stack([source_lengths, target_lengths], 1),
    )


def _padded(sentences: Sequence[np.ndarray | Sequence[int]], eos: int, pad: int, multiple: int):
    lengths = np.array([len(s) for s in sentences], np.int64) + 1
    width = -(-int(lengths.max()) // multiple) * multiple
    out = np.full((len(sentences), width), pad, np.int64)
    inside = np.arange(width) < lengths[:, None] - 1  # B S
    out[inside] = np.concatenate(sentences) if lengths.sum() > len(lengths) else []
    out[np.arange(len(sentences)), lengths - 1] = eos
    return out, lengths
