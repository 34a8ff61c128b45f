"""Several processes on one machine: `--processes N` runs the same command line under torchrun's launcher."""

import logging
import os
import sys
import tempfile
from typing import Annotated, Any, NoReturn

from regard.cli.common import option
from regard.cli.tasks import PANEL, Declared, declare
from regard.errors import ConfigError

HELP = "Share the work between that many processes on this machine; on several: torchrun … -m regard …"
Processes = Annotated[int, option("N", HELP, default=True, min=1)]
CROWD = 4  # processes per core, at most
PROCESSES: Declared = declare("processes", int, 1, option("N", HELP, default=True, min=1, **PANEL))


def started_by_torchrun() -> bool:
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def several_processes() -> bool:
    return started_by_torchrun() and os.environ["WORLD_SIZE"] != "1"


def first_process() -> bool:
    return not started_by_torchrun() or os.environ["RANK"] == "0"


def mute_others() -> None:
    """Silence all processes of a torchrun but the first."""
    if started_by_torchrun():  # torch's own remarks mean nothing to a user
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR" if first_process() else "FATAL")
    if not first_process():
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the process ends


def leave_others() -> None:
    """Close the connections to the other processes."""
    if several_processes() and "regard.training.parallel" in sys.modules:
        from regard.training.parallel import leave

        leave()


def share_between(processes: int, ctx: Any) -> None:
    """Run this command line in `processes` processes and exit with their code; inside one of them, return."""
    if started_by_torchrun():
        if processes not in (1, size := int(os.environ["WORLD_SIZE"])):
            raise ConfigError(f"--processes {processes}, but torchrun started {size}; leave out --processes")
    elif processes > 1:
        cores = os.cpu_count() or 1
        if processes > CROWD * cores:
            limit = f"at most {CROWD} for each of the {cores} cores"
            raise ConfigError(f"--processes {processes:,}: expected {limit}; one per core or GPU is fastest")
        launch(processes, ctx.meta["words"])


def launch(processes: int, words: list[str]) -> NoReturn:
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the first process reports what failed
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    once: Any = dict(
        run_id=f"regard-{os.getpid()}",
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        max_restarts=0,
        monitor_interval=0.1,
    )
    meeting: Any = dict(rdzv_backend="c10d", rdzv_endpoint="localhost:0")
    try:
        with tempfile.TemporaryDirectory() as folder:
            logs = DefaultLogsSpecs(log_dir=folder)
            config = LaunchConfig(**once, **meeting, signals_to_handle=SIGNALS, logs_specs=logs)
            elastic_launch(config, sys.executable)("-m", "regard", *words)
    except ChildFailedError as e:
        code = min(failure.exitcode for failure in e.failures.values())
        sys.exit(code if code >= 0 else 128 - code)  # as shells report a signal
    except SignalException as e:
        sys.exit(128 + e.sigval)
    sys.exit(0)


SIGNALS = "SIGTERM,SIGINT,SIGHUP"  # passed on to all processes, which save and stop
