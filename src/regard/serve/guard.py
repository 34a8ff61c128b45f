"""Which requests are served: those of our own page in a browser on this machine, with bodies of limited size."""

import json
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from regard.serve.errors import error_body

LARGEST = 16 << 20  # bytes of a request body, which may hold a picture or a clip
DRAINED = 64 * 1024 * 1024  # bytes that are read and discarded, so that the browser sees the response
OURS = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Guard:
    """ASGI middleware that refuses other requests and adds security headers."""

    def __init__(self, app: App):
        self.app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", []), *((k.encode(), v.encode()) for k, v in HEADERS.items())
                ]  # fmt: skip
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if stop := stranger(headers, (scope.get("server") or ("", 0))[1]):
            await refuse(guarded, 403, *stop)
            return
        if scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, guarded)
            return
        if headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            await refuse(guarded, 415, "requests must be JSON", "send them as application/json")
            return
        body = await read(receive)
        if body is None:
            await refuse(guarded, 413, f"this is too large: more than {LARGEST >> 20} MB", "send a part of it")
            return
        await self.app(scope, with_body(body, receive), guarded)


def stranger(headers: dict[str, str], port: int) -> tuple[str, str] | None:
    """Why a request is not from our own page, and what to do; None if it is."""
    homes = [f"{name}:{port}" for name in OURS] + (list(OURS) if port == 80 else [])
    if headers.get("host", "").lower() not in homes:
        return "this studio answers this machine only", f"open http://127.0.0.1:{port}/"
    if other_site(headers, [f"http://{home}" for home in homes]):
        return "this request comes from another site", f"open http://127.0.0.1:{port}/ itself"
    return None


def other_site(headers: dict[str, str], origins: Collection[str]) -> bool:
    """Whether a browser sends this for a page that is not at one of our `origins`."""
    origin = headers.get("origin")
    if origin is not None and origin.lower() in origins:
        return False
    # requests for images and scripts have these headers and no origin; a link from another site may be followed
    site, dest = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-dest", "")
    return origin is not None or (site not in ("none", "same-origin") and dest != "document")


async def read(receive: Receive, largest: int = LARGEST) -> bytes | None:
    """The whole body; None if it is too large, in which case it is discarded as it arrives."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size <= largest:
            parts.append(part)
        if not message.get("more_body", False) or size > max(DRAINED, 2 * largest):
            return b"".join(parts) if size <= largest else None


def with_body(body: bytes, receive: Receive) -> Receive:
    """`receive` for an application whose request body was read already."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


async def refuse(send: Send, status: int, error: str, hint: str) -> None:
    body = json.dumps(error_body(status, error) | {"hint": hint}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
