"""Requests at random, well-formed and not: no 5xx, no hang, no error without OpenAI's shape.

REGARD_FUZZ is how many in all (10,000), REGARD_SEED that of what is random (0).
"""

import base64
import gzip
import io
import json
import os
import random
import socket
import time
import zipfile
from collections import Counter
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import numpy as np
import pyarrow
import pytest
import schemathesis
import soundfile
from hypothesis import HealthCheck, given, seed, settings
from PIL import Image
from pyarrow import parquet
from schemathesis import GenerationMode
from tests.unit.serve.api import raw
from tests.unit.serve.api.conftest import FILES, folders, start, until_ready  # noqa: F401 - a fixture

COUNT, SEED = int(os.environ.get("REGARD_FUZZ", "10000")), int(os.environ.get("REGARD_SEED", "0"))
NAMES = ("gpt", "encoder", "classifier", "pair", "tagger", "transformer", "masked", "whisper", *FILES)
ODD = [
    None, True, 0, -1, 1, 2**63, 1e308, -0.0, 0.5, "", " ", "x", "\u0000", "é" * 50, "[MASK]", "😀", "a\nb", [], [[]],
    {}, [1], [1, 2, 3], ["x"], ["x", "y"], [["x", "y"]], [None], {"a": 1}, {"file": "AAAA"}, {"file": 3}, "\u202e",
    ["x"] * 40, {"type": "text"}, {"include_usage": True}, [{"role": "user", "content": "hi"}], [{"role": "user"}],
    [{"role": 1}], [{"file": "AAAA", "name": "x.csv"}], [{"rows": []}], [{"rows": [{"time": 1, "value": "x"}]}],
    [{"role": "user", "content": [{"type": "image_url"}]}], 10**400,
]  # fmt: skip
FIELDS = (
    "model", "prompt", "messages", "input", "inputs", "options", "max_tokens", "max_completion_tokens", "temperature",
    "top_p", "top_k", "min_p", "n", "stop", "seed", "logprobs", "top_logprobs", "stream", "stream_options", "echo",
    "repetition_penalty", "no_repeat_ngram", "encoding_format", "dimensions", "user", "tools", "explain", "zzz",
)  # fmt: skip
GOOD = {
    "/v1/completions": {"model": "gpt", "prompt": "The cat", "max_tokens": 2},
    "/v1/chat/completions": {"model": "gpt", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2},
    "/v1/embeddings": {"model": "encoder", "input": "The cat"},
    **{f"/v1/predict/{name}": {"inputs": ["The cat"]} for name in NAMES},
    "/v1/predict/rows": {"inputs": [{"hours": 3}]},
}


@pytest.fixture(scope="module")
def address(folders):  # noqa: F811
    process, address = start(*(str(folders / name) for name in NAMES), "-q", "--timeout", "30")
    until_ready(address)
    yield address
    process.kill()
    process.communicate()


def check(answer: httpx2.Response | schemathesis.Response, about: object) -> int:
    """The status of an answer that is as it should be."""
    assert answer.status_code < 500, (about, answer.text)
    if answer.status_code >= 400:
        assert set(answer.json()["error"]) == raw.SHAPE, (about, answer.text)
    return answer.status_code


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
    rng, counts = random.Random(SEED), Counter()
    with httpx2.Client(base_url=address, timeout=60) as client:
        for number in range(COUNT // 2):
            path = rng.choice(list(GOOD))
            data = mutated(rng, GOOD[path])
            kind = rng.choices(["application/json", "text/plain", "multipart/form-data; boundary=x"], [40, 1, 1])[0]
            answer = client.post(path, content=data, headers={"content-type": kind})
            counts[check(answer, (number, path, data))] += 1
    print(dict(counts))
    assert counts[200] > COUNT // 40 and counts[400] > COUNT // 40


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_requests_made_from_the_schema(address, mode):
    """What the server says of itself, and what it says is wrong."""
    operations = [found.ok() for found in schemathesis.openapi.from_url(f"{address}/openapi.json").get_all_operations()]
    if mode is GenerationMode.NEGATIVE:  # a path without a body has nothing that could be wrong
        operations = [operation for operation in operations if operation.body]
    each, counts = max(COUNT * 3 // 20 // len(operations), 1), Counter()
    for operation in operations:

        @seed(SEED)
        @settings(max_examples=each, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case):
            answer = case.call(base_url=address, timeout=60)
            counts[check(answer, (case.path, case.body))] += 1

        ask()
    print(mode.value, dict(counts))
    assert mode is GenerationMode.POSITIVE or not counts[200], "something is accepted that the schema calls wrong"


def test_raw_bytes_neither_hang_nor_stop_the_server(address):
    """Truncated, slow, pipelined, with huge headers, not UTF-8, of another type or length, not HTTP, or damaged."""
    rng, counts = random.Random(SEED), Counter()
    for number in range(COUNT // 5):
        method, parts = raw.broken(rng, GOOD)
        try:
            counts.update(raw.statuses(raw.exchanged(address, parts, 0.2), method))
        except (AssertionError, OSError, HTTPException, ValueError) as e:
            pytest.fail(f"connection {number}: {e!r}: {method!r} {parts!r:.2000}")
    print(dict(counts))
    assert httpx2.post(f"{address}/v1/completions", json=GOOD["/v1/completions"]).status_code == 200


def test_silent_and_slow_connections_leave_the_server_to_others(address):
    """200 that say nothing, end in the middle of a head or of a body, or read nothing; all at once and left open."""
    whole = raw.request(b"/v1/completions", json.dumps(GOOD["/v1/completions"]).encode())
    place, begin = urlsplit(address), time.monotonic()
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection((place.hostname, place.port))) for _ in range(200)]
        for number, one in enumerate(slow):
            one.sendall((b"", whole[:30], whole[:-5], whole * 50)[number % 4])
        for _ in range(20):
            answer = httpx2.post(f"{address}/v1/completions", json=GOOD["/v1/completions"], timeout=20)
            assert answer.status_code == 200
        for one in slow[::4] + slow[1::4]:  # cut after 30 s
            one.settimeout(begin + 60 - time.monotonic())
            assert one.recv(1) == b""


def test_bombs_are_refused(address, folders):  # noqa: F811
    """Small files that would become large ones."""
    picture = (folders / "data" / "wide.png").read_bytes()  # a header of 60,000 by 60,000 pixels
    table = gzip.compress(b"0" * (1 << 28), 9)
    nested = b'{"inputs": ' + b"[" * 5_000_000 + b"]" * 5_000_000 + b"}"
    arrays, sheet, columns = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.savez_compressed(arrays, time=np.zeros(1 << 26), value=np.zeros(1 << 26))
    with zipfile.ZipFile(sheet, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("xl/worksheets/sheet1.xml", b"0" * (1 << 28))
    parquet.write_table(pyarrow.table({"time": np.zeros(1 << 25), "value": np.zeros(1 << 25)}), columns)
    sound = io.BytesIO()
    soundfile.write(sound, np.zeros(16_000 * 4_000, np.int16), 16_000, format="FLAC")
    flat = io.BytesIO()
    Image.new("1", (12_000, 12_000)).save(flat, "gif")
    inputs = [("vit", "x.png", picture), ("captioner", "x.png", picture), ("vit", "x.gif", flat.getvalue()),
              ("series", "x.csv.gz", table), ("forecaster", "x.csv", table), ("whisper", "x.wav", table),
              ("series", "x.npz", arrays.getvalue()), ("forecaster", "x.npz", arrays.getvalue()),
              ("series", "x.xlsx", sheet.getvalue()), ("forecaster", "x.parquet", columns.getvalue()),
              ("whisper", "x.flac", sound.getvalue())]  # fmt: skip
    before = memory()
    for name, file, data in inputs:
        body = {"inputs": [{"file": base64.b64encode(data).decode(), "name": file}]}
        for answer in (
            httpx2.post(f"{address}/v1/predict/{name}", json=body, timeout=60),
            httpx2.post(f"{address}/v1/predict/{name}", files={"file": (file, data)}, timeout=60),
        ):
            assert check(answer, (name, file)) >= 400
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert check(httpx2.post(f"{address}/v1/completions", content=table, headers=headers), "gzip") == 400
    assert check(httpx2.post(f"{address}/v1/predict/vit", content=nested, headers=headers, timeout=60), "nested") == 400
    grown = {pid: size - before.get(pid, size) for pid, size in memory().items()}
    assert max(grown.values()) < 600 << 20, grown


def memory() -> dict[str, int]:
    """Bytes that our children and theirs hold, by process."""
    own = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    pids = own + [pid for one in own for pid in Path(f"/proc/{one}/task/{one}/children").read_text().split()]
    return {pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 for pid in pids}
