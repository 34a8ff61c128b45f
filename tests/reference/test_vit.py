"""Our ViT against transformers': same weights, same images, equal logits and gradients."""

import json

import pytest
import torch
import transformers
from tests.reference.parity import compare_gradients

from regard.errors import CheckpointError, ConfigError
from regard.models import SIZES, build, config_for
from regard.models.published import load_model, to_published, weights_bytes
from regard.models.vit import ViTConfig
from regard.nn.positions import Sine2d

close = torch.testing.assert_close
RANDOM = [
    dict(image=12, channels=3, patch=4, width=16, layers=2, heads=2, ffn=24),
    dict(image=10, channels=1, patch=5, width=24, layers=1, heads=4, ffn=40, eps=1e-12, labels=tuple("abcde")),
    dict(image=8, channels=2, patch=1, width=8, layers=3, heads=1, ffn=8, labels=("only",)),
]


def write(model, folder):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(to_published(model.config)))
    (folder / "model.safetensors").write_bytes(weights_bytes(model))
    return folder


@pytest.mark.parametrize("settings", RANDOM, ids=["colours", "grey", "pixels"])
def test_transformers_loads_our_folder_with_equal_gradients(settings, shake, tmp_path):
    ours = shake(build(ViTConfig(**settings)), 3.0).eval()
    theirs = transformers.ViTForImageClassification.from_pretrained(write(ours, tmp_path)).eval().double()
    ours = ours.double()
    a = torch.randn(3, settings["channels"], settings["image"], settings["image"], dtype=torch.float64)
    b = a.clone().requires_grad_()
    a.requires_grad_()
    mine, expected = ours.scores(ours(a)), theirs(b).logits
    close(mine, expected)
    mine.square().sum().backward()
    expected.square().sum().backward()
    close(a.grad, b.grad)
    compare_gradients(ours, theirs)


def test_we_load_transformers_folder(tmp_path):
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=12, patch_size=4,
        num_labels=3,
    )  # fmt: skip
    theirs = transformers.ViTForImageClassification(config).eval()
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert ours.config.labels == ("LABEL_0", "LABEL_1", "LABEL_2") and ours.config.eps == 1e-12
    x = torch.randn(2, 3, 12, 12)
    close(ours.scores(ours(x)), theirs(x).logits)


@pytest.mark.parametrize("key", ["hidden_act", "qkv_bias"])
def test_what_we_do_not_compute_is_refused(key, tmp_path):
    folder = write(build(ViTConfig(**RANDOM[0])), tmp_path)
    values = json.loads((folder / "config.json").read_text()) | {key: "relu" if key == "hidden_act" else False}
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=key):
        load_model(folder)


def test_variants_nobody_else_has_keep_our_names(tmp_path):
    for other in (dict(pool="mean"), dict(positions="sine"), dict(stem="conv")):
        model = build(ViTConfig(**RANDOM[0], **other)).eval()
        assert to_published(model.config)["model_type"] == "regard-vit"
        again = load_model(write(model, tmp_path))
        x = torch.randint(0, 256, (2, 3, 12, 12), dtype=torch.uint8)
        assert again.config == model.config and torch.equal(again(x), model(x))


def test_the_published_sizes_have_the_published_counts():
    """Of 1,000 classes at 224 pixels: DeiT's tables for Ti and S, and transformers' own for B and L."""
    labels = tuple(map(str, range(1000)))
    counts = {"ti": 5_717_416, "s": 22_050_664, "b": 86_567_656, "l": 304_326_632}
    with torch.device("meta"):
        ours = {s: build(config_for("vit", s, task="image", labels=labels)) for s in counts}
        assert {s: sum(p.numel() for p in m.parameters()) for s, m in ours.items()} == counts
        large = transformers.ViTConfig(
            hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, num_labels=1000
        )
        theirs = transformers.ViTForImageClassification(large)
        assert sum(p.numel() for p in theirs.parameters()) == counts["l"]
    assert set(counts) < set(SIZES["vit"])


def test_two_dimensional_sines_are_those_worked_out_by_hand():
    """A square of 2 x 2 at width 4: sine and cosine of the row, then of the column. A token that is nowhere: zeros."""
    s, c = torch.tensor(1.0).sin().item(), torch.tensor(1.0).cos().item()
    square = [[0, 1, 0, 1], [0, 1, s, c], [s, c, 0, 1], [s, c, s, c]]
    close(Sine2d(4, 4)(torch.arange(4)), torch.tensor(square))
    close(Sine2d(5, 4)(torch.arange(5)), torch.tensor([[0.0] * 4, *square]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(patch=5), "model.patch=4"),
        (dict(heads=3), "width 15"),
        (dict(stem="cnn"), "no stem"),
        (dict(stem="conv", patch=3), "power of 2"),
        (dict(positions="sine", width=18), "divisible by 4"),
        (dict(mean=(0.1, 0.2)), "2 numbers for 3 channels"),
    ],
)
def test_wrong_settings_are_told_at_birth(wrong, message):
    with pytest.raises(ConfigError, match=message):
        ViTConfig(**{**RANDOM[0], **wrong})
