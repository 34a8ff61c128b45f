"""Data sets at public addresses, fetched from a server of our own on the loopback."""

import hashlib
import http.server
import re
import threading
from dataclasses import replace

import pytest

from regard.data import catalog, fetch
from regard.data.catalog import CATALOG
from regard.data.folders import cache_folder
from regard.errors import DataError

PUBLIC = [name for name, dataset in CATALOG.items() if dataset.address]
PINNED = {name: CATALOG[name] for name in PUBLIC}
BRING = [name for name, d in CATALOG.items() if not (d.address or d.archive or d.comes_with)]


class Web:
    """A server of made-up files that can be told to misbehave; the catalogue pins these instead."""

    def __init__(self, monkeypatch):
        self.requests, self.missing, self.wrong = [], "", ""
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                web.requests.append(self.path)
                if web.missing and self.path.endswith(web.missing):
                    self.send_error(404)
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(content(self.path[1:]) + b"!" * bool(web.wrong and self.path.endswith(web.wrong)))

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()
        for name in PUBLIC:
            files = tuple(
                replace(file, sha256=hashlib.sha256(content(file.path)).hexdigest(), size=len(content(file.path)))
                for file in CATALOG[name].files
            )
            address = f"http://127.0.0.1:{self.server.server_port}/"
            monkeypatch.setitem(catalog.CATALOG, name, replace(CATALOG[name], address=address, files=files))


def content(path: str) -> bytes:
    return f"what {path} holds".encode()


@pytest.fixture
def web(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    web = Web(monkeypatch)
    yield web
    web.server.shutdown()
    web.server.server_close()


def get(name: str, say=lambda line: None):
    return (fetch.get_pairs if CATALOG[name].kind == "pairs" else fetch.get_files)(name, say=say)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_set_is_fetched_once_and_found(web, name):
    files = {part: path for part, path in vars(get(name)).items() if path is not None}
    remote = CATALOG[name].files
    assert {path.name for path in files.values()} == {file.name for file in remote}
    assert {path.read_bytes() for path in files.values()} == {content(file.path) for file in remote}
    assert len(web.requests) == len(remote) and get(name) and len(web.requests) == len(remote)
    about = (cache_folder() / "data" / name / "ATTRIBUTION.txt").read_text()
    assert CATALOG[name].licence in about and CATALOG[name].address in about


@pytest.mark.parametrize("name", PUBLIC)
def test_addresses_are_pinned_to_a_commit(name):
    dataset = PINNED[name]
    assert re.match(r"https://[^/]+/[^/]+/[^/]+/[0-9a-f]{40}/", dataset.address)
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size > 10_000 for file in dataset.files)


def test_size_and_licence_are_shown_before_anything_is_fetched(web):
    lines = []
    get("sst2", lambda line: lines.append((line, len(web.requests))))
    first, requests = lines[0]
    assert requests == 0 and "0.8 MB from http" in first and "research" in first and "Socher" in first


def test_a_wrong_file_is_refused_and_the_right_one_is_kept(web):
    web.wrong = "dev.tsv"
    with pytest.raises(DataError, match=r"dev\.tsv is not the expected file.*run the command again"):
        get("sst2")
    assert not (cache_folder() / "data" / "sst2").exists()
    web.wrong = ""
    assert get("sst2").valid.read_bytes() == content("dev.tsv")
    assert web.requests == ["/train.tsv", "/dev.tsv", "/dev.tsv"]


def test_a_refusal_names_the_address_and_the_way_without(web):
    web.missing = "input.txt"
    with pytest.raises(DataError) as e:
        get("shakespeare")
    for words in (f"{CATALOG['shakespeare'].address}input.txt (HTTP 404)", "REGARD_DATA", "shakespeare/input.txt"):
        assert words in str(e.value)
    web.server.shutdown()  # or its thread may still take the connection
    web.server.server_close()
    with pytest.raises(DataError, match=r"cannot download http://127.0.0.1:\d+/train.tsv \(connection refused\)"):
        get("sst2")


def test_what_the_user_has_comes_first(web, tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    (tmp_path / "shakespeare").mkdir()
    (tmp_path / "shakespeare" / "input.txt").write_text("To be")
    assert get("shakespeare").train.read_text() == "To be" and not web.requests


@pytest.mark.parametrize("name", BRING)
def test_a_set_to_bring_says_where_it_is_published(name):
    with pytest.raises(DataError, match=r"it is published (at|by|with) .*; set REGARD_DATA to the folder that holds"):
        fetch.download(CATALOG[name], lambda line: None)
