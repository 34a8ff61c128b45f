"""Beam search and sampling for encoder-decoders: batched, on the device, each sentence independent of the others.

N hypotheses per sentence; B unfinished sentences. Only checking which are finished synchronises, so a step can be
captured and replayed as one CUDA graph.
"""

import copy
from collections.abc import Hashable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.generate.replay import Replay, overwrite
from regard.generate.sampling import draw, no_repeat_ngrams, top_k, top_p
from regard.generate.timestamps import TimestampRules
from regard.generate.topk import LARGE, best_few, best_of, best_words, bits
from regard.limits import require
from regard.models.base import DecodingState, EncoderDecoder
from regard.nn.gpu import TRITON
from regard.nn.products import ROWS

NEVER = -torch.inf
# Logits a CPU computes at a time. The memory of larger blocks may go back to the system after every step, which takes
# up to twice as long.
CACHED = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Search:
    """Settings of beam search. Scores are log-probability / ((5 + length) / 6)^alpha (Wu et al. 2016)."""

    beams: int = 5
    alpha: float = 0.6
    min_length: int = 0
    eos: int = 0
    pad: int = -1  # never emitted
    start: int | None = None  # the decoder's first input; None: `pad`
    never: tuple[int, ...] = ()  # never emitted, except in a prefix
    not_first: tuple[int, ...] = ()  # not emitted right after the prefix
    no_repeat_ngram: int = 0  # no n-gram of this many tokens occurs twice; 0: no rule
    times: TimestampRules | None = None  # for a model that writes timestamps
    wanted: int = 0  # hypotheses that are used; a search ends when no other can be one of them (3 % faster). 0: all

    def penalty(self, length: Tensor) -> Tensor:
        return ((5 + length) / 6) ** self.alpha


@dataclass
class BeamResult:
    """Best hypotheses of each sentence, best first: B N; ids B N T end in eos and are padded with pad."""

    ids: Tensor
    lengths: Tensor
    scores: Tensor  # normalised by the length penalty; -inf where a sentence has fewer than N
    log_probabilities: Tensor


class Beam:
    """The hypotheses of B sentences: alive ones being extended, and the best finished ones."""

    def __init__(
        self, search: Search, limits: Tensor, capacity: int, prefix: Tensor | None, start: int = 1,
        before: Tensor | None = None,
    ):  # fmt: skip
        """Begin with one empty hypothesis, which the first step extends to N; or with `start`, all but one impossible.
        The output follows `before`, B S, padded on the left with -1."""
        B, N, device = len(limits), search.beams, limits.device
        self.search, self.limits, self.prefix, self.before = search, limits, prefix, before
        self.never, self.not_first = (torch.tensor(x, device=device) for x in (search.never, search.not_first))
        self.rows = torch.arange(B, device=device)  # which sentence of the batch each row is
        self.time = torch.zeros(1, dtype=torch.long, device=device)
        self.scores = torch.zeros(B, start, device=device)
        self.scores[:, 1:] = NEVER
        self.ids = torch.full((B, start, capacity), search.pad, device=device)
        self.finished = torch.full((B, N, capacity), search.pad, device=device)
        self.finished_scores = torch.full((B, N), NEVER, device=device)  # normalised
        self.finished_sums = torch.full((B, N), NEVER, device=device)
        self.finished_lengths = torch.zeros((B, N), dtype=torch.long, device=device)
        self.count = torch.zeros(B, dtype=torch.long, device=device)
        self.done = torch.zeros(B, dtype=torch.bool, device=device)

    def last(self) -> Tensor:
        """The ids to feed next: B N."""
        before = (self.time - 1).clamp(min=0)
        ids = self.ids.index_select(2, before).squeeze(2)
        start = self.search.pad if self.search.start is None else self.search.start
        return torch.where(self.time == 0, start, ids)

    def advance(self, model: EncoderDecoder, hidden: Tensor) -> Tensor:
        """Extend every hypothesis, B N D, by its best tokens and file the finished ones; returns the parents, B N."""
        s, N, length = self.search, self.search.beams, self.time + 1
        rows = max(ROWS, CACHED // model.config.vocab // ROWS * ROWS)  # whole blocks of a product
        few = len(hidden) if hidden.is_cuda else max(1, rows // hidden.size(1))
        slices = [slice(start, start + few) for start in range(0, len(hidden), few)]
        if self.has_blocks(hidden, model.config.vocab):
            parts = [best_words(bits(model, hidden[r]), self.scores[r], 2 * N, s.pad) for r in slices]
        else:
            part = self.part if len(slices) > 1 else lambda _: self
            parts = [part(r).extensions(model.logits(hidden[r])) for r in slices]
        best, parents, ids = map(torch.cat, zip(*parts, strict=True)) if len(parts) > 1 else parts[0]
        ends = ids == s.eos
        histories = self.ids.gather(1, parents[:, :, None].expand(-1, -1, self.ids.size(2)))  # B 2N T
        histories.index_copy_(2, self.time, ids[:, :, None])

        # an ending counts if it is among the N best; 2N candidates leave N to continue, however many end
        rank = torch.arange(ends.size(1), device=ends.device)
        filed = ends & (rank < N) & (best > NEVER) & ~self.done[:, None]
        if filed.is_cuda or filed.any():  # on a CPU the check is free, and often nothing ends
            self.file(filed, best, histories, length)

        alive = torch.where(ends, NEVER, best)
        self.scores, go = best_few(alive, N)  # B N
        self.ids = histories.gather(1, go[:, :, None].expand(-1, -1, self.ids.size(2)))
        self.done |= (self.count >= N) | (length >= self.limits) | (self.scores[:, 0] == NEVER)
        if s.wanted:  # sums only fall, so the largest penalty ahead bounds what the best of them can reach
            reach = self.scores[:, 0] / torch.maximum(s.penalty(length + 1), s.penalty(self.limits))
            self.done |= self.finished_scores[:, s.wanted - 1] >= reach
        self.time += 1
        return parents.gather(1, go)

    def extensions(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The 2N best extensions of each sentence, best first: their scores, parents and tokens, B 2N."""
        N, V = self.search.beams, logits.size(-1)
        if self.has_kernel(logits):
            best, flat = self.best_words(logits)
        else:
            totals = self.totals(logits.float().log_softmax(-1)).flatten(1)  # B N·V
            best, flat = best_of(totals, min(2 * N, totals.size(1)))
        if best.size(1) < 2 * N:  # a first step with fewer tokens than hypotheses
            more = (0, 2 * N - best.size(1))
            best, flat = F.pad(best, more, value=NEVER), F.pad(flat, more)
        return best, flat // V, flat % V

    def has_blocks(self, hidden: Tensor, vocab: int) -> bool:
        """Whether `best_words` of `generate.topk` applies: on a CPU, where every hypothesis may end or go on."""
        fp32 = hidden.dtype == torch.float and hidden.device.type == "cpu"
        if not fp32 or vocab < LARGE or not self.is_free or self.time < self.search.min_length:
            return False
        return bool((self.limits > self.time + 1).all())

    def file(self, filed: Tensor, sums: Tensor, histories: Tensor, length: Tensor) -> None:
        """Keep the N best of the finished hypotheses so far and those just `filed`, B 2N."""
        scores = torch.where(filed, sums / self.search.penalty(length), NEVER)
        self.count += filed.sum(1)
        self.finished_scores, keep = best_few(torch.cat((self.finished_scores, scores), 1), self.search.beams)
        self.finished_sums = torch.cat((self.finished_sums, sums), 1).gather(1, keep)
        self.finished_lengths = torch.cat((self.finished_lengths, length.expand_as(sums)), 1).gather(1, keep)
        self.finished = torch.cat((self.finished, histories), 1).gather(1, keep[:, :, None].expand_as(self.finished))

    @property
    def is_free(self) -> bool:
        """Whether no token is forbidden or forced by a rule."""
        s = self.search
        return not (s.never or s.not_first or s.no_repeat_ngram) and s.times is None and self.prefix is None

    def has_kernel(self, logits: Tensor) -> bool:
        """Whether our two GPU kernels can find the best tokens."""
        N = self.search.beams
        return self.is_free and TRITON and logits.is_cuda and N in (1, 2, 4, 8) and logits.size(1) == N

    def best_words(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """`best_of` the `totals`. The kernel ranks all tokens except eos, which is merged in afterwards."""
        from regard.nn.decoding import best_words

        s, length, N = self.search, self.time + 1, self.search.beams
        best, flat, end = best_words(logits, self.scores, s.eos, s.pad)
        out_of_room = (length >= self.limits)[:, None]
        ending = (length > s.min_length)[:, None] | out_of_room
        best = torch.cat((best.masked_fill(out_of_room, NEVER), (self.scores + end).masked_fill(~ending, NEVER)), 1)
        ends = torch.arange(N, device=flat.device) * logits.size(2) + s.eos
        best, order = best_few(best, 2 * N)
        return best, torch.cat((flat, ends.expand(len(flat), -1)), 1).gather(1, order)

    def restart(self, limits: Tensor) -> None:
        """Start over, in the same memory."""
        self.limits.copy_(limits)
        for zeros in (self.time, self.scores, self.finished_lengths, self.count, self.done):
            zeros.zero_()
        self.scores[:, 1:] = NEVER
        for scores in (self.finished_scores, self.finished_sums):
            scores.fill_(NEVER)
        for ids in (self.ids, self.finished):
            ids.fill_(self.search.pad)

    def totals(self, words: Tensor) -> Tensor:
        """The score of every hypothesis with every next token, -inf if not allowed: B N V, in place."""
        s = self.search
        length, plain = self.time + 1, words
        if s.never:
            words = words.index_fill(2, self.never, NEVER)
        begin = 0 if self.prefix is None else self.prefix.size(1)
        if s.not_first:
            words[..., self.not_first] += torch.where(self.time == begin, NEVER, 0.0)
        if s.no_repeat_ngram:
            words = no_repeat_ngrams(words, *self.text(), s.no_repeat_ngram)
        if s.times is not None:
            words = s.times.apply(words, self.ids, self.time, begin)
        if self.prefix is not None:
            place = self.time.clamp(max=self.prefix.size(1) - 1)
            forced = self.prefix.index_select(1, place)[:, :, None]  # B 1 1; pad where nothing is forced
            free = (forced == s.pad) | (self.time >= self.prefix.size(1))
            it = torch.arange(words.size(-1), device=words.device) == forced
            words = torch.where(free, words, torch.where(it, plain, NEVER))
        out_of_room = length >= self.limits  # B: only eos is allowed
        ending = (length > s.min_length) | out_of_room
        end = torch.where(ending[:, None], words[..., s.eos], NEVER)  # B N
        words += torch.where(out_of_room[:, None], NEVER, self.scores)[:, :, None]
        words[..., s.eos] = self.scores + end
        words[..., s.pad] = NEVER
        return words

    def text(self) -> tuple[Tensor, Tensor]:
        """All ids read and written, B N T, and their number, 1."""
        if self.before is None:
            return self.ids, self.time
        before = self.before[:, None].expand(-1, self.ids.size(1), -1)
        return torch.cat((before, self.ids), 2), self.before.size(1) + self.time

    def part(self, rows: slice) -> "Beam":
        """A view of these sentences."""
        part = copy.copy(self)
        part.select(rows)
        return part

    def select(self, rows: Tensor | slice) -> None:
        finished = ("finished", "finished_scores", "finished_sums", "finished_lengths")
        for name in ("rows", "limits", "ids", "scores", "count", "done", *finished):
            setattr(self, name, getattr(self, name)[rows])
        self.prefix = None if self.prefix is None else self.prefix[rows]
        self.before = None if self.before is None else self.before[rows]


@torch.inference_mode()
def beam_search(
    model: EncoderDecoder,
    source: Tensor,
    lengths: Tensor | None,
    limits: Tensor,
    search: Search,
    prefix: Tensor | None = None,
    look_every: int = 1,
    shelf: "Shelf | None" = None,
    before: Tensor | None = None,
) -> BeamResult:
    """Translate B S sources; sentence b gets at most `limits[b]` tokens, eos included. With a `shelf` a GPU keeps its
    captured graphs for searches of the same shape. `before` as for `Beam`."""
    capacity = int(limits.max())
    B, N = len(limits), search.beams
    if shelf is not None and source.is_cuda and prefix is None:
        return search_fixed(model, source, lengths, limits, search, look_every, shelf)
    if not source.is_cuda:  # scores of the next token, the tokens so far, the table of ancestors, for some heads
        each = 16 * model.config.vocab + (64 + 16 * N) * capacity
        require(B * N * each, f"searching with {N:,} beams", "use fewer: --beam 5")
    state = model.begin(source, lengths, N, capacity)
    beam = Beam(search, limits, capacity, prefix, before=before)
    best = BeamResult(
        torch.full((B, N, capacity), search.pad, device=source.device),
        torch.zeros((B, N), dtype=torch.long, device=source.device),
        torch.full((B, N), NEVER, device=source.device),
        torch.full((B, N), NEVER, device=source.device),
    )

    def extend() -> None:
        hidden = model.step(beam.last(), state)
        state.reorder(beam.advance(model, hidden))

    step = Replay(extend, [beam, state], source.is_cuda)
    for time in range(1, capacity + 1):
        step()
        if time % look_every and time < capacity:
            continue
        rows = len(beam.rows)
        if leave(beam, state, best, 2 if source.is_cuda else 4):
            break
        if len(beam.rows) < rows:
            step = Replay(extend, [beam, state], source.is_cuda)
    return best


class Recorded:
    """A search over B S sources whose memory never moves, so that a GPU can replay its start and its steps."""

    def __init__(self, model: EncoderDecoder, source: Tensor, lengths: Tensor | None, limits: Tensor, search: Search):
        self.model, self.search, self.capacity = model, search, int(limits.max())
        self.source, self.limits = source.clone(), limits.clone()
        self.lengths = None if lengths is None else lengths.clone()
        self.state = self.begun()
        self.beam = Beam(search, limits.clone(), self.capacity, None, search.beams)
        waits = not hasattr(model.config, "max_length")  # recurrent nets synchronise for the lengths
        self.start = Replay(self.begin, [], source.is_cuda and not waits)
        self.step = Replay(self.extend, [self.beam, self.state], source.is_cuda)

    def begun(self) -> DecodingState:
        state = self.model.begin(self.source, self.lengths, self.search.beams, self.capacity)
        state.reorder(torch.zeros(len(self.source), self.search.beams, dtype=torch.long, device=self.source.device))
        return state

    def begin(self) -> None:
        overwrite(self.state, self.begun())
        self.beam.restart(self.limits)

    def extend(self) -> None:
        hidden = self.model.step(self.beam.last(), self.state)
        self.state.reorder(self.beam.advance(self.model, hidden))

    def restart(self, source: Tensor, lengths: Tensor | None, limits: Tensor) -> None:
        self.source.copy_(source)
        self.limits.copy_(limits)
        if self.lengths is not None and lengths is not None:
            self.lengths.copy_(lengths)
        self.start()


Shelf = dict[Hashable, Recorded]  # by shape; most recently used last
KEPT = 4  # recorded searches, each with its own cache


@torch.inference_mode()
def search_fixed(
    model: EncoderDecoder, source: Tensor, lengths: Tensor | None, limits: Tensor, search: Search, look_every: int,
    shelf: Shelf,
) -> BeamResult:  # fmt: skip
    """`beam_search` that keeps every sentence until the last one ends: on a GPU fewer rows are no faster."""
    capacity = int(limits.max())
    key = source.shape, lengths is None, capacity, search
    if key in shelf:
        recorded = shelf.pop(key)
        recorded.restart(source, lengths, limits)
    else:
        recorded = Recorded(model, source, lengths, limits, search)
    for time in range(1, capacity + 1):
        recorded.step()
        if (time % look_every == 0 or time == capacity) and bool(recorded.beam.done.all()):
            break
    shelf[key] = recorded  # a failed one is not kept
    for old in list(shelf)[:-KEPT]:
        del shelf[old]
    beam = recorded.beam
    parts = beam.finished, beam.finished_lengths, beam.finished_scores, beam.finished_sums
    return BeamResult(*(part.clone() for part in parts))


def leave(beam: Beam, state: DecodingState, best: BeamResult, share: int) -> bool:
    """Move finished sentences from the batch to `best`, once one in `share` is finished; True when all are."""
    done = beam.done.tolist()
    if all(done) or sum(done) * share >= len(done):
        out = beam.done.nonzero().squeeze(1)
        where = beam.rows[out]
        best.ids[where], best.lengths[where] = beam.finished[out], beam.finished_lengths[out]
        best.scores[where], best.log_probabilities[where] = beam.finished_scores[out], beam.finished_sums[out]
        if all(done):
            return True
        stay = (~beam.done).nonzero().squeeze(1)
        beam.select(stay)
        state.select(stay)
    return False


@torch.inference_mode()
def sample(
    model: EncoderDecoder,
    source: Tensor,
    lengths: Tensor | None,
    limits: Tensor,
    uniform: Tensor,
    *,
    eos: int,
    pad: int,
    start: int,
    temperature: float = 1.0,
    k: int = 0,
    p: float = 1.0,
    no_repeat_ngram: int = 0,
) -> BeamResult:
    """One sampled translation per source; `uniform`, B T, holds the random numbers of each sentence."""
    B, capacity = source.size(0), int(limits.max())
    state = model.begin(source, lengths, 1, capacity)
    ids = torch.full((B, capacity), pad, device=source.device)
    sums = torch.zeros(B, device=source.device)
    counts = torch.zeros(B, dtype=torch.long, device=source.device)
    done = torch.zeros(B, dtype=torch.bool, device=source.device)
    last = torch.full((B, 1), start, device=source.device)
    for time in range(capacity):
        logits = model.logits(model.step(last, state)).float().squeeze(1)  # B V
        likely = logits.log_softmax(-1)  # the model's own, before padding is forbidden
        logits[:, pad] = NEVER
        if no_repeat_ngram:
            logits = no_repeat_ngrams(logits, ids, counts.new_full((1,), time), no_repeat_ngram)
        words = draw(top_p(top_k(logits / temperature, k), p), uniform[:, time].to(source.device))
        words = torch.where(limits <= time + 1, eos, words)
        sums += torch.where(done, 0.0, likely.gather(1, words[:, None]).squeeze(1))
        ids[:, time] = torch.where(done, pad, words)
        counts += ~done
        done |= words == eos
        last = words[:, None]
        if bool(done.all()):
            break
    return BeamResult(ids[:, None], counts[:, None], sums[:, None], sums[:, None])
