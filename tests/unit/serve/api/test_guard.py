"""Whom the server answers."""

import httpx2
import pytest
from tests.unit.serve.api.conftest import serving

from regard.errors import ConfigError
from regard.serve.api.errors import APIError
from regard.serve.api.guard import Access, read_keys

LOCAL, PUBLIC = Access(), Access(host="0.0.0.0", keys=("first", "second"), allowed_hosts=("models.example.org",))


def status(access: Access, path: str = "/v1/models", **headers: str) -> int:
    try:
        access.check(path, headers)
    except APIError as e:
        return e.status
    return 200


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "127.3.2.1"])
def test_names_of_this_machine_are_answered(host):
    assert status(LOCAL, host=host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "10.0.0.1", "localhost.evil.example:80"]
)
def test_other_hosts_are_refused(host):
    assert status(LOCAL, host=host) == 403
    assert status(LOCAL, "/health", host=host) == 200, "probes send any host"


def test_pages_of_other_sites_are_refused():
    assert status(LOCAL, host="localhost:8000", origin="http://localhost:8000") == 200
    assert status(LOCAL, host="localhost:8000", origin="https://evil.example") == 403
    assert status(LOCAL, host="localhost:8000", origin="null") == 403
    assert status(LOCAL, host="localhost:8000", origin="http://localhost:3000") == 403, "a page of another server"
    picture = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "image"}
    assert status(LOCAL, host="localhost:8000", **picture) == 403
    assert status(LOCAL, host="localhost:8000", **picture | {"sec-fetch-dest": "document"}) == 200, "a link"
    open_ = Access(allowed_origins=("https://app.example.org",))
    assert status(open_, host="localhost", origin="https://app.example.org") == 200


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [("Bearer first", 200), ("bearer second", 200), ("Basic OmZpcnN0", 200), ("Bearer firs", 401), ("Bearer ", 401),
     ("", 401), ("first", 401), ("Basic x", 401), ("Bearer first second", 401)],
)  # fmt: skip
def test_a_key_is_needed_beyond_this_machine(authorization, expected):
    assert status(PUBLIC, host="models.example.org", authorization=authorization) == expected
    assert status(PUBLIC, host="203.0.113.7:8000", authorization=authorization) == expected
    assert status(PUBLIC, host="other.example.org", authorization=authorization) == 403


def test_no_server_is_open_to_others_without_a_key():
    with pytest.raises(ConfigError, match=r"--host 0\.0\.0\.0 can be reached from other machines.*REGARD_API_KEY"):
        Access(host="0.0.0.0")
    assert Access(host="localhost").local and Access(host="127.0.0.2").local and not PUBLIC.local
    with pytest.raises(ConfigError, match=r"--allow-host http://x\.example: expected a name"):
        Access(allowed_hosts=("http://x.example",))
    with pytest.raises(ConfigError, match=r"--allow-origin app\.example\.org: expected scheme and host"):
        Access(allowed_origins=("app.example.org",))
    with pytest.raises(ConfigError, match="printable"):
        Access(keys=("a b",))


def test_a_key_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "keys").write_bytes(b"first\n\x80\n")
    with pytest.raises(ConfigError, match="keys: not UTF-8 text; --api-key-file expects one key per line"):
        read_keys((), str(tmp_path / "keys"), "")


def test_only_allowed_origins_may_read_answers(fake_engine):
    """Before a request a browser asks without the key; refusals can be read too."""
    access = Access(keys=("sk-right",), allowed_origins=("https://app.example.org",))
    ours = {"origin": "https://app.example.org"}
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-more"}
    with serving(access=access) as address, httpx2.Client(base_url=address) as http:
        before = http.options("/v1/completions", headers=ours | asks)
        assert before.status_code == 204 and before.content == b""
        assert before.headers["access-control-allow-origin"] == "https://app.example.org"
        assert before.headers["access-control-allow-headers"] == "authorization,x-more"
        assert http.options("/v1/completions", headers=asks | {"origin": "https://evil.example"}).status_code == 403
        assert http.options("/v1/completions", headers=asks | ours | {"host": "evil.example"}).status_code == 403
        for key, status in (("sk-right", 200), ("sk-wrong", 401)):
            answer = http.get("/v1/models", headers=ours | {"authorization": f"Bearer {key}"})
            assert answer.status_code == status and answer.headers["vary"] == "origin"
            assert answer.headers["access-control-allow-origin"] == "https://app.example.org"
        plain = http.get("/v1/models", headers={"authorization": "Bearer sk-right"})
        assert plain.status_code == 200 and "access-control-allow-origin" not in plain.headers
