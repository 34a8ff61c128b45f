"""Text to a prepared folder for language modelling: a tokenizer, token files as memory maps, a manifest.

Everything streams: blocks of text come in, blocks of ids go out, so memory does not grow with the corpus. The folder's
name is a hash of the settings and of the input files; the same request finds the same folder and does no work.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import to_dict
from regard.data import fetch, store
from regard.data.documents import Documents, is_jsonl, pieces
from regard.data.folders import Say, building, cache_folder, to_stderr, user_path
from regard.data.records import Record, encode_record, plain, read_records
from regard.data.settings import TextConfig
from regard.data.store import ShardWriter, TokenFile
from regard.data.tokenizers import TextTokenizer, load
from regard.data.tokenizers.bytelevel import SMALLEST, ByteLevel
from regard.data.tokenizers.chars import Characters
from regard.errors import ConfigError, DataError

FORMAT = 1
ENDINGS = (".txt", ".md")  # of the files that are read in a folder
GROUP = 32  # pieces encoded at a time
LEARN_FROM = 100_000_000  # characters the vocabulary is learned from, about, at most


@dataclass(frozen=True)
class PreparedText:
    """A prepared folder, open for reading."""

    folder: Path
    manifest: dict[str, Any]
    tokenizer: TextTokenizer
    train: TokenFile
    valid: TokenFile

    @property
    def valid_bytes(self) -> int:
        """Bytes of the held-out text in UTF-8; of records, of what is to be learned."""
        return self.manifest["report"]["valid_bytes"]

    @property
    def valid_words(self) -> int:
        """Words of the held-out text: what white space separates."""
        return self.manifest["report"]["valid_words"]

    def report(self) -> str:
        """What was kept, what was dropped and why, in a few lines."""
        return describe(self.manifest)


def prepare_text(config: TextConfig, say: Say = to_stderr) -> PreparedText:
    """Everything training needs, made from `config`'s text or found ready in the cache."""
    files = locate(config, say)
    hashes = {part: [store.sha256(path) for path in paths] for part, paths in vars(files).items()}
    shaping: dict[str, Any] = {k: getattr(config, k) for k in ("held_out", "tokens", "max_length", "template")}
    shaping["vocab"] = config.vocab if config.tokens == "bpe" else 0
    given = _given(config.tokenizer) if config.tokenizer else None
    if given is not None:
        hashes["tokenizer"] = [store.sha256(user_path(config.tokenizer) / "tokenizer.json")]
        shaping |= {"tokens": "given", "vocab": 0, "eos": given.eos, "bos": given.bos, "chat": given.chat_template}
    folder = cache_folder() / "prepared" / store.key("text", FORMAT, shaping, hashes)
    if (ready := _open(folder, given)) is None:
        say("preparing: reading the text, learning the pieces, encoding ...")
        with building(folder) as temporary:
            _build(config, files, hashes, given, temporary)
        ready = _open(folder, given)
        assert ready is not None
        say(ready.report())
    return ready


def describe(manifest: dict[str, Any]) -> str:
    """The manifest's report as text."""
    r, parts = manifest["report"], manifest["parts"]
    sizes = [parts[part]["records" if manifest["kind"] == "records" else "tokens"] for part in ("train", "valid")]
    what = "records" if manifest["kind"] == "records" else "tokens"
    line = f"{sizes[0]:,} {what} to train on, {sizes[1]:,} for validation, {manifest['vocab']:,} pieces"
    if what == "records":
        line += f" ({parts['train']['tokens']:,} tokens, {r['learned']:,} of them to be learned)"
    reasons = {
        "empty": ("dropped", "empty"),
        "unanswered": ("dropped", "nothing of the answer is left, or it was empty"),
        "cut": ("cut", f"longer than {manifest['config']['max_length']} tokens (--set data.context=…)"),
    }
    return "\n".join([line, *(f"{did} {r[key]:,}: {why}" for key, (did, why) in reasons.items() if r[key])])


# Which files


@dataclass(frozen=True)
class _Files:
    train: list[Path]
    valid: list[Path] = field(default_factory=list)


def locate(config: TextConfig, say: Say = to_stderr) -> _Files:
    """The files `config` names; a known data set is fetched when it is not here yet."""
    if bool(config.name) == bool(config.path):
        raise ConfigError(
            f"give either the data set {config.name!r} or a path of your own, not both"
            if config.name
            else "no data; give a text file, a folder, a .jsonl, or a name (see: regard data list)"
        )
    if config.name:
        found = fetch.get_text(config.name, say)
        train, valid = [found.train], [found.valid] if found.valid else []
    else:
        train, valid = _files(config.path), []
    return _Files(train, _files(config.valid) if config.valid else valid)


def _files(name: str) -> list[Path]:
    """A file itself; the texts in a folder and its folders, by name."""
    path = user_path(name)
    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.rglob("*") if p.name.removesuffix(".gz").endswith(ENDINGS) and p.is_file())
    if not found:
        raise DataError(f"{path} holds no text; wanted files that end in {' or '.join(ENDINGS)}, or give a file itself")
    return found


# Building


def _given(folder: str) -> TextTokenizer:
    tokenizer = load(user_path(folder))
    if not hasattr(tokenizer, "token_bytes"):
        raise ConfigError(f"{folder} is a translator's, whose tokenizer cannot write plain text; name a language model")
    return tokenizer


def _open(folder: Path, given: TextTokenizer | None) -> PreparedText | None:
    """The prepared folder, or None when there is none."""
    if (manifest := store.read_manifest(folder)) is None:
        return None
    train, valid = (TokenFile.open(folder, part, manifest) for part in ("train", "valid"))
    return PreparedText(folder=folder, manifest=manifest, tokenizer=given or load(folder), train=train, valid=valid)


def _build(config: TextConfig, files: _Files, hashes: dict[str, Any], given: TextTokenizer | None, to: Path) -> None:
    kinds = {_kind(path, config.template) for path in (*files.train, *files.valid)}
    if len(kinds) > 1:
        raise DataError("plain text and records cannot be mixed; the held-out file wants the form of the training file")
    corpus = _Records(config, files, given) if kinds == {"records"} else _Text(config, files, given)
    tokenizer = corpus.tokenizer
    tokenizer.save(to)
    dtype, parts = store.id_type(tokenizer.size), {}
    for part in ("train", "valid"):
        with _Writer(to, part, dtype, corpus.kind == "records") as writer:
            corpus.write(part, writer)
            parts[part] = {"tokens": writer.ids.length, "records": writer.records}
    if min(about["tokens"] for about in parts.values()) < 2:
        where = ", ".join(map(str, files.train[:3]))
        if config.max_length and (lost := corpus.report["unanswered"]):
            raise DataError(
                f"{where}: {lost:,} records were dropped, since nothing of their answers is left within "
                f"{config.max_length} tokens; give shorter ones, or more room: --set data.context=N"
            )
        raise DataError(
            f"{where}: too little text, {parts['train']['tokens']:,} tokens to train on and "
            f"{parts['valid']['tokens']:,} held out; give more, or held-out text of its own: --valid FILE"
        )
    names = ("documents", "characters", "empty", "cut", "unanswered", "learned", "valid_bytes", "valid_words")
    store.write_manifest(
        to,
        {
            "format": FORMAT,
            "kind": corpus.kind,
            "config": to_dict(config),
            "inputs": hashes,
            "vocab": tokenizer.size,
            "dtype": dtype.name,
            "shard": store.SHARD,
            "parts": parts,
            "report": {name: corpus.report[name] for name in names},
        },
    )


def _kind(path: Path, template: str) -> str:
    first = next(read_records(path, template), None) if is_jsonl(path) else None
    return "records" if isinstance(first, Record) else "text"


def _learn(config: TextConfig, characters: set[str], texts: Iterator[str], total: int) -> TextTokenizer:
    """The tokenizer that `config` asks for, learned from every n-th text where there are more than enough."""
    if config.tokens == "chars":
        return Characters(characters)
    sample = islice(texts, 0, None, -(-total // LEARN_FROM))
    return ByteLevel.train(sample, SMALLEST if config.tokens == "bytes" else config.vocab)


class _Text:
    """Running text."""

    kind = "text"

    def __init__(self, config: TextConfig, files: _Files, given: TextTokenizer | None):
        has_mark = config.tokens != "chars" if given is None else given.eos is not None
        whole = Documents(files.train, between="" if has_mark else "\n")
        characters: set[str] = set()
        total = 0
        for block in whole:
            if block is not None:
                total += len(block)
                characters |= set(block)
        self.report = Counter(documents=whole.documents, empty=whole.empty, characters=total)
        if not total:
            raise DataError(f"{', '.join(map(str, files.train[:3]))}: empty; wanted text")
        cut = int((1 - config.held_out) * total)
        if files.valid:
            self.parts = {"train": whole, "valid": replace(whole, paths=files.valid)}
        else:
            self.parts = {"train": replace(whole, stop=cut), "valid": replace(whole, start=cut)}
        if files.valid and given is None and config.tokens == "chars":
            for block in self.parts["valid"]:
                if strange := set(block or "") - characters:
                    raise DataError(
                        f"{files.valid[0]} holds {min(strange)!r}, which the training text does not; "
                        "remove it there, or train with --tokens bytes, which can write everything"
                    )
        train = (piece for piece in pieces(self.parts["train"]) if piece)
        self.tokenizer = given or _learn(config, characters, train, total)

    def write(self, part: str, writer: "_Writer") -> None:
        tokenizer, flow = self.tokenizer, pieces(self.parts[part])
        begin, end = ([] if id is None else [id] for id in (tokenizer.bos, tokenizer.eos))
        writer.add(begin)
        while group := list(islice(flow, GROUP)):
            encoded = iter(tokenizer.encode_batch([piece for piece in group if piece is not None]))
            for piece in group:
                writer.add([*end, *begin] if piece is None else next(encoded))
                if part == "valid" and piece is not None:
                    self.report["valid_bytes"] += len(piece.encode())
                    self.report["valid_words"] += len(piece.split())


class _Records:
    """Prompts and answers."""

    kind = "records"

    def __init__(self, config: TextConfig, files: _Files, given: TextTokenizer | None):
        self.files, self.template, self.max_length = files, config.template, config.max_length
        self.report: Counter[str] = Counter()
        characters: set[str] = set()
        for record in self._read(files.train):
            text = plain(record)
            self.report.update(documents=1, characters=len(text))
            characters |= set(text)
        self.cut = None if files.valid else int((1 - config.held_out) * self.report["documents"])
        train = (plain(record) for record in islice(self._read(files.train), self.cut))
        self.tokenizer = given or _learn(config, characters, train, self.report["characters"])

    def _read(self, paths: list[Path]) -> Iterator[Record]:
        for path in paths:
            for record in read_records(path, self.template):
                assert isinstance(record, Record)
                yield record

    def write(self, part: str, writer: "_Writer") -> None:
        if self.files.valid:
            records = self._read(self.files.train if part == "train" else self.files.valid)
        else:
            span = (0, self.cut) if part == "train" else (self.cut, None)
            records = islice(self._read(self.files.train), *span)
        for record in records:
            ids, answers = encode_record(record, self.tokenizer)
            if self.max_length and len(ids) > self.max_length:
                self.report["cut"] += 1
                ids, answers = ids[: self.max_length], answers[: self.max_length]
            if not record.references[0].strip() or not any(answers[1:]):
                self.report["unanswered"] += 1
                continue
            writer.add(ids, answers)
            if part == "train":
                self.report["learned"] += sum(answers)
            else:
                text = self.tokenizer.decode(id for id, answer in zip(ids, answers, strict=True) if answer)
                self.report["valid_bytes"] += len(text.encode())
                self.report["valid_words"] += len(text.split())


class _Writer:
    """Appends documents to the files of a part: ids and, for records, where each begins and what is to be learned."""

    def __init__(self, folder: Path, part: str, dtype: np.dtype, with_records: bool):
        self.ids = ShardWriter(folder, f"{part}.ids", dtype)
        self.offsets = ShardWriter(folder, f"{part}.offsets", np.int64) if with_records else None
        self.answers = ShardWriter(folder, f"{part}.answers", np.bool_) if with_records else None

    def __enter__(self) -> "_Writer":
        self._open = ExitStack()
        for file in (self.ids, self.offsets, self.answers):
            if file is not None:
                self._open.enter_context(file)
        if self.offsets is not None:
            self.offsets.write([0])
        return self

    def add(self, ids: list[int], answers: list[bool] | None = None) -> None:
        self.ids.write(ids)
        if self.offsets is not None and self.answers is not None and answers is not None:
            self.answers.write(answers)
            self.offsets.write([self.ids.length])

    @property
    def records(self) -> int:
        return 0 if self.offsets is None else self.offsets.length - 1

    def __exit__(self, *_: object) -> None:
        self._open.close()
