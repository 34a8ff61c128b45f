"""Command lines in processes that may be killed. Packages are imported once, then every command line runs in a fork.

`python -m tests.slow.fork_server` reads a JSON object a line: the `words` of a command line, and `kill_at`, the number
of the write, fsync or rename before which it kills itself (0: never). It answers with the number of the process, and
with its exit status.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

from tests.unit.training.toy import kill_at

from regard.cli.main import main


class ForkServer:
    """The other end: starts forks one after the other."""

    def __init__(self, server: subprocess.Popen):
        self.server = server

    def run(self, words: list[str], kill_after: float = 0.0, kill_at: int = 0) -> int:
        """Run a command line: its exit status, or minus the number of the signal."""
        assert self.server.stdin and self.server.stdout
        self.server.stdin.write(json.dumps({"words": words, "kill_at": kill_at}) + "\n")
        self.server.stdin.flush()
        process = int(self.server.stdout.readline())
        killer = threading.Timer(kill_after, self._kill, [process]) if kill_after else None
        if killer:
            killer.start()
        ended = int(self.server.stdout.readline())
        if killer:
            killer.cancel()
        return ended

    @staticmethod
    def _kill(process: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it was faster
            os.kill(process, 9)


@contextlib.contextmanager
def fork_server() -> Iterator[ForkServer]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.slow.fork_server"]
    with subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, text=True) as server:
        try:
            yield ForkServer(server)
        finally:
            server.terminate()


def serve() -> None:
    import regard.tasks  # noqa: F401 - now, and not in every fork

    for line in sys.stdin:
        asked = json.loads(line)
        process = os.fork()
        if process == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if asked["kill_at"]:
                kill_at(asked["kill_at"])
            try:
                main(asked["words"])
            except SystemExit as stop:
                os._exit(int(stop.code or 0))
            os._exit(0)
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
