"""A preview of a run's data: its head, and three examples as the model will see them."""

import dataclasses
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.catalog import find
from regard.data.folders import cache_folder, silent
from regard.data.head import FILES, LINES, head_of
from regard.data.tables import is_table, read_table
from regard.errors import RegardError
from regard.tasks.registry import get

if TYPE_CHECKING:
    from regard.training.run import Run

EXAMPLES = 3
AS_THEY_ARE = ("tokenizer", "images", "valid_images")  # settings of files that are not shortened
KEPT = ("data", "models")  # parts of the cache that a preview may read


@dataclasses.dataclass(frozen=True)
class Preview:
    """Notes on the data, and examples."""

    notes: list[str]
    examples: list[str]
    whole: bool  # whether all of the data was read, not only its head


def preview(run: "Run") -> Preview:
    """Read the data as training would, or its head if it is long. Leaves no files behind."""
    notes: list[str] = []
    decodes = get(run.task).reads in ("images", "audio")  # a file for each row of a table
    with tempfile.TemporaryDirectory(prefix="regard-") as folder, scratch_cache(Path(folder, "cache")):
        if not (data := local_data(run.data)):
            return Preview([f"{run.data.name} is not downloaded; type: regard data get {run.data.name}"], [], False)
        heads = {}
        for name in file_settings(data):
            path = Path(getattr(data, name))
            copy, more = head_of(path, Path(folder, "data", name), FILES if decodes else LINES)
            heads |= {name: (path, copy)} if more else {}
        head: Any = {name: str(copy) for name, (_, copy) in heads.items()}
        head |= {"mix": ""} if getattr(data, "mix", "") else {}  # the first source is enough
        run = dataclasses.replace(run, data=dataclasses.replace(data, **head), compile=False)
        try:
            notes += columns(run.data)
            examples = show_examples(run, notes)
        except RegardError as e:
            if not heads:
                raise
            notes, examples = [*notes, f"its head alone cannot be prepared: {e}"], []
    for path, copy in heads.values():
        notes = [note.replace(str(copy), str(path)) for note in notes]
    lines = [line for note in notes for line in note.split("\n") if not line.startswith("preparing: ")]
    return Preview(lines, examples, not heads)


def show_examples(run: "Run", notes: list[str]) -> list[str]:
    task = get(run.task)
    data = task.read(run, notes.append)
    run = task.fit(run, data)
    batch = next(task.loader(run, data, "cpu"))
    return [task.show(run, data, batch, row) for row in range(min(EXAMPLES, len(batch)))]


def columns(data: Any) -> list[str]:
    """The columns of a table, as a note."""
    path = getattr(data, "path", "")
    if not Path(path).is_file() or not is_table(path):
        return []
    requested = [getattr(data, name, "") for name in ("text", "second", "label")]
    return [f"columns: {read_table(Path(path), requested, say=silent, strict=False).listed()}"]


def file_settings(data: Any) -> list[str]:
    """The settings that name an existing file or folder."""
    names = [f.name for f in dataclasses.fields(data) if f.metadata.get("file") and f.name not in AS_THEY_ARE]
    return [name for name in names if getattr(data, name) and Path(getattr(data, name)).exists()]


def local_data(data: Any) -> Any:
    """The settings of a named data set as those of its files; None if they are not downloaded."""
    from regard.data import image_sets
    from regard.data.fetch import local_files, local_pairs

    if not getattr(data, "name", ""):
        return data
    dataset = find(data.name)
    if dataset.kind == "images":  # arrays, read at once
        return data if dataset.comes_with or image_sets.local(dataset) else None
    files: Any = local_pairs(dataset) if dataset.kind == "pairs" else local_files(dataset)
    if files is None:
        return None
    parts = {"source": "train_source", "target": "train_target", "path": "train"}
    named = {parts.get(f.name, f.name): f.name for f in dataclasses.fields(data)}
    values = {named[part]: str(path) for part, path in vars(files).items() if path and part in named}
    return dataclasses.replace(data, name="", **values)


@contextmanager
def scratch_cache(folder: Path) -> Iterator[None]:
    """A temporary cache, through which downloaded files can be read."""
    real, before = cache_folder().absolute(), os.environ.get("REGARD_CACHE")
    folder.mkdir()
    for name in KEPT:
        if (real / name).is_dir():
            (folder / name).symlink_to(real / name)
    os.environ["REGARD_CACHE"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["REGARD_CACHE"]
        else:
            os.environ["REGARD_CACHE"] = before
