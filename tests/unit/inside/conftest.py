from functools import cache
from pathlib import Path

import pytest
from tests.unit.inside import tiny

import regard


@pytest.fixture(scope="session")
def open_model(tmp_path_factory):
    """A predictor of `tiny.CONFIGS` by name; made once, never changed."""
    folder: Path = tmp_path_factory.mktemp("models")

    @cache
    def opened(name: str):
        return regard.load(tiny.write(folder / name, name))

    return opened
