"""One thread that runs the models, one job at a time. A job without a heartbeat is abandoned with its thread."""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from regard.errors import WorkFailed

PATIENCE = 60.0  # seconds without a heartbeat


class Worker:
    """A daemon thread, so that a hanging library does not keep the program from exiting."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[tuple[Future, Callable[[], Any]] | None] = queue.SimpleQueue()
        self.deadline = float("inf")  # of the running job's next heartbeat
        self.thread = threading.Thread(target=self.run, name="regard-model", daemon=True)
        self.thread.start()

    def submit(self, job: Callable[[], Any]) -> Future:
        future: Future = Future()
        self.jobs.put((future, job))
        return future

    def alive(self, more: float = 0.0) -> None:
        """A heartbeat; the next one may take `more` seconds longer than usual."""
        self.deadline = time.monotonic() + PATIENCE + more

    @property
    def stuck(self) -> bool:
        return time.monotonic() > self.deadline

    @property
    def current(self) -> bool:
        """Whether the caller runs in this worker."""
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
            except BaseException as e:  # a panic in a library would end the server's loop
                error = f"the model crashed ({type(e).__name__})"
                future.set_exception(WorkFailed(error, "choose another one"))
            self.deadline = float("inf")

    def close(self) -> None:
        """Cancel the waiting jobs; the thread ends after its current one."""
        while True:
            try:
                item = self.jobs.get_nowait()
            except queue.Empty:
                break
            if item is not None:
                item[0].cancel()
        self.jobs.put(None)
