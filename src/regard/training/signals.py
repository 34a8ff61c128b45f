"""Ctrl-C, SIGTERM and SIGHUP: the first sets a flag that the loop reads between steps, a second stops at once."""

import os
import signal
import threading
import time
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ECHO = 5.0  # seconds in which torchrun may pass on the same signal once more


class Interrupts:
    """`with Interrupts() as stop:` … `if stop.signal:`. Set `at_once` when there is nothing left to save."""

    def __init__(self):
        self.signal = 0
        self.at_once = False
        self.came = 0.0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # the only one that gets signals in Python
            nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # then the run outlives its terminal
            handled = [number for number in SIGNALS if not (nohup and number == signal.SIGHUP)]
            self.before = {number: signal.signal(number, self._handle) for number in handled}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.signal and "TORCHELASTIC_RUN_ID" in os.environ and time.monotonic() - self.came < ECHO:
            return
        self.came = time.monotonic()
        if self.signal or self.at_once:
            self.signal = number
            raise self.exit()
        self.signal = number

    def exit(self) -> SystemExit:
        """130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP, as shells expect."""
        return SystemExit(128 + self.signal)
