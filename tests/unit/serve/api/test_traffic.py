"""How many requests are admitted, and what the log says of them."""

import asyncio
import base64
import json
from pathlib import Path

import httpx2
import pytest
from tests.unit.serve.api import raw
from tests.unit.serve.api.conftest import serving

from regard.serve.api import traffic
from regard.serve.api.guard import Access
from regard.serve.api.limits import RequestLimits
from regard.serve.api.traffic import AccessLog, Admission

SCOPE = {"type": "http", "method": "POST", "path": "/v1/completions", "client": ("127.0.0.1", 1)}


async def answered(app, scope=SCOPE) -> list[dict]:
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        await asyncio.sleep(3600)

    await app(scope, receive, send)
    return sent


def slow(seconds: float, stream: bool = False):
    async def app(scope, receive, send):
        if stream:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await asyncio.sleep(seconds)
        if not stream:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


def test_requests_beyond_the_limit_are_told_to_try_again():
    async def run():
        admission = Admission(slow(0.2), RequestLimits(requests=2))
        first = [asyncio.create_task(answered(admission)) for _ in range(2)]
        await asyncio.sleep(0.05)
        refused, looked = await answered(admission), await answered(admission, SCOPE | {"method": "GET"})
        return refused, looked, await asyncio.gather(*first), await answered(admission)

    refused, looked, first, later = asyncio.run(run())
    assert refused[0]["status"] == 429 and (b"retry-after", b"1") in refused[0]["headers"]
    assert json.loads(refused[1]["body"])["error"]["type"] == "rate_limit_error"
    assert [a[0]["status"] for a in (looked, *first, later)] == [200] * 4


def test_new_requests_are_refused_while_draining():
    admission = Admission(slow(0), RequestLimits())
    admission.draining = True
    answer = asyncio.run(answered(admission))
    assert answer[0]["status"] == 503 and json.loads(answer[1]["body"])["error"]["code"] == "draining"


@pytest.mark.parametrize("stream", [False, True])
def test_what_takes_too_long_is_ended(stream):
    answer = asyncio.run(answered(Admission(slow(60, stream), RequestLimits(seconds=0.05))))
    if stream:
        assert answer[0]["status"] == 200 and answer[-1]["body"].startswith(b"data: ") and not answer[-1]["more_body"]
        error = json.loads(answer[-1]["body"][6:])
    else:
        assert answer[0]["status"] == 504
        error = json.loads(answer[-1]["body"])
    assert error["error"]["message"] == "this took more than 0.05 s" and error["error"]["code"] == "timeout"


def test_a_client_that_stops_reading_holds_no_place(monkeypatch):
    """Its last event cannot be sent: the request ends all the same."""
    monkeypatch.setattr(traffic, "LAST", 0.05)
    admission = Admission(slow(60, stream=True), RequestLimits(seconds=0.05))

    async def send(message):
        if message["type"] == "http.response.body":
            await asyncio.sleep(3600)

    asyncio.run(asyncio.wait_for(admission(SCOPE, asyncio.Event().wait, send), 10))
    assert admission.active == 0


def test_log_lines_hold_no_queries_and_survive_a_full_disk(capfd, monkeypatch):
    noted = []
    log = AccessLog(slow(0), lambda *what: noted.append(what), quiet=False)
    asyncio.run(answered(log, SCOPE | {"query_string": b"key=secret", "headers": [(b"authorization", b"Bearer sk")]}))
    line = capfd.readouterr().err
    assert json.loads(line) | {"time": 0, "ms": 0} == {
        "time": 0, "ms": 0, "client": "127.0.0.1", "method": "POST", "path": "/v1/completions", "status": 200,
    }  # fmt: skip
    assert "secret" not in line and "sk" not in line
    assert noted[0][:2] == ("/v1/completions", 200)

    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(traffic, "STDERR", full.fileno())
        assert asyncio.run(answered(log))[0]["status"] == 200


def test_keys_are_not_logged(fake_engine, capfd):
    """A key that is right, wrong, a password, in the address, or in what is not HTTP."""
    body = {"model": "m", "prompt": "hello"}
    with serving(access=Access(keys=("sk-right",)), quiet=False) as address, httpx2.Client(base_url=address) as http:
        statuses = [
            http.post(f"/v1/completions{query}", json=body, headers={"authorization": key}).status_code
            for query in ("", "?api_key=sk-right")
            for key in (
                "Bearer sk-right",
                "Bearer sk-wrong",
                f"Basic {base64.b64encode(b'u:sk-right').decode()}",
                "sk-right",
            )
        ]
        raw.exchanged(address, [b"GET / HTTP/1.1\r\nAuthorization Bearer sk-right\r\n\r\n"])
    assert statuses == 2 * [200, 401, 200, 401]
    log = capfd.readouterr().err
    assert log.count("/v1/completions") == 8 and "sk-" not in log and "c2st" not in log and "hello" not in log


def test_texts_are_logged_on_request_only(capfd):
    async def app(scope, receive, send):
        question = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"\xe4 " + question, "more_body": True})
        await send({"type": "http.response.body", "body": b"!" * 99_999, "more_body": False})

    async def receive():
        return {"type": "http.request", "body": b"hello"}

    async def send(message):
        pass

    for texts in (False, True):
        asyncio.run(AccessLog(app, lambda *_: None, quiet=False, texts=texts)(SCOPE, receive, send))
    plain, full = (json.loads(line) for line in capfd.readouterr().err.splitlines())
    assert "request" not in plain and "response" not in plain
    assert full["request"] == "hello" and full["response"] == "\ufffd hello" + "!" * (traffic.LOGGED - 7)
