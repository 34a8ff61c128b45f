"""What is said of a device's use, against figures worked out by hand."""

import math

import pytest
import torch

from regard.data.settings import TextConfig
from regard.models.registry import build
from regard.tasks.plan import config_for
from regard.tasks.registry import get
from regard.training.peaks import utilisation
from regard.training.run import Run


def flops_per_token(model, context):
    run = Run(task="lm", model=model.config, data=TextConfig(path="x"), steps=1)
    object.__setattr__(run.data, "context", context)
    return get("lm").flops_per_target(model, run)


def test_gpt2_takes_its_textbook_flops():
    """6 x (85.0 M in the blocks + 38.6 M in the head) + 12 x 12 layers x 768 x 1,024 a token: 855 million."""
    with torch.device("meta"):
        model = build(config_for("gpt", "gpt2", 50257, task="lm"))
    head = 50304 * 768  # padded
    blocks = 12 * (768 * 2304 + 2304 + 768 * 768 + 768 + 2 * 768 * 3072 + 3072 + 768 + 4 * 768) + 2 * 768
    assert flops_per_token(model, 1024) == 6 * (blocks + head) + 12 * 12 * 768 * 1024


def test_an_untied_head_and_a_recurrent_net_are_counted_once():
    with torch.device("meta"):
        model = build(config_for("lstm", "tiny", 64, task="lm"))
    own = sum(p.numel() for name, p in model.named_parameters() if name != "token.weight")
    assert flops_per_token(model, 99) == 6 * own


def test_half_of_the_peak_is_half():
    assert math.isclose(utilisation("NVIDIA H200", 989e12 / 2 / 800e6, 800e6), 0.5)
    assert utilisation("NVIDIA A100-SXM4-80GB", 1e5, 1e9) == 1e14 / 312e12
    assert utilisation("some other device", 1e5, 1e9) == 0.0


@pytest.mark.parametrize(
    ("device", "peak"),
    [
        ("NVIDIA B200", 2250),
        ("NVIDIA GH200 480GB", 989),
        ("NVIDIA H200", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100-PCIE-40GB", 312),
        ("NVIDIA L40S", 362),
        ("NVIDIA L4", 121),
        ("NVIDIA A10", 125),
        ("NVIDIA A10G", 125),
        ("NVIDIA GeForce RTX 4090", 165),
        ("NVIDIA GeForce RTX 3090", 71),
        ("NVIDIA GeForce GTX 1080", 0),
    ],
)
def test_every_device_has_the_peak_of_its_data_sheet(device, peak):
    """By the names that devices give themselves: an A100 is not an A10, and an L40S not an L4."""
    assert utilisation(device, 1.0, 1e12) == (pytest.approx(1 / peak) if peak else 0.0)
