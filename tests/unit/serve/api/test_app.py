"""What every endpoint has in common."""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import jsonschema_rs
import pytest
from tests.unit.serve.api.conftest import FILES, KEY, NAMES
from tests.unit.serve.api.raw import SHAPE

import regard

AS_JSON = {"content-type": "application/json"}
OPENAI = {"/v1/completions", "/v1/chat/completions", "/v1/embeddings"}
NESTED = b'{"inputs": ' + b"[" * 700 + b"]" * 700


@pytest.fixture(scope="module")
def stranger(address):
    """A client without a key."""
    with httpx2.Client(base_url=address) as ready:
        yield ready


def test_health_needs_no_key_and_nothing_else_is_answered(stranger):
    health = stranger.get("/health", headers={"host": "10.1.2.3"})
    assert health.status_code == 200 and health.json()["models"]["gpt"] == "ready"
    for path in ("/", "/docs", "/openapi.json", "/metrics", "/v1/models", "/nothing"):
        answer = stranger.get(path)
        assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key", path


@pytest.mark.parametrize(
    ("method", "path", "how", "status"),
    [
        ("GET", "/v1/nothing", {}, 404),
        ("GET", "/v1/completions", {}, 405),
        ("POST", "/v1/completions", dict(content=b"{", headers=AS_JSON), 400),
        ("POST", "/v1/completions", dict(content=b"[]", headers=AS_JSON), 400),
        ("POST", "/v1/completions", dict(content=b"x=1", headers={"content-type": "text/plain"}), 415),
        ("POST", "/v1/completions", dict(content=b"[" * 90_000, headers=AS_JSON), 400),
        ("POST", "/v1/predict/gpt", dict(content=NESTED + b"}", headers=AS_JSON), 400),
        ("POST", "/v1/predict/gpt", dict(content=NESTED + b', "x": 1}', headers=AS_JSON), 400),
        ("POST", "/v1/predict/gpt", dict(content=NESTED + b', "explain": 1}', headers=AS_JSON), 400),
        ("POST", "/v1/completions", dict(content=b'{"n": NaN}', headers=AS_JSON), 400),
        ("POST", "/v1/completions", dict(content=b'{"a": "\xff"}', headers=AS_JSON), 400),
        ("POST", "/v1/predict/", dict(json={"inputs": ["x"]}), 404),
        ("POST", "/v1/predict/gpt", dict(json={"inputs": ["x"] * 3000}), 422),
    ],
)  # fmt: skip
def test_every_error_has_openais_shape(http, method, path, how, status):
    answer = http.request(method, path, **how)
    assert answer.status_code == status, answer.text
    assert set(answer.json()["error"]) == SHAPE


def test_bodies_that_are_too_large_are_refused(http):
    answer = http.post("/v1/completions", content=b" " * (33 << 20), headers=AS_JSON)
    assert answer.status_code == 413 and "33,554,432 bytes" in answer.json()["error"]["message"]


def test_every_route_answers_errors_in_one_shape(http, stranger):
    """Also those of the router and of the guard, before any endpoint is reached."""
    for path, operations in http.get("/openapi.json").json()["paths"].items():
        method = next(iter(operations)).upper()
        refused = [
            (401, stranger.request(method, path, headers=AS_JSON)),
            (403, http.request(method, path, headers={"host": "evil.example"})),
            (403, http.request(method, path, headers={"origin": "https://evil.example"})),
            (404, http.request(method, f"{path}/nothing", content=b'{"inputs": [1]}', headers=AS_JSON)),
            (405, http.request("PATCH", path, content=b"{}", headers=AS_JSON)),
        ]
        if method == "POST":
            refused += [(400, http.post(path, content=body, headers=AS_JSON)) for body in (b"", b"{", b"\xff", b"{}")]
            refused += [(400, http.post(path, json={"zzz": 1})), (415, http.post(path, content=b"{}"))]
            form = {"content-type": "multipart/form-data; boundary=x"}
            refused += [(400, http.post(path, content=body, headers=form)) for body in (b"", b"--x", b"--x--")]
        for status, answer in refused:
            assert answer.status_code == status, (path, answer.request.method, answer.text)
            assert set(answer.json()["error"]) == SHAPE, (path, answer.text)


def numbers(http) -> dict[str, float]:
    """What /metrics shows."""
    lines = [line for line in http.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_work_stops_when_the_client_leaves(http):
    """In the middle of a stream, and while it waits for a whole text: neither is written to its end."""
    body = {"model": "lstm", "prompt": "The cat", "max_tokens": 4000, "n": 128}  # some end early, not all of them
    written = 'regard_tokens_total{model="lstm",what="completion"}'
    before = numbers(http).get(written, 0)
    with http.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
        assert next(answer.iter_lines()).startswith("data: {")
    with pytest.raises(httpx2.ReadTimeout):
        http.post("/v1/completions", json=body, timeout=0.2)
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
    ran = set()
    for path, operations in schema["paths"].items():
        content = operations.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
        if "example" in content:
            answer = http.post(path, json=content["example"])
            assert answer.status_code == 200, (path, answer.text)
            described = operations["post"]["responses"]["200"].get("content", {}).get("application/json", {})
            jsonschema_rs.validator_for(described.get("schema", {})).validate(answer.json())
            assert "schema" in described or path in OPENAI
            ran.add(path)
    asked = {f"/v1/predict/{name}" for name in (*NAMES, "whisper", *FILES)}
    assert ran == asked | OPENAI
    assert schema["components"]["schemas"]["ChatBody"]["properties"]["model"]["enum"] == ["gpt", "llama", "lstm"]
    options = schema["paths"]["/v1/predict/transformer"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert options["properties"]["options"]["properties"]["beam"]["maximum"] == 32
    assert "explain" in options["properties"] and schema["security"] == [{"key": []}]
    label = schema["paths"]["/v1/predict/classifier"]["post"]
    assert "explain" not in label["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert set(label["responses"]["200"]["content"]["application/json"]["schema"]["properties"]["outputs"]["items"][
        "properties"]) == {"label", "probabilities"}  # fmt: skip
    assert json.dumps(schema).count('"$ref": "#/components/schemas/') > 9


def test_the_page_loads_nothing_from_elsewhere(http):
    page = http.get("/docs")
    assert (
        page.status_code == 200
        and "://" not in page.text
        and "default-src 'self'" in page.headers["content-security-policy"]
    )


def test_streams_at_once_are_neither_lost_nor_mixed_up(http, folders):
    """The small one of tests/slow/test_serve.py."""
    settings = {"temperature": 0.9, "max_tokens": 12, "seed": 3}
    prompts = ["The cat", "Server, can", "it was sweet", "a", "Ein Mann liest", "because"]
    alone = {one: regard.load(folders / "gpt").generate([one], **settings)[0][0].text for one in prompts}

    def stream(prompt: str) -> str:
        answer = http.post("/v1/completions", json={"model": "gpt", "prompt": prompt, "stream": True, **settings})
        *events, done = [line[6:] for line in answer.text.split("\n\n") if line]
        assert done == "[DONE]"
        return "".join(json.loads(event)["choices"][0]["text"] for event in events)

    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(stream, prompts * 8)) == [alone[prompt] for prompt in prompts * 8]


# -- docs/serving.md ----------------------------------------------------------------------------------------------

# Models of the guide, and the tiny ones that stand for them.
STAND_INS = {"smollm2-135m": "gpt", "minilm": "encoder", "demo": "transformer", "whisper-tiny": "whisper"}


@pytest.fixture(scope="module")
def guide(address, folders):
    """The code of docs/serving.md by language, with our address and models."""
    text = (Path(__file__).parents[4] / "docs" / "serving.md").read_text("utf-8")
    for name, ours in ({"http://127.0.0.1:8000": address, "runs/better": str(folders / "gpt")} | STAND_INS).items():
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", ours, text)
    return lambda language: re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_every_curl_line_of_the_guide_runs(guide, folders, tmp_path):
    (tmp_path / ".curlrc").write_text(f'header = "authorization: Bearer {KEY}"\nfail-with-body\nsilent\nshow-error\n')
    for name, file in {
        "clip.wav": "clips/low/0.wav",
        "one.png": "photos/dark/0.png",
        "two.png": "photos/light/1.png",
    }.items():
        shutil.copy(folders / "data" / file, tmp_path / name)
    lines = [line for code in guide("sh") for line in code.replace("\\\n", "").splitlines() if line.startswith("curl")]
    reached = set()
    for line in lines:
        how = dict(cwd=tmp_path, env=os.environ | {"CURL_HOME": str(tmp_path)}, capture_output=True, text=True)
        done = subprocess.run(["bash", "-c", line], **how)
        assert done.returncode == 0 and done.stdout, (line, done.stdout, done.stderr)
        assert done.stdout.endswith("data: [DONE]\n\n") == ("stream" in line), done.stdout
        reached.add(re.search(r"127\.0\.0\.1:\d+(/v1/predict|[^ ]*)", line)[1])
    listed = {"/health", "/metrics", "/openapi.json", "/v1/models", "/v1/completions", "/v1/chat/completions",
              "/v1/embeddings", "/v1/audio/transcriptions", "/v1/predict"}  # fmt: skip
    assert listed <= reached


def test_the_openai_client_of_the_guide_runs(guide):
    (code,) = (code for code in guide("python") if "OpenAI" in code)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(code.replace("unused without --api-key", KEY), {})
    assert shown.getvalue()
