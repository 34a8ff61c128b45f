"""One thread that runs the models, one job at a time. A job without a sign of life is left alone with its thread."""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from regard.errors import WorkFailed

PATIENCE = 60.0  # seconds without a sign of life


class Worker:
    """A daemon: whatever a library is stuck in must not keep the program from ending."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[tuple[Future, Callable[[], Any]] | None] = queue.SimpleQueue()
        self.deadline = float("inf")  # by when the running job owes a sign of life
        self.thread = threading.Thread(target=self.run, name="regard-model", daemon=True)
        self.thread.start()

    def submit(self, job: Callable[[], Any]) -> Future:
        future: Future = Future()
        self.jobs.put((future, job))
        return future

    def alive(self, more: float = 0.0) -> None:
        """A sign of life; the next one may take so many seconds more than usual."""
        self.deadline = time.monotonic() + PATIENCE + more

    @property
    def stuck(self) -> bool:
        return time.monotonic() > self.deadline

    @property
    def current(self) -> bool:
        """Whether it is this worker that asks."""
        return threading.current_thread() is self.thread

    def run(self) -> None:
        while (item := self.jobs.get()) is not None:
            future, job = item
            if not future.set_running_or_notify_cancel():
                continue
            self.alive()
            try:
                future.set_result(job())
            except Exception as e:
                future.set_exception(e)
            except BaseException as e:  # a panic in a library, which the server's loop would not survive
                why = f"the model broke the program ({type(e).__name__}); choose another one"
                future.set_exception(WorkFailed(why))
            self.deadline = float("inf")

    def close(self) -> None:
        """Nothing more begins; what waits is cancelled, and the thread ends with what it is doing."""
        while True:
            try:
                item = self.jobs.get_nowait()
            except queue.Empty:
                break
            if item is not None:
                item[0].cancel()
        self.jobs.put(None)
