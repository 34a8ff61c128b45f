"""How a translation is found: the search, every step of the best hypothesis, and its attention."""

import time
from typing import Any

import torch
from torch import Tensor

from regard.data.pairs import clean
from regard.errors import ConfigError
from regard.generate.search import Beam, Search
from regard.inside import tokens
from regard.inside.embedding import embedded
from regard.inside.looked import LONGEST, Check, Looked, Question, captured
from regard.inside.reading import read
from regard.predictors import Translator

STREAMS = {
    "encoder": ("source", "source"), "decoder": ("target", "inputs"), "cross": ("target", "source"),
    "additive": ("target", "source"),
}  # fmt: skip
ALPHA = 0.6  # of the length penalty, as in `regard translate`
TOP = 8  # words per step
MOST_BEAMS = 10


class RecordedBeam(Beam):
    """A search for one sentence that records the candidates of every step, and which were kept."""

    is_free = False  # all `totals` are computed

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
    """Look at the best hypothesis, or at a given `target`; row t belongs to the step that emits piece t."""
    if not 1 <= question.beam <= MOST_BEAMS:
        raise ConfigError(f"beam must be in 1 to {MOST_BEAMS}, got {question.beam}", "choose another beam")
    reading, tokenizer = read(translator, question), translator.tokenizer
    room, source = min(translator.room, LONGEST), reading.ids
    looked = Looked(translator, notes=[reading.note] if reading.note else [])
    start = time.perf_counter()
    if question.target.strip():
        (forced_ids,) = translator.encode_targets([question.target])
        hypotheses, beam = [(0.0, [*forced_ids[: room - 1], tokenizer.eos])], []
    else:
        hypotheses, beam = search(translator, source, question, check)
    scored = [(score, ids, forced(translator, source, ids)[0]) for score, ids in hypotheses[1:]]
    best_score, target = hypotheses[0]
    with captured(looked.attention, translator.model, STREAMS):
        words, inputs = forced(translator, source, target)
    looked.seconds = time.perf_counter() - start
    looked.streams = {
        "source": reading.chips,
        "target": tokens.of_translator(tokenizer, target, tokenizer.decode(target)),
        "inputs": tokens.of_translator(tokenizer, inputs, tokenizer.decode(target)),
    }
    for stream, row in (("source", source), ("inputs", inputs)):
        looked.embeddings[stream] = embedded(translator.model, torch.tensor(row, device=translator.device), stream)
    values, ids = (t.tolist() for t in words.double().exp().topk(TOP))
    candidates = [tokens.candidates(tokenizer, row) for row in ids]
    text = lambda id: tokens.raw(tokenizer, id)[0]  # noqa: E731
    looked.results["translation"] = {
        "hypotheses": [hypothesis(translator, *one) for one in [(best_score, target, words), *scored]],
        "steps": [
            {"token": piece["text"], "top": [one | {"p": p} for one, p in zip(top, ps, strict=True)]}
            for piece, top, ps in zip(looked.streams["target"], candidates, values, strict=True)
        ],
        "beam": [[candidate | {"text": text(candidate["id"])} for candidate in step] for step in beam],
    }
    return looked


def search(
    translator: Translator, source: list[int], question: Question, check: Check
) -> tuple[list[tuple[float, list[int]]], list[list[dict[str, Any]]]]:
    """Scores and ids of the hypotheses, best first, and the candidates of every step."""
    marks = dict(eos=translator.tokenizer.eos, pad=translator.tokenizer.pad, start=translator.start)
    settings = Search(beams=question.beam, alpha=ALPHA, no_repeat_ngram=translator.no_repeat_ngram, **marks)
    prefix, room = None, min(translator.room, LONGEST)
    limit = min(2 * len(source) + 10, room)
    (begin,) = translator.encode_targets([question.prefix])
    if begin:
        prefix = torch.tensor([begin[: room - 1]], device=translator.device)
        limit = max(limit, len(begin) + 1)
    limits = torch.tensor([min(limit, room)], device=translator.device)
    ids = torch.tensor([source], device=translator.device)
    state = translator.model.begin(ids, None, question.beam, int(limits))
    beam = RecordedBeam(settings, limits, int(limits), prefix)
    while not bool(beam.done):
        check()
        hidden = translator.model.step(beam.last(), state)
        state.reorder(beam.advance(translator.model, hidden))
    scores, lengths = beam.finished_scores[0].tolist(), beam.finished_lengths[0].tolist()
    ranked = zip(scores, beam.finished[0].tolist(), lengths, strict=True)
    return [(score, row[:length]) for score, row, length in ranked if score > -torch.inf], beam.steps


def forced(translator: Translator, source: list[int], target: list[int]) -> tuple[Tensor, list[int]]:
    """Log-probabilities of all words at every step of a target, T V, and the decoder's inputs."""
    ids = torch.tensor([target], device=translator.device)
    inputs = translator.shifted(ids)
    hidden = translator.model(torch.tensor([source], device=translator.device), None, inputs)
    return translator.model.logits(hidden)[0].float().log_softmax(-1), inputs[0].tolist()


def hypothesis(translator: Translator, score: float, ids: list[int], words: Tensor) -> dict[str, Any]:
    logps = words.gather(1, torch.tensor(ids, device=words.device)[:, None])[:, 0].tolist()
    texts = [tokens.raw(translator.tokenizer, id)[0] for id in ids]
    pieces = [{"id": id, "text": text, "logp": p} for id, text, p in zip(ids, texts, logps, strict=True)]
    return {"text": clean(translator.tokenizer.decode(ids)), "score": score or sum(logps), "tokens": pieces}
