"""Files on the web, each pinned by its size and SHA-256: downloaded completely, or not at all."""

import hashlib
import http.client
import os
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from regard.data.catalog import RemoteFile
from regard.data.folders import Say, building_file, cache_folder
from regard.errors import DataError

REASONS = (  # the first that matches a cause of a failed request
    (socket.gaierror, "unknown host name"),
    (ConnectionRefusedError, "connection refused"),
    (ssl.SSLError, "its certificate is not trusted"),
    (TimeoutError, "no answer in time"),
    ((http.client.IncompleteRead, ConnectionResetError), "the connection broke off"),
)


def download_files(address: str, files: Sequence[RemoteFile], folder: Path, hint: str, say: Say) -> None:
    """Download all files to `folder`. If one fails, complete ones stay in the cache and are not fetched again; `hint`
    is an alternative for the message."""
    import requests

    kept = {file: cache_folder() / "downloads" / file.sha256 for file in files}
    for file, path in kept.items():
        if path.is_file() and sha256(path) == file.sha256:
            continue
        url = address + file.path
        ask = partial(requests.get, url, stream=True, timeout=60, verify=os.environ.get("PIP_CERT") or True)
        # The order matters: a network error is an OSError too, and must not be reported as a disk error.
        with building_file(path) as temporary, network_errors(url, hint), ask() as reply:
            reply.raise_for_status()
            write_pinned(reply, temporary, url, file.size, file.sha256, say)
    for file, path in kept.items():
        path.replace(folder / file.name)


@contextmanager
def network_errors(what: str, hint: str = "") -> Iterator[None]:
    """Turn a failed request into a `DataError` of one sentence."""
    from requests import RequestException

    try:
        yield
    except RequestException as e:
        causes = list(_causes(e))
        answer = getattr(e.response, "status_code", None)
        reasons = (words for error, words in REASONS if any(isinstance(c, error) for c in causes))
        reason = next(reasons, f"HTTP {answer}" if answer else type(e).__name__)
        raise DataError(
            f"cannot download {what} ({reason}); check the network and run the command again{hint and f', or {hint}'}"
        ) from None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes; urllib3 wraps exceptions in the arguments of others."""
    waiting, seen = [error], set[int]()
    while waiting:
        if id(e := waiting.pop()) not in seen:
            seen.add(id(e))
            yield e
            inner = (e.__cause__, e.__context__, getattr(e, "reason", None), *e.args)
            waiting += [x for x in inner if isinstance(x, BaseException)]


def write_pinned(reply: Any, path: Path, name: str, size: int, expected: str, say: Say) -> None:
    """Stream the reply into `path`; `DataError` unless it is the file with this SHA-256."""
    digest, done, last = hashlib.sha256(), 0, 0.0
    with path.open("wb") as file:
        for block in reply.iter_content(1 << 18):
            done += len(block)
            if done > 2 * size + (1 << 20):
                break  # not our file, as the hash will show
            file.write(block)
            digest.update(block)
            if time.monotonic() - last > 1 or done == size:
                last = time.monotonic()
                say(f"{name}: {done / 1e6:.1f} of {size / 1e6:.1f} MB")
    if digest.hexdigest() != expected:
        what = "broke off" if done < size else "is not the expected file"
        raise DataError(
            f"the download of {name} {what}: {done:,} bytes with SHA-256 "
            f"{digest.hexdigest()[:12]}, expected {size:,} with {expected[:12]}; run the command again"
        )


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
