"""Classify and tag texts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tokenizers.pre_tokenizers import BertPreTokenizer

from regard.data.batch import collate_labelled, packed
from regard.data.iob import BestTags
from regard.data.labelled import NONE, first_pieces, second_from
from regard.data.tokenizers.encoder import Encoded, EncoderTokenizer
from regard.errors import ConfigError, DataError
from regard.models.bert import Bert
from regard.nn.attention import packs
from regard.predictors.base import Classification, ClassPredictor, Output, chunks
from regard.ticks import tick

OUTSIDE = "O"


@dataclass(frozen=True)
class TaggedWord:
    """A word of a text, its position, its likeliest label, and the label's probability."""

    word: str
    label: str
    probability: float
    start: int
    end: int


@dataclass(frozen=True)
class Tags:
    """The words of a text, each with its label."""

    words: list[TaggedWord]


class Labeller(ClassPredictor):
    """A model with a classification head, and its tokenizer. On a GPU, BERT's texts are packed and read in bf16."""

    lower = False  # whether texts are lower-cased before the tokenizer reads them

    def __init__(self, model: Any, tokenizer: EncoderTokenizer, device: str = "cpu"):
        self.model = model.to(device).eval()
        self.tokenizer, self.device = tokenizer, torch.device(device)
        self.packs = isinstance(model, Bert) and model.config.pooling == "cls" and packs(self.device)
        self.output = Output(model.config.labels)
        limits = (tokenizer.config.get("model_max_length"), getattr(model.config, "max_length", None))
        self.max_length = min([int(n) for n in limits if n], default=512)

    def scores(self, states: Any) -> Any:
        """Class logits: … D -> … L."""
        return self.model.scores(states)

    @torch.inference_mode()
    def _states(self, texts: Sequence[Encoded], tokens: int = 4096) -> list[np.ndarray]:
        """The label probabilities of each text: L, or T L. Texts of similar length are read together."""
        per_piece = self.model.config.head == "token"
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i].ids))
        answers: list[Any] = [None] * len(texts)
        while order:
            size = max(1, tokens // len(texts[order[0]].ids))
            rows, order = order[:size], order[size:]
            read = self._packed if self.packs else self._padded
            for i, p in zip(rows, read([texts[i] for i in rows], per_piece), strict=True):
                answers[i] = p
            tick(len(rows))
        return answers

    def _padded(self, texts: list[Encoded], per_piece: bool) -> list[np.ndarray]:
        """The label probabilities of padded texts: L, or T L each."""
        each = [(t.ids, second_from(t), [NONE] * len(t.ids)) for t in texts]
        cases = [t.cases for t in texts] if self.tokenizer.marks_case and per_piece else None
        batch = collate_labelled(each, self.tokenizer.pad, per_piece, types=cases).to(self.device)
        hidden = self.model(batch.ids, batch.lengths, batch.sentences)
        scores = self.scores(hidden if per_piece else self.model.summary(hidden, batch.lengths))
        return [row[: len(t.ids)] if per_piece else row for row, t in zip(self.values(scores), texts, strict=True)]

    def _packed(self, texts: list[Encoded], per_piece: bool) -> list[np.ndarray]:
        """The same for packed texts."""
        ids, starts = (x.to(self.device) for x in packed([t.ids for t in texts]))
        sentences = torch.tensor([[s for t in texts for s in t.types]], device=self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            hidden = self.model(ids, sentences=sentences, starts=starts)[0]  # T D
            scores = self.scores(hidden if per_piece else hidden[starts[:-1]])
        return np.split(self.values(scores), starts[1:-1].cpu().numpy()) if per_piece else list(self.values(scores))


class Classifier(Labeller):
    """Texts to labels; an input is a text, or a pair of texts as a tuple."""

    family, chunk = "classifier", 2048

    def __init__(self, model: Any, tokenizer: EncoderTokenizer, device: str = "cpu", pairs: bool | None = None):
        super().__init__(model, tokenizer, device)
        self.pairs = pairs  # whether it was trained on pairs of texts; None: unknown

    def probabilities(self, inputs: Sequence[Any], seconds: Sequence[str] | None = None) -> np.ndarray:
        """N L, in the order of `labels`; texts over the limit are cut. `seconds` are the second texts of pairs."""
        texts, seconds = (inputs, seconds) if seconds is not None else split_pairs(inputs)
        for number, text in enumerate([*texts, *(seconds or [])], 1):
            if not text.strip():
                raise DataError(f"text {number} is empty; there is nothing to classify")
        scores = self._states(self.tokenizer.encode_batch(texts, seconds, self.max_length))
        return np.stack(scores) if scores else np.zeros((0, len(self.labels)))

    def classify(self, texts: Sequence[str], seconds: Sequence[str] | None = None) -> list[Classification]:
        """The label of each text, or of each pair."""
        return list(map(self.output.answer, self.probabilities(texts, seconds)))

    def cut(self, inputs: Sequence[Any]) -> int:
        """How many of the inputs are over the length limit."""
        return sum(x.cut > 0 for x in self.tokenizer.encode_batch(*split_pairs(inputs), self.max_length))


class NextSentencePredictor(Classifier):
    """Pairs of texts to whether the second follows the first: BERT's next-sentence head."""

    family = "pair"

    def __init__(self, model: Bert, tokenizer: EncoderTokenizer, device: str = "cpu"):
        super().__init__(model, tokenizer, device, pairs=True)
        self.output = Output(("is next", "not next"))

    def scores(self, states: Any) -> Any:
        return self.model.follows(states)


def split_pairs(inputs: Sequence[Any]) -> tuple[Sequence[str], Sequence[str] | None]:
    """Texts, and the second texts if the inputs are pairs."""
    if isinstance(inputs, str):
        raise ConfigError("expected a list of texts, got one text; write [text], in brackets")
    if not len(inputs) or isinstance(inputs[0], str):
        return inputs, None
    return [text for text, _ in inputs], [second for _, second in inputs]


class Tagger(Labeller):
    """Words to labels; an input is a text, or a list of words."""

    family = "tagger"

    def __init__(self, model: Any, tokenizer: EncoderTokenizer, device: str = "cpu", iob2: bool = False):
        super().__init__(model, tokenizer, device)
        self.best_tags = BestTags(self.labels if iob2 else ())

    def predict(self, inputs: Iterable[str | Sequence[str]]) -> Iterator[Tags]:
        for some in chunks(inputs, 256):
            pieces = [split_words(x) for x in some]
            labels = self.tag_words([[word for word, _ in words] for words in pieces])
            for words, (names, probabilities) in zip(pieces, labels, strict=True):
                each = zip(words, names, probabilities, strict=True)
                yield Tags([TaggedWord(word, label, p, *span) for (word, span), label, p in each])

    def tag(self, text: str) -> list[TaggedWord]:
        """The words of a text, separated from punctuation, each with its label."""
        (tags,) = self.predict([text])
        return tags.words

    def tag_words(self, sentences: Sequence[Sequence[str]]) -> list[tuple[list[str], list[float]]]:
        """For each sentence, a list of words, their labels and probabilities; of a model of IOB2 tags, the likeliest
        valid ones.

        A sentence over the length limit is read in parts; a word without tokens (a stray control character) gets O.
        """
        parts: list[tuple[int, int, Encoded]] = []  # sentence, index of its first word here, tokens
        for number, words in enumerate(sentences):
            start = 0
            while start < len(words):
                window = words[start : start + self.max_length]  # nearly every word has a token, so more do not fit
                encoded = self.tokenizer.encode_words(window, self.max_length)
                parts.append((number, start, encoded))
                last = max((w for w in encoded.words if w is not None), default=0)
                # the last word may be cut in two: it starts the next part
                start += max(1, last) if encoded.cut else len(window)
        outside = self.labels.index(OUTSIDE) if OUTSIDE in self.labels else 0
        every = [np.zeros((len(words), len(self.labels))) for words in sentences]
        for (number, start, encoded), likely in zip(parts, self._states([p for _, _, p in parts]), strict=True):
            words = first_pieces(encoded, range(len(sentences[number]) - start))
            for word, row in zip(words, likely, strict=True):
                if word != NONE:
                    every[number][start + word] = row
        answers = []
        for p in every:
            log_p = np.log(np.maximum(p, np.finfo(p.dtype).tiny))
            log_p[~p.any(1), outside] = 0.0  # words without tokens
            best = self.best_tags(log_p)
            answers.append(([self.labels[i] for i in best], p[np.arange(len(p)), best].tolist()))
        return answers


def split_words(text: str | Sequence[str]) -> list[tuple[str, tuple[int, int]]]:
    """Words and their positions: a text is split at punctuation, a list is used as it is."""
    if not isinstance(text, str):
        return [(word, (0, 0)) for word in text]
    words = BertPreTokenizer().pre_tokenize_str(text)
    if not words:
        raise DataError("the text is empty; there is nothing to tag")
    return words
