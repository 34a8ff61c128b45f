"""What every endpoint has in common."""

import json
import socket
import time
from urllib.parse import urlsplit

import httpx2
import pytest


def test_health_needs_no_key_and_nothing_else_is_answered(address):
    health = httpx2.get(f"{address}/health", headers={"host": "10.1.2.3"})
    assert health.status_code == 200 and health.json()["models"]["gpt"] == "ready"
    for path in ("/", "/docs", "/openapi.json", "/metrics", "/v1/models", "/nothing"):
        answer = httpx2.get(address + path)
        assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key", path


@pytest.mark.parametrize(
    ("method", "path", "how", "status"),
    [
        ("GET", "/v1/nothing", {}, 404),
        ("GET", "/v1/completions", {}, 405),
        ("POST", "/v1/completions", dict(content=b"{", headers={"content-type": "application/json"}), 400),
        ("POST", "/v1/completions", dict(content=b"[]", headers={"content-type": "application/json"}), 400),
        ("POST", "/v1/completions", dict(content=b"x=1", headers={"content-type": "text/plain"}), 415),
        ("POST", "/v1/completions", dict(content=b"[" * 90_000, headers={"content-type": "application/json"}), 400),
        ("POST", "/v1/completions", dict(content=b'{"n": NaN}', headers={"content-type": "application/json"}), 400),
        ("POST", "/v1/completions", dict(content=b'{"a": "\xff"}', headers={"content-type": "application/json"}), 400),
        ("POST", "/v1/predict/", dict(json={"inputs": ["x"]}), 404),
        ("POST", "/v1/predict/gpt", dict(json={"inputs": ["x"] * 3000}), 422),
    ],
)  # fmt: skip
def test_every_error_has_openais_shape(http, method, path, how, status):
    answer = http.request(method, path, **how)
    assert answer.status_code == status, answer.text
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_bodies_that_are_too_large_are_refused(http):
    headers = {"content-type": "application/json"}
    answer = http.post("/v1/completions", content=b" " * (33 << 20), headers=headers)
    assert answer.status_code == 413 and "33,554,432 bytes" in answer.json()["error"]["message"]


def test_broken_requests_do_not_hang_the_server(address, http):
    place = urlsplit(address)
    for sent in (b"GET / HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                 b"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"):  # fmt: skip
        with socket.create_connection((place.hostname, place.port), timeout=5) as raw:
            raw.sendall(sent)
            raw.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: raw.recv(4096), b""))
            assert not answer.startswith(b"HTTP/1.1 5")
            if answer.startswith(b"HTTP/1.1 400"):
                assert set(json.loads(answer.partition(b"\r\n\r\n")[2])["error"]) == {
                    "message",
                    "type",
                    "param",
                    "code",
                }
    assert http.get("/v1/models").status_code == 200


def numbers(http) -> dict[str, float]:
    """What /metrics shows."""
    lines = [line for line in http.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_work_stops_when_the_client_leaves(http):
    """In the middle of a stream, and while it waits for a whole text: neither is written to its end."""
    body = {"model": "lstm", "prompt": "The cat", "max_tokens": 4000}
    written = 'regard_tokens_total{model="lstm",what="completion"}'
    before = numbers(http).get(written, 0)
    with http.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
        assert next(answer.iter_lines()).startswith("data: {")
    with pytest.raises(httpx2.ReadTimeout):
        http.post("/v1/completions", json=body | {"n": 8}, timeout=0.2)
    end = time.monotonic() + 10
    while numbers(http)['regard_running{model="lstm"}'] > 0:
        assert time.monotonic() < end, "still at work"
        time.sleep(0.05)
    assert numbers(http).get(written, 0) == before


def test_metrics_count_requests_and_tokens(http, client):
    name = 'regard_tokens_total{model="llama",what="completion"}'
    before = numbers(http).get(name, 0)
    client.completions.create(model="llama", prompt="The cat", max_tokens=9, temperature=0)
    after = numbers(http)
    assert after[name] == before + 9
    assert after['regard_requests_total{endpoint="/v1/completions",status="200"}'] >= 1
    for what in ("time_to_first_token_seconds", "time_per_token_seconds", "batch_size"):
        assert after[f'regard_{what}_count{{model="llama"}}'] > 0
    assert after["regard_engine_starts_total"] == 1


def test_the_schema_describes_what_runs(http):
    schema = http.get("/openapi.json").json()
    ran = 0
    for path, operations in schema["paths"].items():
        content = operations.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
        if "example" in content:
            answer = http.post(path, json=content["example"])
            assert answer.status_code == 200, (path, answer.text)
            ran += 1
    assert ran >= 9
    assert schema["components"]["schemas"]["ChatBody"]["properties"]["model"]["enum"] == ["gpt", "llama", "lstm"]
    options = schema["paths"]["/v1/predict/transformer"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert options["properties"]["options"]["properties"]["beam"]["maximum"] == 32
    assert json.dumps(schema).count('"$ref": "#/components/schemas/') > 9


def test_the_page_loads_nothing_from_elsewhere(http):
    page = http.get("/docs")
    assert (
        page.status_code == 200
        and "://" not in page.text
        and "default-src 'self'" in page.headers["content-security-policy"]
    )
