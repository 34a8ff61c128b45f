"""A child process for what comes with a model and runs like a program: a chat template, a regular expression.

    fill = Confined("regard.data.chat:fill")
    text = fill(template=..., messages=...)  # LimitError if it takes too long, or too much memory

The child can be stopped at any moment, and its crash is an error here, not a crash.
"""

import atexit
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from regard.errors import CheckpointError, LimitError, RegardError
from regard.limits import show_size

PATIENCE = 30.0  # wall-clock seconds: the machine may be busy
MEMORY = 384 << 20
ANSWER = 32 << 20  # bytes of one answer


class Confined:
    """One of our functions ("module:name"), called in a child process with JSON arguments and a JSON result.

    A call may take `seconds` of CPU time, and the child `memory` bytes.
    """

    def __init__(self, function: str, seconds: float = 1.0, memory: int = MEMORY):
        self.function, self.seconds, self.memory = function, seconds, memory
        self.lock = threading.Lock()
        self.child: subprocess.Popen[bytes] | None = None
        self.owner = 0  # the process whose child it is: a fork must not write to its parent's pipe

    def __call__(self, **question: Any) -> Any:
        with self.lock:
            child = self.running()
            try:
                answer = json.loads(self.ask(child, json.dumps(question).encode() + b"\n"))
            except BaseException:
                self.stop()  # it may still be writing, so the next call needs a new child
                raise
        if "error" in answer:
            raise (LimitError if answer["error"] == "LimitError" else CheckpointError)(answer["text"])
        return answer["result"]

    def running(self) -> "subprocess.Popen[bytes]":
        if self.child is None or self.owner != os.getpid() or self.child.poll() is not None:
            environment = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TOKENIZERS_PARALLELISM": "false"}
            self.child = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, self.function, str(self.seconds), str(self.memory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | environment,
            )
            self.owner = os.getpid()
            atexit.register(self.stop)
        return self.child

    def ask(self, child: "subprocess.Popen[bytes]", question: bytes) -> bytes:
        assert child.stdin is not None and child.stdout is not None
        ends, answer = time.monotonic() + PATIENCE, bytearray()
        try:
            child.stdin.write(question)
            child.stdin.flush()
        except OSError:
            pass  # the child is gone; the empty answer below reports it
        with selectors.DefaultSelector() as ready:
            ready.register(child.stdout, selectors.EVENT_READ)
            while not answer.endswith(b"\n"):
                if not ready.select(max(0.0, ends - time.monotonic())):
                    raise LimitError(f"it takes longer than {PATIENCE:.0f} s")
                if not (piece := os.read(child.stdout.fileno(), 1 << 16)):
                    raise self.ended(child.wait())
                answer += piece
                if len(answer) > ANSWER:
                    raise LimitError(f"it writes more than {show_size(ANSWER)}")
        return bytes(answer)

    def ended(self, code: int) -> RegardError:
        if code == -signal.SIGPROF:
            return LimitError(f"it takes longer than {self.seconds:g} s")
        if code in (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT):  # out of memory, or a library's bug
            return LimitError(
                f"it crashes the process that reads it, or needs more than {show_size(self.memory)} of memory"
            )
        return CheckpointError(f"the process that reads it ended with code {code}")

    def stop(self) -> None:
        child, self.child = self.child, None
        if child is not None and self.owner == os.getpid():
            child.kill()
            child.communicate()
            atexit.unregister(self.stop)


def answer_questions(function: str, seconds: float, memory: int) -> None:
    """The child's loop: one question per line on stdin, one answer per line on stdout."""
    import resource

    module, _, name = function.partition(":")
    work = getattr(importlib.import_module(module), name)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin.buffer:
        question = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)  # its signal has no handler, so it ends the process
        try:
            answer = json.dumps({"result": work(**question)})
        except (MemoryError, RecursionError) as e:
            what = f"more than {show_size(memory)} of memory" if isinstance(e, MemoryError) else "too deep a nesting"
            answer = json.dumps({"error": "LimitError", "text": f"it needs {what}"})
        except BaseException as e:  # a panic of a library in Rust is not an Exception
            message = str(e) if isinstance(e, RegardError) else f"{type(e).__name__}: {e}"
            answer = json.dumps({"error": type(e).__name__, "text": message[:2000]})
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        sys.stdout.buffer.write(answer.encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    answer_questions(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
