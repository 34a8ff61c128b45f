"""Looks at models that do not read text: patches, points, frames and columns take the place of tokens."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.waveform import HOP, RATE
from regard.inside import tokens
from regard.inside.looked import Check, Looked, Question, captured
from regard.inside.tokens import Token
from regard.ticks import Console

PARTS = "parts"  # the stream of the model's inputs
WHOLE, PADDING = "[CLS]", "padding"  # tokens that stand for all parts, and for none
BLOCKS = 7  # per side, of an image whose model has no patches
STREAMS = {
    "self": (PARTS, PARTS), "decoder": ("target", "inputs"), "cross": ("target", PARTS), "additive": ("target", PARTS),
}  # fmt: skip


@dataclass(frozen=True)
class InputParts:
    """The parts of an input by name, after `before` tokens that stand for the whole, and how to draw them."""

    names: Sequence[str]
    drawing: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    before: int = 0
    without: np.ndarray | None = None  # for a model without attention, the input without each part


def input_of(looked: Looked, question: Question) -> Any:
    """The input to look at, in a sequence of one: a file, a typed row, or an example of the test set."""
    predictor, task = looked.predictor, looked.predictor.task
    row = question.text if task.reads == "tables" else ""  # for other tasks a text would be taken for a file name
    if question.file or row.strip():
        return task.one_of(task.parse_inputs(predictor, [str(question.file or row)], Console(quiet=True)), 0)
    example = task.example_of(predictor, question.number)
    looked.example = {"on": example.on, "number": example.number, "count": example.count}
    return example.inputs


def of_sample(predictor: Any, question: Question, _: Check) -> Looked:
    """Record a predictor on one input: what its model read, attention between the parts, and the answer."""
    looked, read = Looked(predictor), []
    inputs = input_of(looked, question)
    start = time.perf_counter()
    with (
        captured(looked.attention, predictor.model, STREAMS),
        predictor.model.register_forward_pre_hook(lambda _, tensors: read.append(tensors)),
    ):
        (answer,) = predictor.predict(inputs)
    looked.seconds = time.perf_counter() - start
    parts = DRAWN[predictor.family](predictor, read[0], bool(looked.attention))
    add_parts(looked, parts, "self")
    if isinstance(getattr(answer, "probabilities", None), dict):
        looked.results["classes"] = [{"label": label, "p": p} for label, p in answer.probabilities.items()]
    elif predictor.family == "forecast":
        looked.results["forecast"] = forecast(answer, looked)
    else:
        looked.results["answer"] = predictor.task.text(answer)
    if parts.without is not None:
        looked.results["occlusion"] = occlusion(predictor, inputs, parts)
    return looked


def of_captioner(captioner: Any, question: Question, check: Check) -> Looked:
    """The best caption of an image, and where each of its words attends."""
    looked = Looked(captioner)
    pixels = np.stack(input_of(looked, question))
    start = time.perf_counter()
    (answer,) = captioner.predict(pixels, beam=question.beam)
    check()
    ids, image = answer.candidates[0].ids, torch.tensor(pixels, device=captioner.device)
    read = captioner.shifted(torch.tensor([ids], device=captioner.device))
    with captured(looked.attention, captioner.model, STREAMS):
        captioner.model(image, None, read)
    looked.seconds = time.perf_counter() - start
    text = captioner.tokenizer.decode(ids)
    looked.streams["target"] = tokens.of_translator(captioner.tokenizer, ids, text)
    looked.streams["inputs"] = tokens.of_translator(captioner.tokenizer, read[0].tolist(), text)
    config = captioner.model.config.encoder
    kind = "cross" if "cross" in looked.attention else "additive"
    add_parts(looked, patches(image[0], config.grid, config.tokens), kind)
    looked.results["answer"] = answer.candidates[0].text
    return looked


def add_parts(looked: Looked, parts: InputParts, kind: str) -> None:
    """Add the stream of named parts; `kind` is the attention laid over the drawing."""
    names = [(WHOLE, True)] * parts.before + [(name, False) for name in parts.names]
    if "self" in looked.attention:
        names += [(PADDING, True)] * (looked.attention["self"].layers[0].k.size(2) - len(names))
    looked.streams[PARTS] = [chip(place, name, special) for place, (name, special) in enumerate(names)]
    laid_over = kind if kind in looked.attention else ""
    looked.picture = {**parts.drawing, "before": parts.before, "count": len(parts.names), "attention": laid_over}
    looked.tensors |= parts.tensors


def chip(place: int, name: str, special: bool) -> Token:
    about = {"id": place, "text": name, "shown": name, "word": -1 if special else place, "special": special}
    return about | {"bytes": None, "start": 0, "end": 0}


# -- what is drawn of each family -----------------------------------------------------------------------------------


def patches(pixels: Tensor, side: int, tokens: int) -> InputParts:
    """An image, C P P bytes, as squares."""
    shown = pixels.expand(3, -1, -1) if len(pixels) == 1 else pixels[:3]
    names = [f"{row},{column}" for row in range(1, side + 1) for column in range(1, side + 1)]
    drawing = {"kind": "image", "rows": side, "columns": side, "unit": "patch (row, column)"}
    return InputParts(names, drawing, {"pixels": shown.permute(1, 2, 0).contiguous().cpu()}, tokens)


def of_image(predictor: Any, read: Any, attends: bool) -> InputParts:
    pixels, config = read[0][0], predictor.model.config
    if attends:
        return patches(pixels, pixels.size(-1) // config.patch, config.tokens)
    side = min(BLOCKS, pixels.size(-1))
    parts, edges = patches(pixels, side, 0), np.linspace(0, pixels.size(-1), side + 1).round().astype(int)
    mean = (np.array(config.mean) * 255).round().astype(np.uint8)
    hidden = []
    for row in range(side):
        for column in range(side):
            one = pixels.cpu().numpy().copy()
            one[:, edges[row] : edges[row + 1], edges[column] : edges[column + 1]] = mean[:, None, None]
            hidden.append(one)
    return InputParts(parts.names, parts.drawing, parts.tensors, without=np.stack(hidden))


def of_audio(_: Any, read: Any, __: bool) -> InputParts:
    """A clip as its spectrogram, low tones at the bottom; a part is two frames."""
    real = int(read[1][0])
    clip = read[0][0, :, :real].flip(0).float()  # mels F
    grey = (clip - clip.min()) / (clip.max() - clip.min()).clamp(min=1e-6) * 255
    count = (real + 1) // 2
    names = [f"{2 * i * HOP / RATE:.2f} s" for i in range(count)]
    drawing = {"kind": "image", "rows": 1, "columns": count, "unit": "time", "wide": True}
    pixels = grey.byte()[..., None].expand(-1, -1, 3).contiguous().cpu()
    return InputParts(names, drawing, {"pixels": pixels})


def of_series(predictor: Any, read: Any, attends: bool) -> InputParts:
    """The points of a series; a part is a token of `patch` points, after one that stands for the whole."""
    config, (times, values, _, bands) = predictor.model.config, read[:4]
    count = len(times[0])
    starts = range(0, max(1, count - config.patch + 1), config.stride)
    spans = [[start, min(start + config.patch, count)] for start in starts]
    drawing = {"kind": "curve", "spans": spans, "unit": "time", "bands": list(config.bands)}
    tensors = {"x": times[0].float().cpu(), "y": values[0].float().cpu()}
    if bands is not None:
        tensors["band"] = bands[0].int().cpu()
    return InputParts([f"{float(times[0, start]):g}" for start in starts], drawing, tensors, int(attends))


def of_forecast(predictor: Any, read: Any, _: bool) -> InputParts:
    """The past of the first column; a part is a patch of it."""
    config, past = predictor.model.config, read[0][0][:, 0].float().cpu()
    short = (config.patches - 1) * config.stride + config.patch - config.lookback
    starts = [i * config.stride - short for i in range(config.patches)]
    spans = [[max(0, start), start + config.patch] for start in starts]
    drawing = {"kind": "curve", "spans": spans, "unit": "rows, 0 is the last", "bands": [config.columns[0]]}
    steps = torch.arange(1 - len(past), 1).float()
    return InputParts([f"{int(steps[start])}" for start, _ in spans], drawing, {"x": steps, "y": past})


def of_table(predictor: Any, read: Any, _: bool) -> InputParts:
    """The columns of a row; to leave one out, its value becomes the training mean."""
    row, at, names, hidden = read[0][0].cpu().numpy(), 0, [], []
    mean = np.broadcast_to(np.array(predictor.model.config.mean, row.dtype), row.shape)
    for column in predictor.columns:
        own = slice(at, at := at + column.width)
        chosen = column.values[int(row[own].argmax())] if column.values and row[own].any() else "(none)"
        names.append(f"{column.name}={chosen if column.values else format(row[own][0], '.6g')}")
        one = row.copy()
        one[own] = mean[own]
        hidden.append(one)
    return InputParts(names, {"kind": "row", "unit": "column"}, without=np.stack(hidden))


DRAWN: dict[str, Callable[[Any, Any, bool], InputParts]] = {  # by a predictor's family
    "image": of_image,
    "audio": of_audio,
    "series": of_series,
    "forecast": of_forecast,
    "table": of_table,
}


def occlusion(predictor: Any, inputs: Any, parts: InputParts) -> dict[str, Any]:
    """How much the answer falls without each part: the probability of the likeliest class, or the predicted number."""
    whole = predictor.probabilities(list(inputs))[0]
    best = int(whole.argmax())
    changes = whole[best] - predictor.probabilities(parts.without)[:, best]
    return {"of": predictor.labels[best] if len(whole) > 1 else "", "changes": changes.tolist()}


def forecast(outlook: Any, looked: Looked) -> dict[str, Any]:
    """The predicted mean of the first column, and its outermost quantiles."""
    if len(outlook.columns) > 1:
        looked.notes.append(f"of {len(outlook.columns)} columns the first, {outlook.columns[0]}, is drawn")
    bands = outlook.quantiles[:, 0] if outlook.levels else outlook.mean[:, :1]
    levels = [outlook.levels[0], outlook.levels[-1]] if outlook.levels else []
    return {
        "column": outlook.columns[0], "times": [str(t) for t in outlook.named_times()], "levels": levels,
        "mean": outlook.mean[:, 0].tolist(), "low": bands[:, 0].tolist(), "high": bands[:, -1].tolist(),
    }  # fmt: skip
