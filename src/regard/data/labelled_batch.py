"""Batches of labelled texts of like length, in an order that is a pure function of (seed, epoch)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import moved
from regard.data.labelled import NONE, LabelledFile
from regard.data.loader import check_same, cut, plan
from regard.errors import ConfigError

CHUNK = 20  # batches sorted together: texts meet new company each epoch, at the price of a little padding


@dataclass(frozen=True, eq=False)
class Labelled:
    """B texts with a label each, or one for each of their pieces."""

    ids: Tensor  # B T
    lengths: Tensor | None  # B; None: no padding
    sentences: Tensor | None  # B T; None: no second texts
    labels: Tensor  # B, or B T with `NONE` where nothing counts
    rows: np.ndarray  # B: where each text stands in its file
    host_lengths: np.ndarray  # B: known without asking the device
    host_labels: np.ndarray  # as `labels`

    @property
    def count(self) -> int:
        """Labels that count."""
        return int((self.host_labels != NONE).sum())

    @property
    def chosen(self) -> Tensor | None:
        """Where the labels that count stand in the flattened labels, M; None where all count. Made on the host."""
        real = self.host_labels != NONE
        return None if real.all() else moved(torch.from_numpy(np.flatnonzero(real)), self.ids.device)

    def __len__(self) -> int:
        return self.ids.size(0)

    def to(self, device: torch.device | str) -> "Labelled":
        names = ("ids", "lengths", "sentences", "labels")
        return replace(self, **{n: moved(x, device) for n in names if (x := getattr(self, n)) is not None})

    def split(self) -> list["Labelled"]:
        """Two halves, for a device that cannot hold the whole; a single text stays whole."""
        if len(self) < 2:
            return [self]
        return [self.part(slice(None, len(self) // 2)), self.part(slice(len(self) // 2, None))]

    def part(self, rows: slice) -> "Labelled":
        """Some of the texts, without the padding they no longer need."""
        sizes = self.host_lengths[rows]
        width = int(sizes.max())
        labels = self.labels[rows] if self.labels.ndim == 1 else self.labels[rows, :width]
        return Labelled(
            ids=self.ids[rows, :width],
            lengths=None if (sizes == width).all() or self.lengths is None else self.lengths[rows],
            sentences=None if self.sentences is None else self.sentences[rows, :width],
            labels=labels,
            rows=self.rows[rows],
            host_lengths=sizes,
            host_labels=self.host_labels[rows] if labels.ndim == 1 else self.host_labels[rows, :width],
        )


def collate_labelled(
    texts: Sequence[tuple[Sequence[int] | np.ndarray, int, Sequence[int] | np.ndarray]],
    pad: int,
    per_piece: bool,
    rows: np.ndarray | None = None,
) -> Labelled:
    """A batch of (ids, where the second text begins, label or labels)."""
    sizes = np.array([len(ids) for ids, _, _ in texts], np.int64)
    seconds = np.array([second for _, second, _ in texts], np.int64)
    width = int(sizes.max())
    ids = np.full((len(texts), width), pad, np.int64)
    labels = np.full((len(texts), width) if per_piece else len(texts), NONE, np.int64)
    for i, (pieces, _, marks) in enumerate(texts):
        ids[i, : len(pieces)] = pieces
        if per_piece:
            labels[i, : len(pieces)] = marks
        else:
            labels[i] = marks[0]
    places = np.arange(width)
    paired = (seconds < sizes).any()
    sentences = ((places >= seconds[:, None]) & (places < sizes[:, None])).astype(np.int64) if paired else None
    return Labelled(
        ids=torch.from_numpy(ids),
        lengths=None if (sizes == width).all() else torch.from_numpy(sizes),
        sentences=None if sentences is None else torch.from_numpy(sentences),
        labels=torch.from_numpy(labels),
        rows=np.arange(len(texts)) if rows is None else rows,
        host_lengths=sizes,
        host_labels=labels,
    )


class LabelledLoader:
    """Batches without end: `next(loader)`; every epoch visits each text once.

    With a label for each word a batch has at most `tokens` padded tokens. With one for each text it has that many on
    average, and always as many texts: a text of a batch of few would count for more than one of a batch of many.
    """

    def __init__(
        self, file: LabelledFile, pad: int, tokens: int, seed: int, rank: int = 0, world: int = 1, content: int = 0
    ):
        if tokens < 1:
            raise ConfigError(f"a batch holds at least one token, got tokens={tokens}")
        self.file, self.pad, self.tokens, self.seed = file, pad, tokens, seed
        self.rank, self.world, self.content = rank, world, content
        self._widths = np.repeat(file.lengths()[:, None], 2, 1)
        self._begin(0, 0)

    def __iter__(self) -> "LabelledLoader":
        return self

    def __next__(self) -> Labelled:
        if self.position == len(self._plan):
            self._begin(self.epoch + 1, 0)
        rows = self._plan[self.position]
        self.position += 1
        return _load(self.file, rows, self.pad)

    @property
    def batches_per_epoch(self) -> int:
        """Batches this rank sees in the current epoch; another epoch may have a few more or less."""
        return len(self._plan)

    @property
    def padding(self) -> float:
        """The part of this rank's current epoch that is padding."""
        sizes = self._widths[:, 0]
        room = sum(int(sizes[rows].max()) * len(rows) for rows in self._plan)
        return 1 - sum(int(sizes[rows].sum()) for rows in self._plan) / room

    def state(self) -> dict[str, int]:
        return {"epoch": self.epoch, "position": self.position} | self._depends()

    def restore(self, state: dict[str, int]) -> None:
        """Continue from `state`: the next batch is the one that would have come."""
        check_same(state, self._depends())
        self._begin(state["epoch"], state["position"])

    def _depends(self) -> dict[str, int]:
        return {"texts": len(self.file)} | {n: getattr(self, n) for n in ("seed", "tokens", "world", "content")}

    def _begin(self, epoch: int, position: int) -> None:
        self.epoch, self.position = epoch, position
        evenly = not self.file.per_piece
        batches = plan(self._widths, self.tokens, self.seed, epoch, self.world, CHUNK, evenly)
        self._plan = batches[self.rank :: self.world]


def in_order(file: LabelledFile, pad: int, tokens: int) -> Iterator[Labelled]:
    """One pass over all texts, sorted by length, always the same: for validation."""
    widths = np.repeat(file.lengths()[:, None], 2, 1)
    for rows in cut(np.argsort(widths[:, 0], kind="stable"), widths, tokens):
        yield _load(file, rows, pad)


def _load(file: LabelledFile, rows: np.ndarray, pad: int) -> Labelled:
    return collate_labelled([file[i] for i in rows.tolist()], pad, file.per_piece, rows)
