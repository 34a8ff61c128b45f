"""The interface of an export format: a name, and how a model folder is written in it."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.checkpoint import write_new_folder

BESIDE = ("config.json", "generation_config.json", "preprocessor_config.json", "tokenizer.json",
          "tokenizer_config.json", "chat_template.jinja", "source.spm", "target.spm", "vocab.json", "README.md",
          "ATTRIBUTION.txt", "regard.json", "columns.json", "vocab.txt", "special_tokens_map.json", "modules.json",
          "sentence_bert_config.json", "config_sentence_transformers.json", "1_Pooling/config.json",
          "2_Normalize/config.json")  # fmt: skip


@dataclass(frozen=True)
class Exported:
    """The result of an export: its path and files, notes to print, and values for `--json`."""

    path: Path
    files: list[str]
    notes: list[str]
    values: dict[str, Any] = field(default_factory=dict)


class Format:
    name: str
    types: tuple[str, ...] = ()  # number formats to choose from; the first is the default

    def target(self, model: str, dtype: str) -> str:
        """The default name of the export of `model`."""
        return f"{model}-{self.name}"

    def write(self, source: Path, target: Path, dtype: str) -> Exported:
        """Write the model folder `source`; `target` appears when it is complete and checked, or not at all."""
        raise NotImplementedError


def write_folder(source: Path, target: Path, names: list[str], more: Callable[[Path], None] | None = None) -> list[str]:
    """Write a new folder with the files `names` that `source` has, and what `more` adds; return all file names."""
    files = [name for name in names if (source / name).is_file()]

    def write(draft: Path) -> None:
        copy_files(source, draft, files)
        if more is not None:
            more(draft)

    write_new_folder(target, write)
    return sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())


def copy_files(source: Path, target: Path, names: list[str]) -> None:
    """Copy files, which may be in subfolders, from one folder to another."""
    for name in names:
        (target / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(source / name, target / name)
