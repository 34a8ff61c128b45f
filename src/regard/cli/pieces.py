"""`--out FOLDER/` of predict and embed: output in pieces, shared by processes and not repeated by a restarted job."""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.common import write_rows
from regard.errors import ConfigError, DataError
from regard.jsonfile import read_json_if_any
from regard.output import open_text
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.tasks.use import Options

ROWS = 512  # per piece
MANIFEST = "manifest.json"
Piece = tuple[str, Callable[[Path], None]]  # its file name without the extension, and the function that writes it


def predict_pieces(
    task: Any, model: Any, folder: Path, file: Path, out: Path, options: "Options", as_json: bool, device: str,
    weights: str,
) -> None:  # fmt: skip
    """Write answers in files of `ROWS` rows each."""
    ending = ".jsonl" if as_json else ".txt" if task.writes_lines else ".csv"
    job = {"model": str(folder), "file": str(file), "options": options.pick(task.predict_takes)}
    if weights != "fp32":
        job["weights"] = weights
    write_pieces(pieces(task, model, folder, file, options, as_json), out, job, ending, device)


def write_pieces(work: Iterable[Piece], out: Path, job: dict[str, Any], ending: str, device: str) -> None:
    """Write the pieces of `job`, shared by all processes of a torchrun. Each appears when it is complete, and one that
    exists is not computed again; the manifest lists them once all are complete."""
    from regard.training.parallel import join

    world = join(device)
    job = job | {"rows": ROWS, "ending": ending}
    new = not out.exists()
    with world.together():
        if world.main:
            begin(out, job)
    names: list[str] = []
    try:
        with world.together():
            for number, (name, write) in enumerate(work):
                place = out / f"{name}{ending}"
                names.append(place.name)
                if number % world.size == world.rank and not place.exists():
                    write(place)
    except Exception:
        if world.main and [path.name for path in out.iterdir()] == [MANIFEST]:  # refused before the first piece
            (out / MANIFEST).unlink()
            if new:
                out.rmdir()
        raise
    if world.main:
        write_manifest(out, job | {"pieces": names})


def names_folder(out: str) -> bool:
    """Whether `--out` names a folder, and so asks for pieces."""
    return out.endswith("/") or (bool(out) and Path(out).is_dir())


def begin(out: Path, job: dict[str, Any]) -> None:
    """Create the folder; `ConfigError` if it holds the pieces of another command, or other files."""
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


def files_of(file: Path) -> list[Path]:
    """The file, or the files of a folder, sorted by name."""
    files = sorted(path for path in file.iterdir() if path.is_file()) if file.is_dir() else [file]
    if not files:
        raise DataError(f"{file} holds no files")
    return files


def in_pieces(path: Path, examples: Iterable[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The examples of a file in groups of `ROWS`, each with the name of its piece."""
    from regard.data.files import in_groups

    for number, some in enumerate(in_groups(examples, ROWS)):
        yield f"{path.name}-{number:06d}", some


def pieces(task: Any, model: Any, folder: Path, file: Path, options: "Options", as_json: bool) -> Iterator[Piece]:
    """The pieces in order, the same for every process: each file of a folder, `ROWS` rows at a time."""
    from regard.tasks.base import Task
    from regard.tasks.use import Predictions

    console = Console(quiet=True)

    def write_answers(examples: list[Any], place: Path) -> None:
        rows, line = task.answers(model, examples, options), task.line if task.writes_lines else None
        write_rows(Predictions(rows=rows, line=line), place, as_json, console)

    def write_whole(path: Path, place: Path) -> None:
        write_rows(task.predictions(model, folder, path, options, console), place, as_json, console)

    for path in [file] if task.reads in ("images", "audio") else files_of(file):  # their folders are one input
        if type(task).predictions is not Task.predictions:  # its rows are not answers to single inputs
            yield path.name, partial(write_whole, path)
            continue
        examples = task.read_inputs(model, folder, path, options, console).examples
        for name, some in in_pieces(path, examples):
            yield name, partial(write_answers, some)
