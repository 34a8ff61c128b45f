"""Requests at random, well-formed and not: no 5xx, no hang, no error without OpenAI's shape."""

import json
import os
import random
import socket
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.unit.inside import tiny
from tests.unit.serve.api.conftest import start, until_ready

COUNT = int(os.environ.get("REGARD_FUZZ", "3000"))
NAMES = ("gpt", "encoder", "classifier", "pair", "tagger", "transformer", "masked")
ODD = [
    None, True, 0, -1, 1, 2**63, 1e308, -0.0, 0.5, "", " ", "x", "\u0000", "é" * 50, "[MASK]", "😀", "a\nb", [], [[]],
    {}, [1], [1, 2, 3], ["x"], ["x", "y"], [["x", "y"]], [None], {"a": 1}, {"file": "AAAA"}, {"file": 3}, "\u202e",
    ["x"] * 40, {"type": "text"}, {"include_usage": True}, [{"role": "user", "content": "hi"}], [{"role": "user"}],
    [{"role": 1}],
    [{"role": "user", "content": [{"type": "image_url"}]}], 10**400,
]  # fmt: skip
FIELDS = (
    "model", "prompt", "messages", "input", "inputs", "options", "max_tokens", "max_completion_tokens", "temperature",
    "top_p", "top_k", "min_p", "n", "stop", "seed", "logprobs", "top_logprobs", "stream", "stream_options", "echo",
    "repetition_penalty", "encoding_format", "dimensions", "user", "tools", "zzz",
)  # fmt: skip
GOOD = {
    "/v1/completions": {"model": "gpt", "prompt": "The cat", "max_tokens": 2},
    "/v1/chat/completions": {"model": "gpt", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2},
    "/v1/embeddings": {"model": "encoder", "input": "The cat"},
    **{f"/v1/predict/{name}": {"inputs": ["The cat"]} for name in NAMES},
}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    root = tmp_path_factory.mktemp("served")
    process, address = start(*(str(tiny.write(root / name, name)) for name in NAMES), "-q")
    until_ready(address)
    yield address
    process.kill()
    process.communicate()


def mutated(rng: random.Random, body: dict) -> bytes:
    body = dict(body)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        body[rng.choice(FIELDS)] = rng.choice(ODD)
    if rng.random() < 0.05:
        body.pop(rng.choice(list(body)))
    data = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        place = rng.randrange(len(data))
        data = data[:place] + bytes([rng.randrange(256)]) * rng.randrange(3) + data[place + rng.randrange(2) :]
    return data


def test_no_request_is_answered_with_a_5xx(address):
    rng, counts = random.Random(0), {}
    with httpx2.Client(base_url=address, timeout=30) as client:
        for number in range(COUNT):
            path = rng.choice(list(GOOD))
            data = mutated(rng, GOOD[path])
            kind = rng.choices(["application/json", "text/plain", "multipart/form-data; boundary=x"], [40, 1, 1])[0]
            answer = client.post(path, content=data, headers={"content-type": kind})
            counts[answer.status_code] = counts.get(answer.status_code, 0) + 1
            assert answer.status_code < 500, (number, path, data, answer.text)
            if answer.status_code != 200:
                assert set(answer.json()["error"]) == {"message", "type", "param", "code"}, (data, answer.text)
    print(counts)
    assert counts[200] > COUNT // 20 and counts[400] > COUNT // 20


def test_raw_bytes_neither_hang_nor_stop_the_server(address):
    place, rng = urlsplit(address), random.Random(1)
    request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request += b"Content-Length: %d\r\n\r\n"
    body = json.dumps(GOOD["/v1/completions"]).encode()
    before = None
    for _ in range(COUNT // 10):
        data = request % (len(body) + rng.choice((0, 0, 5, -5))) + body
        if rng.random() < 0.5:
            cut = rng.randrange(len(data))
            data = data[:cut] + bytes(rng.randrange(256) for _ in range(rng.randrange(4))) + data[cut:]
        if rng.random() < 0.2:
            data = data.replace(b"Host:", b"X: " + b"y" * 70_000 + b"\r\nHost:")
        with socket.create_connection((place.hostname, place.port), timeout=10) as raw:
            raw.sendall(data[: rng.choice((len(data), rng.randrange(len(data))))])
            raw.shutdown(socket.SHUT_WR)
            answer = raw.recv(200)
            assert not answer.startswith(b"HTTP/1.1 5"), (data, answer)
        before = before or open_files()
    assert httpx2.post(f"{address}/v1/completions", json=GOOD["/v1/completions"]).status_code == 200
    assert open_files() <= before + 5


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
