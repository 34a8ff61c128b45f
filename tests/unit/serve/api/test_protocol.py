"""Connections that are broken, slow or silent: each ends, with an error in OpenAI's shape if with any."""

import random
import socket
import time
from collections import Counter
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.unit.serve.api import raw
from tests.unit.serve.api.conftest import serving

from regard.serve.api import guard, protocol

GOOD = {"/v1/completions": {"model": "m", "prompt": "hello"}}
FIRST, WHOLE = (raw.request(b"/v1/completions", b'{"model": "m", "prompt": "hello"}', stays=s) for s in (True, False))


@pytest.fixture
def address(fake_engine):
    with serving() as address:
        yield address


def test_broken_connections_are_answered_or_closed(address):
    rng, counts = random.Random(0), Counter()
    for _ in range(120):
        method, parts = raw.broken(rng, GOOD)
        counts.update(raw.statuses(raw.exchanged(address, parts), method))
    assert counts[200] > 30 and counts[400] > 30 and counts[404] > 3
    assert raw.statuses(raw.exchanged(address, [FIRST * 2 + WHOLE])) == [200, 200, 200]


def connected(address: str) -> socket.socket:
    place = urlsplit(address)
    return socket.create_connection((place.hostname, place.port), timeout=10)


@pytest.mark.parametrize("before", [b"", FIRST], ids=["first", "second"])
def test_heads_that_never_end_are_cut(address, monkeypatch, before):
    """A byte now and then, as slowloris sends them: of the first request, and of one that follows another."""
    monkeypatch.setattr(protocol, "HEADERS", 0.3)
    begin, slow, http = time.monotonic(), [connected(address) for _ in range(20)], httpx2.Client(base_url=address)
    for one in slow:
        one.sendall(before)
        assert not before or one.recv(1 << 16).startswith(b"HTTP/1.1 200")
    closed: set[socket.socket] = set()
    while len(closed) < len(slow):
        assert time.monotonic() < begin + 5, f"{len(slow) - len(closed)} connections are still open"
        for one in set(slow) - closed:
            try:
                one.sendall(b"G")
            except OSError:
                closed.add(one)
        asked = time.monotonic()
        assert http.post("/v1/completions", json=GOOD["/v1/completions"]).status_code == 200
        assert time.monotonic() - asked < 2, "others wait"
        time.sleep(0.05)
    assert time.monotonic() > begin + 0.2
    for one in (*slow, http):
        one.close()


def test_bodies_that_never_end_get_408(address, monkeypatch):
    monkeypatch.setattr(guard, "SLOWEST", 0.2)
    with connected(address) as slow:
        slow.sendall(WHOLE[:-5])
        assert raw.statuses(raw.received(slow)) == [408]
