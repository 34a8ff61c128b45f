"""Gradient norms against distance, in untrained networks: how much of the past reaches the last state.

The gradient of the last state with respect to the input k steps before is a product of k Jacobians (Hochreiter 1991,
Bengio et al. 1994, Pascanu et al. 2013): it vanishes or explodes exponentially unless something keeps the factors near
one. Everything is in float64, because float32 ends at 1e-45, which a plain RNN reaches after some 130 steps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.explain.curves import Summary, summarise
from regard.lab.plain_text import PLAIN, PlainText
from regard.models import build, config_for
from regard.models.base import LanguageModel
from regard.nn.recurrent import PlainCell, PlainGRU, PlainLSTM, PlainRNN, State, unroll

WIDTH = 64  # of states and inputs
VOCAB = 256
NETWORKS = 5  # untrained, each with its own random input
AT_ONCE = 16_384  # inputs in memory together
RADII = (0.5, 1.0, 1.5, 3.0)  # spectral radius of the recurrent matrix; at 3 even tanh explodes
LIMIT = 1.0  # to which gradients are clipped
FLOAT32 = 1.4e-45  # the smallest positive float32
PERSISTS = 0.01  # a gradient of at least this fraction persists


@dataclass(frozen=True)
class Decay:
    """Median gradient norms at distances 0, 1, 2, …, and the factor per step that fits them."""

    name: str
    norms: list[float]
    step: Summary

    def at(self, distance: int) -> float:
        """Relative to distance 1."""
        return self.norms[distance] / self.norms[1]

    @property
    def fate(self) -> str:
        """What happens to the gradient up to the farthest distance: it vanishes, explodes or persists."""
        far = self.at(-1)
        return "vanishes" if far < PERSISTS else "explodes" if far > 1 / PERSISTS else "persists"


@dataclass(frozen=True)
class Clipping:
    """The norm of a gradient before and after clipping, and the ratio of the farthest input's to the nearest's."""

    name: str
    before: float
    after: float
    far_before: float
    far_after: float


class Elman(PlainRNN):
    """An RNN with zero biases and an activation of choice."""

    activation: Callable[[Tensor], Tensor] = staticmethod(torch.tanh)

    def __init__(self, inputs: int, width: int):
        super().__init__(inputs, width)
        nn.init.zeros_(self.bias_ih)
        nn.init.zeros_(self.bias_hh)

    def forward(self, x: Tensor, state: State) -> State:
        return (self.activation(x @ self.weight_ih.T + self.bias_ih + state[0] @ self.weight_hh.T + self.bias_hh),)


class LinearRNN(Elman):
    """No activation: the bare product of matrices on the slide."""

    activation = staticmethod(lambda a: a)


class ReluRNN(Elman):
    """Le et al. 2015: ReLU, the identity as recurrent matrix, small input weights."""

    activation = staticmethod(torch.relu)

    def __init__(self, inputs: int, width: int):
        super().__init__(inputs, width)
        nn.init.eye_(self.weight_hh)
        nn.init.normal_(self.weight_ih, std=0.001)


class NormRNN(Elman):
    """Ba et al. 2016, equation 4: layer norm before the tanh."""

    activation = staticmethod(lambda a: torch.tanh(F.layer_norm(a, a.shape[-1:])))


# -- measuring ----------------------------------------------------------------------------------------------------


def reach(net: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """|d net(x) / d x_t| for every input of x, T I, the last one first: T Frobenius norms of the exact Jacobian.

    `net` maps B T I to B D, each row independently, so that copies of x, one per output, share a backward pass.
    """
    with torch.no_grad():
        width = net(x[None]).size(-1)
    grads = []
    for outputs in torch.eye(width, dtype=x.dtype).split(max(1, AT_ONCE // len(x))):
        rows = x.repeat(len(outputs), 1, 1).requires_grad_()
        grads += torch.autograd.grad(net(rows), rows, outputs)
    grad = torch.cat(grads).transpose(0, 1).flatten(1)  # T (D I)
    most = grad.abs().amax(1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)  # the square of 1e-200 would be 0
    return (most[:, 0] * (grad / most).norm(dim=1)).flip(0)


def last_state(cell: PlainCell, x: Tensor) -> Tensor:
    """h after reading B T I from a zero state: B D."""
    zeros = x.new_zeros(len(x), cell.weight_hh.size(1))
    return unroll(cell, x, (zeros, zeros) if cell.kind == "lstm" else (zeros,))[1][0]


def model_reach(model: LanguageModel | PlainText, ids: Tensor) -> Tensor:
    """`reach` of a language model's last hidden state; its inputs are the embeddings of the ids, T."""

    def last(rows: Tensor) -> Tensor:
        with model.token.register_forward_hook(lambda *_: rows):
            return model(ids.expand(len(rows), -1))[:, -1]

    return reach(last, model.token(ids).detach())


def step_factor(norms: Tensor) -> float:
    """The factor per step that fits the norms from distance 1 on: least squares of their logarithms, without zeros."""
    distance = torch.arange(len(norms), dtype=norms.dtype)
    good = (norms > 0) & norms.isfinite() & (distance >= 1)
    if good.sum() < 2:
        return 0.0
    d, y = distance[good], norms[good].log()
    d = d - d.mean()
    return math.exp(((d * y).sum() / d.square().sum()).item())


def measure(name: str, sample: Callable[[], Tensor], seed: int) -> Decay:
    """The median over several random networks and inputs; the caller's RNG state is restored."""
    curves = []
    with torch.random.fork_rng(devices=[]):
        for number in range(NETWORKS):
            torch.manual_seed(seed + number)
            curves.append(sample())
    return Decay(name, torch.stack(curves).median(0).values.tolist(), summarise([step_factor(c) for c in curves]))


# -- what is measured ---------------------------------------------------------------------------------------------


def tiny_model(arch: str, context: int, vocab: int, layers: int) -> LanguageModel | PlainText:
    """An untrained language model, as `regard train lm` starts with, or a plain network; recurrent ones have one
    layer."""
    arch = arch.lower()
    if arch in PLAIN:
        return PLAIN[arch](context, vocab, WIDTH)
    size = dict(width=WIDTH, embedding=WIDTH)
    if arch in ("gpt", "llama"):
        size = dict(width=WIDTH, layers=layers, heads=4, ffn=4 * WIDTH, context=context)
    if arch == "llama":
        size |= dict(kv_heads=2, head_width=WIDTH // 4)
    return build(config_for(arch, "tiny", vocab, task="lm", **size))


@cache
def architecture(arch: str, length: int, seed: int) -> Decay:
    """An untrained language model, or plain network, on random tokens."""

    def sample() -> Tensor:
        model = tiny_model(arch, length + 1, VOCAB, layers=2).double().eval()
        return model_reach(model, torch.randint(VOCAB, (length + 1,)))

    return measure(arch, sample, seed)


def of_cell(name: str, make: Callable[[], PlainCell], length: int, seed: int) -> Decay:
    """An untrained cell, on standard normal inputs (as embeddings are)."""

    def sample() -> Tensor:
        cell = make().double()
        return reach(partial(last_state, cell), torch.randn(length + 1, WIDTH, dtype=torch.float64))

    return measure(name, sample, seed)


def radii(length: int, seed: int) -> list[Decay]:
    """RNNs without and with tanh, from vanishing to exploding, and the largest radius with layer norm."""
    rows = [("linear", LinearRNN, radius) for radius in RADII[:-1]] + [("tanh", Elman, radius) for radius in RADII]
    rows.append(("layer norm", NormRNN, RADII[-1]))
    return [of_cell(f"{name}, radius {r:g}", partial(scaled, cell, r), length, seed) for name, cell, r in rows]


def remedies(length: int, seed: int) -> list[Decay]:
    """The plain RNN first, then its remedies."""
    cells: dict[str, Callable[[], PlainCell]] = {
        "none: RNN with tanh": partial(Elman, WIDTH, WIDTH),
        "activation: ReLU, identity init": partial(ReluRNN, WIDTH, WIDTH),
        "normalisation: layer norm": partial(NormRNN, WIDTH, WIDTH),
        "gates: GRU": partial(gated, PlainGRU),
        "gates: LSTM with forget bias 1": partial(gated, PlainLSTM, forget=1.0),
        f"gates: LSTM set for {length} steps": partial(gated, PlainLSTM, steps=length),
    }
    decays = [of_cell(name, make, length, seed) for name, make in cells.items()]
    return [*decays, replace(architecture("gpt", length, seed), name="attention: GPT")]


def scaled(cell_type: type[Elman], radius: float) -> Elman:
    """A cell whose recurrent matrix has this spectral radius."""
    cell = cell_type(WIDTH, WIDTH)
    with torch.no_grad():
        cell.weight_hh.mul_(radius / torch.linalg.eigvals(cell.weight_hh).abs().max())
    return cell


def gated(cell_type: type[PlainCell], forget: float = 0.0, steps: int = 0) -> PlainCell:
    """A GRU or LSTM with zero biases except the forget gate's (Jozefowicz et al. 2015), or with input and forget gates
    set so that its units remember for 1 to `steps` steps (Tallec and Ollivier 2018)."""
    cell = cell_type(WIDTH, WIDTH)
    with torch.no_grad():
        cell.bias_ih.zero_()
        cell.bias_hh.zero_()
        if forget:
            cell.bias_ih.chunk(4)[1].fill_(forget)
        if steps:
            bias = torch.empty(WIDTH).uniform_(1, steps - 1).log()
            cell.bias_ih.chunk(4)[1].copy_(bias)
            cell.bias_ih.chunk(4)[0].copy_(-bias)
    return cell


def clipping(length: int, seed: int) -> list[Clipping]:
    """Clip the gradient of one number of the last state, of a vanishing and an exploding RNN."""
    rows = []
    with torch.random.fork_rng(devices=[]):
        for radius in (RADII[0], RADII[-1]):
            torch.manual_seed(seed)
            cell, x = scaled(Elman, radius).double(), torch.randn(1, length + 1, WIDTH, dtype=torch.float64)
            last_state(cell, x.requires_grad_())[0, 0].backward()
            gradients = [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh, x]
            ratio = far_over_near(x)
            before = nn.utils.clip_grad_norm_(gradients, LIMIT).item()
            after = nn.utils.clip_grad_norm_(gradients, math.inf).item()
            rows.append(Clipping(f"tanh, radius {radius:g}", before, after, ratio, far_over_near(x)))
    return rows


def far_over_near(x: Tensor) -> float:
    """The largest gradient in the farthest input, over that at distance 1: B T I."""
    assert x.grad is not None
    return (x.grad[:, 0].abs().max() / x.grad[:, -2].abs().max()).item()
