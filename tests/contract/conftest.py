"""The translators and language models of `cases.py`, for what is asked of them alone."""

import pytest
from torch import nn

from .cases import CASES, LANGUAGE_MODELS, TRANSLATORS, Ragged


@pytest.fixture(params=TRANSLATORS)
def config(request):
    return TRANSLATORS[request.param]


@pytest.fixture
def model(request, config, shake) -> nn.Module:
    return next(case for case in CASES.values() if case.config is config).model(shake)


@pytest.fixture
def ragged() -> Ragged:
    return Ragged()


@pytest.fixture(params=LANGUAGE_MODELS)
def lm_config(request):
    return LANGUAGE_MODELS[request.param]


@pytest.fixture
def lm(lm_config, shake) -> nn.Module:
    return next(case for case in CASES.values() if case.config is lm_config).model(shake)
