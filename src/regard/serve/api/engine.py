"""The server's side of the engine process: start it, talk to it, and restart it when it dies."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from regard.config import unknown
from regard.data.folders import user_path
from regard.serve.api.errors import APIError
from regard.serve.api.lanes import LaneSettings, Message
from regard.serve.api.traffic import write_log

COMMAND = (sys.executable, "-P", "-m", "regard.serve.api.process")
LINE = 1 << 28  # bytes of a message
PAUSE, LONGEST_PAUSE = 0.25, 30.0  # seconds before a dead engine is restarted, doubled each time
LOOK_EVERY = 1.0  # seconds between checks of runs that are followed
WEIGHTS = "model.safetensors"  # the file of a run folder that is written last
# oneDNN keeps a kernel of about 100 KB for each shape of a product, by default 1,024; a batch of any size has its own
BOUNDED = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64"}


@dataclass
class ServedModel:
    """The state of a model: `about` is set once it is ready, `failed` if it cannot be loaded."""

    name: str
    path: str
    created: int = 0
    about: dict[str, Any] | None = None
    failed: str = ""
    follow: bool = False  # whether to reload the model whenever its run has a better one
    version: tuple[int, ...] = ()  # of the weights last loaded, if the run is followed

    @property
    def state(self) -> str:
        if self.follow and not self.version:
            return "waiting for the first model of its run"
        return "ready" if self.about else f"failed: {self.failed}" if self.failed else "loading"

    def newest(self) -> tuple[int, ...]:
        """The version of the weights now in the folder; empty if there are none yet."""
        try:
            file = (user_path(self.path) / WEIGHTS).stat()
        except OSError:
            return ()
        return file.st_mtime_ns, file.st_ino, file.st_size


Observe = Callable[[str, Message], None]


def ignore(model: str, message: Message) -> None:
    """An `Observe` that does nothing."""


class EngineClient:
    """Sends requests to the engine process and returns its answers."""

    def __init__(self, models: Sequence[ServedModel], settings: LaneSettings):
        self.models = {model.name: model for model in models}
        self.settings = settings
        self.process: asyncio.subprocess.Process | None = None
        self.waiting: dict[int, asyncio.Queue[Message]] = {}
        self.ids, self.load_ids = count(1), count(1)
        self.loads: dict[int, asyncio.Future[str]] = {}  # by id; the result is why it failed
        self.closing = False
        self.on_stats: Observe = ignore
        self.on_written: Observe = ignore
        self.on_start: Callable[[], None] = lambda: None

    # -- the process ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep an engine process running until `close`."""
        pause, following = PAUSE, asyncio.create_task(self.follow())
        while not self.closing:
            ready = await self.run_process()
            if self.closing:
                break
            self.on_death()
            pause = PAUSE if ready else min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(pause)
        following.cancel()

    def on_death(self) -> None:
        """Fail all pending requests; the next process loads the models again."""
        for done in self.loads.values():
            done.done() or done.set_result("the engine stopped")
        self.loads.clear()
        for inbox in self.waiting.values():
            inbox.put_nowait({"error": vars(dead()), "last": True})
        for model in self.models.values():
            model.about, model.failed, model.version = None, "", ()

    async def run_process(self) -> bool:
        """Run one process from start to end; return whether any model became ready."""
        self.on_start()
        self.process = process = await asyncio.create_subprocess_exec(
            *COMMAND, json.dumps(asdict(self.settings)),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=LINE,
            env=BOUNDED | os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )  # fmt: skip
        assert process.stdout is not None
        for model in self.models.values():
            self.load_if_new(model) if model.follow else self.send_load(model.name, model.path)
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

    def send_load(self, name: str, path: str) -> int:
        id = next(self.load_ids)
        self.send({"do": "load", "id": id, "model": name, "path": path})
        return id

    async def follow(self) -> None:
        """Reload the models of followed runs when their weights change."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            for model in [model for model in self.models.values() if model.follow]:
                self.load_if_new(model)

    def load_if_new(self, model: ServedModel) -> None:
        version = model.newest()
        if version and version != model.version:
            model.version = version
            self.send_load(model.name, model.path)

    async def load(self, name: str, path: str) -> ServedModel:
        """Serve the model at `path` under `name`. A model that had the name finishes its pending requests."""
        done = asyncio.get_running_loop().create_future()
        self.loads[self.send_load(name, path)] = done
        if failed := await done:
            raise APIError(422, failed, "path", "model_failed")
        model = self.models[name]
        model.path, model.follow = path, False
        return model

    def unload(self, name: str) -> None:
        """Accept no new requests for this model; pending ones are answered."""
        del self.models[name]
        self.send({"do": "unload", "model": name})

    def on_load(self, message: Message) -> None:
        name, failed, done = message["model"], message.get("failed", ""), self.loads.pop(message.get("id", 0), None)
        if done is not None and not done.done():
            done.set_result(failed)
        if name not in self.models and done is not None and not failed:
            self.models[name] = ServedModel(name, "")
        model = self.models.get(name)
        if failed:
            write_log(f"regard: {name} is not served: {failed}")
        elif model is not None:
            model.about, model.failed, model.created = message["ready"], "", int(time.time())
        if model is not None and not model.about:
            model.failed = failed

    def receive(self, message: Message) -> None:
        if "model" in message:
            self.on_load(message)
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
        return all(model.state != "loading" for model in models) and any(model.about for model in models)

    def find(self, name: str, endpoint: str) -> ServedModel:
        """The model that a request names; `APIError` if it is not ready or not for the endpoint."""
        if name not in self.models:
            raise self.missing(name)
        model = self.models[name]
        if model.failed:
            raise APIError(503, f"the model {name!r} could not be loaded: {model.failed}", "model", "model_failed")
        if model.about is None:
            raise APIError(503, f"the model {name!r} is not ready: {model.state}; try again", "model", "model_loading")
        if endpoint not in model.about["endpoints"]:
            ways = ", ".join(path_of(e, name) for e in model.about["endpoints"])
            raise APIError(400, f"{name!r} is not a model for {path_of(endpoint, name)}; use {ways}", "model")
        return model

    def missing(self, name: str) -> APIError:
        return APIError(404, str(unknown("model", name, self.models)), "model", "model_not_found")

    async def ask(self, model: ServedModel, do: str, **message: Any) -> AsyncGenerator[Message, None]:
        """The answers to a request, as they arrive. Closing the generator cancels the request."""
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
        "the engine crashed during this request and is restarting; try again",
        None,
        "engine_restarted",
    )
