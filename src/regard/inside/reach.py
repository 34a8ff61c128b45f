"""How much of the past reaches a language model's last state: gradients against distance, on any text."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.errors import ConfigError
from regard.inside.looked import Check, interruptible
from regard.lab.gradients import architecture, model_reach
from regard.models.base import LanguageModel

LONGEST = 200
EXACT = 160  # width up to which the whole Jacobian is computed
SMALL = 10_000_000  # parameters up to which it is computed in float64
DIRECTIONS = 8  # random ones, for larger widths
UNTRAINED = ("rnn", "gru", "lstm", "gpt", "llama")  # by architecture


def curve(writer: Any, text: str, length: int, check: Check) -> dict[str, Any]:
    """Norms of d last state / d embedding, by distance, of the last `length` tokens of a text (repeated if short)."""
    if writer.family != "language":
        raise ConfigError("gradients against distance are for language models", "choose one of these")
    ids = writer.encode(text)
    while len(ids) < length + 1:
        ids = ids + ids
    room = writer.model.config.context or length + 1
    row = torch.tensor(ids[-min(length + 1, room) :], device=writer.device)
    model: LanguageModel = writer.model
    exact = model.config.width <= EXACT
    if sum(p.numel() for p in model.parameters()) <= SMALL:
        model = copy.deepcopy(model).double()
    with interruptible(model, check), torch.inference_mode(False):
        norms = model_reach(model, row) if exact else estimated(model, row)
    return {"distances": list(range(len(norms))), "norms": norms.tolist(), "exact": exact}


def estimated(model: LanguageModel, ids: Tensor) -> Tensor:
    """`model_reach` from a few random directions: |vᵀJ|² is |J|² on average, for v of independent signs."""
    rng = torch.Generator().manual_seed(0)
    x = model.token(ids).detach()
    total = torch.zeros(len(ids), dtype=torch.float64)
    for _ in range(DIRECTIONS):
        rows = x[None].clone().requires_grad_()
        with model.token.register_forward_hook(lambda *_, rows=rows: rows):
            last = model(ids[None])[0, -1]
        signs = (torch.randint(2, last.shape, generator=rng) * 2 - 1).to(last)
        (grad,) = torch.autograd.grad(last, rows, signs)
        total += grad[0].double().norm(dim=-1).square().cpu()
    return (total / DIRECTIONS).sqrt().flip(0)


def compared(ids: Sequence[str], open_: Callable[[str], Any], text: str, length: int, check: Check) -> dict[str, Any]:
    """The curves of models by id, and of untrained tiny ones by architecture, as in `regard gradients`."""
    length, curves = min(max(length, 2), LONGEST), []
    for id in dict.fromkeys(ids):
        check()
        if id in UNTRAINED:
            norms = architecture(id, length, 0).norms
            curves.append(
                {"name": f"{id}, untrained", "distances": list(range(len(norms))), "norms": norms, "exact": True}
            )
        else:
            curves.append({"name": id, **curve(open_(id), text, length, check)})
    return {"curves": curves, "finding": finding(curves)}


def finding(curves: Sequence[dict[str, Any]]) -> str:
    parts = []
    for curve in curves:
        norms = curve["norms"]
        if len(norms) > 2 and norms[1]:
            parts.append(f"{norms[-1] / norms[1]:.2g} in {curve['name']} (over {len(norms) - 1} steps)")
    return f"Gradient at the farthest distance, relative to distance 1: {', '.join(parts)}." if parts else ""
