"""A trained classifier or tagger at work."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tokenizers.pre_tokenizers import BertPreTokenizer
from torch import Tensor

from regard.data.batch import collate_labelled, packed
from regard.data.labelled import NONE, first_pieces, second_from
from regard.data.tokenizers.wordpiece import Encoded, WordPiece
from regard.errors import ConfigError, DataError
from regard.models.bert import Bert
from regard.nn.attention import packs
from regard.ticks import tick

OUTSIDE = "O"


@dataclass(frozen=True)
class Answer:
    """The likeliest label of a text and the probabilities of all."""

    label: str
    probabilities: dict[str, float]


@dataclass(frozen=True)
class Word:
    """A word of a text, where it stands, its likeliest label, and how likely that is."""

    word: str
    label: str
    probability: float
    start: int
    end: int


class Labeller:
    """A model with a head of classes, and its tokenizer. On a GPU BERT's texts are packed, and read in bf16."""

    def __init__(self, model: Any, tokenizer: WordPiece, device: str = "cpu"):
        self.model = model.to(device).eval()
        self.tokenizer, self.device = tokenizer, torch.device(device)
        self.packs = isinstance(model, Bert) and model.config.pooling == "cls" and packs(self.device)
        self.labels: tuple[str, ...] = model.config.labels
        limits = (tokenizer.config.get("model_max_length"), getattr(model.config, "max_length", None))
        self.max_length = min([int(n) for n in limits if n], default=512)

    @torch.inference_mode()
    def _states(self, texts: Sequence[Encoded], tokens: int = 4096) -> list[np.ndarray]:
        """For each text the probabilities of its labels: L, or T L. Texts of like length are read together."""
        per_piece = self.model.config.head == "token"
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i].ids))
        found: list[Any] = [None] * len(texts)
        while order:
            size = max(1, tokens // len(texts[order[0]].ids))
            rows, order = order[:size], order[size:]
            read = self._packed if self.packs else self._padded
            for i, p in zip(rows, read([texts[i] for i in rows], per_piece), strict=True):
                found[i] = p
            tick(len(rows))
        return found

    def _padded(self, texts: list[Encoded], per_piece: bool) -> list[np.ndarray]:
        """The probabilities of each text: L, or T L."""
        each = [(t.ids, second_from(t), [NONE] * len(t.ids)) for t in texts]
        batch = collate_labelled(each, self.tokenizer.pad, per_piece).to(self.device)
        hidden = self.model(batch.ids, batch.lengths, batch.sentences)
        scores = self.model.scores(hidden if per_piece else self.model.summary(hidden, batch.lengths))
        return [row[: len(t.ids)] if per_piece else row for row, t in zip(likely(scores), texts, strict=True)]

    def _packed(self, texts: list[Encoded], per_piece: bool) -> list[np.ndarray]:
        """The same, of texts in one row."""
        ids, starts = (x.to(self.device) for x in packed([t.ids for t in texts]))
        sentences = torch.tensor([[s for t in texts for s in t.sentences]], device=self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            hidden = self.model(ids, sentences=sentences, starts=starts)[0]  # T D
            scores = self.model.scores(hidden if per_piece else hidden[starts[:-1]])
        return np.split(likely(scores), starts[1:-1].cpu().numpy()) if per_piece else list(likely(scores))


def likely(scores: Tensor) -> np.ndarray:
    return scores.double().softmax(-1).cpu().numpy()


class Classifier(Labeller):
    """Texts, or pairs of texts, to labels."""

    def probabilities(self, texts: Sequence[str], seconds: Sequence[str] | None = None) -> np.ndarray:
        """N L, in the order of `labels`; texts over the length limit are cut."""
        if isinstance(texts, str):
            raise ConfigError("wanted a list of texts, got one text; write [text], in brackets")
        for number, text in enumerate([*texts, *(seconds or [])], 1):
            if not text.strip():
                raise DataError(f"text {number} is empty; there is nothing to classify")
        found = self._states(self.tokenizer.encode_batch(texts, seconds, self.max_length))
        return np.stack(found) if found else np.zeros((0, len(self.labels)))

    def classify(self, texts: Sequence[str], seconds: Sequence[str] | None = None) -> list[Answer]:
        """The label of each text, or of each pair."""
        return [
            Answer(self.labels[int(row.argmax())], dict(zip(self.labels, row.tolist(), strict=True)))
            for row in self.probabilities(texts, seconds)
        ]

    def cut(self, texts: Sequence[str], seconds: Sequence[str] | None = None) -> int:
        """How many texts are over the length limit."""
        return sum(found.cut > 0 for found in self.tokenizer.encode_batch(texts, seconds, self.max_length))


class Tagger(Labeller):
    """Words to labels."""

    def tag(self, text: str) -> list[Word]:
        """The words of a text, cut off their punctuation, each with its label."""
        pieces = BertPreTokenizer().pre_tokenize_str(text)
        if not pieces:
            raise DataError("the text is empty; there is nothing to tag")
        ((labels, likely),) = self.tag_words([[word for word, _ in pieces]])
        return [
            Word(word, label, p, start, end)
            for (word, (start, end)), label, p in zip(pieces, labels, likely, strict=True)
        ]

    def tag_words(self, sentences: Sequence[Sequence[str]]) -> list[tuple[list[str], list[float]]]:
        """For each sentence of words their labels and probabilities.

        A sentence over the length limit is read in parts; a word of no piece (a stray control sign) is outside.
        """
        parts: list[tuple[int, int, Encoded]] = []  # sentence, its first word here, pieces
        for number, words in enumerate(sentences):
            start = 0
            while start < len(words):
                window = words[start : start + self.max_length]  # hardly a word has no piece, so more do not fit
                found = self.tokenizer.encode_words(window, self.max_length)
                parts.append((number, start, found))
                last = max((w for w in found.words if w is not None), default=0)
                # the last word may be cut in two: it opens the next part
                start += max(1, last) if found.cut else len(window)
        outside = OUTSIDE if OUTSIDE in self.labels else self.labels[0]
        answers = [([outside] * len(words), [0.0] * len(words)) for words in sentences]
        for (number, start, found), likely in zip(parts, self._states([p for _, _, p in parts]), strict=True):
            words = first_pieces(found, range(len(sentences[number]) - start))
            for word, row in zip(words, likely, strict=True):
                if word != NONE:
                    answers[number][0][start + word] = self.labels[int(row.argmax())]
                    answers[number][1][start + word] = float(row.max())
        return answers
