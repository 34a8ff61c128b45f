"""Groups of processes as torchrun starts them, forked from one that has imported everything.

`python -m tests.system.ranks FOLDER` runs every scenario in a copy of the fixtures at FOLDER: each rank's exit code and
what it printed are in FOLDER/ranks.json, the runs under FOLDER/SCENARIO.
"""

import dataclasses
import errno
import itertools
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # now, and not in every fork; so is regard.training.shard
from tests.system.rank_cases import (
    BY_THREE,
    CASES,
    SHARDED,
    Double,
    assemble_all,
    doubled,
    in_double,
    parts_of,
    train_cases,
)
from torch.distributed.checkpoint import FileSystemWriter

import regard.training.shard  # noqa: F401
from regard.cli import pieces
from regard.cli.main import main
from regard.data.loader import Loader
from regard.training import log, parallel
from regard.training.loop import train
from regard.training.parallel import join


class Signalled(Double):
    """One rank is sent a signal during a step."""

    def __init__(self, loader: Any, at: int):
        super().__init__(loader)
        self.at = at

    def __next__(self) -> Any:
        self.at -= 1
        if self.at == 0 and join().rank == join().size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return next(self.loader)


DROPOUT = ["model.dropout=0.2", "save_every=4", "eval_every=5", "keep=3", "keep_state=true"]


def stopped(folder: Path) -> None:
    parts = parts_of("transformer", *DROPOUT)
    train(dataclasses.replace(parts, loader=Signalled(parts.loader, 8)), folder, quiet=True, world=join())


def whole(folder: Path) -> None:
    train(parts_of("transformer", *DROPOUT), folder, quiet=True, world=join())


def resumed(folder: Path) -> None:
    main(["train", "--resume", str(folder), "-q", "--device=cpu"])


WORDS = ["train", "lm", "--data=data/story.txt", "--tokens=bytes", "--set=model.width=16", "--set=model.layers=1",
         "--set=model.heads=2", "--set=tokens=384", "--set=model.context=96", "--device=cpu", "--steps=30",
         "--set=log_every=1", "--set=schedule.warmup=3"]  # fmt: skip


def command(folder: Path) -> None:
    main([*WORDS, f"--name={folder}"])


def minutes(folder: Path) -> None:
    words = [word for word in WORDS if word != "--steps=30" and "warmup" not in word]
    main([*words, "--minutes=0.02", "--set=schedule.warmup=20", f"--name={folder}"])


def different(folder: Path) -> None:
    if join().rank:
        os.chdir("other")  # another text of the same name
    main([*WORDS, f"--name={folder}", f"--set=optim.lr=0.0{1 + join().rank}"])


def unfit(folder: Path) -> None:
    main([*WORDS, f"--name={folder}", "--set=parallel.kind=hsdp", "--set=parallel.shard=2"])


def missing(folder: Path) -> None:
    data = Path("data/story.txt" if join().rank == 0 else "absent.txt")
    main([*WORDS[:2], f"--data={data}", *WORDS[3:], f"--name={folder}"])


def broken(folder: Path) -> None:
    """A rank fails in a step of its own."""
    parts = parts_of("gpt")

    class Broken(Double):
        def __next__(self) -> Any:
            if join().rank == 1 and self.loader.position == 3:
                raise OSError(5, "Input/output error", "data.bin")
            return next(self.loader)

    speaking(lambda: train(dataclasses.replace(parts, loader=Broken(parts.loader)), folder, world=join()))


def killed(folder: Path) -> None:
    parts = parts_of("gpt")

    class Killed(Double):
        def __next__(self) -> Any:
            if join().rank == 2 and self.loader.position == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return next(self.loader)

    speaking(lambda: train(dataclasses.replace(parts, loader=Killed(parts.loader)), folder, world=join()))


def hung(folder: Path) -> None:
    """A rank is slow, then it hangs."""
    parallel.STEP_LIMIT = timedelta(seconds=2)
    parts = parts_of("gpt", "log_every=1")

    class Hung(Double):
        def __next__(self) -> Any:
            if join().rank == 1:
                time.sleep(4 if self.loader.position == 3 else 0.3)
            return next(self.loader)

    speaking(lambda: train(dataclasses.replace(parts, loader=Hung(parts.loader)), folder, world=join()))


def launched(folder: Path, restarts: int) -> None:
    """What torchrun starts, and starts again: the same command line. The first time a rank is killed."""
    os.environ |= {"TORCHELASTIC_RUN_ID": "launch", "TORCHELASTIC_RESTART_COUNT": str(restarts)}
    step = Loader.skip

    def skip(loader: Loader) -> None:
        if join().rank == 1 and not restarts and (loader.epoch, loader.position) == (1, 4):
            os.kill(os.getpid(), signal.SIGKILL)
        step(loader)

    Loader.skip = skip
    main([*WORDS, f"--name={folder.parent / 'launched'}", "--set=save_every=3"])


def predicted(folder: Path) -> None:
    pieces.ROWS = ROWS
    main(["predict", "runs/classify", "tables", f"--out={folder}/", "--device=cpu"])


ROWS = 8


def speaking(work: Callable[[], Any]) -> None:
    """As the command line does it."""
    import typer

    from regard.cli import main as cli

    app = typer.Typer()
    app.command()(lambda: work() and None)
    cli.app = app
    main([])


FSDP = ("parallel.kind=fsdp",)
HSDP = ("parallel.kind=hsdp", "parallel.shard=2", "parallel.checkpoint=true")


def stopped_sharded(folder: Path) -> None:
    """A rank gets its signal in the middle of a step, when the ranks have agreed to do it."""
    parts = parts_of("transformer", *DROPOUT, *FSDP)
    loss_sum, calls = parts.objective.loss_sum, itertools.count(1)

    def signalled(model: Any, batch: Any) -> torch.Tensor:
        if next(calls) == 7 and join().rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return loss_sum(model, batch)

    parts.objective.loss_sum = signalled
    train(parts, folder, quiet=True, world=join())


def whole_sharded(folder: Path) -> None:
    train(parts_of("transformer", *DROPOUT, *FSDP), folder, quiet=True, world=join())


def full(folder: Path) -> None:
    """A disk that has no room for the second save of a rank."""
    write, calls = FileSystemWriter.write_data, itertools.count(1)

    def write_data(*args: Any) -> Any:
        if next(calls) == 2 and join().rank == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*args)

    FileSystemWriter.write_data = write_data
    speaking(lambda: train(parts_of("transformer", "save_every=1", *FSDP), folder, world=join()))


def chained(folder: Path, stop: int, resume: bool, kind: str = "fsdp") -> None:
    """A run without dropout, in float64, until a rank gets a signal in step `stop` of this launch."""
    in_double()
    parts = doubled("transformer-muon", "save_every=4", "keep_state=true", f"parallel.kind={kind}")
    loader = Signalled(parts.loader, stop)
    train(dataclasses.replace(parts, loader=loader), folder, quiet=True, resume=resume, world=join())


CHAIN = ((4, 5), (2, 5), (1, 5), (3, 0))  # processes, and the step in which they are stopped


def linked(folder: Path, stop: int, resume: bool, cases: list[str] = CASES) -> None:
    """The cases, then some steps of runs that the next number of processes goes on with."""
    train_cases(folder, cases)
    for kind in ("ddp", "fsdp"):
        code: Any = 0
        try:
            chained(folder.parent / f"chain-{kind}", stop, resume, kind)
        except SystemExit as end:
            code = end.code
        assert code == (143 if stop else 0)


SCENARIOS: dict[str, tuple[int, Callable[[Path], None]]] = {
    "models/2": (2, partial(linked, stop=5, resume=False)),
    "models/3": (3, partial(linked, stop=5, resume=True, cases=BY_THREE)),
    "models/1": (1, partial(linked, stop=0, resume=True)),
    "fsdp/2": (2, partial(train_cases, cases=SHARDED[:1], settings=FSDP)),
    "whole-sharded": (2, whole_sharded),
    "stopped-sharded": (2, stopped_sharded),
    "whole": (2, whole),
    "stopped": (2, stopped),
    "command": (2, command),
    "minutes": (2, minutes),
    "different": (2, different),
    "missing": (3, missing),
    "unfit": (3, unfit),
    "full": (2, full),
    "broken": (2, broken),
    "killed": (3, killed),
    "hung": (2, hung),
    "launched": (2, partial(launched, restarts=0)),
    "answers": (2, predicted),
    "relaunched": (2, partial(launched, restarts=1)),
}
SLOW = {
    "models/1": (1, train_cases),
    "models/3": (3, train_cases),
    "fsdp/3": (3, partial(train_cases, cases=SHARDED, settings=FSDP)),
    "hsdp/4": (4, partial(train_cases, cases=SHARDED, settings=HSDP)),
    "whole-sharded": (4, whole_sharded),
    "stopped-sharded": (4, stopped_sharded),
}


ASIDE = ("hung", "minutes")  # mostly they wait, so the others run meanwhile


def start(folder: Path, size: int, work: Callable[[Path], None], log: Path) -> list[int]:
    """The process of each rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log.mkdir(parents=True, exist_ok=True)
    return [child(folder, rank, size, port, work, log / str(rank)) for rank in range(size)]


def wait(children: list[int], log: Path) -> list[dict[str, Any]]:
    """Exit code and output of each rank."""
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in children]
    return [{"code": code, "text": (log / str(rank)).read_text()} for rank, code in enumerate(codes)]


def fork(folder: Path, size: int, work: Callable[[Path], None], log: Path) -> list[dict[str, Any]]:
    return wait(start(folder, size, work, log), log)


def child(folder: Path, rank: int, size: int, port: int, work: Callable[[Path], None], log: Path) -> int:
    process = os.fork()
    if process:
        return process
    try:
        for stream in (1, 2):
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        where = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=size)
        os.environ |= {name: str(value) for name, value in where.items()}
        work(folder)
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    os._exit(code)


RESUMED = {
    "resumed": ("stopped", 2),
    "damaged": ("damaged", 2),
    "changed": ("changed", 2),
}  # from which run, with how many ranks
RESUMED_SLOWLY = {"resumed": ("stopped-sharded", 4)}


def run_all(folder: Path, slow: bool) -> None:
    os.chdir(folder)
    torch.set_num_threads(1)
    os.fsync = lambda file: None
    log._board = lambda folder, step: None
    parallel.GRACE = 0.5
    assemble_all()
    Path("tables").mkdir()
    for table in ("reviews.csv", "new.csv"):
        shutil.copy(Path("data") / table, "tables")
    shutil.copytree("data", "other/data")
    Path("other/data/story.txt").write_text(Path("data/story.txt").read_text()[::-1])
    results, groups = {}, SLOW if slow else SCENARIOS
    aside = {
        name: start(folder / name, *group, folder / "logs" / name) for name, group in groups.items() if name in ASIDE
    }
    for name, (size, work) in groups.items():
        if name not in ASIDE:
            results[name] = fork(folder / name, size, work, folder / "logs" / name)
    for number, (size, stop) in enumerate(CHAIN if slow else ()):
        work = partial(chained, stop=stop, resume=number > 0)
        results[f"chain-{size}"] = fork(folder / "chain", size, work, folder / "logs" / f"chain-{size}")
        if number == 0:
            for other in (1, 2, 3):
                place = shutil.copytree(folder / "chain", folder / f"resumed-{other}")
                work = partial(chained, stop=0, resume=True)
                results[place.name] = fork(place, other, work, folder / "logs" / place.name)
    damage(folder)
    for name, (source, size) in (RESUMED_SLOWLY if slow else RESUMED).items():
        place = folder / f"{name}-{size}"
        shutil.copytree(folder / source, place)
        results[place.name] = fork(place, size, resumed, folder / "logs" / place.name)
    for name, children in aside.items():
        results[name] = wait(children, folder / "logs" / name)
    (folder / "ranks.json").write_text(json.dumps(results))


def damage(folder: Path) -> None:
    """A copy of the sharded run whose last shard was cut short, and one with the settings of another model."""
    shutil.copytree(folder / "stopped-sharded", folder / "damaged")
    shard = sorted((folder / "damaged" / "shards").glob("step-*/__1_0.distcp"))[-1]
    os.truncate(shard, shard.stat().st_size // 2)
    settings = shutil.copytree(folder / "stopped-sharded", folder / "changed") / "run.json"
    settings.write_text(settings.read_text().replace('"ffn": 16', '"ffn": 24'))


if __name__ == "__main__":
    run_all(Path(sys.argv[1]), slow="slow" in sys.argv[2:])
