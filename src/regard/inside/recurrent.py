"""A recurrent net unrolled: every gate and state at every step, with the same weights at each."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from regard.errors import ConfigError
from regard.inside.looked import Looked

STEPS = 256  # shown
LARGE = 1_000_000  # numbers, above which they are sent in half precision
Weights = tuple[Tensor, Tensor, Tensor, Tensor]  # of input and state, and their biases; gates stacked


def unrolled(looked: Looked) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """States and gates of all layers, L T D each, for `pack`; a translator's are of its forward encoder."""
    model = looked.predictor.model
    if not hasattr(model.config, "cell"):
        raise ConfigError("this model has no recurrent cell", "look at its attention")
    stream = "source" if looked.predictor.family == "translator" else "text"
    with torch.inference_mode():
        x = looked.embeddings[stream].token.float()
        layers = list((reader_gates if stream == "source" else gates)(model, x))
    tensors = {name: torch.stack([layer[name] for layer in layers]) for name in layers[0]}
    if sum(t.numel() for t in tensors.values()) > LARGE:
        tensors = {name: t.half() for name, t in tensors.items()}
    shapes = {n: list(p.shape) for n, p in model.named_parameters() if p.ndim == 2 and not n.startswith("token")}
    header = {
        "cell": model.config.cell, "layers": len(layers), "width": model.config.width, "stream": stream,
        "rows": min(len(x), STEPS), "weights": shapes, "finding": finding(model.config.cell, tensors),
    }  # fmt: skip
    return header, tensors


def gates(model: Any, x: Tensor) -> Iterator[dict[str, Tensor]]:
    """The gates of each layer in its first steps; the first one reads x, T I."""
    for cell in model.cells:
        layer = of_layer(cell.kind, x[:STEPS], (cell.W_xh, cell.W_hh, cell.b_h, torch.zeros_like(cell.b_h)))
        yield layer
        x = layer["states"]


def reader_gates(model: Any, x: Tensor) -> Iterator[dict[str, Tensor]]:
    """The same for a translator's forward encoder."""
    mirror = torch.arange(len(x) - 1, -1, -1, device=x.device)[None]
    for layer in model.encoder:
        part: Any = layer.forwards
        weights = part.weight_ih_l0, part.weight_hh_l0, part.bias_ih_l0, part.bias_hh_l0
        yield of_layer(model.config.cell, x[:STEPS], weights)
        x = layer(x[None], mirror)[0]  # of the whole text, which is also read backwards


def of_layer(kind: str, x: Tensor, weights: Weights) -> dict[str, Tensor]:
    """All gates and states of one layer by name, T D each, by the equations of `nn.recurrent`."""
    into, back, bias, bias_back = (w.float() for w in weights)
    h = c = x.new_zeros(back.size(1))
    steps: list[dict[str, Tensor]] = []
    for a in x @ into.T + bias:
        b = back @ h + bias_back
        if kind == "lstm":
            (ai, af, ag, ao), (bi, bf, bg, bo) = a.chunk(4), b.chunk(4)
            i, f, o, g = (ai + bi).sigmoid(), (af + bf).sigmoid(), (ao + bo).sigmoid(), (ag + bg).tanh()
            c = f * c + i * g
            h = o * c.tanh()
            steps.append({"states": h, "input": i, "forget": f, "candidate": g, "output": o, "cell": c})
        elif kind == "gru":
            (ar, az, an), (br, bz, bn) = a.chunk(3), b.chunk(3)
            r, z = (ar + br).sigmoid(), (az + bz).sigmoid()
            n = (an + r * bn).tanh()
            h = (1 - z) * n + z * h
            steps.append({"states": h, "reset": r, "update": z, "new": n})
        else:
            h = (a + b).tanh()
            steps.append({"states": h})
    return {name: torch.stack([step[name] for step in steps]) for name in steps[0]}


def finding(kind: str, tensors: dict[str, Tensor]) -> str:
    if kind == "lstm":
        gate = float(tensors["forget"].float().mean())
        return f"On average the forget gate keeps {gate:.0%} of the cell from one step to the next."
    if kind == "gru":
        gate = float(tensors["update"].float().mean())
        return f"On average the update gate keeps {gate:.0%} of the state from one step to the next."
    full = float((tensors["states"].float().abs() > 0.95).float().mean())
    return f"{full:.0%} of all states are near the ends of tanh, where little gradient passes."
