"""The one format of errors, OpenAI's, whose clients raise them as their own exceptions."""

from typing import Any

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


def error_body(status: int, message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The body of a response with this status; `param` is the wrong field."""
    usual = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": TYPES.get(status, usual), "param": param, "code": code}}
