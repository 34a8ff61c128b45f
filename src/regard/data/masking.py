"""BERT's examples (Devlin et al. 2019, section 3.1): [CLS] A [SEP] B [SEP] with masked words, and their order.

An epoch's rows are a pure function of (seed, epoch), the masks of a row one of (seed, epoch, row): nothing is stored,
everything is new in each epoch, and a position in the data is two integers.
"""

import math
import random
from bisect import bisect_right
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from regard.data.batch import Batch, moved, on_device, on_host
from regard.data.loader import Plan, Source, TokenBudget
from regard.data.masked import SentenceIds
from regard.data.tokenizers.bpe import splitmix64
from regard.errors import ConfigError

A_FROM, A_TO, B_FROM, B_TO, LABEL = range(5)  # the columns of a row
FOLLOWS, ELSE, ALONE = 0, 1, -1  # B came next; it did not; there is no B
NO_TARGET = -1
HIDE, REPLACE = 0.8, 0.9  # below the first a token becomes [MASK], below the second a random one; otherwise it stays
SHORT = 4  # a packed batch may have this many times more rows than rows of full length
VALID = 2**32 - 1  # the seed of validation rows, the same for every run


@dataclass(frozen=True)
class Rules:
    """How examples are built. `special` and `inside` mark the ids that are special and that continue a word."""

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
        """The number of [CLS] and [SEP] in a full row."""
        return 3 if self.next_sentence else 2


@dataclass(frozen=True, eq=False)
class MaskedBatch(Batch):
    """Rows of ids with masked words: B T, padded; or packed, 1 T.

    `chosen` are the M masked positions in the flattened ids, the only targets.
    """

    ids: Tensor = field(metadata=on_device())  # B T
    sentences: Tensor = field(metadata=on_device())  # B T: 0 in A, 1 in B
    lengths: Tensor | None = field(metadata=on_device())  # B; None: packed
    starts: Tensor | None = field(metadata=on_device(per_row=False))  # R+1: offsets of packed rows, int32
    chosen: Tensor = field(metadata=on_device(per_row=False))  # M
    targets: Tensor = field(metadata=on_device(per_row=False))  # M: the original ids; negative where M is padded
    follows: Tensor | None = field(metadata=on_device())  # B or R: `FOLLOWS`, `ELSE` or `ALONE`; None: not predicted
    rows: np.ndarray = field(metadata=on_host())  # row of the epoch; -1 is padding
    host_targets: np.ndarray = field(metadata=on_host())  # B T: negative where nothing is masked
    host_lengths: np.ndarray = field(metadata=on_host())  # of each row, on the host; 0 for padding
    count: int  # masked tokens
    weight: float = 0.0  # of a pair, in masked tokens: pairs and tokens of a batch weigh the same, however it is split

    def __len__(self) -> int:
        return int((self.rows >= 0).sum())

    @property
    def tokens(self) -> int:
        """All tokens, masked or not, without padding."""
        return int(self.host_lengths.sum())

    def part(self, rows: slice) -> "MaskedBatch":
        """Some of the rows, and their masked positions."""
        batch = super().part(rows)
        if self.starts is not None:  # packed: rows are spans of the one row of ids
            ends = np.concatenate([[0], np.cumsum(batch.host_lengths)])
            begin = int(self.host_lengths[: rows.start].sum())
            stretch = slice(begin, begin + int(ends[-1]))
            flat = {name: getattr(self, name)[:, stretch] for name in ("ids", "sentences", "host_targets")}
            batch = replace(batch, **flat, starts=moved(torch.from_numpy(ends.astype(np.int32)), self.ids.device))
        chosen, targets = (moved(torch.from_numpy(x), self.ids.device) for x in picked(batch.host_targets))
        return replace(batch, chosen=chosen, targets=targets, count=len(chosen))


@dataclass(frozen=True, eq=False)
class MaskedRows(Source):
    """BERT's examples. Each epoch reads every document once.

    Rows of similar length are padded, to at most `tokens` in all. Or rows of any length are `packed`: then all batches
    have `tokens` and one shape, as compiled code expects, with hardly any padding.
    """

    text: SentenceIds
    rules: Rules
    tokens: int
    packed: bool = False
    seed: int = 0
    epoch: int = 0
    rows: np.ndarray = field(default_factory=lambda: np.zeros((0, 5), np.int64))  # N 5, of the epoch
    unit = "rows"

    def __post_init__(self):
        if self.tokens < self.rules.length:
            raise ConfigError(
                f"tokens is {self.tokens}, less than one row of {self.rules.length}; type: --set tokens=4096"
            )
        sizes = widths(self.rows)[:, None]
        object.__setattr__(self, "lengths", sizes)
        object.__setattr__(self, "widths", sizes)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def plan(self) -> Plan:
        return PackedPlan(self.tokens, self.rules.length) if self.packed else TokenBudget(self.tokens)

    def for_epoch(self, seed: int, epoch: int, rng: np.random.Generator | None = None) -> "MaskedRows":
        return replace(self, seed=seed, epoch=epoch, rows=draw_rows(self.text, self.rules, seed, epoch))

    def fixed(self) -> "MaskedRows":
        return self.for_epoch(VALID, 0)

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> MaskedBatch:
        tokens = self.tokens if self.packed else 0
        return load(self.text, self.rules, self.rows[rows], rows, self.seed, self.epoch, tokens)

    def settings(self) -> dict[str, int]:
        rules = self.rules
        return {
            "documents": len(self.text),
            "masked_in_10000": round(1e4 * rules.masked),
            "packed": int(self.packed),
            "max_length": rules.length,
            "next_sentence": int(rules.next_sentence),
            "swapped": int(rules.negatives == "swapped"),
            "whole_words": int(rules.whole_words),
        }


@dataclass(frozen=True)
class PackedPlan(Plan):
    """Rows in random order; a batch ends before `tokens` or the maximum number of rows is exceeded."""

    tokens: int
    longest: int  # row

    def batches(self, source: Source, rng: np.random.Generator) -> list[np.ndarray]:
        return self._cut(rng.permutation(len(source)), source.widths)

    def in_order(self, source: Source) -> list[np.ndarray]:
        return self._cut(np.arange(len(source)), source.widths)

    def settings(self) -> dict[str, int]:
        return {"tokens": self.tokens}

    def room(self, source: Source, rows: np.ndarray) -> int:
        return self.tokens

    def _cut(self, order: np.ndarray, widths: np.ndarray) -> list[np.ndarray]:
        most = most_rows(self.longest, self.tokens) - -(-self.tokens // self.longest)  # the rest is for padding
        cuts, start, room = [], 0, self.tokens
        for i, width in enumerate(widths[order, 0].tolist()):
            if width > room or i - start == most:
                cuts.append(i)
                start, room = i, self.tokens
            room -= width
        return np.split(order, cuts)


# Rows


def draw_rows(text: SentenceIds, rules: Rules, seed: int, epoch: int) -> np.ndarray:
    """N 5: the spans of A and B in the ids, and whether B follows.

    Documents are read in spans of as many whole sentences as fit, the first of a document randomly shorter. A span is
    split at random into A and B, and half of the time B is replaced by as many sentences of another document, which,
    like a true B, are not its first; reading then continues after A. If no other document has two sentences, A and B
    are swapped instead. A single last sentence has no B.
    """
    rand = random.Random(f"{seed} {epoch}").random
    # Memory views yield Python numbers: this loop dominates the start of an epoch.
    places, borders, room = text.sentences.data, text.documents.data, rules.length - rules.marks
    donors = np.flatnonzero(np.diff(text.documents) >= 2).data
    others = rules.negatives == "random" and len(donors) > 1
    rows: list[tuple[int, int, int, int, int]] = []
    for document in range(len(text)):
        start, stop = borders[document], borders[document + 1]
        fits = room if rand() < 0.5 else int(room * (0.5 + 0.5 * rand()))  # different borders in each epoch
        while start < stop:
            end = bisect_right(places, places[start] + fits, start, stop + 1) - 1
            end, fits = max(end, min(start + 2, stop)), room  # any two sentences fit
            a, z = places[start], places[end]
            if not rules.next_sentence or end - start < 2:
                rows.append((a, z, 0, 0, ALONE))
                start = end
                continue
            middle = start + 1 + int(rand() * (end - start - 1))
            m = places[middle]
            if rand() < 0.5:
                rows.append((a, m, m, z, FOLLOWS))
            elif not others:
                rows.append((m, z, a, m, ELSE))
            else:
                other = donors[int(rand() * (len(donors) - 1))]
                other = donors[-1] if other == document else other  # all but this one, equally likely
                low, high = borders[other] + 1, borders[other + 1]
                first = low + int(rand() * (high - low))
                last = min(first + end - middle, high)
                b = places[first]
                rows.append((a, m, b, min(places[last], b + room - (m - a)), ELSE))
                end = middle
            start = end
    return np.array(rows, np.int64).reshape(-1, 5)


def widths(rows: np.ndarray) -> np.ndarray:
    """N: tokens of each row with [CLS] and [SEP]."""
    a, b = rows[:, A_TO] - rows[:, A_FROM], rows[:, B_TO] - rows[:, B_FROM]
    return a + b + 2 + (rows[:, LABEL] != ALONE)


def most_rows(longest: int, tokens: int) -> int:
    """The most rows of a packed batch, including padding rows."""
    return max(2, SHORT * tokens // longest)


# Masking


def uniform(stream: int, seed: int, epoch: int, rows: np.ndarray, which: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1), one for each of `places`, in row rows[which].

    A hash of stream, seed, epoch, row and place.
    """
    x = np.zeros(1, np.uint64)
    for key in (np.array([stream]), np.array([seed]), np.array([epoch]), rows):
        x = splitmix64(x ^ key.astype(np.uint64))
    return (splitmix64(x[which] ^ places.astype(np.uint64)) >> np.uint64(11)) * 2.0**-53


def hide(
    ids: np.ndarray,
    rules: Rules,
    seed: int,
    epoch: int,
    rows: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Mask B T ids: what the model reads, and what it should predict (-1 where nothing is masked).

    Of each row's ordinary tokens, the share `masked` is chosen, at least one; of these 80 % become [MASK], 10 % a
    random token, and 10 % stay. With `whole_words` the tokens of a word are chosen together. Rows may also be packed,
    with `sizes`, B. The masks of a row do not depend on the other rows, nor on the layout.
    """
    sizes = np.full(len(ids), ids.shape[1]) if sizes is None else sizes
    rows = np.arange(len(sizes)) if rows is None else rows
    flat = ids.reshape(-1)
    which = np.repeat(np.arange(len(sizes)), sizes)  # N: the row of each position
    begin = (np.cumsum(sizes) - sizes)[which]
    everywhere = np.arange(len(flat))
    places = everywhere - begin
    words = ~rules.special[flat]
    key = uniform(0, seed, epoch, rows, which, places)
    head = everywhere
    if rules.whole_words:  # a token has the key of its word's first one
        goes_on = rules.inside[flat] & words & (places > 0)
        goes_on[1:] &= words[:-1]
        head = np.maximum.accumulate(np.where(goes_on, 0, everywhere))
        key = key[head]
    rank = np.empty_like(everywhere)
    rank[np.argsort(which + np.where(words, key, 1.5) / 2, kind="stable")] = everywhere  # by row, then by key
    rank -= begin
    real = np.bincount(which, words, len(sizes))
    first_place = np.zeros(len(sizes), np.int64)
    share = rules.masked * real + uniform(3, seed, epoch, rows, np.arange(len(sizes)), first_place)
    first = rank[head]
    middle = first + np.bincount(head, minlength=len(flat))[head] / 2  # the word's rank in the order of choosing
    chosen = words & ((middle < share[which] - 0.5) | (first == 0))  # rounded at random: no bias
    what = uniform(1, seed, epoch, rows, which, places)
    ordinary = np.flatnonzero(~rules.special)
    other = ordinary[(uniform(2, seed, epoch, rows, which, places) * len(ordinary)).astype(np.int64)]
    shown = np.where(chosen & (what < HIDE), rules.mask, flat)
    shown = np.where(chosen & (what >= HIDE) & (what < REPLACE), other, shown)
    return shown.reshape(ids.shape), np.where(chosen, flat, NO_TARGET).reshape(ids.shape)


def most_hidden(rules: Rules, tokens: int) -> int:
    """The most masked tokens of a packed batch: its share plus a margin exceeded once in a billion batches."""
    return math.ceil(rules.masked * tokens + 3 * math.sqrt(most_rows(rules.length, tokens)))


def picked(targets: np.ndarray, room: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The masked positions in the flattened B T, and their targets, M each; padded to `room` with ignored ones."""
    flat = targets.reshape(-1)
    chosen = np.flatnonzero(flat >= 0)
    fill = max(0, room - len(chosen))
    return np.pad(chosen, (0, fill)), np.pad(flat[chosen], (0, fill), constant_values=NO_TARGET)


def load(
    text: SentenceIds, rules: Rules, rows: np.ndarray, numbers: np.ndarray, seed: int, epoch: int, tokens: int = 0
) -> MaskedBatch:
    """The batch of these rows, padded to their longest, or packed into one row of `tokens`."""
    lengths = widths(rows)
    sizes = np.full(len(rows), lengths.max())
    if tokens:  # padding is rows too, none longer than `length`
        left = tokens - int(lengths.sum())
        sizes = np.append(lengths, np.minimum(rules.length, left - np.arange(0, left, rules.length)))
    at = np.append(0, np.cumsum(sizes))
    ids = np.full(at[-1], rules.pad, np.int64)
    second = np.zeros(at[-1], np.int64)
    for start, (a, m, b, z, label) in zip(at.tolist(), rows.tolist(), strict=False):
        middle = start + 2 + m - a
        ids[start], ids[start + 1 : middle - 1], ids[middle - 1] = rules.cls, text.ids.read(a, m), rules.sep
        if label != ALONE:
            end = middle + z - b
            ids[middle:end], ids[end], second[middle : end + 1] = text.ids.read(b, z), rules.sep, 1
    fills = np.full(len(sizes) - len(rows), -1)
    numbers = np.append(numbers, fills)
    shown, targets = hide(ids, rules, seed, epoch, np.maximum(numbers, 0), sizes)
    room = most_hidden(rules, tokens) if tokens else 0
    if tokens:
        targets[np.flatnonzero(targets >= 0)[room:]] = NO_TARGET
    chosen, hidden = picked(targets, room)
    labels = np.append(rows[:, LABEL], np.full(most_rows(rules.length, tokens) - len(rows), ALONE) if tokens else fills)
    pairs, count = int((labels != ALONE).sum()), int((targets >= 0).sum())
    shape = (1, tokens) if tokens else (len(rows), -1)
    starts = np.pad(at, (0, len(labels) + 1 - len(at)), constant_values=at[-1]).astype(np.int32) if tokens else None
    return MaskedBatch(
        ids=torch.from_numpy(shown.reshape(shape)),
        sentences=torch.from_numpy(second.reshape(shape)),
        lengths=None if tokens else torch.from_numpy(lengths),
        starts=None if starts is None else torch.from_numpy(starts),
        chosen=torch.from_numpy(chosen),
        targets=torch.from_numpy(hidden),
        follows=torch.from_numpy(labels) if rules.next_sentence else None,
        rows=numbers,
        host_targets=targets.reshape(shape),
        host_lengths=np.append(lengths, np.zeros(len(fills), np.int64)),
        count=count,
        weight=count / pairs if pairs else 0.0,
    )
