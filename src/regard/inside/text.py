"""Language models and encoders, looked at: what comes next, words for gaps, classes, tags, likeness."""

import time
from typing import Any

import torch
from tokenizers.pre_tokenizers import BertPreTokenizer
from torch import Tensor

from regard.data.labelled import NONE, first_pieces
from regard.data.tokenizers.wordpiece import MASK
from regard.errors import DataError
from regard.inside import tokens
from regard.inside.embedding import embedded
from regard.inside.looked import LONGEST, Check, Looked, Question, captured, cut_note
from regard.models.bert import pooled
from regard.predictors import Classifier, Embedder, Filler, Tagger, Writer

TOP = 64  # rows of the table of next tokens
AT_ONCE = 128  # positions whose logits are in memory together


def of_writer(writer: Writer, question: Question, check: Check) -> Looked:
    ids = writer.encode(question.text)
    room = min(writer.model.config.context or LONGEST, LONGEST)
    chips = tokens.of_writer(writer.tokenizer, ids, question.text)[-room:]
    notes = [cut_note(room, "end")] if len(ids) > room else []
    ids = ids[-room:]
    found = Looked(writer, {"text": chips}, notes=notes)
    row = torch.tensor(ids, device=writer.device)
    start = time.perf_counter()
    with captured(found.attention, writer.model, {"self": ("text", "text")}):
        hidden = writer.hidden(ids)  # T D
    surprisal: list[float | None] = [None]
    for first in range(0, len(ids) - 1, AT_ONCE):
        check()
        places = slice(first, min(first + AT_ONCE, len(ids) - 1))
        words = writer.model.logits(hidden[places]).float()
        right = words.gather(1, row[places.start + 1 : places.stop + 1, None])[:, 0]
        surprisal += (words.logsumexp(-1) - right).tolist()
    logits = writer.model.logits(hidden[-1]).float()
    found.seconds = time.perf_counter() - start
    found.embeddings["text"] = embedded(writer.model, row)
    likely, order = logits.double().softmax(-1).topk(min(TOP, len(logits)))
    top = [named(writer.tokenizer, id, p) for id, p in zip(order.tolist(), likely.tolist(), strict=True)]
    found.results["next"] = {"logits": "logits", "top": top, "surprisal": surprisal}
    found.tensors["logits"] = logits
    return found


def named(tokenizer: Any, id: int, p: float) -> dict[str, Any]:
    return {"id": id, "text": tokens.raw(tokenizer, id)[0] if id < tokenizer.size else "", "p": p}


# -- encoders -----------------------------------------------------------------------------------------------------


def read_encoder(found: Looked, encoded: Any, spans: Any = None) -> Tensor:
    """Run a BERT or a recurrent classifier on a text, watched: T D."""
    model, device = found.predictor.model, found.predictor.device
    ids = torch.tensor([encoded.ids], device=device)
    sentences = torch.tensor([encoded.sentences], device=device) if any(encoded.sentences) else None
    found.streams["text"] = tokens.of_encoder(found.predictor.tokenizer, encoded, spans)
    if encoded.cut:
        found.notes.append(cut_note(len(encoded.ids)))
    start = time.perf_counter()
    with captured(found.attention, model, {"self": ("text", "text")}):
        hidden = model(ids, None, sentences)[0]
    found.seconds = time.perf_counter() - start
    found.embeddings["text"] = embedded(model, ids[0], sentences=None if sentences is None else sentences[0])
    return hidden


def of_encoder(embedder: Embedder, question: Question, _: Check) -> Looked:
    """Words for the gaps where the model kept its head; with a second text, how much alike they are."""
    found = Looked(embedder, {})
    masked = isinstance(embedder, Filler)
    longest = min(embedder.model.config.max_length if masked else embedder.settings.max_length, LONGEST)

    def encode(text: str) -> Any:
        return embedder.tokenizer.encode(text.lower() if embedder.settings.lower else text, max_length=longest)

    encoded = encode(question.text)
    hidden = read_encoder(found, encoded)
    if masked:
        gaps = [place for place, id in enumerate(encoded.ids) if id == embedder.tokenizer.mask]
        found.results["fill"] = []
        if not gaps:
            found.notes.append(f"no gap to fill; put {MASK} into the text")
        for place in gaps:
            likely, order = embedder.model.logits(hidden[place]).double().softmax(-1).topk(10)
            words = [named(embedder.tokenizer, id, p) for id, p in zip(order.tolist(), likely.tolist(), strict=True)]
            found.results["fill"].append({"position": place, "words": words})
    if question.second:
        other = embedder.model(torch.tensor([encode(question.second).ids], device=embedder.device))
        pair = (pooled(states, None, embedder.settings.pooling)[0].double() for states in (hidden[None], other))
        found.results["similar"] = {"cosine": torch.cosine_similarity(*pair, dim=0).item()}
    return found


def of_classifier(classifier: Classifier, question: Question, _: Check) -> Looked:
    if not question.text.strip():
        raise DataError("the text is empty", "there is nothing to classify")
    found = Looked(classifier, {})
    longest = min(classifier.max_length, LONGEST)
    hidden = read_encoder(found, classifier.tokenizer.encode(question.text, question.second or None, longest))
    model = classifier.model
    likely = model.scores(model.summary(hidden[None])).double().softmax(-1)[0]
    found.results["classes"] = [
        {"label": label, "p": p} for label, p in zip(classifier.labels, likely.tolist(), strict=True)
    ]
    return found


def of_tagger(tagger: Tagger, question: Question, _: Check) -> Looked:
    pieces = BertPreTokenizer().pre_tokenize_str(question.text)
    if not pieces:
        raise DataError("the text is empty", "there is nothing to tag")
    found = Looked(tagger, {})
    encoded = tagger.tokenizer.encode_words([word for word, _ in pieces], min(tagger.max_length, LONGEST))
    spans = [
        (0, 0) if word is None else (pieces[word][1][0] + start, pieces[word][1][0] + end)
        for word, (start, end) in zip(encoded.words, encoded.offsets, strict=True)
    ]
    likely = tagger.model.scores(read_encoder(found, encoded, spans)).double().softmax(-1)  # T L
    tags = []
    for word, row in zip(first_pieces(encoded, range(len(pieces))), likely, strict=True):
        if word != NONE:
            text, (start, end) = pieces[word]
            label = tagger.labels[int(row.argmax())]
            tags.append({"word": text, "label": label, "p": float(row.max()), "start": start, "end": end})
    found.results["tags"] = tags
    return found
