"""Errors in OpenAI's format, which its clients raise as their own exceptions."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from regard.errors import CheckpointError, LimitError, PromptTooLong, RegardError
from regard.serve.errors import error_body


class APIError(Exception):
    """An error response: its status, its message, and the field it is about."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    def body(self) -> dict[str, Any]:
        return error_body(self.status, self.message, self.param, self.code)

    def headers(self) -> list[tuple[bytes, bytes]]:
        if self.status == 401:
            return [(b"www-authenticate", b"Bearer"), (b"www-authenticate", b'Basic realm="regard"')]
        return [(b"retry-after", b"1")] if self.status in (429, 503) else []


def as_error(e: BaseException) -> dict[str, Any]:
    """An exception as the fields of an `APIError`, for the engine to report to the server."""
    if isinstance(e, APIError):
        return vars(e)
    if isinstance(e, RecursionError):
        return vars(too_deep())
    if isinstance(e, RegardError):
        code = "context_length_exceeded" if isinstance(e, PromptTooLong) else None
        status = 400 if code else 422 if isinstance(e, LimitError) else 500 if isinstance(e, CheckpointError) else 400
        return {"status": status, "message": str(e), "param": None, "code": code}
    if isinstance(e, MemoryError) or any(words in str(e).lower() for words in ("out of memory", "allocate memory")):
        return {"status": 503, "message": "out of memory; try again with less", "param": None, "code": "out_of_memory"}
    summary = f"{type(e).__name__}: {e}".splitlines()[0][:200]
    return {"status": 500, "message": f"this should not happen: {summary}", "param": None, "code": None}


def too_deep() -> APIError:
    return APIError(400, "the body is nested too deeply")


async def send_error(send: Callable[[dict[str, Any]], Awaitable[None]], e: APIError) -> None:
    """Send the error as a response, directly over ASGI."""
    body = json.dumps(e.body()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *e.headers()]
    await send({"type": "http.response.start", "status": e.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
