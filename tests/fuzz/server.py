"""A process that has imported everything once and runs each command line in a fork of its own, under limits.

    python -m tests.fuzz.server FOLDER

reads a line of JSON for each command line (`args`, `typed`, `interrupt`) and answers with one (`code`, `out`, `err`,
`seconds`, `late`). Output passes through files in FOLDER, as a command line's own would.
"""

import contextlib
import faulthandler
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
from pathlib import Path

MEMORY = 2 << 30  # bytes a child may take on top of what the server has mapped
SECONDS = 20  # of computing
IDLE = 60  # seconds without computing at all; a busy machine is not a hang


def load() -> None:
    """Import all that a verb may import, so that no child has to."""
    import torch

    torch.set_num_threads(1)
    import matplotlib

    matplotlib.use("agg")
    import regard

    ours = (m.name for m in pkgutil.walk_packages(regard.__path__, "regard.") if m.name != "regard.__main__")
    theirs = ("matplotlib.pyplot", "PIL.Image", "pyarrow.parquet", "uvicorn", "fastapi", "gguf", "torch._dynamo")
    for name in (*ours, *theirs, "jinja2.sandbox", "pypi_simple"):
        with contextlib.suppress(ImportError):  # of an extra, or of a machine with a GPU
            importlib.import_module(name)


def child(asked: dict, folder: Path, limit: int) -> None:
    """Become the command line."""
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number, name, how in ((0, "in", os.O_RDONLY), (1, "out", os.O_WRONLY), (2, "err", os.O_WRONLY)):
        file = os.open(folder / name, how | os.O_CREAT | os.O_TRUNC if number else how)
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(i, "rww"[i]), "utf-8") for i in range(3))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    faulthandler.enable(sys.stderr)  # where a crash of native code was
    from regard.cli.main import main

    code: object = 0
    try:
        main(asked["args"])
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        code = 120
    if isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def computed(pid: int) -> int:
    """Ticks of the clock that a process has used."""
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(times[11]) + int(times[12])


def run(asked: dict, folder: Path, limit: int) -> dict:
    """Fork, wait, and report."""
    (folder / "in").write_bytes(asked["typed"].encode("latin-1"))
    start = time.monotonic()
    pid = os.fork()
    if not pid:
        child(asked, folder, limit)
    interrupt, late, moved = asked.get("interrupt"), False, (start, 0)
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            break
        seconds = time.monotonic() - start
        if interrupt and seconds > interrupt:
            os.kill(pid, signal.SIGINT)
            interrupt = None
        if seconds > 5 and (used := computed(pid)) != moved[1]:
            moved = (time.monotonic(), used)
        elif time.monotonic() - moved[0] > IDLE:
            late = True
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002 if seconds < 0.5 else 0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what it started and did not end
    code = os.waitstatus_to_exitcode(status)
    said = {name: (folder / name).read_bytes().decode("utf-8", "backslashreplace") for name in ("out", "err")}
    return {"code": code, "seconds": used.ru_utime + used.ru_stime, "late": late or code == -signal.SIGXCPU, **said}


def main() -> None:
    folder = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started us
    load()
    gc.freeze()
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line), folder, mapped + MEMORY)), file=answers, flush=True)


if __name__ == "__main__":
    main()
