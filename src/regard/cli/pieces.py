"""`regard predict … --out FOLDER/`: in pieces that several processes share, and that a killed job need not repeat."""

import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.common import write_rows
from regard.errors import ConfigError, DataError
from regard.jsonfile import read_json_if_any
from regard.output import open_text
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.tasks.use import Options, Predictions

ROWS = 512  # of a piece
MANIFEST = "manifest.json"
Piece = tuple[str, Callable[[], "Predictions"]]  # the name of its output without an ending, and the work


def predict_pieces(
    task: Any, model: Any, folder: Path, file: Path, out: Path, options: "Options", as_json: bool, device: str
) -> None:
    """Answers in files of `ROWS` rows each, in the order of their names. Each appears when it is complete, and one that
    is there already is not computed again; the manifest lists them once all are."""
    from regard.training.parallel import join

    world, quiet = join(device), Console(quiet=True)
    ending = ".jsonl" if as_json else ".txt" if task.writes_lines else ".csv"
    job: dict[str, Any] = {"model": str(folder), "file": str(file), "options": options.pick(task.predict_takes)}
    job |= {"rows": ROWS, "ending": ending}
    with world.together():
        if world.main:
            begin(out, job)
    names: list[str] = []
    with world.together():
        for number, (name, work) in enumerate(pieces(task, model, folder, file, options, quiet)):
            place = out / f"{name}{ending}"
            names.append(place.name)
            if number % world.size == world.rank and not place.exists():
                write_rows(work(), place, as_json, quiet)
    if world.main:
        write_manifest(out, job | {"pieces": names})


def begin(out: Path, job: dict[str, Any]) -> None:
    """Make room for the pieces; a folder with those of another command is refused."""
    before = read_json_if_any(out / MANIFEST)
    if before and {name: before.get(name) for name in job} != json.loads(json.dumps(job)):
        raise ConfigError(f"{out} holds the answers of another command; choose another --out")
    if not before and out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty, and its files are not answers of regard; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    if not before:
        write_manifest(out, job)


def write_manifest(out: Path, job: dict[str, Any]) -> None:
    with open_text(out / MANIFEST) as file:
        file.write(json.dumps(job, indent=2) + "\n")


def pieces(task: Any, model: Any, folder: Path, file: Path, options: "Options", console: Console) -> Iterator[Piece]:
    """The work in its order, the same for every process: each file of a folder, some rows at a time."""
    from regard.tasks.base import Task
    from regard.tasks.use import Predictions, answer_all

    files = [file]
    if file.is_dir() and task.reads not in ("images", "audio"):  # whose folders are one input
        files = sorted(path for path in file.iterdir() if path.is_file())
        if not files:
            raise DataError(f"{file} holds no files")

    def answers(examples: list[Any]) -> Predictions:
        rows = answer_all(
            examples,
            lambda some: model.predict(some, **task.predict_options(options)),
            lambda answer: task.row(model, answer),
        )
        return Predictions(rows=rows, line=task.line if task.writes_lines else None)

    for path in files:
        if type(task).predictions is not Task.predictions:  # its rows are not answers to single inputs
            yield path.name, partial(task.predictions, model, folder, path, options, console)
            continue
        examples = iter(task.read_inputs(model, folder, path, options, console).examples)
        for number in itertools.count():
            if not (some := list(itertools.islice(examples, ROWS))):
                break
            yield f"{path.name}-{number:06d}", partial(answers, some)
