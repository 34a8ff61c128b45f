"""Requests below the application: what is not HTTP gets the same error as anything else, and what never ends is cut."""

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from regard.serve.api.errors import APIError

HEADERS = 30.0  # seconds until the first request of a connection must have begun


class ServerProtocol(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
    """One connection."""

    transport: Any
    cycle: Any  # the request that is being answered

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        asyncio.get_running_loop().call_later(HEADERS, self.close_if_silent)

    def close_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        body = json.dumps(APIError(400, msg).body()).encode()
        head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head.encode() + body)
        self.transport.close()
