"""Which requests are served: to a host name of ours, not from another site, and with a key if one is set."""

import asyncio
import base64
import hmac
import ipaddress
import re
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import ConfigError
from regard.serve.api.errors import APIError, send_error
from regard.serve.guard import App, Message, Receive, Send, other_site, read, with_body

ORIGIN = re.compile(r"https?://[a-z0-9.\-]+(:\d+)?|https?://\[[0-9a-f:]+\](:\d+)?")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
OPEN = ("/health",)  # for probes, which send an IP address as the host and no key
SLOWEST = 60.0  # seconds that a body may take to arrive


@dataclass(frozen=True, kw_only=True)
class Access:
    """Where the server listens, and which clients it serves."""

    host: str = "127.0.0.1"
    keys: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()  # the server's names, besides IP addresses and localhost
    allowed_origins: tuple[str, ...] = ()  # of other sites' pages that may send requests
    manage: bool = False  # whether clients may load and unload models

    def __post_init__(self):
        if not self.local and not self.keys:
            raise ConfigError(
                f"--host {self.host} can be reached from other machines, where anybody could use the models; "
                "add --api-key-file FILE, or set REGARD_API_KEY"
            )
        for key in self.keys:
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise ConfigError("an API key consists of printable ASCII characters, without spaces")
        for name in self.allowed_hosts:
            if not name or name != hostname(name):
                raise ConfigError(f"--allow-host {name}: expected a name in lower case, such as models.example.org")
        for origin in self.allowed_origins:
            if not ORIGIN.fullmatch(origin):
                raise ConfigError(f"--allow-origin {origin}: expected scheme and host, such as https://app.example.org")

    @property
    def local(self) -> bool:
        return self.host in LOOPBACK or is_address(self.host, loopback=True)

    def check(self, path: str, headers: dict[str, str]) -> None:
        """Raise `APIError` for a request that is not allowed."""
        if path not in OPEN:
            self.check_site(headers)
            self.check_key(headers)

    def check_site(self, headers: dict[str, str]) -> None:
        full = headers.get("host", "").strip().lower()
        host = hostname(full)
        if not (host in (*LOOPBACK, self.host, *self.allowed_hosts) or is_address(host, loopback=self.local)):
            what = f"this server is not called {host[:80]!r}"
            raise APIError(403, f"{what}; add --allow-host, or use its IP address", None, "host_not_allowed")
        if other_site(headers, (f"http://{full}", f"https://{full}", *self.allowed_origins)):
            site = headers.get("origin", "other sites")[:80]
            what = f"pages from {site!r} may not use this server; add --allow-origin"
            raise APIError(403, what, None, "origin_not_allowed")

    def check_key(self, headers: dict[str, str]) -> None:
        key = key_of(headers.get("authorization", ""))
        equal = [hmac.compare_digest(key.encode(), ours.encode()) for ours in self.keys]  # all, for constant time
        if self.keys and not any(equal):
            raise APIError(401, "expected a valid API key, as Authorization: Bearer KEY", None, "invalid_api_key")


def key_of(authorization: str) -> str:
    """The bearer token, or the password that a browser asked its user for."""
    scheme, _, key = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return key
    with suppress(ValueError):
        if scheme.lower() == "basic":
            return base64.b64decode(key, validate=True).decode("utf-8").partition(":")[2]
    return ""


def hostname(host: str) -> str:
    """The name in a Host header, without the port and the brackets of an IPv6 address."""
    host = host.strip().lower()
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def is_address(host: str, loopback: bool) -> bool:
    """Whether it is an IP address, which is safe from DNS rebinding."""
    try:
        return ipaddress.ip_address(host).is_loopback or not loopback
    except ValueError:
        return False


class AccessGuard:
    """ASGI middleware: checks access, then reads the body, at most `largest` bytes."""

    def __init__(self, app: App, access: Access, largest: int):
        self.app, self.access, self.largest = app, access, largest

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        shared = headers.get("origin", "").lower() in self.access.allowed_origins
        if shared:
            send = with_cors(send, headers)
        try:
            if shared and scope["method"] == "OPTIONS":  # a browser asks first, without the key
                self.access.check_site(headers)
                await send({"type": "http.response.start", "status": 204, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
            self.access.check(scope["path"], headers)
            body = await self.body(scope, headers, receive)
        except APIError as e:
            await send_error(send, e)
            return
        await self.app(scope, with_body(body, receive), send)

    async def body(self, scope: MutableMapping[str, Any], headers: dict[str, str], receive: Receive) -> bytes:
        if scope["method"] in ("GET", "HEAD", "OPTIONS", "DELETE"):
            return b""
        kind = headers.get("content-type", "").split(";")[0].strip().lower()
        if kind not in ("application/json", "multipart/form-data"):
            raise APIError(415, f"the content type is {kind or 'missing'}; expected application/json")
        try:
            body = await asyncio.wait_for(read(receive, self.largest), SLOWEST)
        except TimeoutError:
            raise APIError(408, f"the body did not arrive within {SLOWEST:.0f} s") from None
        if body is None:
            raise APIError(413, f"the body is larger than {self.largest:,} bytes, the limit of this server")
        return body


def with_cors(send: Send, headers: dict[str, str]) -> Send:
    """`send` with the headers that let a page of another origin read the answer."""
    cors = {
        "access-control-allow-origin": headers["origin"],
        "access-control-allow-methods": "GET, POST, DELETE",
        "access-control-allow-headers": headers.get("access-control-request-headers", "authorization, content-type"),
        "access-control-expose-headers": "retry-after",
        "access-control-max-age": "600",
        "vary": "origin",
    }

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(name.encode(), value.encode("latin-1")) for name, value in cors.items()]
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await send(message)

    return sent


def read_keys(keys: Sequence[str], file: str, variable: str) -> tuple[str, ...]:
    """The keys from the command line, a file with one per line, and an environment variable."""
    try:
        lines = Path(file).read_text("utf-8").splitlines() if file else []
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not UTF-8 text; --api-key-file expects one key per line") from None
    return tuple(key.strip() for key in (*keys, *lines, variable) if key.strip())
