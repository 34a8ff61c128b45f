"""What is served under which name, and how the server stops."""

import signal
import socket
import threading
import time

import httpx2
import pytest
from tests.unit.serve.api.conftest import until_ready
from typer.testing import CliRunner

from regard.cli.main import app
from regard.serve.api.engine import ServedModel
from regard.serve.api.guard import Access
from regard.serve.api.lanes import LaneSettings
from regard.serve.api.limits import RequestLimits
from regard.serve.api.run import make_server
from regard.serve.run import bind


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/nothing"], "no run or model folder"),
        (["smollm"], "did you mean 'smollm2-135m'?"),
        (["smollm2-135m", "--host", "0.0.0.0"], "can be reached from other machines"),
    ],
)
def test_the_command_line_refuses_what_cannot_work(words, message, monkeypatch):
    monkeypatch.delenv("REGARD_API_KEY", raising=False)
    result = CliRunner().invoke(app, ["serve", *words, "--port", "0"])
    assert message in str(result.exception), result.output


def test_answers_are_not_held_back_by_nagle():
    """asyncio sets TCP_NODELAY on what a socket accepts if it knows that the socket is TCP."""
    with bind("127.0.0.1", 0) as ours:
        assert ours.proto == socket.IPPROTO_TCP


def test_a_stopping_server_finishes_what_it_accepted(fake_engine, tmp_path):
    """The first signal refuses what is new, and ends the server once everything is answered."""
    server = make_server([ServedModel("m", "")], LaneSettings(), Access(), RequestLimits(), quiet=True)
    ours = bind("127.0.0.1", 0)
    address, answers = f"http://127.0.0.1:{ours.getsockname()[1]}", []
    running = threading.Thread(target=server.run, kwargs={"sockets": [ours]})
    running.start()
    until_ready(address)
    body = {"model": "m", "prompt": f"until {tmp_path / 'go'}"}
    asking = [
        threading.Thread(target=lambda: answers.append(httpx2.post(f"{address}/v1/completions", json=body)))
        for _ in range(3)
    ]
    for thread in asking:
        thread.start()
    while server.config.app.admission.active < 3:
        time.sleep(0.01)
    server.handle_exit(signal.SIGTERM, None)
    refused, health = httpx2.post(f"{address}/v1/completions", json=body), httpx2.get(f"{address}/health")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    assert health.status_code == 503 and health.json()["live"]
    (tmp_path / "go").touch()
    for thread in (*asking, running):
        thread.join(10)
    assert not running.is_alive() and [answer.status_code for answer in answers] == [200] * 3
