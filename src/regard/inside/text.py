"""Looks at language models and encoders: the next token, masked words, classes, tags, similarity."""

import math
import time
from typing import Any

import torch
from torch import Tensor

from regard.data.tokenizers.encoder import MASK
from regard.inside import tokens
from regard.inside.looked import Check, Looked, Question
from regard.inside.reading import Reading, observe, read
from regard.nn.masks import pooled
from regard.predictors import Classifier, Embedder, Filler, Tagger, Writer
from regard.predictors.labeller import split_words

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
    looked, reading = Looked(tagger), read(tagger, question)
    words, hidden = split_words(question.text), observe(looked, reading)
    first: dict[int, int] = {}  # the first token of each word
    for place, chip in enumerate(reading.chips):
        first.setdefault(chip["word"], place)
    first.pop(-1, None)
    log_p = tagger.model.scores(hidden[[*first.values()]]).double().log_softmax(-1).cpu().numpy()
    tags = []
    for number, row, label in zip(first, log_p, tagger.best_tags(log_p), strict=True):
        (word, (start, end)), p = words[number], math.exp(row[label])
        tags.append({"word": word, "label": tagger.labels[label], "p": p, "start": start, "end": end})
    looked.results["tags"] = tags
    return looked
