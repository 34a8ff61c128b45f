"""What the server pushes to a page: the progress of its work, new models, new lines of a run."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.jsonfile import expect, parse
from regard.serve.studio import Studio

QUIET = 1.0  # seconds between scans of the folders
PART = 1 << 20  # bytes of a run's metrics, at a time


def events_of(path: Path, start: int) -> dict[str, Any]:
    """The complete lines of a run's metrics from an offset on; from the start if the file has become shorter."""
    again = not 0 <= start <= path.stat().st_size
    begin = 0 if again else start
    with path.open("rb") as file:
        file.seek(begin)
        data = file.read(PART)
    whole = data[: data.rfind(b"\n") + 1]
    events = []
    for line in whole.splitlines():
        with suppress(ValueError):
            events.append(expect(parse(line), dict))
    return {"events": events, "next": begin + len(whole), "restart": again}


async def news(studio: Studio, tab: str, gone: Callable[[], Any]) -> AsyncIterator[str]:
    """One stream a tab: progress of its own work, new models, new lines of any run."""
    queue = studio.listen(tab)
    shelf, seen = studio.shelf.stamp(), sizes(studio)
    try:
        yield event("hello", {})
        while not studio.closing.is_set():
            try:
                yield event(*await asyncio.wait_for(queue.get(), QUIET))
                continue
            except TimeoutError:
                pass
            if await gone():
                return
            now, lengths = await asyncio.to_thread(lambda: (studio.shelf.stamp(), sizes(studio)))
            if now != shelf:
                yield event("models", {})
            for run in [run for run, size in lengths.items() if seen.get(run) != size]:
                yield event("metrics", {"run": run})
            shelf, seen = now, lengths
        yield event("bye", {})
    finally:
        studio.leave(tab, queue)


def sizes(studio: Studio) -> dict[str, int]:
    return {run["id"]: run["bytes"] for run in studio.shelf.runs()}


def event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
