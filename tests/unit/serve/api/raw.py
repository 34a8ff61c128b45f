"""Bytes on a socket that are nearly HTTP, or nothing like it, and what the server answers."""

import io
import json
import random
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

SHAPE = {"message", "type", "param", "code"}
METHODS = (b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT", b"post", b"P\xd6ST", b"FOO")
VERSIONS = (b"HTTP/1.0", b"HTTP/1.9", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.1 x", b"ICY/1.1", b"")
TARGETS = (
    b"/v1/predict/%ff%fe", b"/%00", b"//", b"/v1/completions?x=%ff", b"http://evil.example/v1/models", b"*", b"/\xff",
    b"/v1/models/" + b"a" * 30_000, b"/" + b"../" * 50 + b"etc/passwd", b"/assets/..%2f..%2fapp.py", b"localhost:80",
    b"", b"/v1/models/%2e%2e", b"/api/look", b"/v1/models/\xe2\x82\xac", b"/?" + b"&a" * 9_000,
)  # fmt: skip
HEADERS = (
    b"X: \xff\xfe", b"X\xff: y", b"X: a\x00b", b"X", b" folded", b": nameless", b"Host: evil.example", b"Host: [::1",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Content-Length: 5", b"Content-Length: -1",
    b"Content-Length: 1e9", b"Content-Encoding: gzip", b"Expect: 100-continue", b"Expect: nonsense", b"Origin: \xff",
    b"Connection: Upgrade\r\nUpgrade: websocket", b"Connection: Upgrade\r\nUpgrade: h2c", b"Connection: close",
    b"Origin: null", b"Sec-Fetch-Site: cross-site", b"Authorization: Bearer \xff", b"Authorization: Basic \xff",
    b"Range: bytes=0-1", b"Content-Type: application/json; charset=utf-16", b"Cookie: " + b"a" * 5_000,
)  # fmt: skip
TYPES = ("", "text/html", "multipart/form-data", "multipart/form-data; boundary=", "application/x-\xe9", "a/b;c", ";",
         "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "application/json" * 99)  # fmt: skip
NO_HTTP = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"\r\n" * 40, b"\n", b"\x00" * 999,
    b"SSH-2.0-Open\r\n", b"GET\r\n\r\n", b"{}\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000,
)  # fmt: skip
FIELD = b"--x\r\nContent-Disposition: form-data; name="
FORM = (
    FIELD + b'"file"; filename="\xff.png"\r\n\r\nabc\r\n--x--\r\n', FIELD + b'"options"\r\n\r\n{\r\n--x--\r\n',
    b"--x\r\n\r\nabc\r\n--x--\r\n", (FIELD + b'"a"\r\n\r\n1\r\n') * 99 + b"--x--\r\n", b"--x", b"--x--",
)  # fmt: skip
HALF = (b"\xff", b"\xc3\x28", b"\xed\xa0\x80")  # never a byte of UTF-8, a lone first byte, half a surrogate pair


def exchanged(address: str, parts: list[bytes], patience: float = 0.03) -> bytes:
    """Everything that the server answers to these bytes; a server that waits for more gets the end of them."""
    place, answer = urlsplit(address), b""
    with socket.create_connection((place.hostname, place.port)) as raw:
        try:
            for part in parts:
                raw.sendall(part)
                time.sleep(0.001)
            raw.settimeout(patience)
            begin = time.monotonic()
            while time.monotonic() < begin + 40:
                try:
                    if not (more := raw.recv(1 << 16)):
                        return answer
                    answer += more
                except TimeoutError:
                    if whole(
                        answer, parts[0].split(b" ")[0]
                    ):  # in the middle of one, the end would make the server drop the rest
                        break
            raw.settimeout(40)
            with suppress(OSError):  # the other side may have closed it already
                raw.shutdown(socket.SHUT_WR)
            return answer + received(raw)
        except (ConnectionResetError, BrokenPipeError):  # it need not read to its end what it refuses
            return b""


def whole(answer: bytes, method: bytes) -> bool:
    """Whether these are responses, and not the beginning of one."""
    try:
        list(responses(answer, method))
    except HTTPException:
        return False
    return True


def received(raw: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    return b"".join(iter(lambda: raw.recv(1 << 16), b""))


class Received(io.BytesIO):
    """Bytes that `http.client` takes for a socket."""

    def makefile(self, _: str) -> "Received":
        return self

    def close(self) -> None:
        """A response closes it, and others follow."""


def responses(answer: bytes, method: bytes = b"POST") -> Iterator[tuple[int, bytes]]:
    """The status and the body of each."""
    received = Received(answer)
    if answer.startswith(b"HTTP/1.1 400"):
        method = b"POST"  # what cannot be parsed gets a body, whatever it meant
    while received.tell() < len(answer):
        response = HTTPResponse(received, method=method.decode("latin-1"))  # type: ignore[arg-type]
        response.begin()
        yield response.status, response.read()


def statuses(answer: bytes, method: bytes = b"POST") -> list[int]:
    """Of each response; every error must have OpenAI's shape, and none be of the server's making."""
    found = []
    for status, body in responses(answer, method):
        found.append(status)
        assert status < 500, answer
        if status >= 400 and method != b"HEAD":
            assert set(json.loads(body)["error"]) == SHAPE, answer
    return found


def request(
    path: bytes, body: bytes, kind: str = "application/json", *, method: bytes = b"POST", version: bytes = b"HTTP/1.1",
    off: int = 0, more: bytes = b"", stays: bool = False,
) -> bytes:  # fmt: skip
    """`off` is added to the length of the body."""
    own = f"Host: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body) + off}\r\n".encode("latin-1")
    own += b"" if stays else b"Connection: close\r\n"
    return method + b" " + path + b" " + version + b"\r\n" + own + more + b"\r\n" + body


def broken(rng: random.Random, good: Mapping[str, Any]) -> tuple[bytes, list[bytes]]:
    """The method and the bytes of one connection, in the parts that they are sent in; `good` are bodies by path."""
    name = rng.choice(list(good))
    path, body = name.encode(), json.dumps(good[name]).encode()
    first, whole, place = request(path, body, stays=True), request(path, body), rng.randrange(len(body))
    ways = {
        "truncated": lambda: whole[: rng.randrange(len(whole))],
        "slow": lambda: [whole[i : i + 40] for i in range(0, len(whole), 40)],
        "pipelined": lambda: first * rng.randint(1, 3) + whole,
        "pipelined, then broken": lambda: first + rng.choice((whole[:-5], *NO_HTTP)),
        "huge headers": lambda: request(
            path, body, more=b"X: " + b"y" * rng.choice((1_000, 70_000, 200_000)) + b"\r\n"
        ),
        "many headers": lambda: request(path, body, more=b"X: y\r\n" * rng.choice((100, 20_000))),
        "not UTF-8": lambda: request(path, body[:place] + rng.choice(HALF) + body[place:]),
        "another type": lambda: request(path, rng.choice((body, *FORM)), rng.choice(TYPES)),
        "a form": lambda: request(path, rng.choice(FORM), "multipart/form-data; boundary=x"),
        "another length": lambda: request(path, body, off=rng.choice((-5, 5, 10**9, -len(body)))),
        "odd header": lambda: request(path, body, more=rng.choice(HEADERS) + b"\r\n"),
        "odd target": lambda: request(rng.choice(TARGETS), body),
        "odd version": lambda: request(path, body, version=rng.choice(VERSIONS)),
        "chunked": lambda: chunked(rng, path, body),
        "not HTTP": lambda: rng.choice(NO_HTTP),
        "damaged": lambda: damaged(rng, whole),
    }
    method = b"POST"
    if rng.random() < 0.1:
        method = rng.choice(METHODS)
        return method, [request(rng.choice((path, *TARGETS)), body, method=method)]
    parts = ways[rng.choice(list(ways))]()
    return method, parts if isinstance(parts, list) else [parts]


def chunked(rng: random.Random, path: bytes, body: bytes) -> bytes:
    head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    size = rng.choice((b"%x" % len(body), b"%x" % (len(body) + 3), b"-1", b"zz", b"f" * 40, b"%x;ext=\xff" % len(body)))
    return head + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\n" + body + b"\r\n0\r\n\r\n"


def damaged(rng: random.Random, whole: bytes) -> bytes:
    cut = rng.randrange(len(whole))
    return whole[:cut] + rng.randbytes(rng.randrange(1, 4)) + whole[cut + rng.randrange(2) :]
