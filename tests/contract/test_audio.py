"""What is asked of models of sound alone: Whisper, and the classifier of clips."""

import pytest
import torch

from regard.models import build
from regard.models.whisper import WhisperConfig

from .cases import ALONE, CAPTIONS, CLIPS, WHISPER, WINDOWS

sizes = lambda model: sum(p.numel() for p in model.parameters())  # noqa: E731


@pytest.fixture
def whisper(shake):
    return shake(build(WHISPER), 3.0).double().eval()


@pytest.fixture
def classifier(shake):
    return shake(build(CLIPS), 2.0).double().eval()


# -- Whisper


def test_whisper_tiny_has_the_published_number_of_parameters():
    """37,184,256 in OpenAI's file, beside the table of places; ours has a bias for the keys of 12 attentions too."""
    with torch.device("meta"):
        assert sizes(build(WhisperConfig())) - 12 * 384 == 37_184_256


def test_every_word_depends_on_all_of_the_sound_and_of_no_other(whisper):
    pictures = WINDOWS.clone().requires_grad_()
    whisper(pictures, None, CAPTIONS)[1, 2].square().sum().backward()
    reach = pictures.grad.abs().sum(1)
    assert (reach[1] > 0).all() and not reach[[0, 2]].any()


# -- the classifier of clips


def test_parameters_are_counted_by_hand(classifier):
    c = CLIPS
    linear = lambda i, o: i * o + o  # noqa: E731
    stem = 3 * c.mels * c.width + c.width + 3 * c.width**2 + c.width
    layer = 4 * linear(c.width, c.width) + linear(c.width, c.ffn) + linear(c.ffn, c.width) + 4 * c.width
    assert sizes(classifier) == stem + c.layers * layer + 2 * c.width + linear(c.width, 3)


def test_the_order_of_time_matters(classifier):
    clip = ALONE[0][None]
    assert (classifier(clip) - classifier(clip.flip(2))).abs().max() > 1e-3
