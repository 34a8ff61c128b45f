"""What the page polls for: new models, new lines of a run, and the progress of its own request."""

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.jsonfile import expect, parse
from regard.serve.shelf import Shelf

SCAN = 0.5  # seconds for which a scan of the folders is reused by all tabs
PART = 1 << 20  # bytes of a run's metrics per response


def events_of(path: Path, start: int) -> dict[str, Any]:
    """The complete lines of a run's metrics from an offset on; from the start if the file got shorter."""
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


class Scan:
    """Fingerprints of all models and of all runs' metrics."""

    def __init__(self, shelf: Shelf):
        self.shelf, self.lock = shelf, threading.Lock()
        self.last, self.until = {}, 0.0

    def __call__(self) -> dict[str, str]:
        with self.lock:
            if time.monotonic() > self.until:
                sizes = tuple((run["id"], run["bytes"]) for run in self.shelf.runs())
                self.last = {"models": str(self.shelf.stamp()), "metrics": str(hash(sizes))}
                self.until = time.monotonic() + SCAN
            return self.last
