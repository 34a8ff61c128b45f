"""HTTP below the application: malformed requests get our format of errors, and slow ones time out."""

import asyncio
import json

from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.serve.api.errors import APIError

HEADERS = 30.0  # seconds in which the head of a request must arrive


class ServerProtocol(H11Protocol):
    """One connection, parsed by h11 whatever else is installed: it limits headers to 64 KiB."""

    deadline: asyncio.TimerHandle | None = None  # of the head of the next request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.watch_head()

    def watch_head(self) -> None:
        """Close the connection unless the head of the next request is complete in time."""
        if self.cycle is None or self.cycle.response_complete:
            self.deadline = self.deadline or self.loop.call_later(HEADERS, self.transport.close)
        elif self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.deadline is not None:
            self.deadline.cancel()

    def send_400_response(self, msg: str) -> None:
        body = json.dumps(APIError(400, msg).body()).encode()
        head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head.encode() + body)
        self.transport.close()
