"""What is asked of captioners alone; and the Transformer's folder against transformers' VisionEncoderDecoderModel."""

import json

import numpy as np
import pytest
import torch
import transformers

from regard.data.batch import Samples
from regard.errors import CheckpointError
from regard.models import build
from regard.models.published import load_model, to_published, weights_bytes
from regard.objectives.caption import CaptionLoss

from .case import EOS, PAD
from .cases import CAPTIONERS, PIXELS

close = torch.testing.assert_close


@pytest.fixture(params=CAPTIONERS)
def config(request):
    return CAPTIONERS[request.param]


@pytest.fixture
def model(config, shake):
    return shake(build(config), 2.0).double().eval()


@pytest.fixture
def pixels():
    return PIXELS


@pytest.fixture
def words():
    return torch.randint(1, PAD, (3, 6), generator=torch.Generator().manual_seed(3))


def logits(model, pixels, words):
    return model.logits(model(pixels, None, words))


def test_another_image_changes_the_first_word_already(model, pixels, words):
    there = logits(model, pixels, words)[:, 0]
    assert (there - logits(model, pixels.flip(0), words)[:, 0])[[0, 2]].abs().amax(1).min() > 1e-3


def test_every_pixel_matters(model, pixels, words):
    x = pixels.double().div(255).requires_grad_()
    logits(model, x, words).square().sum().backward()
    assert (x.grad.abs().sum((0, 1)) > 0).all()


def test_loss_equals_a_hand_computed_sum_over_micro_batches(model, pixels):
    targets = torch.tensor([[4, 7, EOS, -1], [5, EOS, -1, -1], [3, 3, 9, EOS]])
    inputs = torch.tensor([[PAD, 4, 7, EOS], [PAD, 5, EOS, PAD], [PAD, 3, 3, 9]])
    batch, task = Samples((pixels, inputs), targets, np.arange(3)), CaptionLoss(0.0)
    likely = logits(model, pixels, inputs).log_softmax(-1)
    wanted = -sum(likely[b, t, i] for b, row in enumerate(targets.tolist()) for t, i in enumerate(row) if i >= 0)
    assert task.count(batch) == 9
    close(task.loss_sum(model, batch).double(), wanted, rtol=1e-5, atol=1e-5)
    close(task.held_out(model, [batch])["loss"], wanted.item() / 9, rtol=1e-5, atol=1e-5)
    close(sum(task.loss_sum(model, part) for part in batch.split()).double(), wanted, rtol=1e-5, atol=1e-5)


def write(model, folder):
    (folder / "config.json").write_text(json.dumps(to_published(model.config)))
    (folder / "model.safetensors").write_bytes(weights_bytes(model))
    return folder


def test_transformers_opens_our_folder_with_equal_logits(shake, tmp_path, words):
    ours = shake(build(CAPTIONERS["captioner"]), 2.0).eval()
    theirs = transformers.VisionEncoderDecoderModel.from_pretrained(write(ours, tmp_path)).eval().double()
    ours = ours.double()
    x = torch.randn(3, 2, 8, 8, dtype=torch.float64)
    close(logits(ours, x, words), theirs(pixel_values=x, decoder_input_ids=words).logits)
    values = json.loads((tmp_path / "config.json").read_text())
    values["decoder"]["model_type"] = "bert"
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match="vit with gpt2 or marian"):
        load_model(tmp_path)
