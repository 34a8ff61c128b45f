"""Translate with an encoder-decoder, with scores and attention on request."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.pairs import clean
from regard.data.tokenizers import Tokenizer
from regard.errors import ConfigError, DataError
from regard.generate.sampling import row_uniforms
from regard.generate.search import BeamResult, Search, Shelf, beam_search, sample
from regard.models.base import EncoderDecoder
from regard.nn.linear import takes
from regard.nn.packed import packed
from regard.nn.stored import is_stored
from regard.nn.taps import watch
from regard.predictors.base import Predictor, chunks
from regard.predictors.workers import even, side_by_side, workers
from regard.ticks import tick

Batch = tuple[list[int], Tensor, Tensor | None, Tensor]  # rows, B S sources, lengths (None: no padding), limits B
BATCH, TOKENS = 256, 8192  # sentences decoded together, at most, and their tokens
CHUNK = 512  # lines read before the first is translated: enough to batch by length, few enough to stream


@dataclass(frozen=True)
class Hypothesis:
    """One candidate translation. The search ranks by `score`; `log_probability` is the model's own."""

    text: str
    score: float
    log_probability: float
    ids: list[int]


@dataclass(frozen=True)
class Token:
    """One token of a text as the model reads it."""

    piece: str
    id: int
    position: int


@dataclass(frozen=True)
class Hypotheses:
    """The candidates for one source, best first; none for a blank one."""

    candidates: list[Hypothesis]

    @property
    def text(self) -> str:
        """The best one."""
        return self.candidates[0].text if self.candidates else ""


class Translator(Predictor):
    """A model and its tokenizer."""

    family = "translator"

    def __init__(self, model: EncoderDecoder, tokenizer: Tokenizer, device: str = "cpu", no_repeat_ngram: int = 0):
        self.model = model.to(device).eval()
        self.tokenizer = tokenizer
        self.device = torch.device(device)
        self.start = getattr(model.config, "start", tokenizer.pad)  # the decoder's first input
        self.no_repeat_ngram = no_repeat_ngram  # the default
        self.shelf: Shelf = {}

    @cached_property
    def reader(self) -> EncoderDecoder:
        """The model for searching: on a CPU, a copy with packed weights."""
        weight = next(self.model.parameters(), None)
        plain = weight is not None and takes(weight) and not is_stored(self.model)
        return packed(self.model) if plain else self.model

    def predict(
        self, inputs: Iterable[str], *, sampled: bool = False, first: int = 0, **options: Any
    ) -> Iterator[Hypotheses]:
        """Translations of each line; a blank one has none. Options as for `hypotheses`, or if `sampled` for `sample`.

        `first` is how many lines came before these.
        """
        for lines in chunks(inputs, CHUNK):
            if not options.get("cut"):
                self.check_lengths(lines, first)
            rows = [i for i, text in enumerate(lines) if text.strip()]
            texts, answers = [lines[i] for i in rows], [Hypotheses([]) for _ in lines]
            if sampled:
                best = [[h] for h in self.sample(texts, first=first, **options)]
            else:
                best = self.hypotheses(texts, **options)
            for i, candidates in zip(rows, best, strict=True):
                answers[i] = Hypotheses(candidates)
            yield from answers
            first += len(lines)

    def check_lengths(self, lines: Sequence[str], before: int) -> None:
        """Raise `DataError` for a line that is too long, with its number; `before` lines precede these."""
        for number, ids in enumerate(self.encode(lines), before + 1):
            if len(ids) >= self.room:
                size = len(ids) + 1
                raise DataError(f"line {number} has {size:,} tokens, this model reads at most {self.room:,}; split it")

    @property
    def room(self) -> int:
        """The most tokens of a text, its end included."""
        return getattr(self.model.config, "max_length", 10_000)

    def translate(self, texts: Sequence[str], **settings) -> list[str]:
        """The best translation of each text; settings as for `hypotheses`."""
        return [best[0].text if best else "" for best in self.hypotheses(texts, **settings)]

    def hypotheses(
        self,
        texts: Sequence[str],
        *,
        beam: int = 5,
        n_best: int = 1,
        length_penalty: float = 0.6,
        max_length: int = 0,
        prefix: Sequence[str] | str | None = None,
        no_repeat_ngram: int | None = None,
        batch: int = BATCH,
        cut: bool = False,
    ) -> list[list[Hypothesis]]:
        """The `n_best` translations of each text, best first, by beam search (beam 1 is greedy).

        `max_length` bounds the tokens of a translation (0: twice the source plus ten). `prefix` forces how all
        translations begin, or each its own. With `no_repeat_ngram` no n-gram of this many tokens occurs twice (0: no
        rule; None: the model's own setting). At most `batch` sentences of similar length are decoded together; it
        changes speed, not results. Texts that are too long are an error, or `cut`.
        """
        if n_best > beam:
            raise ConfigError(f"--n-best {n_best} needs a beam of at least {n_best}, got --beam {beam}")
        if beam < 1 or batch < 1:
            raise ConfigError(f"beam and batch must be at least 1, got {beam} and {batch}")
        if not math.isfinite(length_penalty):
            raise ConfigError(f"length_penalty must be a number, 0 for none, got {length_penalty}")
        marks = dict(eos=self.tokenizer.eos, pad=self.tokenizer.pad, start=self.start)
        search = Search(
            beams=beam, alpha=length_penalty, no_repeat_ngram=self.ngram(no_repeat_ngram), wanted=n_best, **marks
        )
        forced = self.encode_targets([prefix] * len(texts) if isinstance(prefix, str) else prefix or [""] * len(texts))
        results: list[list[Hypothesis]] = [[] for _ in texts]
        look_every = 1 if self.device.type == "cpu" else 4  # checking on a GPU synchronises
        model, count = self.reader, workers(len(texts)) if self.device.type == "cpu" else 1

        def decode(batch: Batch) -> tuple[list[int], list[list[Hypothesis]]]:
            rows, source, lengths, limits = batch
            begins = None
            if any(forced[r] for r in rows):
                begins, sizes = self.padded([forced[r] for r in rows])
                limits = torch.maximum(limits, sizes + 1)  # per sentence: the batch must not change a limit
            result = beam_search(model, source, lengths, limits, search, begins, look_every, self.shelf)
            return rows, list(self.read(result, n_best))

        for rows, best in side_by_side(decode, self.batches(texts, batch, max_length, cut, count), count):
            for row, hypotheses in zip(rows, best, strict=True):
                results[row] = hypotheses
            tick(len(rows))
        return results

    def sample(
        self,
        texts: Sequence[str],
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        first: int = 0,
        max_length: int = 0,
        no_repeat_ngram: int | None = None,
        batch: int = 128,
        cut: bool = False,
    ) -> list[Hypothesis]:
        """One sampled translation of each text, determined by the seed and the text's number, not by its batch.

        `first` is how many texts came before these.
        """
        if temperature <= 0:
            raise ConfigError(f"temperature must be above 0, got {temperature}; for no randomness use beam search")
        results: list[Hypothesis | None] = [None] * len(texts)
        for rows, source, lengths, limits in self.batches(texts, batch, max_length, cut):
            uniform = row_uniforms([first + row for row in rows], int(limits.max()), seed)
            marks = dict(eos=self.tokenizer.eos, pad=self.tokenizer.pad, start=self.start)
            marks |= dict(no_repeat_ngram=self.ngram(no_repeat_ngram))
            result = sample(
                self.model, source, lengths, limits, uniform, temperature=temperature, k=top_k, p=top_p, **marks
            )
            for row, hypotheses in zip(rows, self.read(result, 1), strict=True):
                results[row] = hypotheses[0]
            tick(len(rows))
        return [r for r in results if r is not None]

    def ngram(self, asked: int | None) -> int:
        if asked is not None and asked < 0:
            raise ConfigError(f"no_repeat_ngram must be a number of tokens, 0 for no rule, got {asked}")
        return self.no_repeat_ngram if asked is None else asked

    def summarise(
        self, texts: Sequence[str], say: Callable[[str], None], *, max_tokens: int = 80, temperature: float = 0.0,
        top_p: float = 1.0, seed: int = 0, no_repeat_ngram: int | None = None,
    ) -> list[str]:  # fmt: skip
        """A summary of each text, by a model trained to write one; long texts are cut, which is reported."""
        for number, ids in enumerate(self.encode(texts), 1):
            if len(ids) >= (room := self.room):
                say(f"text {number} has {len(ids) + 1:,} tokens; this model reads the first {room:,} of them")
        how: Any = dict(max_length=max_tokens, no_repeat_ngram=no_repeat_ngram, cut=True)
        if temperature:
            return [one.text for one in self.sample(texts, temperature=temperature, top_p=top_p, seed=seed, **how)]
        return [best[0].text for best in self.hypotheses(texts, **how)]

    @torch.inference_mode()
    def score(self, sources: Sequence[str], targets: Sequence[str], batch: int = 128) -> list[float]:
        """The model's log-probability of each target, its end included."""
        scores = [0.0] * len(sources)
        target_ids = self.encode_targets(targets)
        for rows, source, lengths, _ in self.batches(sources, batch):
            target, sizes = self.padded([[*target_ids[r], self.tokenizer.eos] for r in rows])
            words = self.model.logits(self.model(source, lengths, self.shifted(target))).float().log_softmax(-1)
            right = words.gather(-1, target[:, :, None]).squeeze(-1)  # B T
            real = torch.arange(target.size(1), device=self.device) < sizes[:, None]
            for row, total in zip(rows, right.masked_fill(~real, 0.0).sum(1).tolist(), strict=True):
                scores[row] = total
            tick(len(rows))
        return scores

    @torch.inference_mode()
    def attention(self, source: str, target: str) -> "CrossLook":
        """Every layer's and head's attention from any target to its source."""
        src = [*self.encode([source])[0], self.tokenizer.eos]
        tgt = [*self.encode_targets([target])[0], self.tokenizer.eos]
        layers = self.cross_weights(torch.tensor([src], device=self.device), tgt)
        if not layers:
            raise ConfigError("this model has no attention: its decoder sees one fixed vector")
        return CrossLook(torch.stack(layers).float().cpu().numpy(), src, tgt)

    def cross_weights(self, source: Tensor, target: Sequence[int]) -> list[Tensor]:
        """The cross-attention weights of every layer from T target ids to one source: H T S each."""
        ids = torch.tensor([list(target)], device=self.device)
        with watch(self.model, "*cross.look") as cross, watch(self.model, "attention.look") as additive:
            self.model(source, None, self.shifted(ids))
        layers = [look[0].weights() for look in cross.values()]
        layers += [torch.cat([step.weights() for step in steps], 2) for steps in additive.values()]
        return [layer[0] for layer in layers]

    def tokens(self, text: str) -> list[Token]:
        ids = [*self.encode([text])[0], self.tokenizer.eos]
        return [Token(self.tokenizer.piece(i), i, position) for position, i in enumerate(ids)]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids without the end token, of text with its white space normalised as in training."""
        return self.tokenizer.encode_batch([clean(text) for text in texts])

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self.tokenizer.encode_targets([clean(text) for text in texts])

    def batches(
        self, texts: Sequence[str], batch: int, max_length: int = 0, cut: bool = False, count: int = 1
    ) -> Iterator[Batch]:
        """Sentences of similar length together, the longest first, so that `count` workers end at the same time."""
        if isinstance(texts, str):
            raise ConfigError("expected a list of texts, got one text; write [text], in brackets")
        room, most = self.room, self.room - 1 if cut else None
        ids = [[*sentence[:most], self.tokenizer.eos] for sentence in self.encode(texts)]
        for row, sentence in enumerate(ids):
            if len(sentence) > room:
                raise ConfigError(
                    f"text {row + 1} has {len(sentence)} tokens, this model reads at most {room}; split it"
                )
        order = sorted(range(len(ids)), key=lambda r: (-len(ids[r]), r))
        mean = max(1, sum(map(len, ids)) // max(1, len(ids)))
        size = even(len(ids), min(batch, max(1, TOKENS // mean)), count)
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            source, lengths = self.padded([ids[r] for r in rows])
            limits = torch.full_like(lengths, max_length) if max_length else 2 * lengths + 10
            ragged = len(ids[rows[0]]) != len(ids[rows[-1]])
            yield rows, source, lengths if ragged else None, limits.clamp(max=room)

    def padded(self, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
        longest = max(len(row) for row in rows)
        ids = torch.tensor([row + [self.tokenizer.pad] * (longest - len(row)) for row in rows], dtype=torch.long)
        return ids.to(self.device), torch.tensor([len(row) for row in rows], device=self.device)

    def shifted(self, target: Tensor) -> Tensor:
        """The decoder's input for predicting `target`: the start token, then all but the last token."""
        start = torch.full_like(target[:, :1], self.start)
        return torch.cat((start, target[:, :-1]), 1)

    def read(self, found: BeamResult, n_best: int) -> Iterator[list[Hypothesis]]:
        ids, lengths = found.ids.tolist(), found.lengths.tolist()
        scores, sums = found.scores.tolist(), found.log_probabilities.tolist()
        for b in range(len(ids)):
            yield [
                Hypothesis(
                    clean(self.tokenizer.decode(ids[b][n][: lengths[b][n]])),  # a byte token may be a line break
                    scores[b][n],
                    sums[b][n],
                    ids[b][n][: lengths[b][n]],
                )
                for n in range(min(n_best, len(ids[b])))
                if scores[b][n] > -float("inf")
            ]


@dataclass(frozen=True)
class CrossLook:
    """Attention weights of one sentence pair: L H T S, and the ids along both sides, `</s>` included.

    Row t belongs to the step that emits target token t.
    """

    weights: np.ndarray
    source: list[int]
    target: list[int]
