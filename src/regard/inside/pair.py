"""One word in two texts: where it attends in each, how its vector differs, and which other words matter to it."""

from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

import torch
from torch import Tensor

from regard.errors import DataError
from regard.inside.attention import Attention, stages
from regard.inside.looked import Check, Looked, Question, captured, interruptible
from regard.inside.reading import Reading, read
from regard.inside.tokens import Token

MOST_WORDS = 64  # masked one by one
RANKED = 24  # heads listed
STOP_WORDS = ("the", "a", "an", "was", "is", "of", "to", "and", "because", "i")


@dataclass(frozen=True)
class Side:
    """One of the two texts, and its word."""

    text: Reading
    places: list[int]  # of the word's tokens
    rows: Tensor | None  # L H S: the attention of the word, the mean over its tokens
    vectors: list[Tensor]  # of the word after the embedding and after every layer, D each

    def name(self) -> str:
        return text_of([self.text.chips[i] for i in self.places])


@torch.inference_mode()
def pair(
    predictor: Any, first: tuple[str, int], second: tuple[str, int], check: Check
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Everything about one word in two texts, for `pack`. Each text comes with the number of its word; below 0 is a
    word that both texts have."""
    if min(first[1], second[1]) < 0:
        word_a, word_b = shared_word(predictor, first[0], second[0])
        first, second = (first[0], word_a), (second[0], word_b)
    with interruptible(predictor.model, check):
        one, two = side(predictor, *first), side(predictor, *second)
        header: dict[str, Any] = {
            "tokens_a": one.text.chips, "tokens_b": two.text.chips,
            "rows": {"a": {"word": first[1], "tokens": one.places}, "b": {"word": second[1], "tokens": two.places}},
            "cosine": [
                torch.cosine_similarity(x.double(), y.double(), dim=0).item()
                for x, y in zip(one.vectors, two.vectors, strict=True)
            ],
            "occlusion_a": occlusion(predictor, one), "occlusion_b": occlusion(predictor, two), "heads": [],
            "few": any(len(words_of(side)) > MOST_WORDS + 1 for side in (one, two)),
        }  # fmt: skip
    tensors = {}
    if one.rows is not None and two.rows is not None:
        tensors = {"row_a": one.rows, "row_b": two.rows}
        header["heads"] = ranked(one, two)
    return header | {"finding": finding(one, two, header)}, tensors


def compare(looked: Looked, question: Question) -> None:
    """Compare a word of the text with the same word in the second text, unless the model read both at once."""
    if not question.second.strip() or "classes" in looked.results:
        return
    looked.compared = pair(looked.predictor, (question.text, -1), (question.second, -1), lambda: None)
    looked.finding["pair"] = looked.compared[0]["finding"]


def shared_word(predictor: Any, first: str, second: str) -> tuple[int, int]:
    """The numbers of a word that both texts have: "it" if it is one, else the last that is not in `STOP_WORDS`."""
    names = []
    for text in (first, second):
        chips = read(predictor, Question(text=text)).chips
        words: dict[int, str] = {}
        for chip in chips:
            if not chip["special"]:
                words[chip["word"]] = words.get(chip["word"], "") + chip["text"].removeprefix("##")
        names.append({number: "".join(c for c in word if c.isalnum()).lower() for number, word in words.items()})
    places = {name: number for number, name in names[1].items() if name}
    shared = [(number, places[name], name) for number, name in names[0].items() if name in places]
    telling = [one for one in shared if one[2] not in STOP_WORDS]
    best = next((one for one in shared if one[2] == "it"), (telling or shared or [(0, 0, "")])[-1])
    return best[:2]


def side(predictor: Any, text: str, word: int) -> Side:
    reading = read(predictor, Question(text=text))
    places = [i for i, chip in enumerate(reading.chips) if chip["word"] == word and not chip["special"]]
    if not places:
        raise DataError(f"no word number {word} in {text[:60]!r}", "choose one that is there")
    attention: dict[str, Attention] = {}
    streams = dict.fromkeys(("self", "encoder"), ("text", "text"))
    with captured(attention, predictor.model, streams):
        layers = reading.layers(predictor)
    ids = torch.tensor(reading.ids, device=predictor.device)
    vectors = [states[places].mean(0) for states in (predictor.model.token(ids), *layers)]
    own = attention.get("encoder", attention.get("self"))
    return Side(reading, places, None if own is None else rows_of(own, places), vectors)


def rows_of(attention: Attention, places: list[int]) -> Tensor:
    rows = [
        torch.stack([stages(look, head)["weights"][places].mean(0) for head in range(attention.heads)])
        for look in attention.layers
    ]
    return torch.stack(rows)  # L H S


def ranked(one: Side, two: Side) -> list[dict[str, Any]]:
    """The heads whose attention differs most, by total variation: half the L1 distance of the two rows.

    Tokens that both texts have are compared with each other; those of one text alone count in full.
    """
    assert one.rows is not None and two.rows is not None
    left, right = one.rows.clone(), two.rows.clone()
    total = torch.zeros(left.shape[:2])
    for block in SequenceMatcher(None, one.text.ids, two.text.ids, autojunk=False).get_matching_blocks():
        mine, theirs = (slice(start, start + block.size) for start in (block.a, block.b))
        total += (left[..., mine] - right[..., theirs]).abs().sum(-1)
        left[..., mine] = 0.0
        right[..., theirs] = 0.0
    total = (total + left.sum(-1) + right.sum(-1)) / 2
    values, order = total.flatten().topk(min(RANKED, total.numel()))
    heads = total.size(1)
    return [
        {"layer": place // heads, "head": place % heads, "difference": value}
        for place, value in zip(order.tolist(), values.tolist(), strict=True)
    ]


def occlusion(predictor: Any, side: Side) -> list[dict[str, Any]]:
    """How far the word's last vector turns (1 - cosine) when another word is masked, or left out."""
    chips, kept = side.text.chips, side.vectors[-1].double()
    own = chips[side.places[0]]["word"]
    changes = []
    for word in sorted(words_of(side) - {own})[:MOST_WORDS]:
        hidden = without(predictor, side.text, word)
        places = [i for i, chip in enumerate(hidden.chips) if chip["word"] == own]
        vector = hidden.layers(predictor)[-1][places].mean(0).double()
        change = 1 - torch.cosine_similarity(vector, kept, dim=0).item()
        changes.append(
            {"word": word, "text": text_of([chip for chip in chips if chip["word"] == word]), "change": change}
        )
    return changes


def words_of(side: Side) -> set[int]:
    return {chip["word"] for chip in side.text.chips if not chip["special"]}


def without(predictor: Any, text: Reading, word: int) -> Reading:
    """The text with a word masked, or left out if the model has no mask token."""
    mask = getattr(predictor.tokenizer, "mask", None)
    if mask is not None:
        ids = [mask if chip["word"] == word else id for id, chip in zip(text.ids, text.chips, strict=True)]
        return replace(text, ids=ids)
    return text.select([i for i, chip in enumerate(text.chips) if chip["word"] != word])


def text_of(chips: list[Token]) -> str:
    return "".join(chip["text"].removeprefix("##") for chip in chips).strip()


def finding(one: Side, two: Side, header: dict[str, Any]) -> str:
    first, last = header["cosine"][0], header["cosine"][-1]
    same = one.name() == two.name()
    who = f"The two vectors of “{one.name()}”" if same else f"The vectors of “{one.name()}” and “{two.name()}”"
    text = f"{who} have a cosine of {first:.2f} at the start and {last:.2f} at the end."
    if one.text.ids == two.text.ids and one.places == two.places:
        return text + " The two texts are the same to this model."
    if not header["heads"]:
        return text
    best = header["heads"][0]
    if best["difference"] < 1e-6:
        return (
            f"{text} Its rows are the same in every head: what differs comes after it, and this model looks back only."
        )
    place = f"head {best['head'] + 1} of layer {best['layer'] + 1}"
    looks = "It looks" if same else "They look"
    return text + f" {looks} most differently in {place}: {best['difference']:.0%} of the weight is elsewhere."
