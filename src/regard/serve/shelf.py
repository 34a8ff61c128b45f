"""Which models there are: the folders given at the start, listed anew whenever asked. Ids are never paths."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import CheckpointError, ConfigError, RegardError

CAT = "The cat drank the milk because it was hungry."
SWEET = "The cat drank the milk because it was sweet."
EXAMPLES = {
    "translator": ("The little boy is reading a red book.", ""),
    "language": (CAT, ""),
    "recurrent-language": (CAT, ""),
    "encoder": (CAT, SWEET),
    "masked": ("The cat drank the [MASK] because it was hungry.", ""),
    "classifier": ("A film worth seeing twice.", ""),
    "pair": (CAT, SWEET),
    "tagger": ("Ada Lovelace met Charles Babbage in London.", ""),
}
VIEWS = {
    "translator": ["translation"],
    "language": ["next"],
    "recurrent-language": ["next"],
    "encoder": ["similar"],
    "masked": ["fill", "similar"],
    "classifier": ["classes"],
    "pair": ["classes"],
    "tagger": ["tags"],
}


@dataclass(frozen=True)
class Shelf:
    """Folders of models by the word their ids begin with, and single models by id."""

    roots: dict[str, Path]
    singles: dict[str, Path]

    def folders(self) -> Iterator[tuple[str, Path]]:
        """Ids and folders of all that may be a run or a model; those of several runs are two levels down."""
        yield from self.singles.items()
        for word, root in self.roots.items():
            for depth in ("*", "*/*"):
                for folder in sorted(root.glob(depth)):
                    name = folder.relative_to(root).as_posix()
                    if folder.is_dir() and not any(part.startswith(".") for part in Path(name).parts):
                        yield f"{word}/{name}", folder

    def folder(self, id: str) -> Path:
        found = next((folder for known, folder in self.folders() if known == id), None)
        if found is None:
            raise CheckpointError(f"the model {id!r} is not there any more; choose another one")
        return found

    def models(self) -> list[dict[str, Any]]:
        """What is known of every model, newest first; a folder that cannot be read is left out."""
        found = []
        for id, folder in self.folders():
            if (folder / "config.json").is_file() and (folder / "model.safetensors").is_file():
                try:
                    found.append(describe(id, folder))
                except (RegardError, OSError, ValueError, KeyError, TypeError):
                    continue
        return sorted(found, key=lambda m: -m["modified"])

    def runs(self) -> list[dict[str, Any]]:
        """Every run with curves, newest first; one still in training may have no model yet."""
        found = []
        for id, folder in self.folders():
            metrics = folder / "metrics.jsonl"
            try:
                run = json.loads((folder / "run.json").read_bytes()) if metrics.is_file() else None
                if run is not None:
                    model = run.get("model", {})
                    arch = model.get("cell") or run.get("arch", "")
                    known = {"id": id, "name": folder.name, "task": run.get("task", ""), "arch": arch}
                    known |= {"seed": run.get("seed", 0), "steps": run.get("steps", 0), "bytes": metrics.stat().st_size}
                    found.append(known | {"modified": metrics.stat().st_mtime})
            except (OSError, ValueError, AttributeError):
                continue
        return sorted(found, key=lambda r: -r["modified"])

    def stamp(self) -> int:
        """Another number when a model has come, gone or changed."""
        files = [folder / "model.safetensors" for _, folder in self.folders()]
        return hash(tuple((str(f), f.stat().st_mtime_ns) for f in files if f.is_file()))


def describe(id: str, folder: Path) -> dict[str, Any]:
    from regard.models import model_type
    from regard.models.published import from_published

    config = from_published(json.loads((folder / "config.json").read_bytes()), str(folder / "config.json"))
    known = folder / "regard.json"
    task = json.loads(known.read_bytes()).get("task", "") if known.is_file() else ""
    kind = model_type(config)
    family = family_of(kind, config, task)
    recurrent = hasattr(config, "cell")
    attention = ["search", "attention"] if not recurrent or getattr(config, "attention", False) else []
    pair = [] if recurrent else ["pair"]
    metrics = (folder / "metrics.jsonl").is_file()
    views = ["tokens", "embedding", *attention, *pair, *VIEWS[family], *["recurrent"] * recurrent]
    weights = folder / "model.safetensors"
    return {
        "id": id, "name": folder.name, "family": family, "task": task or family, "arch": getattr(config, "cell", kind),
        "parameters": count(weights), "layers": layers(config), "heads": getattr(config, "heads", int(bool(attention))),
        "kind": "published" if id.startswith("cache/") else "run", "modified": weights.stat().st_mtime,
        "metrics": metrics, "views": [*views, *["training"] * metrics], "example": EXAMPLES[family][0],
        "example2": EXAMPLES[family][1] or None,
    }  # fmt: skip


def family_of(kind: str, config: Any, task: str) -> str:
    if kind in ("transformer", "seq2seq"):
        return "translator"
    if kind == "rnn_lm":
        return "recurrent-language"
    if kind in ("gpt", "llama"):
        return "language"
    if kind not in ("bert", "rnn_classifier"):
        raise ConfigError(f"a model of the kind {kind} reads no text; the studio shows those that do")
    if config.labels:
        return "tagger" if config.head == "token" else "pair" if task == "pair" else "classifier"
    return "masked" if config.head in ("masked", "pretraining") else "encoder"


def layers(config: Any) -> int:
    return getattr(config, "layers", 0) or getattr(config, "decoder_layers", 0) or getattr(config, "encoder_layers", 0)


def count(weights: Path) -> int:
    """Numbers in a safetensors file, from its header: 8 bytes of length, then JSON."""
    with weights.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(min(size, 100_000_000)))
    total = 0
    for name, about in header.items():
        if name != "__metadata__":
            product = 1
            for n in about["shape"]:
                product *= n
            total += product
    return total
