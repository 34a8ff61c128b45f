"""Limits on the number and duration of requests, and the access log."""

import asyncio
import json
import os
import time
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any

from regard.serve.api.errors import APIError, send_error
from regard.serve.api.limits import RequestLimits
from regard.serve.guard import App, Message, Receive, Send

Scope = MutableMapping[str, Any]
STDERR = 2
LOGGED = 16 << 10  # bytes of a request, and of its response, in the log
LAST = 5.0  # seconds in which a client must read the last event of a stream that timed out
READING = ("GET", "HEAD", "OPTIONS")  # cheap: answered however busy the models are


class Admission:
    """ASGI middleware: limits requests at a time and their duration, and refuses new ones while the server stops."""

    def __init__(self, app: App, limits: RequestLimits):
        self.app, self.limits = app, limits
        self.active = 0
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in READING:
            await self.app(scope, receive, send)
            return
        if self.draining:
            await send_error(send, APIError(503, "the server is stopping; try another one", None, "draining"))
            return
        if self.active >= self.limits.requests:
            what = f"{self.active} requests are under way, the limit of this server; try again later"
            await send_error(send, APIError(429, what, None, "too_many_requests"))
            return
        started: list[Message] = []

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message)
            await send(message)

        self.active += 1
        try:
            async with asyncio.timeout(self.limits.seconds):
                await self.app(scope, receive, noted)
        except TimeoutError:
            error = APIError(504, f"this took more than {self.limits.seconds:g} s", None, "timeout")
            if started:  # a stream: the error is its last event, unless the client has stopped reading
                event = b"data: " + json.dumps(error.body()).encode() + b"\n\n"
                with suppress(TimeoutError):
                    last = send({"type": "http.response.body", "body": event, "more_body": False})
                    await asyncio.wait_for(last, LAST)
            else:
                await send_error(send, error)
        finally:
            self.active -= 1


class AccessLog:
    """ASGI middleware: logs a line of JSON per request; what was asked and answered is part of it only with `texts`."""

    def __init__(self, app: App, observe: Callable[[str, int, float], None], quiet: bool, texts: bool = False):
        self.app, self.observe, self.quiet, self.texts = app, observe, quiet, texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = time.monotonic(), [499]  # client gone, unless a response begins
        request, response = bytearray(), bytearray()

        async def heard() -> Message:
            message = await receive()
            self.keep(request, message)
            return message

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            self.keep(response, message)
            await send(message)

        try:
            await self.app(scope, heard, noted)
        finally:
            seconds = time.monotonic() - begin
            self.observe(scope["path"], status[0], seconds)
            if not self.quiet:
                self.write(scope, status[0], seconds, {"request": request, "response": response})

    def keep(self, text: bytearray, message: Message) -> None:
        if self.texts:
            text += message.get("body", b"")[: LOGGED - len(text)]

    def write(self, scope: Scope, status: int, seconds: float, texts: dict[str, bytearray]) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = {"time": now, "client": (scope.get("client") or ("",))[0], "method": scope["method"]}
        line |= {"path": scope["path"][:200], "status": status, "ms": round(1000 * seconds, 1)}
        line |= {name: text.decode("utf-8", "replace") for name, text in texts.items() if text}
        write_log(json.dumps(line))


def write_log(line: str) -> None:
    """Write a line to the log; if the disk is full, drop it."""
    with suppress(OSError):
        os.write(STDERR, f"{line}\n".encode())
