"""Text and records to a prepared store for language modelling: a tokenizer, and the ids."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from regard.config import to_dict
from regard.data import fetch, overlap, split, store
from regard.data.catalog import find
from regard.data.columnar import PARQUET
from regard.data.corpus import Files, corpus_of, kind_of
from regard.data.documents import DocumentReader, NotText, convert, text_error
from regard.data.files import ending
from regard.data.folders import Say, silent, to_stderr, user_path
from regard.data.mixture import mixture
from regard.data.records import Record, check_records, is_records, plain, read_records
from regard.data.settings import MaskedConfig, TextConfig
from regard.data.skipped import LISTED
from regard.data.store import Flat, Numbers, Store, StoreWriter
from regard.data.tables import LABELS, is_delimited, is_table, read_table
from regard.data.tokenizers import TextTokenizer, load
from regard.errors import ConfigError, DataError

VERSION = 1  # of the prepared format
ENDINGS = (".txt", ".md", ".jsonl", *PARQUET)  # suffixes of files read from a folder
SAVE_EVERY = 64  # groups of chunks, about 32 MB


@dataclass(frozen=True)
class TokenFile:
    """The ids of a text; or of records, with a mask of their answers."""

    ids: Flat
    offsets: np.ndarray | None = None  # of records: N+1
    answers: Flat | None = None  # of records: for each id, whether it is trained on
    sources: tuple[tuple[int, float], ...] = ()  # of a mixture: the end of each, in ids or records, and its weight

    @classmethod
    def of(cls, ids: Numbers, offsets: np.ndarray | None = None, answers: np.ndarray | None = None) -> "TokenFile":
        """From arrays in memory."""
        return cls(Flat([np.asarray(ids)]), offsets, None if answers is None else Flat([np.asarray(answers, bool)]))

    @classmethod
    def open(cls, columns: dict[str, Any], sources: tuple[tuple[int, float], ...] = ()) -> "TokenFile":
        ids = columns["ids"]
        records = (ids.values, ids.offsets, columns["answers"].values) if "answers" in columns else (ids,)
        return cls(*records, sources=sources)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def records(self) -> int:
        """The number of records; 0 for a text."""
        return 0 if self.offsets is None else len(self.offsets) - 1


@dataclass(frozen=True)
class PreparedText(Store):
    """Prepared text or records."""

    tokenizer: TextTokenizer
    train: TokenFile
    valid: TokenFile

    @property
    def valid_bytes(self) -> int:
        """Bytes of the validation text in UTF-8; of records, of the answers."""
        return self.manifest["report"]["valid_bytes"]

    @property
    def valid_words(self) -> int:
        """Words of the validation text, separated by white space."""
        return self.manifest["report"]["valid_words"]

    def report(self) -> str:
        return describe(self)


def prepare_text(config: TextConfig, say: Say = to_stderr) -> PreparedText:
    """Everything training needs, built from `config`'s text or found in the cache."""
    sources = source_files(config, say)
    files = {part: list(chain.from_iterable(source[part] for source in sources)) for part in ("train", "valid")}
    hashes = {part: [store.sha256(path) for path in paths] for part, paths in files.items()}
    shaping: dict[str, Any] = {k: getattr(config, k) for k in ("held_out", "tokens", "max_length", "template")}
    shaping |= split.key(config, next(iter(files["valid"]), None))
    shaping["vocab"] = config.vocab if config.tokens == "bpe" else 0
    weights = [1.0, *mixture(config.mix).values()]
    if config.mix:
        shaping["sources"] = [len(source["train"]) for source in sources]
    own = _own_tokenizer(config.tokenizer) if config.tokenizer else None
    if own is not None:
        hashes["tokenizer"] = [store.sha256(user_path(config.tokenizer) / "tokenizer.json")]
        shaping |= {"tokens": "given", "vocab": 0, "eos": own.eos, "bos": own.bos, "chat": own.chat_template}
    ready = store.prepare(
        store.key("text", VERSION, shaping, hashes),
        lambda writer: _build(config, sources, hashes, own, writer),
        say,
        "reading the text, learning the vocabulary, encoding",
    )
    train, valid = (ready.part(name) for name in ("train", "valid"))
    mixed = tuple(zip(ready.manifest["ends"], weights, strict=True)) if config.mix else ()
    parts = TokenFile.open(train, mixed), TokenFile.open(valid)
    prepared = PreparedText(ready.folder, ready.manifest, own or load(ready.folder), *parts)
    say(prepared.report())
    return prepared


def describe(ready: Store) -> str:
    """What was kept, what was dropped and why, in a few lines."""
    manifest = ready.manifest
    r, records = manifest["report"], manifest["kind"] == "records"
    sizes = [manifest["parts"][part]["rows"] for part in ("train", "valid")]
    what = "records" if records else "tokens"
    how = "" if manifest["inputs"]["valid"] else split.BY_CONTENT if records else split.AT_THE_END
    line = f"{split.report(sizes[0], sizes[1], what, how)}; vocabulary of {manifest['vocab']:,}"
    if records:
        line += f" ({ready.length('train', 'ids'):,} tokens, {r['learned']:,} of them trained on)"
    reasons = {
        "empty": ("dropped", "empty"),
        "unanswered": ("dropped", "their answer is cut off, or empty"),
        "cut": ("cut", f"longer than {manifest['config']['max_length']} tokens (--set data.context=…)"),
    }
    lines = [line, *(f"{did} {r[key]:,}: {why}" for key, (did, why) in reasons.items() if r[key])]
    shared, compared = r.get("shared", 0), r.get("compared", 0)  # older stores did not compare
    return "\n".join([*lines, *overlap.validation_warning(shared, compared, "records" if records else "passages")])


def training_passages(config: TextConfig, tokenizer: TextTokenizer) -> Iterator[str]:
    """The passages or records a run with these settings was trained on; `DataError` if its data is gone."""
    if config.name and fetch.local_files(find(config.name)) is None:
        raise DataError(f"{config.name} is not downloaded; type: regard data get {config.name}")
    return corpus_of(config, source_files(config, to_stderr), tokenizer).passages("train")


def scored_passages(path: Path, template: str) -> list[str]:
    """The passages of a text or JSONL file, as in `training_passages`."""
    if kind_of(path, template) == "records":
        return [plain(record) for record in read_records(path, template) if isinstance(record, Record)]
    return list(overlap.passages(DocumentReader([path])))


# Which files


def source_files(config: TextConfig, say: Say) -> list[Files]:
    """The files of every source of a mixture; validation files are in the first."""
    others = (replace(config, name="", path=path, valid="", mix="") for path in mixture(config.mix))
    return [text_files(config, say), *(text_files(other, say) for other in others)]


def text_files(config: TextConfig | MaskedConfig, say: Say = to_stderr) -> Files:
    """The training and validation files; a named data set is fetched if not in the cache."""
    if config.name and config.path:
        raise ConfigError(f"give either the data set {config.name!r} or a path of your own, not both")
    if not config.name and not config.path:
        raise ConfigError("no data; give a text file, a folder, a .jsonl, or a name (see: regard data list)")
    if config.name:
        files = fetch.get_files(config.name, "text", say=say)
        train, valid = [files.train], [files.valid] if files.valid else []
    else:
        train, valid = _files(config.path, config, say), []
    if config.valid:
        valid = _files(config.valid, config, say)
    for path in [*train, *valid] if config.path else valid * bool(config.valid):
        if is_records(path):
            check_records(path, getattr(config, "template", ""), config.strict, say)
    return {"train": train, "valid": valid}


def holds_records(path: Path) -> bool:
    """Whether a file holds records or texts for a language model; texts with labels are a table, except in JSONL."""
    if ending(path) == ".jsonl" or not is_records(path):
        return is_records(path)
    if not path.is_file() or (first := next(read_records(path), None)) is None:
        return False
    return isinstance(first, Record) or not set(read_table(path, say=silent, strict=False).lower) & {*LABELS}


def _files(name: str, config: TextConfig | MaskedConfig, say: Say) -> list[Path]:
    """A file itself; or the texts in a folder and its subfolders, sorted by name, skipping what is not text."""
    path = user_path(name)
    if not path.is_dir():
        if is_table(path) and not holds_records(path) and not (config.as_text and is_delimited(path)):
            anyway = "; to train on it as plain text anyway, add: --set data.as_text=true"
            raise DataError(
                f"{path} is a table, not prose; to learn a label from a column, type: regard train classify "
                f"--data {quote(str(path))} --text COLUMN --label COLUMN{anyway if is_delimited(path) else ''}"
            )
        return [path]
    files = sorted(p for p in path.rglob("*") if ending(p) in ENDINGS and p.is_file())
    if not files:
        expected = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        raise DataError(f"{path} holds no text; expected files that end in {expected}, or give a file itself")
    not_text = {file: error for file in files if not is_records(file) and (error := text_error(file))}
    if not_text:
        _report_not_text(path, not_text, config.strict or len(not_text) == len(files), len(files), say)
    return [file for file in files if file not in not_text]


def _report_not_text(folder: Path, not_text: dict[Path, NotText], fatal: bool, total: int, say: Say) -> None:
    """Report which files of a folder are not text, the first of them by name, with how to convert them."""
    errors = list(not_text.values())
    if fatal and len(not_text) == total and errors[0].encoding and len({e.encoding for e in errors}) == 1:
        raise DataError(
            f"{folder}: none of the {total:,} files is UTF-8; the first: {errors[0]}; to convert all, type: "
            f"{convert(folder, errors[0].encoding)}"
        )
    listed = "; ".join(map(str, errors[:LISTED])) + (f"; and {len(errors) - LISTED:,} more" if errors[LISTED:] else "")
    if fatal:
        raise DataError(listed)
    say(f"{folder}: skipped {len(not_text):,} of {total:,} files: {listed}")


# Building


def _own_tokenizer(folder: str) -> TextTokenizer:
    tokenizer = load(user_path(folder))
    if not hasattr(tokenizer, "token_bytes"):
        raise ConfigError(f"{folder} has a translator's tokenizer, not for plain text; name a language model")
    return tokenizer


def _build(
    config: TextConfig, sources: list[Files], hashes: dict[str, Any], own: TextTokenizer | None, writer: StoreWriter
) -> dict[str, Any]:
    saved = writer.saved
    corpus = corpus_of(config, sources, own or (load(writer.folder) if saved else None))
    tokenizer = corpus.tokenizer
    if not saved:
        tokenizer.save(writer.folder)
    corpus.report = Counter(saved.get("report", corpus.report))
    columns, ends, done = corpus.columns(store.id_type(tokenizer.size)), saved.get("ends", []), saved.get("groups", 0)
    order = [(name, source) for name in ("train", "valid") for source in range(len(corpus.parts[name]))]
    with ExitStack() as held:
        parts = {name: held.enter_context(writer.part(name, **columns)) for name in ("train", "valid")}
        for name, source in order[len(ends) :]:
            for groups in corpus.write(name, source, parts[name], done):
                if groups % SAVE_EVERY == 0:
                    writer.save(ends=ends, groups=groups, report=corpus.report)
            ends, done = [*ends, parts[name].rows], 0
    tokens, files = {name: part.length("ids") for name, part in parts.items()}, sources[0]
    if min(tokens.values()) < 2:
        where = ", ".join(map(str, files["train"][:3]))
        if config.max_length and (lost := corpus.report["unanswered"]):
            raise DataError(
                f"{where}: {lost:,} records were dropped, since their answers do not start within "
                f"{config.max_length} tokens; give shorter ones, or more room: --set data.context=N"
            )
        raise DataError(
            f"{where}: too little text, {tokens['train']:,} tokens to train on and {tokens['valid']:,} for validation; "
            "give more, or a validation text: --valid FILE"
        )
    if files["valid"]:
        passages = list(corpus.passages("valid"))
        corpus.report.update(shared=overlap.count(passages, corpus.passages("train")), compared=len(passages))
    names = ("documents", "characters", "empty", "cut", "unanswered", "learned", "valid_bytes", "valid_words",
             "shared", "compared")  # fmt: skip
    report = {name: corpus.report[name] for name in names}
    about = {"kind": corpus.kind, "config": to_dict(config), "inputs": hashes, "vocab": tokenizer.size}
    return about | {"report": report, "ends": ends[: len(sources)]}
