"""A recurrent classifier reads padded texts as torch's layers read packed ones."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.models.rnn_classifier import RecurrentClassifier, RecurrentClassifierConfig

close = torch.testing.assert_close


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_padded_batch_equals_torchs_packed_sequences(cell, pooling, shake):
    config = RecurrentClassifierConfig(vocab=9, cell=cell, embedding=5, width=6, layers=2, pooling=pooling)
    model = shake(RecurrentClassifier(config), 2.0).double()
    kind = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[cell]
    theirs = kind(5, 6, num_layers=2, batch_first=True).double()
    names = {"weight_ih": "W_xh", "weight_hh": "W_hh", "bias_ih": "b_h"}
    with torch.no_grad():
        for i in range(2):
            for name, ours in names.items():
                getattr(theirs, f"{name}_l{i}").copy_(model.get_parameter(f"cells.{i}.{ours}"))
            getattr(theirs, f"bias_hh_l{i}").zero_()
    ids, lengths = torch.randint(9, (4, 7)), torch.tensor([7, 2, 1, 5])
    rows = pack_padded_sequence(model.token(ids).detach(), lengths, batch_first=True, enforce_sorted=False)
    states = pad_packed_sequence(theirs(rows)[0], batch_first=True)[0]
    each = [row[:n] for row, n in zip(states, lengths.tolist(), strict=True)]
    expected = torch.stack([row[-1] if pooling == "last" else row.mean(0) for row in each])
    got = model.summary(model(ids, lengths), lengths)
    close(got, expected)
    for vectors in (got, expected):
        vectors.square().sum().backward()
    for i in range(2):
        for name, ours in names.items():
            close(model.get_parameter(f"cells.{i}.{ours}").grad, getattr(theirs, f"{name}_l{i}").grad)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_nothing_is_asked_of_the_device_in_a_step(cell):
    """Fake tensors have no numbers: who asks for one, and would wait for a GPU, is refused."""
    with FakeTensorMode():
        model = RecurrentClassifier(RecurrentClassifierConfig(vocab=9, cell=cell, embedding=5, width=6))
        ids, lengths = torch.zeros(4, 7, dtype=torch.long), torch.ones(4, dtype=torch.long)
        model.scores(model.summary(model(ids, lengths), lengths)).sum().backward()
