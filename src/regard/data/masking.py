"""BERT's examples (Devlin et al. 2019, section 3.1): [CLS] A [SEP] B [SEP] with some words hidden, and their order.

An epoch's rows are a pure function of (seed, epoch), what is hidden in a row one of (seed, epoch, row): nothing is
stored, everything is fresh each epoch, and a position in the data is two integers.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import moved
from regard.data.loader import check_same, cut, plan
from regard.data.masked import Sentences
from regard.errors import ConfigError, DataError

A_FROM, A_TO, B_FROM, B_TO, LABEL = range(5)  # the columns of a row
FOLLOWS, ELSE, ALONE = 0, 1, -1  # B came next; it did not; there is no B
NO_TARGET = -1
HIDE, REPLACE = 0.8, 0.9  # below the first a word becomes [MASK], below the second another word; else it stays
STEPS = 4  # widths that batches of a fixed shape may have
VALID = 2**32 - 1  # the seed of held-out rows: whoever trains, with whatever seed, is judged on the same ones


@dataclass(frozen=True)
class Rules:
    """How examples are made. The two tables say of each id whether it is special, and whether it goes on in a word."""

    length: int  # tokens of a row, at most
    special: np.ndarray  # V
    inside: np.ndarray  # V
    pad: int
    cls: int
    sep: int
    mask: int
    next_sentence: bool = True
    negatives: str = "random"
    masked: float = 0.15
    whole_words: bool = False

    @property
    def marks(self) -> int:
        """[CLS] and [SEP] of a full row."""
        return 3 if self.next_sentence else 2


@dataclass(frozen=True, eq=False)
class MaskedBatch:
    """B rows of T ids with words hidden. `chosen` are the M hidden places in the flattened B T, the only targets."""

    ids: Tensor  # B T
    sentences: Tensor  # B T: 0 in A, 1 in B
    lengths: Tensor  # B
    chosen: Tensor  # M
    targets: Tensor  # M: what stood there; below 0 where M was filled up
    follows: Tensor | None  # B: 0 B came next, 1 it did not, below 0 no B; None: nothing is asked
    rows: np.ndarray  # B: which row of the epoch; -1 is padding
    host_targets: np.ndarray  # B T: below 0 where nothing is hidden
    host_lengths: np.ndarray  # B: `lengths`, known without asking the device; 0 for padding
    count: int  # hidden words
    weight: float = (
        0.0  # of a pair, in hidden words: that a batch's pairs weigh as much as its words, however it is cut
    )

    def __len__(self) -> int:
        return self.ids.size(0)

    @property
    def tokens(self) -> int:
        """All that is read, hidden or not, without padding."""
        return int(self.host_lengths.sum())

    def to(self, device: torch.device | str) -> "MaskedBatch":
        """The batch on `device`; towards a GPU the copy runs beside the computation."""
        names = ("ids", "sentences", "lengths", "chosen", "targets", "follows")
        return replace(self, **{n: moved(x, device) for n in names if (x := getattr(self, n)) is not None})

    def split(self) -> list["MaskedBatch"]:
        """Two halves, for a device that cannot hold the whole; a single row stays whole."""
        middle = len(self) // 2
        return [self.part(slice(None, middle)), self.part(slice(middle, None))] if middle else [self]

    def part(self, rows: slice) -> "MaskedBatch":
        """Some of the rows."""
        host = self.host_targets[rows]
        chosen, targets = picked(host)
        return replace(
            self,
            ids=self.ids[rows],
            sentences=self.sentences[rows],
            lengths=self.lengths[rows],
            chosen=moved(torch.from_numpy(chosen), self.ids.device),
            targets=moved(torch.from_numpy(targets), self.ids.device),
            follows=None if self.follows is None else self.follows[rows],
            rows=self.rows[rows],
            host_targets=host,
            host_lengths=self.host_lengths[rows],
            count=len(chosen),
        )


class MaskedRows:
    """Batches of rows of like length, without end: `next(rows)`.

    A batch holds at most `tokens` padded tokens. Each epoch goes through every document once, over all ranks together.
    With `static` batches come in few shapes, filled up with rows that do not count, as compiled code wants them.
    """

    def __init__(
        self,
        text: Sentences,
        rules: Rules,
        tokens: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
        static: bool = False,
        content: int = 0,
    ):
        if tokens < rules.length:
            raise ConfigError(f"tokens is {tokens}, less than one row of {rules.length}; type: --set tokens=4096")
        self.text, self.rules, self.tokens, self.seed, self.static = text, rules, tokens, seed, static
        self.rank, self.world = rank, world
        self.content = content  # a number that is another one for other text
        self._begin(0, 0)

    def __iter__(self) -> "MaskedRows":
        return self

    def __next__(self) -> MaskedBatch:
        if self.position == len(self._plan):
            self._begin(self.epoch + 1, 0)
        numbers = self._plan[self.position]
        self.position += 1
        shape = None
        if self.static:
            width = int(self._widths[numbers].max())
            shape = self.tokens // width, width
        return load(self.text, self.rules, self._rows[numbers], numbers, self.seed, self.epoch, shape)

    @property
    def batches_per_epoch(self) -> int:
        """Batches this rank sees in the current epoch; another epoch may have a few more or less."""
        return len(self._plan)

    @property
    def padding(self) -> float:
        """The part of this rank's current epoch that is padding."""
        lengths = widths(self._rows)
        if self.static:
            room = sum(self.tokens // (w := int(self._widths[n].max())) * w for n in self._plan)
        else:
            room = sum(len(n) * int(lengths[n].max()) for n in self._plan)
        return 1 - sum(int(lengths[n].sum()) for n in self._plan) / room

    def state(self) -> dict[str, int]:
        """Where we are, and what the plan depends on."""
        return {"epoch": self.epoch, "position": self.position} | self._depends()

    def restore(self, state: dict[str, int]) -> None:
        """Continue from `state`: the next batch is the one that would have come."""
        check_same(state, self._depends())
        self._begin(state["epoch"], state["position"])

    def _depends(self) -> dict[str, int]:
        names = ("seed", "tokens", "world", "static", "content")
        rules = self.rules
        about = {name: int(getattr(self, name)) for name in names}
        about |= {"max_length": rules.length, "next_sentence": int(rules.next_sentence)}
        about |= {"swapped": int(rules.negatives == "swapped"), "whole_words": int(rules.whole_words)}
        return {"documents": len(self.text), "masked_in_10000": round(1e4 * rules.masked)} | about

    def _begin(self, epoch: int, position: int) -> None:
        self.epoch, self.position = epoch, position
        self._rows = draw_rows(self.text, self.rules, self.seed, epoch)
        if len(self._rows) < self.world:
            raise DataError(f"{len(self._rows)} rows cannot be shared by {self.world} processes; start fewer")
        w = widths(self._rows)
        if self.static:
            step = -(-self.rules.length // STEPS)
            w = np.minimum(-(-w // step) * step, self.rules.length)
        self._widths = w
        self._plan = plan(np.stack([w, w], 1), self.tokens, self.seed, epoch, self.world)[self.rank :: self.world]


def in_order(text: Sentences, rules: Rules, tokens: int) -> Iterator[MaskedBatch]:
    """One pass over all documents, sorted by length, the same rows and the same words hidden always: for validation."""
    rows = draw_rows(text, rules, VALID, 0)
    w = widths(rows)
    for numbers in cut(np.argsort(w, kind="stable"), np.stack([w, w], 1), tokens):
        yield load(text, rules, rows[numbers], numbers, VALID, 0)


# Rows


def draw_rows(text: Sentences, rules: Rules, seed: int, epoch: int) -> np.ndarray:
    """N 5: from where to where A and B reach in the ids, and whether B follows.

    Documents are read in stretches of as many whole sentences as fit, the first of a document shorter by chance. A
    stretch is parted somewhere into A and B, and half of the time B is given up for as many sentences of another
    document, which, like a true B, do not open it; reading then goes on after A. A last sentence alone has no B.
    """
    chance = random.Random(f"{seed} {epoch}").random
    places, borders, room = text.sentences, text.documents, rules.length - rules.marks
    sizes = np.diff(borders)
    donors = np.flatnonzero(sizes >= 2)
    others = rules.next_sentence and rules.negatives == "random"
    if others and 0 < len(donors) < 2:
        raise DataError(
            "only one document has two sentences, so there is no other one to take a wrong second sentence from; give "
            "more documents, or: --set data.negatives=swapped, or: --set data.next_sentence=false"
        )
    rows: list[tuple[int, int, int, int, int]] = []
    for document in range(len(sizes)):
        start, stop = int(borders[document]), int(borders[document + 1])
        fits = room if chance() < 0.5 else int(room * (0.5 + 0.5 * chance()))  # other borders in another epoch
        while start < stop:
            end = int(np.searchsorted(places[: stop + 1], places[start] + fits, "right")) - 1
            end, fits = max(end, min(start + 2, stop)), room  # any two sentences fit
            a, z = int(places[start]), int(places[end])
            if not rules.next_sentence or end - start < 2:
                rows.append((a, z, 0, 0, ALONE))
                start = end
                continue
            middle = start + 1 + int(chance() * (end - start - 1))
            m = int(places[middle])
            if chance() < 0.5:
                rows.append((a, m, m, z, FOLLOWS))
            elif not others:
                rows.append((m, z, a, m, ELSE))
            else:
                other = int(donors[int(chance() * (len(donors) - 1))])
                other = int(donors[-1]) if other == document else other  # all but this one, equally likely
                low, high = int(borders[other]) + 1, int(borders[other + 1])
                first = low + int(chance() * (high - low))
                last = min(first + end - middle, high)
                b = int(places[first])
                rows.append((a, m, b, min(int(places[last]), b + room - (m - a)), ELSE))
                end = middle
            start = end
    return np.array(rows, np.int64).reshape(-1, 5)


def widths(rows: np.ndarray) -> np.ndarray:
    """N: tokens of each row with [CLS] and [SEP]."""
    a, b = rows[:, A_TO] - rows[:, A_FROM], rows[:, B_TO] - rows[:, B_FROM]
    return a + b + 2 + (rows[:, LABEL] != ALONE)


# Hiding


def uniform(stream: int, seed: int, epoch: int, rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Numbers from 0 to below 1, one for each row and place: a hash of all five (SplitMix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        x = np.zeros(1, np.uint64)
        for key in (np.array([stream]), np.array([seed]), np.array([epoch]), rows[:, None], places[None, :]):
            x = (x ^ key.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(11)) * 2.0**-53


def hide(
    ids: np.ndarray, rules: Rules, seed: int, epoch: int, rows: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Words of B T ids hidden: what the model reads, and what it is to find (-1 where it is asked nothing).

    Of each row that has words, `masked` of their tokens, at least one; of these 80 % become [MASK], 10 % any word,
    and 10 % stay as they are. With `whole_words` the pieces of a word are chosen together.
    """
    rows = np.arange(len(ids)) if rows is None else rows
    places = np.arange(ids.shape[1])
    words = ~rules.special[ids]  # B T
    key = uniform(0, seed, epoch, rows, places)
    head = np.broadcast_to(places, ids.shape)
    if rules.whole_words:  # a piece has the key of its word's first one
        goes_on = rules.inside[ids] & words
        goes_on[:, 1:] &= words[:, :-1]
        goes_on[:, 0] = False
        head = np.maximum.accumulate(np.where(goes_on, 0, places), 1)
        key = np.take_along_axis(key, head, 1)
    order = np.argsort(np.where(words, key, 2.0), 1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(places, ids.shape), 1)
    real = words.sum(1, keepdims=True)
    share = rules.masked * real + uniform(3, seed, epoch, rows, places[:1]) - 0.5  # B 1; rounded by chance: no bias
    first = np.take_along_axis(rank, head, 1)
    size = np.zeros_like(rank)
    np.add.at(size, (np.arange(len(ids))[:, None], head), 1)
    middle = first + np.take_along_axis(size, head, 1) / 2  # of the word, in the order of choosing
    chosen = words & ((middle < share) | (first == 0))
    what = uniform(1, seed, epoch, rows, places)
    ordinary = np.flatnonzero(~rules.special)
    other = ordinary[(uniform(2, seed, epoch, rows, places) * len(ordinary)).astype(np.int64)]
    shown = np.where(chosen & (what < HIDE), rules.mask, ids)
    shown = np.where(chosen & (what >= HIDE) & (what < REPLACE), other, shown)
    return shown, np.where(chosen, ids, NO_TARGET)


def most_hidden(rules: Rules, width: int) -> int:
    """Of a row of `width` tokens; with whole words of all rows together, which go over and under their share."""
    return math.ceil(rules.masked * width) + rules.whole_words


def picked(targets: np.ndarray, room: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Where something is hidden in the flattened B T, and what, M each; filled up to `room` with what counts not."""
    flat = targets.reshape(-1)
    chosen = np.flatnonzero(flat >= 0)
    fill = max(0, room - len(chosen))
    return np.pad(chosen, (0, fill)), np.pad(flat[chosen], (0, fill), constant_values=NO_TARGET)


def load(
    text: Sentences,
    rules: Rules,
    rows: np.ndarray,
    numbers: np.ndarray,
    seed: int,
    epoch: int,
    shape: tuple[int, int] | None = None,
) -> MaskedBatch:
    """The batch of these rows, padded to their longest, or to a `shape`."""
    lengths = widths(rows)
    size, width = shape or (len(rows), int(lengths.max()))
    ids = np.full((size, width), rules.pad, np.int64)
    second = np.zeros((size, width), np.int64)
    for i, (a, m, b, z, label) in enumerate(rows.tolist()):
        middle = 2 + m - a
        ids[i, 0], ids[i, 1 : middle - 1], ids[i, middle - 1] = rules.cls, text.ids.read(a, m), rules.sep
        if label != ALONE:
            end = middle + z - b
            ids[i, middle:end], ids[i, end], second[i, middle : end + 1] = text.ids.read(b, z), rules.sep, 1
    spare = size - len(rows)
    numbers = np.concatenate([numbers, np.full(spare, -1)])
    shown, targets = hide(ids, rules, seed, epoch, np.maximum(numbers, 0))
    chosen, wanted = picked(targets, size * most_hidden(rules, width) if shape else 0)
    labels = np.pad(rows[:, LABEL], (0, spare), constant_values=ALONE)
    pairs, count = int((labels != ALONE).sum()), int((targets >= 0).sum())
    return MaskedBatch(
        ids=torch.from_numpy(shown),
        sentences=torch.from_numpy(second),
        lengths=torch.from_numpy(np.pad(lengths, (0, spare), constant_values=1)),  # a row of nothing sees itself
        chosen=torch.from_numpy(chosen),
        targets=torch.from_numpy(wanted),
        follows=torch.from_numpy(labels) if rules.next_sentence else None,
        rows=numbers,
        host_targets=targets,
        host_lengths=np.pad(lengths, (0, spare)),
        count=count,
        weight=count / pairs if pairs else 0.0,
    )
