"""Text and records to a prepared store for language modelling: a tokenizer, and ids one after the other."""

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from regard.config import to_dict
from regard.data import fetch, overlap, split, store
from regard.data.catalog import find
from regard.data.documents import DocumentReader, NotText, convert, pieces, text_error
from regard.data.files import ending, in_groups
from regard.data.folders import Say, to_stderr, user_path
from regard.data.records import Record, check_records, encode_record, is_records, plain, read_records
from regard.data.settings import LEGACY_SPLIT, MaskedConfig, TextConfig
from regard.data.skipped import LISTED
from regard.data.store import Column, Flat, Numbers, PartWriter, Store, StoreWriter
from regard.data.tables import LABELS, is_delimited, is_table, read_table
from regard.data.tokenizers import TextTokenizer, load
from regard.data.tokenizers.bytelevel import SMALLEST, ByteLevel
from regard.data.tokenizers.chars import Characters
from regard.errors import ConfigError, DataError

VERSION = 1  # of what is made of the same settings and files
ENDINGS = (".txt", ".md")  # of the files that are read in a folder
GROUP = 32  # pieces encoded at a time
LEARN_FROM = 100_000_000  # characters the vocabulary is learned from, about, at most

Files = dict[str, list[Path]]  # of the parts train and valid


@dataclass(frozen=True)
class TokenFile:
    """The ids of a text, one after the other; or of records, each with the places that are answers."""

    ids: Flat
    offsets: np.ndarray | None = None  # of records: N+1 places, where each begins and the last one ends
    answers: Flat | None = None  # of records: for each id, whether it is to be learned

    @classmethod
    def of(cls, ids: Numbers, offsets: np.ndarray | None = None, answers: np.ndarray | None = None) -> "TokenFile":
        """The same over arrays in memory."""
        return cls(Flat([np.asarray(ids)]), offsets, None if answers is None else Flat([np.asarray(answers, bool)]))

    @classmethod
    def open(cls, columns: dict[str, Any]) -> "TokenFile":
        ids = columns["ids"]
        return cls(ids.values, ids.offsets, columns["answers"].values) if "answers" in columns else cls(ids)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def records(self) -> int:
        """How many records there are; 0 for a text."""
        return 0 if self.offsets is None else len(self.offsets) - 1


@dataclass(frozen=True)
class PreparedText(Store):
    """Text or records, ready."""

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
    """Everything training needs, made from `config`'s text or found ready in the cache."""
    files = text_files(config, say=say)
    hashes = {part: [store.sha256(path) for path in paths] for part, paths in files.items()}
    shaping: dict[str, Any] = {k: getattr(config, k) for k in ("held_out", "tokens", "max_length", "template")}
    shaping |= split.key(config, next(iter(files["valid"]), None))
    shaping["vocab"] = config.vocab if config.tokens == "bpe" else 0
    own = _own_tokenizer(config.tokenizer) if config.tokenizer else None
    if own is not None:
        hashes["tokenizer"] = [store.sha256(user_path(config.tokenizer) / "tokenizer.json")]
        shaping |= {"tokens": "given", "vocab": 0, "eos": own.eos, "bos": own.bos, "chat": own.chat_template}
    ready = store.prepare(
        store.key("text", VERSION, shaping, hashes),
        lambda writer: _build(config, files, hashes, own, writer),
        say,
        "reading the text, learning the pieces, encoding",
        describe,
    )
    parts = (TokenFile.open(ready.part(name)) for name in ("train", "valid"))
    return PreparedText(ready.folder, ready.manifest, own or load(ready.folder), *parts)


def describe(ready: Store) -> str:
    """What was kept, what was dropped and why, in a few lines."""
    manifest = ready.manifest
    r, records = manifest["report"], manifest["kind"] == "records"
    sizes = [manifest["parts"][part]["rows"] for part in ("train", "valid")]
    what = "records" if records else "tokens"
    how = "" if manifest["inputs"]["valid"] else split.BY_CONTENT if records else split.AT_THE_END
    line = f"{split.report(sizes[0], sizes[1], what, how)}; {manifest['vocab']:,} pieces"
    if records:
        line += f" ({ready.length('train', 'ids'):,} tokens, {r['learned']:,} of them to be learned)"
    reasons = {
        "empty": ("dropped", "empty"),
        "unanswered": ("dropped", "nothing of the answer is left, or it was empty"),
        "cut": ("cut", f"longer than {manifest['config']['max_length']} tokens (--set data.context=…)"),
    }
    lines = [line, *(f"{did} {r[key]:,}: {why}" for key, (did, why) in reasons.items() if r[key])]
    shared, compared = r.get("shared", 0), r.get("compared", 0)  # older stores did not compare
    return "\n".join([*lines, *overlap.validation_warning(shared, compared, "records" if records else "passages")])


def training_passages(config: TextConfig, tokenizer: TextTokenizer) -> Iterator[str]:
    """The passages or records a run with these settings was trained on; `DataError` where its data is gone."""
    if config.name and fetch.local_files(find(config.name)) is None:
        raise DataError(f"{config.name} is not on this machine; type: regard data get {config.name}")
    return _corpus(config, text_files(config), tokenizer).passages("train")


def scored_passages(path: Path, template: str) -> list[str]:
    """A text or a JSONL file as `training_passages` has them."""
    if _kind(path, template) == "records":
        return [plain(record) for record in read_records(path, template) if isinstance(record, Record)]
    return list(overlap.passages(DocumentReader([path])))


# Which files


def text_files(config: TextConfig | MaskedConfig, endings: tuple[str, ...] = ENDINGS, say: Say = to_stderr) -> Files:
    """The files to train and to validate on; a known data set is fetched when it is not here yet."""
    if config.name and config.path:
        raise ConfigError(f"give either the data set {config.name!r} or a path of your own, not both")
    if not config.name and not config.path:
        raise ConfigError("no data; give a text file, a folder, a .jsonl, or a name (see: regard data list)")
    if config.name:
        files = fetch.get_files(config.name, "text", say=say)
        train, valid = [files.train], [files.valid] if files.valid else []
    else:
        train, valid = _files(config.path, endings, config, say), []
    if config.valid:
        valid = _files(config.valid, endings, config, say)
    for path in [*train, *valid] if config.path else valid * bool(config.valid):
        if is_records(path):
            check_records(path, getattr(config, "template", ""), config.strict, say)
    return {"train": train, "valid": valid}


def holds_records(path: Path) -> bool:
    """Whether a file holds records for a language model, or texts; texts with a label are a table, unless in JSONL."""
    if ending(path) == ".jsonl" or not is_records(path):
        return is_records(path)
    if not path.is_file() or (first := next(read_records(path), None)) is None:
        return False
    return isinstance(first, Record) or not set(read_table(path, say=lambda _: None, strict=False).lower) & {*LABELS}


def _files(name: str, endings: tuple[str, ...], config: TextConfig | MaskedConfig, say: Say) -> list[Path]:
    """A file itself; the texts in a folder and its folders, by name, without those that are not text."""
    path = user_path(name)
    if not path.is_dir():
        if is_table(path) and not holds_records(path) and not (config.as_text and is_delimited(path)):
            anyway = "; to learn it as it is written all the same, add: --set data.as_text=true"
            raise DataError(
                f"{path} is a table, not prose; to learn a label from a column, type: regard train classify "
                f"--data {quote(str(path))} --text COLUMN --label COLUMN{anyway if is_delimited(path) else ''}"
            )
        return [path]
    files = sorted(p for p in path.rglob("*") if ending(p) in endings and p.is_file())
    if not files:
        expected = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise DataError(f"{path} holds no text; expected files that end in {expected}, or give a file itself")
    wrong = {file: error for file in files if not is_records(file) and (error := text_error(file))}
    if wrong:
        _report_wrong(path, wrong, config.strict or len(wrong) == len(files), len(files), say)
    return [file for file in files if file not in wrong]


def _report_wrong(folder: Path, wrong: dict[Path, NotText], fatal: bool, total: int, say: Say) -> None:
    """Say which files of a folder are not text, the first of them by name and the way to convert them."""
    errors = list(wrong.values())
    if fatal and len(wrong) == total and errors[0].encoding and len({e.encoding for e in errors}) == 1:
        raise DataError(
            f"{folder}: all {total:,} files are like {errors[0]}; for all, type: {convert(folder, errors[0].encoding)}"
        )
    listed = "; ".join(map(str, errors[:LISTED])) + (f"; and {len(errors) - LISTED:,} more" if errors[LISTED:] else "")
    if fatal:
        raise DataError(listed)
    say(f"{folder}: skipped {len(wrong):,} of {total:,} files: {listed}")


# Building


def _own_tokenizer(folder: str) -> TextTokenizer:
    tokenizer = load(user_path(folder))
    if not hasattr(tokenizer, "token_bytes"):
        raise ConfigError(f"{folder} is a translator's, whose tokenizer cannot write plain text; name a language model")
    return tokenizer


def _build(
    config: TextConfig, files: Files, hashes: dict[str, Any], own: TextTokenizer | None, writer: StoreWriter
) -> dict[str, Any]:
    corpus = _corpus(config, files, own)
    tokenizer = corpus.tokenizer
    tokenizer.save(writer.folder)
    columns, tokens = corpus.columns(store.id_type(tokenizer.size)), {}
    for name in ("train", "valid"):
        with writer.part(name, **columns) as part:
            corpus.write(name, part)
            tokens[name] = part.length("ids")
    if min(tokens.values()) < 2:
        where = ", ".join(map(str, files["train"][:3]))
        if config.max_length and (lost := corpus.report["unanswered"]):
            raise DataError(
                f"{where}: {lost:,} records were dropped, since nothing of their answers is left within "
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
    return {"kind": corpus.kind, "config": to_dict(config), "inputs": hashes, "vocab": tokenizer.size, "report": report}


def _corpus(config: TextConfig, files: Files, own: TextTokenizer | None) -> "_Text | _Records":
    kinds = {_kind(path, config.template) for path in (*files["train"], *files["valid"])}
    if len(kinds) > 1:
        raise DataError("plain text and records cannot be mixed; validation data must have the training data's form")
    return _Records(config, files, own) if kinds == {"records"} else _Text(config, files, own)


def _kind(path: Path, template: str) -> str:
    first = next(read_records(path, template), None) if is_records(path) else None
    return "records" if isinstance(first, Record) else "text"


def _learn(config: TextConfig, characters: set[str], texts: Iterator[str], total: int) -> TextTokenizer:
    """The tokenizer of `config`, learned from every n-th text where there are more than enough."""
    if config.tokens == "chars":
        return Characters(characters)
    sample = islice(texts, 0, None, -(-total // LEARN_FROM))
    return ByteLevel.train(sample, SMALLEST if config.tokens == "bytes" else config.vocab)


class _Text:
    """Running text."""

    kind = "text"

    def __init__(self, config: TextConfig, files: Files, own: TextTokenizer | None):
        has_mark = config.tokens != "chars" if own is None else own.eos is not None
        whole = DocumentReader(files["train"], between="" if has_mark else "\n")
        characters: set[str] = set()
        total = 0
        for block in whole:
            if block is not None:
                total += len(block)
                characters |= set(block)
        self.report = Counter(documents=whole.documents, empty=whole.empty, characters=total)
        if not total:
            raise DataError(f"{', '.join(map(str, files['train'][:3]))}: empty; expected text")
        cut = int((1 - config.held_out) * total)
        if files["valid"]:
            self.parts = {"train": whole, "valid": replace(whole, paths=files["valid"])}
        else:
            self.parts = {"train": replace(whole, stop=cut), "valid": replace(whole, start=cut)}
        for block in self.parts["valid"] if files["valid"] and own is None and config.tokens == "chars" else ():
            if strange := set(block or "") - characters:
                raise DataError(
                    f"{files['valid'][0]} holds {min(strange)!r}, which the training text does not; "
                    "remove it there, or train with --tokens bytes, which can write everything"
                )
        train = (piece for piece in pieces(self.parts["train"]) if piece)
        self.tokenizer = own or _learn(config, characters, train, total)

    def passages(self, part: str) -> Iterator[str]:
        return overlap.passages(self.parts[part])

    @staticmethod
    def columns(ids: np.dtype) -> dict[str, Column]:
        return {"ids": Column(ids)}

    def write(self, part: str, writer: PartWriter) -> None:
        tokenizer = self.tokenizer
        begin, end = ([] if id is None else [id] for id in (tokenizer.bos, tokenizer.eos))
        writer.extend(ids=begin)
        for group in in_groups(pieces(self.parts[part]), GROUP):
            encoded = iter(tokenizer.encode_batch([piece for piece in group if piece is not None]))
            for piece in group:
                writer.extend(ids=[*end, *begin] if piece is None else next(encoded))
                if part == "valid" and piece is not None:
                    self.report.update(valid_bytes=len(piece.encode()), valid_words=len(piece.split()))


class _Records:
    """Prompts and answers."""

    kind = "records"

    def __init__(self, config: TextConfig, files: Files, own: TextTokenizer | None):
        self.files, self.template, self.max_length = files, config.template, config.max_length
        self.report: Counter[str] = Counter()
        characters: set[str] = set()
        hashes = array("Q")
        for record in self._read(files["train"]):
            text = plain(record)
            self.report.update(documents=1, characters=len(text))
            characters |= set(text)
            hashes.append(split.hash64(text))
        self.legacy = config.split_rule == LEGACY_SPLIT  # then the validation set is at the end
        last = -int((1 - config.held_out) * len(hashes))
        self.cut = last if self.legacy else split.threshold(hashes, config.held_out)
        train = (plain(record) for record in self._part("train"))
        self.tokenizer = own or _learn(config, characters, train, self.report["characters"])

    def _read(self, paths: list[Path]) -> Iterator[Record]:
        for path in paths:
            for record in read_records(path, self.template):
                assert isinstance(record, Record)
                yield record

    def _part(self, part: str) -> Iterator[Record]:
        if self.files["valid"]:
            return self._read(self.files[part])
        every, held = enumerate(self._read(self.files["train"])), part == "valid"
        return (r for n, r in every if ((-n if self.legacy else split.hash64(plain(r))) <= self.cut) == held)

    def passages(self, part: str) -> Iterator[str]:
        return map(plain, self._part(part))

    @staticmethod
    def columns(ids: np.dtype) -> dict[str, Column]:
        return {"ids": Column(ids, ragged=True), "answers": Column(np.bool_, ragged=True)}

    def write(self, part: str, writer: PartWriter) -> None:
        for record in self._part(part):
            ids, answers = encode_record(record, self.tokenizer)
            if self.max_length and len(ids) > self.max_length:
                self.report["cut"] += 1
                ids, answers = ids[: self.max_length], answers[: self.max_length]
            if not record.references[0].strip() or not any(answers[1:]):
                self.report["unanswered"] += 1
                continue
            writer.append(ids=ids, answers=answers)
            if part == "train":
                self.report["learned"] += sum(answers)
            else:
                text = self.tokenizer.decode(id for id, answer in zip(ids, answers, strict=True) if answer)
                self.report.update(valid_bytes=len(text.encode()), valid_words=len(text.split()))
