"""The limits of a request; each has its own error."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from regard.serve.api.errors import APIError

if TYPE_CHECKING:
    from regard.serve.api.bodies import SamplingBody


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    body: int = 32 << 20  # bytes
    inputs: int = 2_048  # per request
    n: int = 128  # completions per prompt
    max_tokens: int = 1 << 20
    requests: int = 512  # at the same time, waiting ones included
    seconds: float = 600.0  # per request
    drain: float = 30.0  # seconds for requests under way when the server stops

    def check_inputs(self, count: int, param: str) -> None:
        over(count, self.inputs, f"{param} holds", param)

    def check_sampling(self, body: "SamplingBody") -> None:
        over(body.n or 1, self.n, "n is", "n")
        over(body.sampling(0).get("max_tokens", 1), self.max_tokens, "max_tokens is", "max_tokens")


def over(value: int, most: int, what: str, param: str) -> None:
    if value > most:
        raise APIError(422, f"{what} {value:,}; this server allows at most {most:,}", param, "limit_exceeded")
