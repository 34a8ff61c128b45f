"""Recurrent cells written out from their equations, next to torch's fast ones.

Each plain cell has the signature and parameter names of torch's, so weights load both ways. `unroll` applies one cell,
with the same weights, at every step of a sequence.
"""

import warnings
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

State = tuple[Tensor, ...]  # (h,) for RNN and GRU, (h, c) for the LSTM; each B D
Maps = tuple[Tensor, ...]  # the gates' inputs from x, or from the previous state; each B D


def rnn_step(a: Maps, b: Maps, _: State) -> State:
    """Elman 1990."""
    return (torch.tanh(a[0] + b[0]),)


def lstm_step(a: Maps, b: Maps, state: State) -> State:
    """Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000."""
    _, c = state
    (ai, af, ag, ao), (bi, bf, bg, bo) = a, b
    i, f, o = torch.sigmoid(ai + bi), torch.sigmoid(af + bf), torch.sigmoid(ao + bo)
    c = f * c + i * torch.tanh(ag + bg)  # the sum that lets gradients pass through many steps
    return o * torch.tanh(c), c


def gru_step(a: Maps, b: Maps, state: State) -> State:
    """Cho et al. 2014, in the variant of torch and cuDNN (the reset gate acts after the matrix product)."""
    (h,) = state
    (ar, az, an), (br, bz, bn) = a, b
    r, z = torch.sigmoid(ar + br), torch.sigmoid(az + bz)
    return ((1 - z) * torch.tanh(an + r * bn) + z * h,)


STEPS = {"rnn": rnn_step, "gru": gru_step, "lstm": lstm_step}
GATES = {"rnn": 1, "gru": 3, "lstm": 4}


class PlainCell(nn.Module):
    """W_ih x + b_ih and W_hh h + b_hh, with `gates` stacked maps each."""

    kind = "rnn"

    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.gates = GATES[self.kind]
        rows = self.gates * width
        self.weight_ih = nn.Parameter(torch.empty(rows, inputs))
        self.weight_hh = nn.Parameter(torch.empty(rows, width))
        self.bias_ih = nn.Parameter(torch.empty(rows))
        self.bias_hh = nn.Parameter(torch.empty(rows))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5)

    def forward(self, x: Tensor, state: State) -> State:
        a = x @ self.weight_ih.T + self.bias_ih
        b = state[0] @ self.weight_hh.T + self.bias_hh
        return STEPS[self.kind](a.chunk(self.gates, -1), b.chunk(self.gates, -1), state)


class PlainRNN(PlainCell):
    kind = "rnn"


class PlainLSTM(PlainCell):
    kind = "lstm"


class PlainGRU(PlainCell):
    kind = "gru"


class SlideCell(nn.Module):
    """h_t = f(W_xh x_t + W_hh h_{t-1} + b_h): the lecture's letters. GRU and LSTM stack the maps of their gates."""

    def __init__(self, kind: str, inputs: int, width: int):
        super().__init__()
        self.kind, self.gates = kind, GATES[kind]
        self.W_xh = nn.Parameter(torch.empty(self.gates * width, inputs))
        self.W_hh = nn.Parameter(torch.empty(self.gates * width, width))
        self.b_h = nn.Parameter(torch.empty(self.gates * width))

    def forward(self, x: Tensor, state: State) -> State:
        a, b = x @ self.W_xh.T + self.b_h, state[0] @ self.W_hh.T
        return STEPS[self.kind](a.chunk(self.gates, -1), b.chunk(self.gates, -1), state)


class FastRNN(nn.RNNCell):
    gates = GATES["rnn"]

    def forward(self, x: Tensor, state: State) -> State:
        return (super().forward(x, state[0]),)


class FastLSTM(nn.LSTMCell):
    gates = GATES["lstm"]

    def forward(self, x: Tensor, state: State) -> State:
        return super().forward(x, (state[0], state[1]))


class FastGRU(nn.GRUCell):
    gates = GATES["gru"]

    def forward(self, x: Tensor, state: State) -> State:
        return (super().forward(x, state[0]),)


def unroll(cell: nn.Module, x: Tensor, state: State) -> tuple[Tensor, State]:
    """Apply one cell along the sequence B T I: all hidden states B T D, and the last state."""
    outputs = []
    for step in x.unbind(1):
        state = cell(step, state)
        outputs.append(state[0])
    return torch.stack(outputs, 1), state


def stack(kind: str, inputs: int, width: int, layers: int) -> list[SlideCell]:
    """Stacked cells: each reads the hidden states of the one below."""
    widths = [inputs] + [width] * (layers - 1)
    return cast("list[SlideCell]", nn.ModuleList(SlideCell(kind, w, width) for w in widths))


def blank_state(cells: Sequence[SlideCell], rows: int, like: Tensor) -> State:
    """Zeros for every layer, row and unit: each L B D."""
    shape = len(cells), rows, cells[0].W_hh.size(1)
    return tuple(like.new_zeros(shape) for _ in range(2 if cells[0].kind == "lstm" else 1))


def run_stack(
    cells: Sequence[SlideCell],
    x: Tensor,
    state: State | None = None,
    drop: float = 0.0,
    lengths: Tensor | None = None,
) -> tuple[Tensor, State]:
    """Run stacked cells over B T I with torch's kernels: hidden states of the top, B T D, and last states, each L B D.

    `state` defaults to zeros. With `lengths` (B, at least 1) the states are those after that many steps. `drop` acts
    between the cells.
    """
    state = blank_state(cells, x.size(0), x) if state is None else state
    drop = drop if len(cells) > 1 else 0.0
    weights = [w.to(x.dtype) for c in cells for w in (c.W_xh, c.W_hh, c.b_h, torch.zeros_like(c.b_h))]
    kernel: Any = {"rnn": torch.rnn_tanh, "gru": torch.gru, "lstm": torch.lstm}[cells[0].kind]
    before: Any = state if len(state) == 2 else state[0]
    train = torch.is_grad_enabled()  # cuDNN keeps what backward needs only then, dropout or not
    how = (weights, True, len(cells), drop, train, False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*contiguous chunk of memory.*")  # ours are separate parameters
        if lengths is None:
            hidden, *after = kernel(x, before, *how, True)
            return hidden, tuple(after)
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        order, back = packed.sorted_indices, packed.unsorted_indices
        assert order is not None and back is not None
        sorted_state = tuple(part[:, order] for part in state)
        before = sorted_state if len(state) == 2 else sorted_state[0]
        data, *after = kernel(packed.data, packed.batch_sizes, before, *how)
    done = PackedSequence(data, packed.batch_sizes, order, back)
    hidden, _ = pad_packed_sequence(done, batch_first=True, total_length=x.size(1))
    return hidden, tuple(part[:, back] for part in after)


PLAIN_CELLS = {"rnn": PlainRNN, "gru": PlainGRU, "lstm": PlainLSTM}
FAST_CELLS = {"rnn": FastRNN, "gru": FastGRU, "lstm": FastLSTM}
LAYERS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}  # whole sequences at once: cuDNN on a GPU
