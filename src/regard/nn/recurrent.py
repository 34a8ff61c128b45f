"""Recurrent cells written out from their equations, beside torch's fast ones.

Each plain cell takes and returns what torch's takes and returns and keeps torch's parameter names, so weights move
both ways. A sequence is `unroll`ed by applying one cell at every step: the same weights at every time.
"""

import torch
from torch import Tensor, nn

State = tuple[Tensor, ...]  # (h,) for RNN and GRU, (h, c) for the LSTM; each B D


class PlainCell(nn.Module):
    """W_ih x + b_ih and W_hh h + b_hh, with `gates` stacked maps each."""

    gates = 1

    def __init__(self, inputs: int, width: int):
        super().__init__()
        rows = self.gates * width
        self.weight_ih = nn.Parameter(torch.empty(rows, inputs))
        self.weight_hh = nn.Parameter(torch.empty(rows, width))
        self.bias_ih = nn.Parameter(torch.empty(rows))
        self.bias_hh = nn.Parameter(torch.empty(rows))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5)

    def maps(self, x: Tensor, h: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        a = x @ self.weight_ih.T + self.bias_ih
        b = h @ self.weight_hh.T + self.bias_hh
        return a.chunk(self.gates, -1), b.chunk(self.gates, -1)


class PlainRNN(PlainCell):
    """Elman 1990."""

    def forward(self, x: Tensor, state: State) -> State:
        (h,) = state
        (a,), (b,) = self.maps(x, h)
        return (torch.tanh(a + b),)


class PlainLSTM(PlainCell):
    """Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000."""

    gates = 4

    def forward(self, x: Tensor, state: State) -> State:
        h, c = state
        (ai, af, ag, ao), (bi, bf, bg, bo) = self.maps(x, h)
        i, f, o = torch.sigmoid(ai + bi), torch.sigmoid(af + bf), torch.sigmoid(ao + bo)
        c = f * c + i * torch.tanh(ag + bg)  # the sum that lets gradients pass through many steps
        return o * torch.tanh(c), c


class PlainGRU(PlainCell):
    """Cho et al. 2014, in the variant torch and cuDNN compute (the reset gate acts after the map)."""

    gates = 3

    def forward(self, x: Tensor, state: State) -> State:
        (h,) = state
        (ar, az, an), (br, bz, bn) = self.maps(x, h)
        r, z = torch.sigmoid(ar + br), torch.sigmoid(az + bz)
        return ((1 - z) * torch.tanh(an + r * bn) + z * h,)


class FastRNN(nn.RNNCell):
    def forward(self, x: Tensor, state: State) -> State:
        return (super().forward(x, state[0]),)


class FastLSTM(nn.LSTMCell):
    def forward(self, x: Tensor, state: State) -> State:
        return super().forward(x, (state[0], state[1]))


class FastGRU(nn.GRUCell):
    def forward(self, x: Tensor, state: State) -> State:
        return (super().forward(x, state[0]),)


def unroll(cell: nn.Module, x: Tensor, state: State) -> tuple[Tensor, State]:
    """Apply one cell along the sequence B T I: all hidden states B T D, and the last state."""
    outputs = []
    for step in x.unbind(1):
        state = cell(step, state)
        outputs.append(state[0])
    return torch.stack(outputs, 1), state


PLAIN_CELLS = {"rnn": PlainRNN, "gru": PlainGRU, "lstm": PlainLSTM}
FAST_CELLS = {"rnn": FastRNN, "gru": FastGRU, "lstm": FastLSTM}
LAYERS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}  # whole sequences at once: cuDNN on a GPU
