"""Looks at language models and encoders: the next token, masked words, classes, tags, similarity."""

import time
from typing import Any

import torch
from tokenizers.pre_tokenizers import BertPreTokenizer
from torch import Tensor

from regard.data.labelled import NONE, first_pieces
from regard.data.tokenizers.encoder import MASK
from regard.errors import DataError
from regard.inside import tokens
from regard.inside.looked import LONGEST, Check, Looked, Question
from regard.inside.reading import Reading, observe, of_encoded, read
from regard.nn.masks import pooled
from regard.predictors import Classifier, Embedder, Filler, Tagger, Writer

TOP = 64  # rows of the table of next tokens
AT_ONCE = 128  # positions whose logits are in memory together


def likeliest(predictor: Any, logits: Tensor, n: int) -> list[dict[str, Any]]:
    """The `n` likeliest tokens."""
    values, ids = logits.double().softmax(-1).topk(min(n, len(logits)))
    each = tokens.candidates(predictor.tokenizer, ids.tolist())
    return [one | {"p": p} for one, p in zip(each, values.tolist(), strict=True)]


def classes(classifier: Classifier, hidden: Tensor) -> list[dict[str, Any]]:
    model = classifier.model
    values = classifier.values(classifier.scores(model.summary(hidden[None])))[0].tolist()
    return [{"label": label, "p": p} for label, p in zip(classifier.labels, values, strict=True)]


def of_writer(writer: Writer, question: Question, check: Check) -> Looked:
    reading, looked = read(writer, question), Looked(writer)
    start = time.perf_counter()
    hidden = observe(looked, reading)  # T D
    ids = torch.tensor(reading.ids, device=writer.device)
    surprisal: list[float | None] = [None]
    for first in range(0, len(ids) - 1, AT_ONCE):
        check()
        places = slice(first, min(first + AT_ONCE, len(ids) - 1))
        words = writer.model.logits(hidden[places]).float()
        right = words.gather(1, ids[places.start + 1 : places.stop + 1, None])[:, 0]
        surprisal += (words.logsumexp(-1) - right).tolist()
    logits = writer.model.logits(hidden[-1]).float()
    looked.seconds = time.perf_counter() - start  # with the head
    looked.results["next"] = {"logits": "logits", "top": likeliest(writer, logits, TOP), "surprisal": surprisal}
    looked.tensors["logits"] = logits
    return looked


def of_encoder(embedder: Embedder, question: Question, _: Check) -> Looked:
    return encoded(embedder, question)[0]


def encoded(embedder: Embedder, question: Question) -> tuple[Looked, Reading, Tensor]:
    """A text and its states, T D; with a second text, also the cosine of the two."""
    looked = Looked(embedder)
    reading = read(embedder, Question(text=question.text))
    hidden = observe(looked, reading)
    if question.second:
        other = read(embedder, Question(text=question.second)).states(embedder)
        pair = (pooled(states[None], None, embedder.settings.pooling)[0].double() for states in (hidden, other))
        looked.results["similar"] = {"cosine": torch.cosine_similarity(*pair, dim=0).item()}
    return looked, reading, hidden


def of_filler(filler: Filler, question: Question, _: Check) -> Looked:
    looked, reading, hidden = encoded(filler, question)
    gaps = [place for place, id in enumerate(reading.ids) if id == filler.tokenizer.mask]
    if not gaps:
        looked.notes.append(f"no gap to fill; put {MASK} into the text")
    looked.results["fill"] = [
        {"position": place, "words": likeliest(filler, filler.model.logits(hidden[place]), 10)} for place in gaps
    ]
    return looked


def of_classifier(classifier: Classifier, question: Question, _: Check) -> Looked:
    looked = Looked(classifier)
    looked.results["classes"] = classes(classifier, observe(looked, read(classifier, question)))
    return looked


def of_tagger(tagger: Tagger, question: Question, _: Check) -> Looked:
    pieces = BertPreTokenizer().pre_tokenize_str(question.text)
    if not pieces:
        raise DataError("the text is empty", "type something")
    looked = Looked(tagger)
    encoded = tagger.tokenizer.encode_words([word for word, _ in pieces], min(tagger.max_length, LONGEST))
    spans = [
        (0, 0) if word is None else (pieces[word][1][0] + start, pieces[word][1][0] + end)
        for word, (start, end) in zip(encoded.words, encoded.offsets, strict=True)
    ]
    hidden = observe(looked, of_encoded(tagger.tokenizer, encoded, spans))
    tags = []
    for word, row in zip(
        first_pieces(encoded, range(len(pieces))), tagger.model.scores(hidden).double().softmax(-1), strict=True
    ):
        if word != NONE:
            text, (start, end) = pieces[word]
            label = tagger.labels[int(row.argmax())]
            tags.append({"word": text, "label": label, "p": float(row.max()), "start": start, "end": end})
    looked.results["tags"] = tags
    return looked
