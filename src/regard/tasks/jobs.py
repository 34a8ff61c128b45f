"""plan.json: which runs a folder of several holds, so that they can be distinguished, and resumed together."""

import json
from collections.abc import Sequence
from pathlib import Path, PurePath

from regard.checkpoint import write_atomic
from regard.config import inside
from regard.errors import CheckpointError, ConfigError
from regard.jsonfile import expect, parse
from regard.run_folder import OF_SEVERAL, new_run
from regard.tasks.plan import run_from_dict
from regard.training.run import Run

PLAN = OF_SEVERAL[0]
Job = tuple[str, Path, Run]  # a label for the table, where it is trained, what is trained


def write_plan(folder: Path, jobs: Sequence[Job], force: bool) -> None:
    """Make room for several runs; `force` replaces the plan that is there."""
    new_run(folder, force, OF_SEVERAL)
    plan = [{"label": label, "folder": place.name, "run": run.to_dict()} for label, place, run in jobs]
    write_atomic(folder / PLAN, (json.dumps(plan, indent=2) + "\n").encode())


def read_plan(folder: Path) -> list[Job]:
    """What `write_plan` was given. Each run is in a folder of its own directly below `folder`, or is refused."""
    path = folder / PLAN
    try:
        plan = expect(parse(path.read_bytes()), list)
        if not plan:
            raise ValueError("expected a list of runs")
        jobs = [(str(job["label"]), str(job["folder"]), run_from_dict(job["run"])) for job in plan]
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, ConfigError) as e:
        why = f"there is no {e}" if isinstance(e, KeyError) else e
        raise CheckpointError(f"{path}: cannot be read ({why}); resume its runs one by one") from None
    for _, name, _ in jobs:
        if len(PurePath(name).parts) != 1:
            raise CheckpointError(f"{path}: {name!r} is not a folder in {folder}; resume its runs one by one")
    return [(label, inside(folder, name, path), run) for label, name, run in jobs]
