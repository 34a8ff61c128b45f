"""The server's side of the engine's process: start it, talk with it, and start it again when it dies."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from regard.config import unknown
from regard.serve.api.errors import APIError
from regard.serve.api.lanes import LaneSettings, Message

COMMAND = (sys.executable, "-P", "-m", "regard.serve.api.process")
LINE = 1 << 28  # bytes of a message
PAUSE, LONGEST_PAUSE = 0.25, 30.0  # seconds before a dead engine is started again, twice as long each time


@dataclass
class ServedModel:
    """A model as the server knows it: `about` once it is ready, `failed` if it cannot be loaded."""

    name: str
    path: str
    created: int = 0
    about: dict[str, Any] | None = None
    failed: str = ""


Observe = Callable[[str, Message], None]


def ignore(model: str, message: Message) -> None:
    """For who wants no numbers."""


class EngineClient:
    """Requests to the models of one engine's process, and their answers."""

    def __init__(self, models: Sequence[ServedModel], settings: LaneSettings):
        self.models = {model.name: model for model in models}
        self.settings = settings
        self.process: asyncio.subprocess.Process | None = None
        self.waiting: dict[int, asyncio.Queue[Message]] = {}
        self.ids = count(1)
        self.closing = False
        self.on_stats: Observe = ignore
        self.on_written: Observe = ignore
        self.on_start: Callable[[], None] = lambda: None

    # -- the process ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a process running until `close`."""
        pause = PAUSE
        while not self.closing:
            ready = await self.live()
            if self.closing:
                return
            for inbox in self.waiting.values():
                inbox.put_nowait({"error": vars(dead()), "last": True})
            for model in self.models.values():
                model.about, model.failed = None, ""
            pause = PAUSE if ready else min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def live(self) -> bool:
        """One process, from its start to its end; whether any model became ready."""
        self.on_start()
        self.process = process = await asyncio.create_subprocess_exec(
            *COMMAND, json.dumps(asdict(self.settings)),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )  # fmt: skip
        assert process.stdout is not None
        for model in self.models.values():
            self.send({"do": "load", "model": model.name, "path": model.path})
        try:
            while line := await process.stdout.readline():
                self.receive(json.loads(line))
        except ValueError:  # a message of more than `LINE` bytes
            process.kill()
        await process.wait()
        return any(model.about for model in self.models.values())

    def send(self, message: Message) -> None:
        if self.process is not None and self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.write(json.dumps(message).encode() + b"\n")

    def receive(self, message: Message) -> None:
        if "model" in message:
            model = self.models[message["model"]]
            model.about, model.failed = message.get("ready"), message.get("failed", "")
            if model.failed:
                print(f"regard: {model.name} is not served: {model.failed}", file=sys.stderr, flush=True)
        elif "stats" in message:
            self.on_stats(message["from"], message["stats"])
        elif (inbox := self.waiting.get(message["id"])) is not None:
            inbox.put_nowait(message)
            if "between" in message:
                self.on_written(message["from"], message)

    async def close(self) -> None:
        self.closing = True
        if self.process is not None and self.process.returncode is None:
            assert self.process.stdin is not None
            self.process.stdin.close()  # it ends with its stdin
            try:
                await asyncio.wait_for(self.process.wait(), 5)
            except TimeoutError:
                self.process.kill()

    # -- requests -------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether every model is ready or has failed, and one is ready."""
        models = self.models.values()
        return all(model.about or model.failed for model in models) and any(model.about for model in models)

    def find(self, name: str, endpoint: str) -> ServedModel:
        """The model that a request names, which must be one for the endpoint."""
        if name not in self.models:
            error = unknown("model", name, self.models)
            raise APIError(404, f"{error}", "model", "model_not_found")
        model = self.models[name]
        if model.failed:
            raise APIError(503, f"the model {name!r} could not be loaded: {model.failed}", "model", "model_failed")
        if model.about is None:
            raise APIError(503, f"the model {name!r} is being loaded; try again", "model", "model_loading")
        if endpoint not in model.about["endpoints"]:
            ways = ", ".join(path_of(e, name) for e in model.about["endpoints"])
            raise APIError(400, f"{name!r} is not a model for {path_of(endpoint, name)}; use {ways}", "model")
        return model

    async def ask(self, model: ServedModel, do: str, **message: Any) -> AsyncGenerator[Message, None]:
        """The answers to a request, as they come. Closing the generator cancels it."""
        id, inbox, last = next(self.ids), asyncio.Queue[Message](), False
        self.waiting[id] = inbox
        try:
            self.send({"do": do, "id": id, "model": model.name, **message})
            while not last:
                answer = await inbox.get()
                last = "error" in answer or answer["last"]
                if "error" in answer:
                    raise APIError(**answer["error"])
                yield answer
        finally:
            del self.waiting[id]
            if not last:
                self.send({"do": "cancel", "id": id, "model": model.name})


PATHS = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
    "transcriptions": "/v1/audio/transcriptions",
}


def path_of(endpoint: str, model: str) -> str:
    return PATHS.get(endpoint, f"/v1/predict/{model}")


def dead() -> APIError:
    return APIError(
        503,
        "the engine stopped while it worked on this and is being started again; try again",
        None,
        "engine_restarted",
    )
