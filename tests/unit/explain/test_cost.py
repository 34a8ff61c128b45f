"""Parameters and memory: counted by hand for a network small enough to do so."""

import pytest
import torch
from safetensors.torch import load
from torch import nn

from regard.explain.cost import parameters_by_part, readable, training_memory
from regard.models import build, outline
from regard.models.bert import BertConfig
from regard.models.gpt import GPTConfig
from regard.models.llama import LlamaConfig
from regard.models.published import weights_bytes
from regard.models.rnn_lm import RecurrentLMConfig
from regard.models.sizes import SIZES


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4, bias=False)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Tied(Small):
    def __init__(self):
        super().__init__()
        self.third = nn.Linear(16, 4, bias=False)
        self.third.weight = self.second.weight


def test_parts_are_counted_and_shared_weights_once():
    assert parameters_by_part(Small()) == {"first": 8 * 16 + 16, "second": 16 * 4}
    assert parameters_by_part(Tied()) == parameters_by_part(Small())


@pytest.mark.parametrize(
    "config",
    [
        GPTConfig(vocab=70, width=8, heads=2, layers=1, context=6),
        LlamaConfig(vocab=70, width=8, heads=2, kv_heads=1, layers=1, context=6, tied=False),
        RecurrentLMConfig(vocab=70, width=8, layers=1),
        BertConfig(vocab=70, width=8, heads=2, layers=1, ffn=8, head="masked"),
    ],
    ids=lambda config: type(config).__name__,
)
def test_rows_that_fill_a_table_up_are_not_counted(config):
    """70 words take 128 rows in memory; the file holds 70."""
    published = load(weights_bytes(build(config)))
    assert sum(parameters_by_part(outline(config)).values()) == sum(t.numel() for t in published.values())


def test_minilm_has_as_many_parameters_as_published():
    config = BertConfig(vocab=30522, **SIZES["bert"]["minilm-l6"])
    assert sum(parameters_by_part(outline(config)).values()) == 22_713_216


def test_memory_is_weights_gradients_momenta_and_what_backward_needs():
    """Of a batch of 10, backward needs the input (8 wide) and the output of the relu (16 wide), in float32."""
    got = training_memory(
        lambda: (Small(), torch.zeros(10, 8)), lambda model, batch: model(batch).sum(), momenta=2, bf16=False
    )
    weights = 4 * (8 * 16 + 16 + 16 * 4)
    assert (got.weights, got.gradients, got.optimiser) == (weights, weights, 2 * weights)
    assert got.activations == 4 * 10 * (8 + 16)
    assert got.total == 4 * weights + got.activations


def test_nothing_real_is_held():
    """A model and a batch far larger than any machine are estimated all the same."""
    got = training_memory(
        lambda: (nn.Linear(1_000_000, 1_000_000), torch.zeros(1_000_000, 1_000_000)),
        lambda model, batch: model(batch).sum(),
        momenta=1,
        bf16=False,
    )
    assert got.total > 1e13


def test_sizes_for_people():
    assert [readable(n) for n in (999, 12_345, 159_000_000, 2_500_000_000)] == ["999 B", "12 KB", "159 MB", "2.5 GB"]
