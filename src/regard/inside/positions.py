"""How a model encodes positions, and what happens when the words of a text are shuffled."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from regard.data.tokenizers.wordpiece import WordPiece
from regard.errors import DataError
from regard.inside.embedding import scheme
from regard.inside.looked import Check, Question, interruptible
from regard.inside.reading import Reading, read
from regard.inside.text import classes, likeliest
from regard.inside.translation import search
from regard.nn.positions import Interleaved, Sinusoidal, waves

MOST = 256  # positions
BEST = 5  # answers compared


def positions(model: Any, n: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The model's encoding of the first `n` positions, for `pack`, and the cosine of every pair."""
    name, layout, place = scheme(model, "source")
    n = max(1, min(n, MOST, getattr(model.config, "max_length", 0) or getattr(model.config, "context", 0) or MOST))
    tensors: dict[str, Tensor] = {}
    rows = None
    with torch.no_grad():
        if place is not None:
            tensors["table"] = rows = place(torch.arange(n, device=model.token.weight.device)).float()
            if name == "sinusoidal":
                sines, cosines = waves(n, rows.size(1))
                tensors |= {"interleaved": Interleaved.layout(sines, cosines).float()}
                tensors |= {"halves": Sinusoidal.layout(sines, cosines).float()}
        elif name == "rotary":
            half = model.rotary.cosines.size(1) // 2
            rate = torch.atan2(model.rotary.sines[1, half:], model.rotary.cosines[1, :half])  # per position: under 1
            tensors["angles"] = torch.arange(n, device=rate.device)[:, None] * rate
            rows = torch.cat((model.rotary.cosines[:n, :half], model.rotary.sines[:n, half:]), -1)
        elif name == "alibi":
            tensors["slopes"] = model.alibi.slopes.float()
        if rows is not None:
            unit = torch.nn.functional.normalize(rows.float(), dim=-1)
            tensors["similarity"] = unit @ unit.T
    return {"scheme": name, "layout": layout, "n": n, "finding": finding(name, tensors)}, tensors


def finding(name: str, tensors: dict[str, Tensor]) -> str:
    if name == "none":
        return "This model adds nothing for a position: what it knows of order comes from its mask or recurrence."
    if name == "alibi":
        slopes = tensors["slopes"]
        return f"Every step away takes {slopes.min():.3g} to {slopes.max():.3g} off a score, by the head."
    table = tensors["similarity"]
    if len(table) < 2:
        return f"Positions are {name}."
    near, far = float(table.diagonal(1).mean()), float(table[0, -1])
    text = f"Positions are {name}: neighbours have a cosine of {near:.2f}, the first and number {len(table)}"
    return f"{text} of {far:.2f}."


@contextmanager
def without_positions(model: Any) -> Iterator[None]:
    """Disable the model's positions: no vector is added, nothing is rotated, no score is biased."""
    ways = {
        "place": lambda _, __, out: torch.zeros_like(out),
        "rotary": lambda _, __, out: (torch.ones_like(out[0]), torch.zeros_like(out[1])),
        "alibi": lambda _, inputs, __: inputs[0],
    }
    ways |= {"encoder_place": ways["place"], "decoder_place": ways["place"]}
    with ExitStack() as hooks:
        for name, way in ways.items():
            if isinstance(part := getattr(model, name, None), torch.nn.Module):
                hooks.enter_context(part.register_forward_hook(way))
        yield


@torch.inference_mode()
def permute(predictor: Any, question: Question, check: Check) -> dict[str, Any]:
    """Compare the states of a text with those of its words shuffled, token by token, with positions and without."""
    model, text = predictor.model, read(predictor, question)
    order = shuffled(text)
    other = text.select(order)
    result: dict[str, Any] = {
        "tokens": [chip["shown"] for chip in text.chips],
        "order": order,
        "shuffled": as_text(predictor.tokenizer, other),
    }
    back = torch.tensor(order, device=predictor.device).argsort()  # each token's place in the other text
    with interruptible(model, check):
        for name in ("with", "without"):
            with without_positions(model) if name == "without" else nullcontext():
                one, two = text.states(predictor), other.states(predictor)
                result[name] = {
                    "cosine": torch.cosine_similarity(one.double(), two[back].double(), dim=-1).tolist(),
                    "original": answers(predictor, text, one, check),
                    "shuffled": answers(predictor, other, two, check),
                }
    result["finding"] = compared(predictor, *(min(result[name]["cosine"]) for name in ("with", "without")))
    return result


def shuffled(text: Reading) -> list[int]:
    """The places of the tokens in a random order: words are moved whole, special tokens stay."""
    groups: dict[int, list[int]] = {}
    for place, chip in enumerate(text.chips):
        if not chip["special"] and not chip.get("sentence"):
            groups.setdefault(chip["word"], []).append(place)
    words = list(groups.values())
    if len(words) < 2:
        raise DataError("a text of one word has no other order", "type some more")
    rng = torch.Generator().manual_seed(0)
    mixed = [words[i] for i in torch.randperm(len(words), generator=rng).tolist()]
    if mixed == words:
        mixed = words[1:] + words[:1]
    new = iter([place for word in mixed for place in word])
    moved = {place for word in words for place in word}
    return [next(new) if place in moved else place for place in range(len(text.ids))]


def as_text(tokenizer: Any, text: Reading) -> str:
    """The text of the tokens; WordPiece pieces carry no spaces."""
    pieces = [chip["text"] for chip in text.chips if not chip["special"]]
    return " ".join(pieces).replace(" ##", "") if isinstance(tokenizer, WordPiece) else "".join(pieces).strip()


def answers(predictor: Any, text: Reading, states: Tensor, check: Check) -> list[dict[str, Any]]:
    """The model's answers: next tokens, classes, or a translation; none for other models."""
    if predictor.family == "language":
        return likeliest(predictor, predictor.model.logits(states[-1]), BEST)
    if predictor.family == "translator":
        (score, ids), *_ = search(predictor, text.ids, Question(text="", beam=1), check)[0]
        return [{"text": predictor.tokenizer.decode(ids), "p": None, "score": score}]
    if predictor.family == "classifier":
        return [{"text": one["label"], "p": one["p"]} for one in classes(predictor, states)]
    return []


def compared(predictor: Any, kept: float, without: float) -> str:
    if hasattr(predictor.model.config, "cell"):
        return "A recurrent model has no positions to take away: it reads one word after the other."
    text = f"Shuffled, the least similar state has a cosine of {kept:.2f} to its own; without positions {without:.2f}"
    if without > 0.9999:
        return text + ": then the model sees a set of words, in no order."
    causal = predictor.family == "language"
    return text + (", because a causal model still knows how many words came before." if causal else ".")
