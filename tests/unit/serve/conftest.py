import shutil
from pathlib import Path

import pytest
from tests.unit.inside import tiny

from regard.serve.app import make_app
from regard.serve.shelf import Shelf
from regard.serve.studio import Studio

HOME = "http://127.0.0.1:7347"
NAMES = ("gpt", "lstm", "masked", "pair", "tagger", "transformer")


@pytest.fixture(scope="session")
def originals(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("originals")
    for name in NAMES:
        tiny.write(folder / name, name)
    return folder


@pytest.fixture
def runs(originals, tmp_path) -> Path:
    """A folder of runs of one's own."""
    return Path(shutil.copytree(originals, tmp_path / "runs"))


@pytest.fixture
def studio(runs, tmp_path):
    made = Studio(Shelf({"runs": runs, "cache": tmp_path / "nothing"}, {}))
    yield made
    made.close()


@pytest.fixture
def client(studio):
    from fastapi.testclient import TestClient

    with TestClient(make_app(studio), base_url=HOME, raise_server_exceptions=False) as made:
        yield made


@pytest.fixture
def ask(client):
    """POST a question as the page does; every one is newer than the last."""
    count = iter(range(1_000_000))

    def asked(path: str, **body):
        return client.post(path, json={"tab": "a", "seq": next(count), **body})

    return asked
