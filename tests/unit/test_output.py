"""A file a user names: whole or untouched, through links, into pipes and devices, never in the place of a folder."""

import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.errors import DataError
from regard.output import check_output, open_output, open_text

NOBODY = 65534


def write(path: str | Path, text: str = "new\n") -> None:
    with open_text(path) as file:
        file.write(text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with open_text(path) as file:
        file.write("é\n")
        assert not path.exists()
    assert path.read_bytes() == "é\n".encode()
    assert names(tmp_path) == ["out.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old\n")
    with pytest.raises(TypeError), open_text(path) as file:
        file.writelines(["half", 1])  # pyrefly: ignore[bad-argument-type]
    assert path.read_text() == "old\n"
    assert names(tmp_path) == ["out.txt"]


def test_an_existing_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old\n")
    path.chmod(0o640)
    write(path)
    assert path.read_text() == "new\n" and stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_name_as_long_as_the_file_system_allows_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write(path)
    assert path.read_text() == "new\n"


def test_a_symbolic_link_is_kept_and_its_target_replaced(tmp_path: Path) -> None:
    real, link = tmp_path / "there" / "real.txt", tmp_path / "link.txt"
    real.parent.mkdir()
    real.write_text("old\n")
    (tmp_path / "middle").symlink_to("there/real.txt")
    link.symlink_to("middle")
    before = real.stat().st_ino
    write(link)
    assert real.read_text() == "new\n" and real.stat().st_ino != before, "replaced in one step, not rewritten"
    assert link.readlink() == Path("middle") and (tmp_path / "middle").readlink() == Path("there/real.txt")


def test_a_dangling_link_gets_its_target(tmp_path: Path) -> None:
    link = tmp_path / "link.txt"
    link.symlink_to("later.txt")
    write(link)
    assert link.is_symlink() and (tmp_path / "later.txt").read_text() == "new\n"


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(DataError, match="leads back to itself"):
        write(tmp_path / "a")


@pytest.mark.parametrize("linked", [False, True])
def test_a_fifo_receives_what_is_written_and_stays_a_fifo(tmp_path: Path, linked: bool) -> None:
    pipe, name = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    name.symlink_to("pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write(name if linked else pipe)
    reader.join(timeout=10)
    assert read == [b"new\n"] and pipe.is_fifo()
    assert names(tmp_path) == ["link", "pipe"]


def test_a_device_stays_a_device() -> None:
    before = Path("/dev/null").stat()
    write("/dev/null")
    after = Path("/dev/null").stat()
    assert stat.S_ISCHR(after.st_mode) and (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


def test_a_dash_is_standard_output(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write("-", "text\n")
    with open_output("-") as file:
        file.write(b"\x00\xff")
    assert capsysbinary.readouterr().out == b"text\n\x00\xff"
    assert not Path("-").exists()


@pytest.mark.parametrize("name", ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"])
@pytest.mark.parametrize("pipe", [False, True])
def test_a_descriptor_is_continued_where_it_stands(tmp_path: Path, name: str, pipe: bool) -> None:
    """`>> all.txt` keeps what was there, and what is printed before and after keeps its order."""
    code = f"""if True:
        from regard.output import open_text
        print("before")
        with open_text({name!r}) as file:
            file.write("new\\n")
        print("after")"""
    log = tmp_path / "all.txt"
    log.write_text("old\n")
    with log.open("a") as out:
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE if pipe else out, check=True)
    assert (b"old\n" + done.stdout if pipe else log.read_bytes()) == b"old\nbefore\nnew\nafter\n"


def test_a_folder_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (tmp_path, tmp_path / "link"):
        with pytest.raises(DataError, match="is a folder; name a file"):
            write(path)
    with pytest.raises(DataError, match="is not a folder; create it first: mkdir -p"):
        write(tmp_path / "no" / "out.txt")
    assert names(tmp_path) == ["link"]


@pytest.fixture
def somebody() -> Iterator[Path]:
    """A folder of a user whom permissions bind."""
    with tempfile.TemporaryDirectory() as name:
        folder, user = Path(name), os.geteuid()
        folder.chmod(0o755)
        if user == 0:
            os.chown(folder, NOBODY, -1)
            os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            folder.chmod(0o755)
            os.seteuid(user)


def test_what_is_write_protected_stays_as_it_is(somebody: Path) -> None:
    path = somebody / "out.txt"
    path.write_text("old\n")
    path.chmod(0o444)
    with pytest.raises(DataError, match=r"out\.txt is write-protected; name another file, or type: chmod u\+w"):
        write(path)
    path.chmod(0o644)
    somebody.chmod(0o555)
    for name in ("out.txt", "other.txt"):
        with pytest.raises(DataError, match="is write-protected; name a file in another folder"):
            write(somebody / name)
    assert path.read_text() == "old\n" and names(somebody) == ["out.txt"]


def test_a_file_that_is_read_is_refused_under_any_name(tmp_path: Path) -> None:
    path, link = tmp_path / "in.txt", tmp_path / "link.txt"
    path.write_text("old\n")
    link.symlink_to("in.txt")
    for out in (path, link, tmp_path / ".." / tmp_path.name / "in.txt"):
        with pytest.raises(DataError, match="is the input file; name another one"):
            check_output(out, "", path)
    check_output(tmp_path / "other.txt", path)
    check_output("/dev/null", "/dev/null")
