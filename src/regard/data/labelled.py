"""Labelled text to a prepared store: a tokenizer, ids and labels."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import to_dict
from regard.data import fetch, split, store
from regard.data.examples import Example, Tagged, read_examples, read_tagged
from regard.data.folders import Say, to_stderr, user_path
from regard.data.settings import NONE, LabelledConfig
from regard.data.store import Column, PartWriter, Store, StoreWriter
from regard.data.targets import TARGETS
from regard.data.tokenizers import load
from regard.data.tokenizers.encoder import Encoded, EncoderTokenizer
from regard.data.tokenizers.wordpiece import WordPiece
from regard.errors import ConfigError, DataError

VERSION = 1  # of the prepared format
GROUP = 1024  # texts encoded at a time
TAGGING = ("case", "replace_mentions")  # settings for taggers only

Rows = Sequence[Any]  # of Example, or of Tagged
Summary = Callable[[Rows, Rows], dict[str, Any]]  # of the training and validation examples


@dataclass(frozen=True)
class PreparedLabels(Store):
    """Labelled texts in columns: `ids`, the start of each `second` text, and `labels`, one per text or token; if the
    model reads them, also the `cases` of words."""

    tokenizer: EncoderTokenizer
    train: dict[str, Any]
    valid: dict[str, Any]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.manifest["labels"])

    @property
    def counts(self) -> list[int]:
        """How often each label occurs in training."""
        return [self.manifest["report"]["counts"][label] for label in self.labels]

    def report(self) -> str:
        return describe(self.manifest)


def prepare_labels(
    config: LabelledConfig, kind: str, say: Say = to_stderr, summary: Summary | None = None
) -> PreparedLabels:
    """Everything training needs, built from `config`'s files or found in the cache. `summary` is stored with it, so
    that the examples are read once."""
    if kind != "tag" and (other := next((name for name in TAGGING if getattr(config, name)), "")):
        raise ConfigError(f"data.{other} is for tagging; leave it out")
    files = locate(config, say)
    hashes = {part: store.sha256(path) for part, path in zip(("train", "valid"), files, strict=True) if path}
    names = ("held_out", "text", "second", "label", "vocab", "lower", "max_length")
    shaping: dict[str, Any] = {k: getattr(config, k) for k in names} | split.key(config, files[1])
    shaping |= {name: True for name in ("strict", "case") if getattr(config, name)}
    endings = [path.name.split(".", 1)[-1] if path else "" for path in files]  # they determine how a file is read
    own = own_tokenizer(config.tokenizer) if config.tokenizer else None
    if own is not None:
        own.mark_case(config.case)
        hashes["tokenizer"] = hashlib.sha256(own.tokenizer.to_str().encode()).hexdigest()
        shaping |= {"vocab": 0, "lower": True}
    ready = store.prepare(
        store.key("labels", VERSION, kind, shaping, endings, hashes),
        lambda writer: _build(config, kind, hashes, own, writer, summary),
        say,
        "reading and tokenising the examples",
    )
    parts = (ready.part(name) for name in ("train", "valid"))
    prepared = PreparedLabels(ready.folder, ready.manifest, own or load(ready.folder), *parts)
    say(prepared.report())
    return prepared


def describe(manifest: dict[str, Any]) -> str:
    """The manifest's report as text."""
    r, config = manifest["report"], manifest["config"]
    texts = {"tag": "sentences", "pair": "pairs"}.get(manifest["kind"], "texts")
    sizes = [manifest["parts"][part]["rows"] for part in ("train", "valid")]
    targets = TARGETS[config.get("targets", "classes")]  # earlier versions had none
    how = "" if "valid" in manifest["inputs"] else split.BY_CONTENT if manifest["kind"] == "tag" else targets.how
    lines = [
        f"{split.report(sizes[0], sizes[1], texts, how)}; vocabulary of {manifest['vocab']:,}",
        *targets.report(r["counts"], "" if manifest["kind"] == "tag" else "text", "labels"),
        *r.get("notes", []),  # earlier versions kept none
    ]
    if r["empty"]:
        lines.append(f"dropped {r['empty']:,}: empty")
    if r["cut"]:
        lines.append(f"cut {r['cut']:,}: longer than {config['max_length']} tokens (--set data.max_length=…)")
    if r["shared"]:
        lines.append(f"{r['shared']:,} validation {texts} are in the training file too; the score will be inflated")
    return "\n".join(lines)


# Which files, and which rows


def locate(config: LabelledConfig, say: Say = to_stderr) -> tuple[Path, Path | None]:
    """The training and validation files; a named data set is fetched if not in the cache."""
    if bool(config.name) == bool(config.path):
        raise ConfigError("train on what? give --data FILE, a CSV, TSV, JSON, JSONL or CoNLL file, or a name")
    valid = user_path(config.valid) if config.valid else None
    if config.name:
        files = fetch.get_files(config.name, "labels", "text", say=say)
        return files.train, valid or files.valid
    return user_path(config.path), valid


def read_rows(path: Path, config: LabelledConfig, kind: str, say: Say = to_stderr) -> Rows:
    if kind == "tag":
        return read_tagged(path, config.text, config.label, strict=config.strict, say=say)
    check = TARGETS[config.targets].fault
    columns = config.text, config.second, config.label
    numbers = TARGETS[config.targets].numbers
    return read_examples(path, *columns, kind == "pair", check=check, strict=config.strict, say=say, numbers=numbers)


def read_parts(config: LabelledConfig, kind: str, say: Say = to_stderr) -> tuple[Rows, Rows, int]:
    """The training and validation examples, and how many empty ones were dropped."""
    train_file, valid_file = locate(config, say)
    rows = read_rows(train_file, config, kind, say)
    others = read_rows(valid_file, config, kind, say) if valid_file else []
    train, valid = ([row for row in part if not is_empty(row)] for part in (rows, others))
    empty = len(rows) + len(others) - len(train) - len(valid)
    if valid_file is None:
        train, valid = hold_out(train, config, f"examples in {train_file}")
    if not train or not valid:
        raise DataError(f"{train_file} has {len(train)} examples and {valid_file} has {len(valid)}; give more")
    return train, valid, empty


def is_empty(row: Example | Tagged) -> bool:
    if isinstance(row, Tagged):
        return not row.words
    return not row.text.strip() or (row.second is not None and not row.second.strip())


def content(row: Example | Tagged) -> str:
    """What identifies a text, to find duplicates."""
    return "\t".join(row.words) if isinstance(row, Tagged) else f"{row.text.strip()}\t{(row.second or '').strip()}"


def hold_out(rows: Sequence[Any], config: LabelledConfig, what: str) -> tuple[list[Any], list[Any]]:
    digests, labels = [split.digest(content(row)) for row in rows], [getattr(row, "label", "") for row in rows]
    labels = TARGETS[config.targets].strata(labels)
    return split.parts(rows, split.hold_out(digests, labels, config.held_out, what, rule=config.split_rule))


def labels_of(rows: Rows) -> list[str]:
    return [label for row in rows for label in (row.tags if isinstance(row, Tagged) else (row.label,))]


def places_of(rows: Rows, file: str) -> list[str]:
    """The file and line of each of `labels_of`."""
    return [f"{file} line {row.line}" for row in rows for _ in labels_of([row])]


# Building


def own_tokenizer(folder: str) -> EncoderTokenizer:
    tokenizer = load(user_path(folder))
    if not isinstance(tokenizer, EncoderTokenizer):
        raise ConfigError(f"{folder} does not have an encoder's tokenizer; name a BERT model, such as minilm")
    return tokenizer


def _build(
    config: LabelledConfig, kind: str, hashes: dict[str, str], own: EncoderTokenizer | None, writer: StoreWriter,
    summary: Summary | None,
) -> dict[str, Any]:  # fmt: skip
    notes: list[str] = []
    train, valid, empty = read_parts(config, kind, notes.append)
    train_file, valid_file = locate(config)
    counts, places = Counter(labels_of(train)), places_of(valid, str(valid_file or train_file))
    labels = TARGETS[config.targets].codes(counts, labels_of(valid), str(train_file), places)
    lines = [line for row in train for line in texts_of(row)]
    tokenizer = own or WordPiece.train(lines, config.vocab, config.lower)
    tokenizer.mark_case(config.case)
    tokenizer.save(writer.folder, config.max_length)
    columns = {
        "ids": Column(store.id_type(tokenizer.size), ragged=True),
        "second": Column(np.int64),
        "labels": Column(np.int32, ragged=kind == "tag"),
        **({"cases": Column(np.int8, ragged=True)} if config.case else {}),
    }
    cut = 0
    for name, rows in (("train", train), ("valid", valid)):
        with writer.part(name, **columns) as part:
            cut += _write(part, rows, tokenizer, labels, config.max_length)
    seen = {content(row) for row in train}
    return {
        "kind": kind,
        "config": to_dict(config),
        "inputs": hashes,
        "labels": labels,
        "vocab": tokenizer.size,
        "summary": summary(train, valid) if summary else {},
        "report": {
            "counts": {label: counts[label] for label in labels},
            "notes": notes,
            "empty": empty,
            "cut": cut,
            "shared": sum(content(row) in seen for row in valid),
        },
    }


def texts_of(row: Example | Tagged) -> list[str]:
    if isinstance(row, Tagged):
        return [" ".join(row.words)]
    return [row.text] if row.second is None else [row.text, row.second]


def _write(part: PartWriter, rows: Rows, tokenizer: EncoderTokenizer, labels: list[str], max_length: int) -> int:
    """Write the rows; returns how many texts were cut."""
    numbers = {label: i for i, label in enumerate(labels)}
    cut = 0
    for start in range(0, len(rows), GROUP):
        group = rows[start : start + GROUP]
        for row, encoded in zip(group, encode_rows(group, tokenizer, max_length), strict=True):
            tags = isinstance(row, Tagged)
            marks = first_pieces(encoded, [numbers[t] for t in row.tags]) if tags else numbers[row.label]
            cases = {"cases": encoded.cases} if encoded.cases else {}
            part.append(ids=encoded.ids, second=second_from(encoded), labels=marks, **cases)
            cut += encoded.cut > 0
    return cut


def encode_rows(rows: Sequence[Any], tokenizer: EncoderTokenizer, max_length: int) -> list[Encoded]:
    if rows and isinstance(rows[0], Tagged):
        return [tokenizer.encode_words(row.words, max_length) for row in rows]
    pairs = [row.second for row in rows] if rows and rows[0].second is not None else None
    return tokenizer.encode_batch([row.text for row in rows], pairs, max_length)


def second_from(encoded: Encoded) -> int:
    """The start of the second text; the end if there is none."""
    return encoded.sentences.index(1) if 1 in encoded.sentences else len(encoded.ids)


def first_pieces(encoded: Encoded, tags: Sequence[int]) -> list[int]:
    """The tag of a word at its first token (Devlin et al. 2019, section 5.3), `NONE` at all others."""
    marks, last = [], None
    for word in encoded.words:
        marks.append(NONE if word is None or word == last else tags[word])
        last = word
    return marks
