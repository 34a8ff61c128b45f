"""Cells by their gates; plain beside fast. Parity with torch's sequence layers is in tests/reference."""

import pytest
import torch

from regard.nn.recurrent import FAST_CELLS, PLAIN_CELLS, unroll

close = torch.testing.assert_close


def zeros(cell, batch=2):
    return tuple(torch.zeros(batch, 4) for _ in range(2 if cell == "lstm" else 1))


@pytest.mark.parametrize("cell", PLAIN_CELLS)
def test_weights_move_both_ways_between_plain_and_fast(cell):
    plain, fast = PLAIN_CELLS[cell](3, 4), FAST_CELLS[cell](3, 4)
    plain.load_state_dict(fast.state_dict())
    x = torch.randn(2, 5, 3)
    (a, last), (b, other) = unroll(plain, x, zeros(cell)), unroll(fast, x, zeros(cell))
    close(a, b)
    for mine, theirs in zip(last, other, strict=True):
        close(mine, theirs)
    fast.load_state_dict(plain.state_dict())


@pytest.mark.parametrize("cell", PLAIN_CELLS)
@pytest.mark.parametrize("cells", [PLAIN_CELLS, FAST_CELLS], ids=["plain", "fast"])
def test_a_sequence_in_two_parts_is_the_sequence(cells, cell):
    net, x = cells[cell](3, 4), torch.randn(2, 7, 3)
    whole, last = unroll(net, x, zeros(cell))
    first, state = unroll(net, x[:, :3], zeros(cell))
    second, end = unroll(net, x[:, 3:], state)
    close(torch.cat((first, second), 1), whole)
    for a, b in zip(end, last, strict=True):
        close(a, b)


def gates(net, *biases):
    """No weights, only biases: each gate is open (+50), shut (-50) or somewhere, whatever comes in."""
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
        net.bias_ih.copy_(torch.tensor(biases).repeat_interleave(4))
    return net


@pytest.mark.parametrize("cells", [PLAIN_CELLS, FAST_CELLS], ids=["plain", "fast"])
class TestGates:
    def test_lstm_with_open_forget_and_closed_input_keeps_memory(self, cells):
        net = gates(cells["lstm"](3, 4), -50.0, 50.0, 1.0, 50.0)  # input shut, forget open, output open
        c = torch.randn(2, 4)
        h, kept = unroll(net, torch.randn(2, 60, 3), (torch.zeros(2, 4), c))[1]
        close(kept, c)
        close(h, torch.tanh(c))

    def test_a_closed_forget_gate_means_no_memory(self, cells):
        net = gates(cells["lstm"](3, 4), 50.0, -50.0, 0.5, 50.0)
        _, c = net(torch.randn(2, 3), (torch.randn(2, 4), torch.randn(2, 4)))
        close(c, torch.full((2, 4), 0.5).tanh())

    def test_a_closed_output_gate_shows_nothing(self, cells):
        h, c = gates(cells["lstm"](3, 4), 50.0, -50.0, 0.5, -50.0)(torch.randn(2, 3), zeros("lstm"))
        assert h.abs().max() < 1e-12 and c.abs().min() > 0.4

    def test_a_gru_with_its_update_gate_open_keeps_its_state(self, cells):
        h = torch.randn(2, 4)
        (kept,) = gates(cells["gru"](3, 4), 0.0, 50.0, 1.0)(torch.randn(2, 3), (h,))
        close(kept, h)

    def test_a_gru_with_its_update_gate_shut_starts_anew(self, cells):
        (new,) = gates(cells["gru"](3, 4), 0.0, -50.0, 1.0)(torch.randn(2, 3), (torch.randn(2, 4),))
        close(new, torch.ones(2, 4).tanh())


def test_open_lstm_keeps_the_gradient_and_the_rnn_loses_it():
    """What the sum in the LSTM's memory is for: over 60 steps its gradient stays 1, the RNN's dies."""
    c = torch.zeros(1, 4, requires_grad=True)
    lstm = gates(PLAIN_CELLS["lstm"](3, 4), -50.0, 50.0, 0.0, 50.0)
    _, last = unroll(lstm, torch.randn(1, 60, 3), (torch.zeros(1, 4), c))[1]
    close(torch.autograd.grad(last.sum(), c)[0], torch.ones(1, 4))
    h = torch.zeros(1, 4, requires_grad=True)
    rnn = gates(PLAIN_CELLS["rnn"](3, 4), 0.0)
    with torch.no_grad():
        rnn.weight_hh.copy_(0.5 * torch.eye(4))
    (last,) = unroll(rnn, torch.zeros(1, 60, 3), (h,))[1]
    close(torch.autograd.grad(last.sum(), h)[0], torch.full((1, 4), 0.5**60))
