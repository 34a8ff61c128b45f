"""A model on a `regard serve`, used like a local one."""

import json
import os
from collections.abc import Iterator, Sequence
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from regard.errors import ConfigError, DataError, RegardError

PATIENCE = 600.0  # seconds without an answer


class RemoteModel:
    """The model `name` on the server at an address; the key comes from the environment, REGARD_API_KEY."""

    def __init__(self, server: str, name: str):
        if urlsplit(server).scheme not in ("http", "https") or not urlsplit(server).netloc:
            raise ConfigError(f"--server {server}: expected an address, such as http://127.0.0.1:8000")
        self.server, self.name = server.rstrip("/").removesuffix("/v1"), name
        about = json.load(self.request(f"/v1/models/{quote(name, safe='')}"))
        self.reads: str = about["reads"]
        self.columns = tuple(about["input"].get("properties", ()))  # of a model that reads rows

    def request(self, path: str, body: Any = None) -> HTTPResponse:
        headers = {"content-type": "application/json"}
        if key := os.environ.get("REGARD_API_KEY"):
            headers["authorization"] = f"Bearer {key}"
        data = None if body is None else json.dumps(body).encode()
        try:
            return urlopen(Request(self.server + path, data, headers), timeout=PATIENCE)
        except HTTPError as e:
            raise refused(e) from None
        except (URLError, HTTPException, OSError) as e:
            why = getattr(e, "reason", e)
            raise DataError(f"{self.server} does not answer ({why})", "is it running? type: regard serve …") from None

    def chat(self, messages: Sequence[dict[str, str]], **settings: Any) -> Iterator[str]:
        """The answer to a dialogue, a piece at a time, as from `Writer.chat`."""
        body = {"model": self.name, "messages": list(messages), "stream": True, **settings}
        with self.request("/v1/chat/completions", body) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise DataError(event["error"]["message"])
                yield from (choice["delta"].get("content") or "" for choice in event["choices"])

    def predict(self, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The output for each input, as `/v1/predict` returns it."""
        path = f"/v1/predict/{quote(self.name, safe='')}"
        with self.request(path, {"inputs": list(inputs), "options": options}) as answer:
            return json.load(answer)["outputs"]


def refused(e: HTTPError) -> RegardError:
    """The error for a request that the server refused."""
    try:
        message = json.loads(e.read())["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return DataError(f"{e.url} answered {e.code} {e.reason}; is it the address of regard serve?")
    hint = "; set REGARD_API_KEY" if e.code == 401 else ""
    return DataError(f"the server refused the request: {message}{hint}")
