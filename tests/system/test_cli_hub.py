"""Models and data sets by `hf:OWNER/NAME`: the real client library, and a server with the hub's protocol."""

import io
import json
import os
import subprocess
import sys

import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load as load_bytes
from tests.conftest import shake
from tests.hub_server import COMMIT, Repository, folder_files, serving
from tests.system.cli_toy import regard, works

from regard.data.tokenizers.wordpiece import WordPiece
from regard.models import build
from regard.models.bert import BertConfig
from regard.predictors import Embedder

TEXT = "A cat sits on the [MASK]."
ROWS = "text,label\n" + "".join(f"{a}-{b},{a}\n" for a in ("good", "bad") for b in "abcdefghij")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """The folder of a tiny BERT with its masked-word head."""
    folder = tmp_path_factory.mktemp("made") / "bert"
    pieces = WordPiece.train(["a cat sits on the mat", "good bad be alert " * 9], 90)
    torch.manual_seed(0)
    config = BertConfig(vocab=pieces.size, width=64, layers=2, heads=2, ffn=64, max_length=32, head="masked")
    Embedder(shake(build(config), 4.0), pieces).save(folder)
    (folder / "regard.json").unlink()  # which nobody else's repository has
    return folder


def parquet() -> dict[str, bytes]:
    """The table in two files, as the hub cuts large ones."""
    table, files = pyarrow.csv.read_csv(io.BytesIO(ROWS.encode())), {}
    for i in range(2):
        file = io.BytesIO()
        pyarrow.parquet.write_table(table.slice(10 * i, 10), file)
        files[f"data/train-0000{i}-of-00002.parquet"] = file.getvalue()
    return files


def rows() -> bytes:
    head, *cells = (row.split(",") for row in ROWS.split())
    return "".join(json.dumps(dict(zip(head, row, strict=True))) + "\n" for row in cells).encode()


@pytest.fixture
def hub(bert, tmp_path, monkeypatch):
    files = folder_files(bert)
    weights = tmp_path / "pytorch_model.bin"
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_bytes(files["model.safetensors"]).items()
    }
    assert any("gamma" in name for name in renamed)  # as the first published files call them
    torch.save(renamed, weights)
    old = {k: v for k, v in files.items() if k != "model.safetensors"} | {"pytorch_model.bin": weights.read_bytes()}
    others = {"model.onnx": b"other", "onnx/model.safetensors": b"other", "tf_model.h5": b"other"}
    repositories = {
        "acme/bert": Repository(files | others, licence="apache-2.0"),
        "acme/old": Repository(old),
        "acme/gated": Repository({}, gated=True),
        "acme/forged": Repository(files, wrong="model.safetensors"),
        "acme/forged-text": Repository(files, wrong="vocab.txt"),
        "acme/large": Repository(files, claimed=3_000_000_000),
        "acme/flax": Repository({"config.json": b"{}", "flax_model.msgpack": b"x"}),
        "acme/code": Repository(
            {"config.json": b'{"model_type": "acme"}', "model.safetensors": files["model.safetensors"]}
        ),
        "datasets/acme/reviews": Repository({**parquet(), "data/test.jsonl": rows()}),
        "datasets/acme/plain": Repository({"reviews.csv": ROWS.encode()}),
        "datasets/acme/parts": Repository({"train-0.jsonl": b"{}", "train-1.jsonl": b"{}"}),
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    with serving(repositories) as hub:
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        yield hub


def fails(*words):
    result = regard(*words)
    assert result.code == 2 and result.out == "" and result.err.strip().count("\n") <= 1, result
    return result.err


def test_a_model_is_fetched_listed_used_and_fine_tuned(hub, bert, monkeypatch, tmp_path):
    got = works("model", "get", "hf:acme/bert")
    for words in ("hf:acme/bert: ", "licence: apache-2.0", f"commit {COMMIT[:12]}", " MB"):
        assert words in got.err
    assert COMMIT in got.out and not any("onnx" in path or "h5" in path for _, path, _ in hub.asked)
    (listed,) = [m for m in json.loads(works("model", "list", "--json").out) if m["name"] == "hf:acme/bert"]
    assert listed["licence"] == "apache-2.0" and listed["here"] is True

    asked = len(hub.asked)
    expected = works("fill", bert, TEXT, "--json").out
    assert works("fill", "hf:acme/bert", TEXT, "--json").out == expected
    assert works("fill", "acme/bert", TEXT, "--json").out == expected  # where no such folder is
    assert len(hub.asked) == asked, "what is here is used without asking"

    train = ("--steps=2", "--set=tokens=64", "--device=cpu", "--name=r")
    works("finetune", "hf:acme/bert", "classify", "--data=hf:acme/reviews", *train)
    run = json.loads((tmp_path / "runs/r/run.json").read_text())
    assert COMMIT in run["start"], "the revision is pinned"
    assert run["data"]["path"].endswith("-2.parquet") and COMMIT in run["data"]["path"]
    joined = pyarrow.parquet.read_table(run["data"]["path"])
    assert joined.equals(pyarrow.csv.read_csv(io.BytesIO(ROWS.encode())))
    assert json.loads(works("evaluate", "runs/r", "--data=hf:acme/reviews/data/test.jsonl", "--json").out)
    assert json.loads(works("evaluate", "runs/r", "--data=hf:acme/plain", "--json").out)

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.down = True
    assert works("fill", "hf:acme/bert", TEXT, "--json").out == expected
    assert works("model", "get", "hf:acme/bert").code == 0
    assert "HF_HUB_OFFLINE" in fails("fill", "hf:acme/old", TEXT)


def test_only_pytorchs_own_format_is_read_too(hub, bert):
    assert works("fill", "hf:acme/old@v1", TEXT, "--json").out == works("fill", bert, TEXT, "--json").out
    assert ("GET", f"/acme/old/resolve/{COMMIT}/pytorch_model.bin", "") in hub.asked


def test_an_interrupted_download_is_resumed(hub, bert, monkeypatch):
    """Where the connection breaks, the file goes on from there; where the server is gone, a second run keeps what is
    complete."""
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 4096)
    expected = works("fill", bert, TEXT, "--json").out
    hub.broken, hub.fails_then = "model.safetensors", True
    stopped = regard("fill", "hf:acme/bert", TEXT)
    last = stopped.err.splitlines()[-1]
    assert stopped.code == 2 and "cannot fetch hf:acme/bert" in last and "complete files are kept" in last
    hub.broken, hub.fails_then, hub.down = "model.safetensors", False, False
    hub.asked.clear()
    assert works("fill", "hf:acme/bert", TEXT, "--json").out == expected
    gets = [
        (path.rpartition("/")[2], range_) for method, path, range_ in hub.asked if method == "GET" and COMMIT in path
    ]
    assert [name for name, _ in gets] == ["model.safetensors", "model.safetensors"]
    assert gets[0][1] == "" and int(gets[1][1].removeprefix("bytes=").removesuffix("-")) > 4096


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hf:acme/forged", r"model.safetensors has the hash"),
        ("hf:acme/forged-text", r"vocab.txt has the hash"),
        ("hf:acme/gated", "is gated: accept its terms at"),
        ("hf:acme/missing", "there is no such model at"),
        ("acme/missing", "there is no such model at"),
        ("hf:acme/bert@v9", "has no revision 'v9'"),
        ("hf:acme/large", "regard model get hf:acme/large --yes"),
        ("hf:acme/flax", "neither model.safetensors nor pytorch_model.bin"),
        ("hf:acme/bert/model.gguf", "has no file model.gguf"),
        ("hf:../bert", "is not a name of the hub"),
        ("hf:acme/code", "model_type 'acme'"),
    ],
)
def test_what_cannot_be_had_is_explained_in_one_line(hub, name, words):
    assert words in fails("fill", name, TEXT).replace("\n", " ")


def test_a_forged_file_is_fetched_again(hub, bert):
    fails("fill", "hf:acme/forged", TEXT)
    hub.repositories["acme/forged"].wrong = ""
    assert works("fill", "hf:acme/forged", TEXT, "--json").out == works("fill", bert, TEXT, "--json").out


def test_a_large_model_is_fetched_when_somebody_agrees(hub):
    assert "3.0 GB" in fails("model", "get", "hf:acme/large")
    hub.repositories["acme/large"].files["model.safetensors"] = b"not that large"
    result = regard("model", "get", "hf:acme/large", typed="y\n", terminal=True)
    assert "fetch it? [y/N]" in result.err and any(m == "GET" and "resolve" in p for m, p, _ in hub.asked)


def test_a_data_set_of_several_tables_names_them(hub):
    err = fails("train", "classify", "--data=hf:acme/parts", "--steps=1")
    assert "2 tables: train-0.jsonl, train-1.jsonl" in err and "name one: hf:acme/parts/train-0.jsonl" in err


def test_the_librarys_environment_is_honoured(hub, tmp_path):
    """HF_ENDPOINT and HF_HOME, in a process of its own."""
    code = "from regard.data.hub import *; n = parse('acme/bert'); print(get(n, model_files).folder)"
    env = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert result.stdout.startswith(str(tmp_path / "home")), result


def test_a_model_is_uploaded_and_used_by_its_name(hub, bert, monkeypatch, tmp_path):
    """Its files alone, as one commit; without a token it ends in one line."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    hub.token = "hf_secret"
    assert "hf auth login" in fails("model", "push", bert, "ada/mine")
    assert "ada/mine" not in hub.repositories
    monkeypatch.setenv("HF_TOKEN", hub.token)
    (bert / "state.safetensors").write_bytes(b"left behind")
    result = works("model", "push", bert, "ada/mine", "--private")
    assert result.out.strip() == f"{hub.url}/ada/mine"
    (bert / "state.safetensors").unlink()
    assert hub.repositories["ada/mine"].files == folder_files(bert)
    hub.token = ""
    assert works("fill", "hf:ada/mine", TEXT, "--json").out == works("fill", bert, TEXT, "--json").out
    assert "expected OWNER/NAME" in fails("model", "push", bert, "mine")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in fails("model", "push", bert, "ada/mine")
