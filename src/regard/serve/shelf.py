"""The models of the folders named at the start, listed again at every request. Ids are never paths."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import ADAPTER, model_file
from regard.errors import CheckpointError, RegardError
from regard.jsonfile import group, read_json, read_json_if_any

CAT = "The cat drank the milk because it was hungry."


@dataclass(frozen=True)
class Shelf:
    """Folders of models by the prefix of their ids, and single models by id."""

    roots: dict[str, Path]
    singles: dict[str, Path]

    def folders(self) -> Iterator[tuple[str, Path]]:
        """Ids and folders of all possible runs and models; a folder of several runs has them one level deeper."""
        yield from self.singles.items()
        for word, root in self.roots.items():
            for depth in ("*", "*/*"):
                for folder in sorted(root.glob(depth)):
                    name = folder.relative_to(root).as_posix()
                    if folder.is_dir() and not any(part.startswith(".") for part in Path(name).parts):
                        yield f"{word}/{name}", folder

    def folder(self, id: str) -> Path:
        for name, folder in self.folders():
            if name == id:
                return folder
        raise CheckpointError(f"the model {id!r} no longer exists", "choose another one")

    def models(self) -> dict[str, list[dict[str, Any]]]:
        """All models, newest first; and the folders that cannot be read, with the reason."""
        models, unreadable = [], []
        for id, folder in self.folders():
            if (folder / "config.json").is_file() and model_file(folder).is_file():
                try:
                    models.append(describe(id, folder))
                except (RegardError, OSError) as e:
                    unreadable.append({"id": id, "name": name_of(id), "error": str(e)})
        return {"models": sorted(models, key=lambda m: -m["modified"]), "unreadable": unreadable}

    def runs(self) -> list[dict[str, Any]]:
        """All runs with curves, newest first; one in training may have no model yet."""
        runs = []
        for id, folder in self.folders():
            metrics = folder / "metrics.jsonl"
            try:
                run = read_json(folder / "run.json") if metrics.is_file() else None
                if run is not None:
                    arch = group(run, "model").get("cell") or run.get("arch", "")
                    about = {"id": id, "name": name_of(id), "task": str(run.get("task", "")), "arch": str(arch)}
                    about |= {"seed": run.get("seed", 0), "steps": run.get("steps", 0), "bytes": metrics.stat().st_size}
                    runs.append(about | {"modified": metrics.stat().st_mtime})
            except (OSError, RegardError):
                continue
        return sorted(runs, key=lambda r: -r["modified"])

    def stamp(self) -> int:
        """A fingerprint that changes when a model is added, removed or rewritten."""
        files = [model_file(folder) for _, folder in self.folders()]
        return hash(tuple((str(f), f.stat().st_mtime_ns) for f in files if f.is_file()))


def describe(id: str, folder: Path) -> dict[str, Any]:
    from regard.models import model_type
    from regard.models.published import read_config
    from regard.models.published.weights import read_shapes
    from regard.models.registry import outline
    from regard.tasks.load import task_of

    config, about = read_config(folder), read_json_if_any(folder / "regard.json")
    kind, task = model_type(config), task_of(config, about, folder)
    family = task.family_of(config)
    recurrent = hasattr(config, "cell")
    attention = ["search", "attention"] if not recurrent or getattr(config, "attention", False) else []
    metrics = (folder / "metrics.jsonl").is_file()
    example, second, *_ = (*task.example_texts, "", None) if not task.example_texts else (*task.example_texts, None)
    views = [*task.views, *["recurrent"] * recurrent] if family else []
    if family and task.reads == "text":
        views = ["tokens", "embedding", *attention, "pair", *views]
    elif family:
        views = ["input", *(attention if hasattr(config, "heads") else []), *task.views]
    weights = model_file(folder)
    whole = weights.name != ADAPTER
    own = read_shapes(folder) if whole else {n: t.shape for n, t in outline(config).named_parameters()}
    parameters = sum(map(math.prod, own.values()))
    return {
        "id": id, "name": name_of(id), "family": family, "reads": task.reads, "task": task.name,
        "arch": getattr(config, "cell", kind),
        "parameters": parameters, "layers": layers(config), "heads": getattr(config, "heads", int(bool(attention))),
        "kind": "published" if id.startswith("cache/") else "run", "modified": weights.stat().st_mtime,
        "metrics": metrics, "views": [*views, *["training"] * metrics], "example": example,
        "example2": second,
    }  # fmt: skip


def name_of(id: str) -> str:
    """The name of a model: runs/demo is demo, and runs/sweep/lstm-seed1 is sweep/lstm-seed1."""
    return id.partition("/")[2]


def layers(config: Any) -> int:
    return getattr(config, "layers", 0) or getattr(config, "decoder_layers", 0) or getattr(config, "encoder_layers", 0)
