"""Compressed files and long lines: read as they are, and refused where they hold more than anybody means."""

import gzip
import io
import random
import tarfile
from pathlib import Path

import pytest

from regard.data import files
from regard.data.files import one_ahead, open_bytes, read_bounded_lines, read_tar
from regard.data.pairs import read_lines
from regard.data.store import sha256
from regard.errors import DataError, LimitError


def test_a_compressed_file_is_read_whole(tmp_path):
    lines = [b"line %d\n" % i for i in range(50_000)]
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"".join(lines)))
    with open_bytes(tmp_path / "x.gz") as file:
        assert list(file) == lines
    with open_bytes(tmp_path / "x.gz") as file:
        assert file.read(1 << 22) == b"".join(lines)


def test_decompression_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FREE", 1 << 20)
    path = tmp_path / "bomb.txt.gz"
    path.write_bytes(gzip.compress(b"x" * (4 << 20)))
    with pytest.raises(LimitError, match=r"bomb.txt.gz: 4.* KB compressed hold more than 1.0 MB"):
        list(read_lines(path))
    path.write_bytes(gzip.compress(random.Random(0).randbytes(1 << 20) * 4))  # as large, but compressed less
    with open_bytes(path) as file:
        assert len(file.read()) == 4 << 20


def test_line_larger_than_memory_is_refused_with_its_number(monkeypatch):
    monkeypatch.setenv("REGARD_MEMORY", "3200")  # 32 lines of 100 bytes
    lines = [b"x" * 99 + b"\n", b"y\n", b"z" * 99]
    assert list(read_bounded_lines(io.BytesIO(b"".join(lines)), "x.txt")) == lines
    with pytest.raises(
        LimitError, match=r"x.txt line 2 is longer than 100 B; split it, or raise it with REGARD_MEMORY"
    ):
        list(read_bounded_lines(io.BytesIO(b"y\n" + b"x" * 100 + b"\n"), "x.txt"))


def test_files_of_an_archive_must_fit_in_memory_together(tmp_path, monkeypatch):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("a.wav", "b.wav"):
            member = tarfile.TarInfo(name)
            member.size = 60_000
            tar.addfile(member, io.BytesIO(bytes(60_000)))
    assert [len(data) for _, data in read_tar(path, lambda name: True)] == [60_000, 60_000]
    monkeypatch.setenv("REGARD_MEMORY", "100K")
    with pytest.raises(LimitError, match="unpack it"):
        list(read_tar(path, lambda name: True))


@pytest.mark.parametrize("read", [lambda path: open_bytes(path).__enter__(), sha256], ids=["read", "hash"])
def test_a_device_is_refused_as_it_may_never_end(read):
    with pytest.raises(DataError, match="/dev/full is a device; expected a"):
        read(Path("/dev/full"))


def test_work_that_is_one_ahead_keeps_its_order():
    read = []
    items = (read.append(n) or n for n in range(4))
    for item, square in one_ahead(lambda n: n * n, items):
        assert square == item * item and read == list(range(min(item + 2, 4)))
    assert item == 3 and list(one_ahead(str, [])) == []


def test_work_that_fails_one_ahead_fails_in_its_turn():
    results = one_ahead(lambda n: 1 / n, [1, 0])
    assert next(results) == (1, 1.0)
    with pytest.raises(ZeroDivisionError):
        next(results)
