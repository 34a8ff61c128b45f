"""Plain networks on text: sums done by hand, and how far they see."""

import pytest
import torch

from regard.lab import gradients as g
from regard.lab.plain_text import ConvText, DenseText

close = torch.testing.assert_close
WIDTH = 4


def test_convolution_is_a_causal_sum(shake):
    model, ids = shake(ConvText(3, vocab=10, width=WIDTH, layers=2)).double(), torch.tensor([4, 9, 1, 7, 0])
    x = list(model.token(ids))
    for layer in model.filters:
        seen = [torch.zeros(WIDTH, dtype=torch.float64)] * 2 + x
        x = [torch.relu(sum(layer.weight[..., j] @ seen[t + j] for j in range(3)) + layer.bias) for t in range(5)]
    close(model(ids[None])[0], torch.stack(x))


@pytest.mark.parametrize(("kernel", "layers", "reach"), [(3, 1, 3), (3, 4, 9), (9, 4, 33)])
def test_convolution_reaches_as_far_as_its_filters(kernel, layers, reach, shake):
    model = shake(ConvText(kernel, vocab=g.VOCAB, width=g.WIDTH, layers=layers)).double()
    norms = g.model_reach(model, torch.randint(g.VOCAB, (reach + 5,)))
    assert model.reach == reach and (norms[:reach] > 0).all() and not norms[reach:].any()


def test_a_dense_net_has_a_matrix_for_every_place(shake):
    model, ids = shake(DenseText(3, vocab=10, width=WIDTH)).double(), torch.tensor([4, 9, 1])
    layer = model.net.layers[0][0]
    matrices = layer.weight.split(WIDTH, 1)
    by_hand = torch.relu(sum(m @ x for m, x in zip(matrices, model.token(ids), strict=True)) + layer.bias)
    close(model(ids[None])[0, -1], by_hand)
