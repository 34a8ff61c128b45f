"""A server with a tiny model of every kind, on a free port: started once for all tests."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import openai
import pytest
from tests.fuzz.files import write_files, write_whisper
from tests.fuzz.models import TRAINED
from tests.unit.inside import tiny
from typer.testing import CliRunner

from regard.cli.main import app
from regard.serve.api import engine
from regard.serve.api.engine import ServedModel
from regard.serve.api.guard import Access
from regard.serve.api.lanes import LaneSettings
from regard.serve.api.limits import RequestLimits
from regard.serve.api.run import make_server
from regard.serve.run import bind

FILES = ("vit", "rows", "captioner", "series", "forecaster")  # models that read files or rows, trained for two steps
NAMES = ("gpt", "llama", "lstm", "encoder", "masked", "classifier", "pair", "tagger", "transformer")
KEY = "sk-test-0123"


def start(*words: str, **env: str) -> tuple[subprocess.Popen, str]:
    """`regard serve` and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "serve", *words, "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | env,
    )  # fmt: skip
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def until_ready(address: str) -> None:
    end = time.monotonic() + 60
    with httpx2.Client(base_url=address) as http:
        while (answer := http.get("/health")).status_code != 200:
            assert time.monotonic() < end, answer.text
            time.sleep(0.02)


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("served")
    for name in NAMES:
        tiny.write(root / name, name)
    (root / "whisper").mkdir()
    write_whisper(root / "whisper")
    write_files(root / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("REGARD_CACHE", str(root / "cache"))
        for name in FILES:
            result = CliRunner().invoke(app, ["-q", *TRAINED[name].split(), f"--name={root / name}"])
            assert result.exit_code == 0, result.output
    return root


@pytest.fixture(scope="session")
def address(folders):
    process, address = start(
        *(str(folders / name) for name in (*NAMES, "whisper", *FILES)),
        "--max-pixels=90000",
        "--manage",
        REGARD_API_KEY=KEY,
    )
    try:
        until_ready(address)
        yield address
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def client(address):
    return openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0)


@pytest.fixture(scope="session")
def http(address):
    with httpx2.Client(base_url=address, headers={"authorization": f"Bearer {KEY}"}, timeout=30) as ready:
        yield ready


@pytest.fixture
def fake_engine(monkeypatch):
    """An engine's process without models, which starts at once: see fake_engine.py."""
    monkeypatch.setattr(engine, "COMMAND", (sys.executable, str(Path(__file__).with_name("fake_engine.py"))))
    monkeypatch.setattr(engine, "PAUSE", 0.01)


@contextmanager
def serving(path: str = "", access: Access = Access(), quiet: bool = True) -> Iterator[str]:  # noqa: B008 - frozen
    """The address of a server in a thread, with the model `m`; with `fake_engine` it is there at once."""
    server = make_server([ServedModel("m", path)], LaneSettings(), access, RequestLimits(), quiet)
    ours = bind("127.0.0.1", 0)
    address = f"http://127.0.0.1:{ours.getsockname()[1]}"
    running = threading.Thread(target=server.run, kwargs={"sockets": [ours]})
    running.start()
    try:
        until_ready(address)
        yield address
    finally:
        server.should_exit = True
        running.join(10)
