"""What is asked of models of images alone."""

import numpy as np
import pytest
import torch
from torch import nn

from regard.data.batch import Samples
from regard.models import build
from regard.models.plain import ConvConfig, MLPConfig
from regard.objectives.classify import ClassifyImages

from .case import LABELS
from .cases import IMAGES

close = torch.testing.assert_close


@pytest.fixture(params=IMAGES)
def config(request):
    return IMAGES[request.param]


@pytest.fixture
def model(config, shake):
    return shake(build(config), 2.0).double().eval()


@pytest.fixture
def pixels():
    return torch.randint(0, 256, (5, 2, 8, 8), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)


def scores(model, pixels):
    return model.scores(model(pixels))


def test_every_pixel_matters(model, pixels):
    x = pixels.double().div(255).requires_grad_()
    scores(model, x).square().sum().backward()
    assert (x.grad.abs().sum((0, 1)) > 0).all()


def test_bytes_are_scaled_by_the_settings(model, pixels, config):
    mean, std = (torch.tensor(x, dtype=torch.float64)[:, None, None] for x in (config.mean, config.std))
    floats = pixels.double() / 255
    floats = floats if isinstance(config, MLPConfig) else (floats - mean) / std
    close(scores(model, pixels), scores(model, floats), rtol=1e-5, atol=1e-5)


def test_shares_of_classes_are_a_mean_of_two_losses(model, pixels):
    """Mixup's loss (Zhang et al. 2018, section 2): λ of one label's and 1 - λ of the other's."""
    task = ClassifyImages()
    one, two = torch.tensor([0, 2, 1, 1, 0]), torch.tensor([1, 2, 0, 2, 1])
    hot = lambda y: torch.nn.functional.one_hot(y, 3).float()  # noqa: E731
    loss = lambda targets: task.loss_sum(model, Samples((pixels,), targets, np.arange(5)))  # noqa: E731
    close(loss(0.3 * hot(one) + 0.7 * hot(two)), 0.3 * loss(one) + 0.7 * loss(two))


@pytest.mark.parametrize("name", ["vit", "vit-mean", "vit-sine"])
def test_shuffled_patches_need_their_positions(name, shake, pixels):
    model = shake(build(IMAGES[name]), 2.0).double().eval()
    order = torch.tensor([2, 0, 3, 1])
    straight = scores(model, pixels)
    tiles = pixels.unflatten(3, (2, 4)).unflatten(2, (2, 4)).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # B N C p p
    shuffled = tiles[:, order].unflatten(1, (2, 2)).permute(0, 3, 1, 4, 2, 5).reshape(pixels.shape)
    assert (scores(model, shuffled) - straight).abs().max() > 1e-3
    first = int(model.first is not None)
    places = model.place(torch.arange(first + 4)).detach()
    model.place = nn.Embedding.from_pretrained(torch.cat((places[:first], places[first:][order])))
    close(scores(model, shuffled), straight)


def test_a_convolution_reaches_as_far_as_it_says_and_no_further():
    """One output of the last layer against all inputs: a gradient elsewhere would be a reach that is not there."""
    for layers, kernel in ((1, 3), (2, 3), (2, 5), (3, 3)):
        c = ConvConfig(image=64, channels=1, width=4, layers=layers, kernel=kernel, labels=LABELS)
        model = build(c).double()
        for layer in model.layers:
            layer[1], layer[2] = torch.nn.Identity(), torch.nn.AvgPool2d(2)  # nothing is cut off: a dead unit hides
        x = torch.randn(1, 1, 64, 64, dtype=torch.float64, requires_grad=True)
        side = 64 >> layers
        model(x).view(1, -1, side, side)[0, :, side // 2, side // 2].sum().backward()
        rows = (x.grad[0, 0].abs().sum(1) > 0).nonzero().flatten()
        assert int(rows[-1] - rows[0]) + 1 == c.reach == len(rows)
