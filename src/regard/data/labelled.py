"""Labelled text to a prepared folder: a tokenizer, ids and labels as memory maps, a manifest of what was done.

The folder's name is a hash of the settings and of the input files; the same request finds the same folder.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import to_dict
from regard.data import fetch, store
from regard.data.examples import Example, Tagged, read_examples, read_tagged
from regard.data.folders import Say, building, cache_folder, to_stderr, user_path
from regard.data.settings import LabelledConfig
from regard.data.store import Shards, ShardWriter, open_shards
from regard.data.tokenizers import load
from regard.data.tokenizers.wordpiece import Encoded, WordPiece
from regard.errors import ConfigError, DataError

FORMAT = 1
KINDS = ("classify", "pair", "tag")
NONE = -1  # of a piece that has no label: it does not count
GROUP = 1024  # texts encoded at a time

Rows = Sequence[Any]  # of Example, or of Tagged


class LabelledFile:
    """Ids of N texts, where the second text of each begins, and labels: one a text, or one a piece."""

    def __init__(self, ids: Shards, offsets: np.ndarray, seconds: np.ndarray, labels: Shards, per_piece: bool):
        self.ids, self.offsets, self.seconds, self.labels = ids, offsets, seconds, labels
        self.per_piece = per_piece

    @classmethod
    def open(cls, folder: Path, part: str, manifest: dict[str, Any]) -> "LabelledFile":
        about, shard, per_piece = manifest["parts"][part], manifest["shard"], manifest["kind"] == "tag"
        texts, tokens = about["texts"], about["tokens"]
        ids = open_shards(folder, f"{part}.ids", np.dtype(manifest["dtype"]), tokens, shard)
        offsets = open_shards(folder, f"{part}.offsets", np.int64, texts + 1, shard)
        seconds = open_shards(folder, f"{part}.seconds", np.int64, texts, shard)
        labels = open_shards(folder, f"{part}.labels", np.int32, tokens if per_piece else texts, shard)
        return cls(ids, offsets.read(0, texts + 1), seconds.read(0, texts), labels, per_piece)

    def __len__(self) -> int:
        return len(self.seconds)

    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def __getitem__(self, i: int) -> tuple[np.ndarray, int, np.ndarray]:
        """The ids of a text, the place where its second text begins, and its label, or those of its pieces."""
        start, stop = int(self.offsets[i]), int(self.offsets[i + 1])
        place = (start, stop) if self.per_piece else (i, i + 1)
        return self.ids.read(start, stop), int(self.seconds[i]), self.labels.read(*place)


@dataclass(frozen=True)
class PreparedLabels:
    """A prepared folder, open for reading."""

    folder: Path
    manifest: dict[str, Any]
    tokenizer: WordPiece
    train: LabelledFile
    valid: LabelledFile

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.manifest["labels"])

    @property
    def counts(self) -> list[int]:
        """How often each label comes in training."""
        return [self.manifest["report"]["counts"][label] for label in self.labels]

    def report(self) -> str:
        return describe(self.manifest)


def prepare_labels(config: LabelledConfig, kind: str, say: Say = to_stderr) -> PreparedLabels:
    """Everything training needs, made from `config`'s files or found ready in the cache."""
    files = locate(config, say)
    hashes = {part: store.sha256(path) for part, path in zip(("train", "valid"), files, strict=True) if path}
    names = ("held_out", "text", "second", "label", "vocab", "lower", "max_length")
    shaping: dict[str, Any] = {k: getattr(config, k) for k in names}
    endings = [path.name.split(".", 1)[-1] if path else "" for path in files]  # they tell how a file is read
    given = None
    if config.tokenizer:
        given = given_tokenizer(config.tokenizer)
        hashes["tokenizer"] = hashlib.sha256(given.tokenizer.to_str().encode()).hexdigest()
        shaping |= {"vocab": 0, "lower": True}
    folder = cache_folder() / "prepared" / store.key("labels", FORMAT, kind, shaping, endings, hashes)
    if (ready := _open(folder, given)) is None:
        say("preparing: reading the examples, cutting them into pieces ...")
        with building(folder) as temporary:
            _build(config, kind, hashes, given, temporary)
        ready = _open(folder, given)
        assert ready is not None
    say(ready.report())
    return ready


def describe(manifest: dict[str, Any]) -> str:
    """The manifest's report as text."""
    r, config = manifest["report"], manifest["config"]
    texts = "sentences" if manifest["kind"] == "tag" else "pairs" if manifest["kind"] == "pair" else "texts"
    sizes = [manifest["parts"][part]["texts"] for part in ("train", "valid")]
    total, common = sum(r["counts"].values()), sorted(r["counts"].items(), key=lambda item: -item[1])
    shown = [f"{label} {count:,} ({count / total:.1%})" for label, count in common]
    shown = shown if len(shown) <= 12 else [*shown[:12], f"and {len(shown) - 12} more"]
    lines = [
        f"{sizes[0]:,} {texts} to train on, {sizes[1]:,} for validation, {manifest['vocab']:,} pieces",
        f"{len(manifest['labels'])} labels: {', '.join(shown)}",
    ]
    if r["empty"]:
        lines.append(f"dropped {r['empty']:,}: empty")
    if r["cut"]:
        lines.append(f"cut {r['cut']:,}: longer than {config['max_length']} pieces (--set data.max_length=…)")
    if r["shared"]:
        lines.append(f"{r['shared']:,} held-out {texts} stand in the training file too; their score flatters")
    return "\n".join(lines)


# Which files, and which rows


def locate(config: LabelledConfig, say: Say = to_stderr) -> tuple[Path, Path | None]:
    """The files to train and to validate on; a known data set is fetched when it is not here yet."""
    if bool(config.name) == bool(config.path):
        raise ConfigError("train on what? give --data FILE, a CSV, TSV, JSONL or CoNLL file, or a name")
    valid = user_path(config.valid) if config.valid else None
    if config.name:
        found = fetch.get_text(config.name, say, labels=True)
        return found.train, valid or found.valid
    return user_path(config.path), valid


def read_rows(path: Path, config: LabelledConfig, kind: str, labelled: bool = True) -> Rows:
    if kind == "tag":
        return read_tagged(path, config.text, config.label)
    return read_examples(path, config.text, config.second, config.label, kind == "pair", labelled)


def read_parts(config: LabelledConfig, kind: str, say: Say = to_stderr) -> tuple[Rows, Rows, int]:
    """The examples to train and to validate on, and how many empty ones were dropped."""
    train_file, valid_file = locate(config, say)
    rows = read_rows(train_file, config, kind)
    others = read_rows(valid_file, config, kind) if valid_file else []
    train, valid = ([row for row in part if not is_empty(row)] for part in (rows, others))
    empty = len(rows) + len(others) - len(train) - len(valid)
    if valid_file is None:
        train, valid = split(train, config.held_out)
    if not train or not valid:
        labels = set(labels_of(train))
        once = f"; {len(labels):,} labels, each of one example: is that the column? (--label NAME)"
        raise DataError(
            f"{train_file}: {len(train)} examples to train on and {len(valid)} held out; give more, "
            f"or held-out ones of their own: --valid FILE{once * (len(labels) == len(train) > 2)}"
        )
    return train, valid, empty


def is_empty(row: Example | Tagged) -> bool:
    if isinstance(row, Tagged):
        return not row.words
    return not row.text.strip() or (row.second is not None and not row.second.strip())


def content(row: Example | Tagged) -> str:
    """What is compared to find the same text twice."""
    return "\t".join(row.words) if isinstance(row, Tagged) else f"{row.text.strip()}\t{(row.second or '').strip()}"


def split(rows: Sequence[Any], held_out: float) -> tuple[list[Any], list[Any]]:
    """Some examples of every class held out: by chance, but always the same, and equal texts on the same side."""
    groups: dict[str, list[str]] = defaultdict(list)
    for text, label in {content(row): getattr(row, "label", "") for row in rows}.items():
        groups[label].append(text)
    chosen: set[str] = set()
    for texts in groups.values():
        texts.sort(key=lambda text: hashlib.sha256(text.encode()).digest())
        chosen.update(texts[: round(held_out * len(texts))])
    if not chosen and len(largest := max(groups.values(), key=len, default=[])) > 1:
        chosen.add(largest[0])  # never the only example of a class
    return [row for row in rows if content(row) not in chosen], [row for row in rows if content(row) in chosen]


def labels_of(rows: Rows) -> list[str]:
    return [label for row in rows for label in (row.tags if isinstance(row, Tagged) else (row.label,))]


def check_known(rows: Rows, labels: Sequence[str], where: str) -> None:
    """`DataError` for a label that was not among those trained on."""
    known = set(labels)
    for row in rows:
        for label in labels_of([row]):
            if label not in known:
                raise DataError(
                    f"{where} line {row.line}: the label {label!r} is not among those trained on: {', '.join(labels)}"
                )


# Building


def given_tokenizer(folder: str) -> WordPiece:
    tokenizer = load(user_path(folder))
    if not isinstance(tokenizer, WordPiece):
        raise ConfigError(f"{folder} has no WordPiece vocabulary; name a BERT model, as minilm")
    return tokenizer


def _open(folder: Path, given: WordPiece | None) -> PreparedLabels | None:
    if (manifest := store.read_manifest(folder)) is None:
        return None
    train, valid = (LabelledFile.open(folder, part, manifest) for part in ("train", "valid"))
    return PreparedLabels(folder, manifest, given or WordPiece.load(folder), train, valid)


def _build(config: LabelledConfig, kind: str, hashes: dict[str, str], given: WordPiece | None, to: Path) -> None:
    train, valid, empty = read_parts(config, kind)
    train_file, valid_file = locate(config)
    counts = Counter(labels_of(train))
    labels = sorted(counts)
    if len(labels) < 2:
        raise DataError(f"{train_file}: all examples have the label {labels[0]!r}; there is nothing to tell apart")
    check_known(valid, labels, str(valid_file or train_file))
    lines = [line for row in train for line in _texts(row)]
    tokenizer = given or WordPiece.train(lines, config.vocab, config.lower)
    tokenizer.save(to, config.max_length)
    dtype, parts, cut = store.id_type(tokenizer.size), {}, 0
    for part, rows in (("train", train), ("valid", valid)):
        parts[part], more = _write(to, part, rows, tokenizer, labels, dtype, config.max_length)
        cut += more
    seen = {content(row) for row in train}
    store.write_manifest(
        to,
        {
            "format": FORMAT,
            "kind": kind,
            "config": to_dict(config),
            "inputs": hashes,
            "labels": labels,
            "vocab": tokenizer.size,
            "dtype": dtype.name,
            "shard": store.SHARD,
            "parts": parts,
            "report": {
                "counts": {label: counts[label] for label in labels},
                "empty": empty,
                "cut": cut,
                "shared": sum(content(row) in seen for row in valid),
            },
        },
    )


def _texts(row: Example | Tagged) -> list[str]:
    if isinstance(row, Tagged):
        return [" ".join(row.words)]
    return [row.text] if row.second is None else [row.text, row.second]


def _write(
    to: Path, part: str, rows: Rows, tokenizer: WordPiece, labels: list[str], dtype: np.dtype, max_length: int
) -> tuple[dict[str, int], int]:
    numbers = {label: i for i, label in enumerate(labels)}
    cut = 0
    with (
        ShardWriter(to, f"{part}.ids", dtype) as ids,
        ShardWriter(to, f"{part}.offsets", np.int64) as offsets,
        ShardWriter(to, f"{part}.seconds", np.int64) as seconds,
        ShardWriter(to, f"{part}.labels", np.int32) as marks,
    ):
        offsets.write([0])
        for start in range(0, len(rows), GROUP):
            group = rows[start : start + GROUP]
            for row, found in zip(group, encode_rows(group, tokenizer, max_length), strict=True):
                ids.write(found.ids)
                offsets.write([ids.length])
                seconds.write([second_from(found)])
                cut += found.cut > 0
                marks.write(
                    first_pieces(found, [numbers[t] for t in row.tags])
                    if isinstance(row, Tagged)
                    else [numbers[row.label]]
                )
        return {"texts": len(rows), "tokens": ids.length}, cut


def encode_rows(rows: Sequence[Any], tokenizer: WordPiece, max_length: int) -> list[Encoded]:
    if rows and isinstance(rows[0], Tagged):
        return [tokenizer.encode_words(row.words, max_length) for row in rows]
    pairs = [row.second for row in rows] if rows and rows[0].second is not None else None
    return tokenizer.encode_batch([row.text for row in rows], pairs, max_length)


def second_from(found: Encoded) -> int:
    """Where the second text begins; the end, where there is none."""
    return found.sentences.index(1) if 1 in found.sentences else len(found.ids)


def first_pieces(found: Encoded, tags: Sequence[int]) -> list[int]:
    """The tag of a word at its first piece (Devlin et al. 2019, section 5.3), `NONE` at all other pieces."""
    marks, last = [], None
    for word in found.words:
        marks.append(NONE if word is None or word == last else tags[word])
        last = word
    return marks
