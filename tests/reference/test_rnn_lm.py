"""Our recurrent language models are torch.nn's layers under the lecture's names; the written-out loop is the same."""

import pytest
import torch
from torch import nn

from regard.models import build, config_for
from regard.models.rnn_lm import RecurrentLMConfig
from regard.nn.recurrent import LAYERS, SlideCell, blank_state, unroll

close = torch.testing.assert_close
NAMES = {"weight_ih": "W_xh", "weight_hh": "W_hh", "bias_ih": "b_h"}
every_net = pytest.mark.parametrize(
    ("cell", "layers"), [("rnn", 1), ("rnn", 2), ("gru", 1), ("gru", 2), ("lstm", 1), ("lstm", 3)]
)


def ours(cell, layers, **settings):
    config = RecurrentLMConfig(vocab=30, cell=cell, embedding=5, width=7, layers=layers, **settings)
    return build(config).double().eval()


def theirs(model):
    """Torch's stack of layers with our weights; its second bias is the one of the lecture that is not there."""
    c = model.config
    net = LAYERS[c.cell](c.embedding, c.width, c.layers, batch_first=True).double()
    with torch.no_grad():
        for n, cell in enumerate(model.cells):
            for other, mine in NAMES.items():
                getattr(net, f"{other}_l{n}").copy_(getattr(cell, mine))
            getattr(net, f"bias_hh_l{n}").zero_()
    return net


@every_net
def test_states_and_gradients_are_torchs(cell, layers):
    model = ours(cell, layers)
    net, ids = theirs(model), torch.randint(0, 30, (3, 9))
    mine = model(ids)
    other = net(model.token(ids).detach())[0]
    close(mine, other)
    mine.square().sum().backward()
    other.square().sum().backward()
    for n, part in enumerate(model.cells):
        for their_name, name in NAMES.items():
            close(getattr(part, name).grad, getattr(net, f"{their_name}_l{n}").grad)


@every_net
def test_the_written_out_loop_is_the_fast_one(cell, layers):
    model, ids = ours(cell, layers), torch.randint(0, 30, (3, 9))
    x = model.token(ids)
    for n, part in enumerate(model.cells):
        x, last = unroll(part, x, tuple(state[n] for state in blank_state(model.cells, 3, x)))
    state = model.begin(3, 0)
    close(model.read(ids, state), x)
    close(tuple(part[-1] for part in state.cells), last)
    expected = torch.randn_like(x)
    slow, fast = (torch.autograd.grad(y, list(model.cells.parameters()), expected) for y in (x, model(ids)))
    close(slow, fast)


def test_the_equations_of_the_lecture():
    """h_t = tanh(W_xh x_t + W_hh h_{t-1} + b_h), y_t = W_hy h_t + b_y."""
    model, ids = ours("rnn", 1), torch.tensor([[4, 11, 7]])
    with torch.no_grad():
        model.b_y.normal_()
    (cell,), h = model.cells, torch.zeros(7, dtype=torch.float64)
    for t, word in enumerate(ids[0]):
        h = torch.tanh(cell.W_xh @ model.token.weight[word] + cell.W_hh @ h + cell.b_h)
        close(model.logits(model(ids))[0, t], (model.W_hy @ h + model.b_y)[:30])


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_one_step_is_torchs_cell(cell):
    mine, other = SlideCell(cell, 3, 4), {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}[cell](3, 4)
    with torch.no_grad():
        for their_name, name in NAMES.items():
            getattr(mine, name).copy_(getattr(other, their_name))
        other.bias_hh.zero_()
    x, state = torch.randn(2, 3), tuple(torch.randn(2, 4) for _ in range(2 if cell == "lstm" else 1))
    got = mine(x, state)
    expected = other(x, state if cell == "lstm" else state[0])
    close(got, expected if cell == "lstm" else (expected,))


def test_the_forget_gate_starts_open():
    """Torch's order of gates is input, forget, cell, output (shown by closing them, in tests/unit)."""
    assert [gate.unique().tolist() for gate in ours("lstm", 1).cells[0].b_h.chunk(4)] == [[0.0], [1.0], [0.0], [0.0]]


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_a_sentence_is_learned_by_heart(cell):
    """Said back letter by letter, from its first one: the ñ, the accents and both commas included."""
    text = "Muchos años después, frente al pelotón de fusilamiento, el coronel Aureliano Buendía"
    letters = sorted(set(text))
    ids = torch.tensor([[letters.index(x) for x in text]])
    torch.manual_seed(0)
    model = build(config_for(cell, "tiny", len(letters), task="lm"))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        words = model.logits(model(ids[:, :-1]))
        loss = nn.functional.cross_entropy(words[0], ids[0, 1:])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    state, said = model.eval().begin(1, len(text)), [int(ids[0, 0])]
    with torch.inference_mode():
        while len(said) < len(text):
            said.append(int(model.logits(model.read(torch.tensor([[said[-1]]]), state)).argmax()))
    assert "".join(letters[i] for i in said) == text
