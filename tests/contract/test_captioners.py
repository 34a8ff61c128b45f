"""Every captioner × every property; and the Transformer's folder against transformers' VisionEncoderDecoderModel."""

import json

import numpy as np
import pytest
import torch
import transformers

from regard.data.batch import Samples
from regard.errors import CheckpointError
from regard.models import build
from regard.models.captioner import CaptionerConfig, ShowAttendTellConfig
from regard.models.published import load_model, to_published, weights_bytes
from regard.nn.taps import watch
from regard.objectives.caption import Caption

close = torch.testing.assert_close
VOCAB, PAD, EOS = 23, 22, 0
image = dict(vocab=VOCAB, image=8, channels=2, patch=4, max_length=12)
TINY = {
    "transformer": CaptionerConfig(**image, width=16, heads=2, ffn=24, encoder_layers=2, decoder_layers=2),
    "transformer-conv": CaptionerConfig(
        **image, width=16, heads=2, ffn=24, encoder_layers=1, decoder_layers=1, stem="conv"
    ),
    "lstm": ShowAttendTellConfig(**image, regions=16, heads=2, ffn=24, encoder_layers=1, embedding=12, width=16),
    "gru": ShowAttendTellConfig(
        **image, regions=8, heads=2, ffn=8, encoder_layers=1, embedding=12, width=16, cell="gru"
    ),
}


@pytest.fixture(params=TINY, ids=list(TINY))
def config(request):
    return TINY[request.param]


@pytest.fixture
def model(config, shake):
    return shake(build(config), 2.0).double().eval()


@pytest.fixture
def pixels():
    return torch.randint(0, 256, (3, 2, 8, 8), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)


@pytest.fixture
def words():
    return torch.randint(1, PAD, (3, 6), generator=torch.Generator().manual_seed(3))


def logits(model, pixels, words):
    return model.logits(model(pixels, None, words))


def test_the_past_does_not_depend_on_the_future(model, pixels, words):
    other = torch.cat((words[:, :4], (words[:, 4:] + 5) % PAD), 1)
    before, after = logits(model, pixels, words), logits(model, pixels, other)
    close(before[:, :4], after[:, :4], rtol=0, atol=0)
    assert (before[:, 4:] - after[:, 4:]).abs().max() > 1e-3


def test_another_image_changes_the_first_word_already(model, pixels, words):
    there = logits(model, pixels, words)[:, 0]
    assert (there - logits(model, pixels.flip(0), words)[:, 0])[[0, 2]].abs().amax(1).min() > 1e-3


def test_every_pixel_and_every_parameter_matters(model, pixels, words):
    x = pixels.double().div(255).requires_grad_()
    logits(model, x, words).square().sum().backward()
    assert (x.grad.abs().sum((0, 1)) > 0).all()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not [name for name in idle if not name.endswith("attention.qkv.bias")], idle


def test_decoding_in_steps_equals_decoding_at_once(model, pixels):
    state = model.begin(pixels, None, 3, 6)
    g = torch.Generator().manual_seed(9)
    history = torch.empty(3, 1, 0, dtype=torch.long)
    for hypotheses in (1, 2, 3, 2):
        parents = torch.randint(0, history.size(1), (3, hypotheses), generator=g)
        state.reorder(parents)
        history = history.gather(1, parents[:, :, None].expand(-1, -1, history.size(2)))
        new = torch.randint(1, PAD, (3, hypotheses), generator=g)
        history = torch.cat((history, new[:, :, None]), 2)
        stepped = model.logits(model.step(new, state))
        for n in range(hypotheses):
            close(stepped[:, n], logits(model, pixels, history[:, n])[:, -1])


def test_an_image_alone_equals_the_image_in_a_batch(model, pixels, words):
    together = logits(model, pixels, words)
    for b in range(3):
        close(logits(model, pixels[b : b + 1], words[b : b + 1])[0], together[b])


def test_loss_equals_a_hand_computed_sum_over_micro_batches(model, pixels):
    targets = torch.tensor([[4, 7, EOS, -1], [5, EOS, -1, -1], [3, 3, 9, EOS]])
    inputs = torch.tensor([[PAD, 4, 7, EOS], [PAD, 5, EOS, PAD], [PAD, 3, 3, 9]])
    batch, task = Samples((pixels, inputs), targets, np.arange(3)), Caption(0.0)
    likely = logits(model, pixels, inputs).log_softmax(-1)
    wanted = -sum(likely[b, t, i] for b, row in enumerate(targets.tolist()) for t, i in enumerate(row) if i >= 0)
    assert task.count(batch) == 9
    close(task.loss_sum(model, batch).double(), wanted, rtol=1e-5, atol=1e-5)
    close(task.held_out(model, [batch])["loss"], wanted.item() / 9, rtol=1e-5, atol=1e-5)
    close(sum(task.loss_sum(model, part) for part in batch.split()).double(), wanted, rtol=1e-5, atol=1e-5)


def test_watching_changes_nothing_and_weights_sum_to_one(model, pixels, words):
    unwatched = logits(model, pixels, words)
    with watch(model, "*look") as seen:
        close(logits(model, pixels, words), unwatched, rtol=0, atol=0)
    for calls in seen.values():
        for look in calls:
            weights = look.weights()
            close(weights.sum(-1), torch.ones_like(weights.sum(-1)), check_dtype=False)


def test_saving_and_loading_changes_nothing(model, pixels, words, tmp_path):
    model = model.float()
    folder = write(model, tmp_path)
    again = load_model(folder)
    assert again.config == model.config and torch.equal(logits(again, pixels, words), logits(model, pixels, words))


def write(model, folder):
    (folder / "config.json").write_text(json.dumps(to_published(model.config)))
    (folder / "model.safetensors").write_bytes(weights_bytes(model))
    return folder


def test_transformers_opens_our_folder_with_equal_logits(shake, tmp_path, words):
    ours = shake(build(TINY["transformer"]), 2.0).eval()
    theirs = transformers.VisionEncoderDecoderModel.from_pretrained(write(ours, tmp_path)).eval().double()
    ours = ours.double()
    x = torch.randn(3, 2, 8, 8, dtype=torch.float64)
    close(logits(ours, x, words), theirs(pixel_values=x, decoder_input_ids=words).logits)
    values = json.loads((tmp_path / "config.json").read_text())
    values["decoder"]["model_type"] = "gpt2"
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match="vit with marian"):
        load_model(tmp_path)
