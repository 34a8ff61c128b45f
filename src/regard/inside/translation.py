"""A translation as it comes about: the search, every step of the best hypothesis, and who looked at whom."""

import time
from typing import Any

import torch
from torch import Tensor

from regard.data.pairs import clean
from regard.errors import ConfigError, DataError
from regard.generate.search import Beam, Search
from regard.inside import tokens
from regard.inside.embedding import embedded
from regard.inside.looked import LONGEST, Check, Looked, Question, captured, cut_note
from regard.predictors import Translator

STREAMS = {
    "encoder": ("source", "source"), "decoder": ("target", "inputs"), "cross": ("target", "source"),
    "additive": ("target", "source"),
}  # fmt: skip
ALPHA = 0.6  # of the length penalty, as `regard translate` has it
TOP = 8  # words of a step
MOST_BEAMS = 10


class Told(Beam):
    """A search of one sentence that tells, step by step, which candidates there were and which were kept."""

    def __init__(self, *settings: Any):
        super().__init__(*settings)
        self.steps: list[list[dict[str, Any]]] = []

    def totals(self, words: Tensor) -> Tensor:
        totals = super().totals(words)
        scores, flat = totals[0].flatten().topk(min(2 * self.search.beams, totals[0].numel()))
        step: list[dict[str, Any]] = []
        for rank, (score, place) in enumerate(zip(scores.tolist(), flat.tolist(), strict=True)):
            parent, id = divmod(place, totals.size(-1))
            ends = id == self.search.eos
            alive = sum(c["kept"] and not c["ends"] for c in step)
            kept = rank < self.search.beams if ends else alive < self.search.beams  # as `advance` keeps them
            if score > -torch.inf:
                step.append({"id": id, "score": score, "parent": parent, "kept": kept, "ends": ends})
        self.steps.append(step)
        return totals


def of_translator(translator: Translator, question: Question, check: Check) -> Looked:
    """Of the best hypothesis, or of a given `target`; row t belongs to the step that emits piece t."""
    if not 1 <= question.beam <= MOST_BEAMS:
        raise ConfigError(f"a beam of {question.beam}", f"there are 1 to {MOST_BEAMS}")
    text, tokenizer = clean(question.text), translator.tokenizer
    (ids,) = translator.encode([text])
    if not ids:
        raise DataError("the text is empty", "there is nothing to translate")
    room = min(getattr(translator.model.config, "max_length", LONGEST), LONGEST)
    found = Looked(translator, {}, notes=[cut_note(room - 1)] if len(ids) >= room else [])
    source = [*ids[: room - 1], tokenizer.eos]
    start = time.perf_counter()
    if question.target.strip():
        (given,) = translator.encode_targets([question.target])
        hypotheses, beam = [(0.0, [*given[: room - 1], tokenizer.eos])], []
    else:
        hypotheses, beam = search(translator, source, question, room, check)
    read = [(score, target, *forced(translator, source, target)) for score, target in hypotheses[1:]]
    target = hypotheses[0][1]
    with captured(found.attention, translator.model, STREAMS):
        likely, inputs = forced(translator, source, target)
    found.seconds = time.perf_counter() - start
    read = [(hypotheses[0][0], target, likely, inputs), *read]
    found.streams = {
        "source": tokens.of_translator(tokenizer, source, text),
        "target": tokens.of_translator(tokenizer, target, tokenizer.decode(target)),
        "inputs": tokens.of_translator(tokenizer, inputs, tokenizer.decode(target)),
    }
    for stream, row in (("source", source), ("inputs", inputs)):
        found.embeddings[stream] = embedded(translator.model, torch.tensor(row, device=translator.device), stream)
    found.results["translation"] = {
        "hypotheses": [told(translator, score, ids, words) for score, ids, words, _ in read],
        "steps": [
            {"token": piece["text"], "top": [{"text": tokens.raw(tokenizer, id)[0], "p": p} for id, p in best]}
            for piece, best in zip(found.streams["target"], most(likely), strict=True)
        ],
        "beam": [[c | {"text": tokens.raw(tokenizer, c["id"])[0]} for c in step] for step in beam],
    }
    return found


def search(
    translator: Translator, source: list[int], question: Question, room: int, check: Check
) -> tuple[list[tuple[float, list[int]]], list[list[dict[str, Any]]]]:
    """Scores and ids of the hypotheses, best first, and the candidates of every step."""
    how = Search(beams=question.beam, alpha=ALPHA, eos=translator.tokenizer.eos, pad=translator.tokenizer.pad)
    prefix = None
    limit = min(2 * len(source) + 10, room)
    if question.prefix.strip():
        (begin,) = translator.encode_targets([question.prefix])
        prefix = torch.tensor([begin[: room - 1]], device=translator.device)
        limit = max(limit, len(begin) + 1)
    limits = torch.tensor([min(limit, room)], device=translator.device)
    ids = torch.tensor([source], device=translator.device)
    state = translator.model.begin(ids, None, question.beam, int(limits))
    beam = Told(how, limits, int(limits), prefix)
    while not bool(beam.done):
        check()
        hidden = translator.model.step(beam.last(), state)
        state.reorder(beam.advance(translator.model.logits(hidden)))
    scores, lengths = beam.found_scores[0].tolist(), beam.found_lengths[0].tolist()
    ranked = zip(scores, beam.found[0].tolist(), lengths, strict=True)
    return [(score, row[:length]) for score, row, length in ranked if score > -torch.inf], beam.steps


def forced(translator: Translator, source: list[int], target: list[int]) -> tuple[Tensor, list[int]]:
    """Log-probabilities of all words at every step of a given target, T V, and what the decoder read."""
    ids = torch.tensor([target], device=translator.device)
    inputs = translator.shifted(ids)
    hidden = translator.model(torch.tensor([source], device=translator.device), None, inputs)
    return translator.model.logits(hidden)[0].float().log_softmax(-1), inputs[0].tolist()


def told(translator: Translator, score: float, ids: list[int], words: Tensor) -> dict[str, Any]:
    logps = words.gather(1, torch.tensor(ids, device=words.device)[:, None])[:, 0].tolist()
    raw = [tokens.raw(translator.tokenizer, id)[0] for id in ids]
    pieces = [{"id": id, "text": text, "logp": p} for id, text, p in zip(ids, raw, logps, strict=True)]
    return {"text": clean(translator.tokenizer.decode(ids)), "score": score or sum(logps), "tokens": pieces}


def most(words: Tensor) -> list[list[tuple[int, float]]]:
    """The likeliest words of every step, with their probabilities."""
    likely, order = words.double().exp().topk(TOP)
    return [list(zip(o, p, strict=True)) for o, p in zip(order.tolist(), likely.tolist(), strict=True)]
