"""The log of a run: each event is a line of JSON, a line on stderr, and a point for each of its trackers.

Every event has `step` and `seconds`. Training events carry loss, norm, lr, targets_per_second (with their `unit`, if
that is not tokens) and skipped; evaluations carry held_out_loss, the task's and the recipe's metrics, and whether they
are the best so far (better); the last event (final) names the model that was kept.
"""

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regard.checkpoint import write_atomic, write_failed
from regard.jsonfile import parse
from regard.ticks import PATIENT, can_overwrite, end_passing, say
from regard.training.overfitting import Curve
from regard.training.track import Tracker, open_trackers
from regard.words import duration, metric_name

Event = dict[str, Any]


class Log:
    def __init__(
        self,
        folder: Path,
        step: int,
        quiet: bool = False,
        on_log: Callable[[Event], None] | None = None,
        track: str = "",
        settings: Mapping[str, Any] = {},
    ):
        """Continue after `step`; later events, from before an interruption, are dropped. `track` names a tracker, which
        is given the run's `settings`."""
        path = folder / "metrics.jsonl"
        self.curve = Curve()
        for event in keep_until(path, step):
            self.curve.add(event)
        self.path, self.file = path, open(path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        self.trackers = open_trackers(folder, step, track, settings)
        self.quiet, self.on_log = quiet, on_log
        self.live = can_overwrite()
        self.spoken = 0.0
        self.warned: set[str] = set()

    def __call__(self, event: Event, text: str = "", passing: bool = False) -> None:
        """Record an event. `text` is printed; if `passing`, it may be overwritten or left out."""
        line = json.dumps({name: _plain(value) for name, value in event.items()}) + "\n"
        try:
            self.file.write(line.encode())
        except OSError as e:
            raise write_failed(self.path, e) from e
        numbers = {name: value for name, value in event.items() if name != "step" and isinstance(value, int | float)}
        self.track(lambda tracker: tracker.add(numbers, event["step"]))
        self.curve.add(event)
        if text:
            self.say(text, passing)
        if self.on_log:
            self.on_log(event)

    def say(self, text: str, passing: bool = False) -> None:
        if self.quiet:
            return
        if passing and not self.live:
            if time.monotonic() - self.spoken < PATIENT:
                return
            self.spoken = time.monotonic()
        say(text, passing and self.live)

    def warn(self, text: str) -> None:
        """Print a warning once, even if its figures change; what comes before the colon identifies it."""
        topic = text.partition(":")[0]
        if topic and topic not in self.warned:
            self.say(text)
            self.warned.add(topic)

    def close(self) -> None:
        end_passing()
        self.file.close()
        self.track(lambda tracker: tracker.close())

    def track(self, act: Callable[[Tracker], None]) -> None:
        """Let each tracker act. A tracker that fails, for example because its server is down, is dropped."""
        for tracker in list(self.trackers):
            try:
                act(tracker)
            except Exception as e:
                self.trackers.remove(tracker)
                self.warn(f"{type(tracker).__name__} failed; logging to it has stopped: {type(e).__name__}: {e}")


class NoLog(Log):
    """The log of the other ranks, which writes and prints nothing."""

    def __init__(self):
        self.curve = Curve()

    def __call__(self, event: Event, text: str = "", passing: bool = False) -> None:
        self.curve.add(event)

    def say(self, text: str, passing: bool = False) -> None:
        pass

    def warn(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


def keep_until(path: Path, step: int) -> list[Event]:
    """Drop the events after `step`, final ones, and a last line cut short; return those that are kept."""
    if not os.path.lexists(path):
        return []
    kept, events = [], []
    for line in (path.read_bytes() if path.is_file() else b"").splitlines(keepends=True):
        try:
            event = parse(line)
            if line.endswith(b"\n") and event["step"] <= step and not event.get("final"):
                kept.append(line)
                events.append(event)
        except (ValueError, KeyError, TypeError):
            continue
    write_atomic(path, b"".join(kept))
    return events


def _plain(value: Any) -> Any:
    """JSON has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def train_text(event: Event, steps: int, seconds_per_step: float) -> str:
    unit = event.get("unit", "tokens")
    left = f" · {duration((steps - event['step']) * seconds_per_step)} left" if steps else ""
    used = f" · {event['mfu']:.0%} of the device's peak" if event.get("mfu") else ""
    skipped = f" · {event['skipped']} skipped" if event["skipped"] else ""
    return (
        f"step {event['step']}/{steps or '?'} · loss {event['loss']:.3f} · {event['targets_per_second']:,.0f} {unit}/s"
        f" · lr {event['lr']:.2e}{used}{left}{skipped}"
    )


def metrics_text(event: Event) -> str:
    hidden = ("step", "seconds", "final", "best", "kept")
    return " · ".join(f"{metric_name(k)} {v:.3f}" for k, v in event.items() if k not in hidden and isinstance(v, float))
