"""Text or records on their way into a store: their contents, a tokenizer, the ids. Everything streams."""

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import numpy as np

from regard.data import overlap, split
from regard.data.documents import DocumentReader, pieces
from regard.data.files import in_groups, one_ahead
from regard.data.records import Record, encode_record, is_records, plain, read_records
from regard.data.settings import LEGACY_SPLIT, TextConfig
from regard.data.store import Column, PartWriter
from regard.data.tokenizers import TextTokenizer
from regard.data.tokenizers.bytelevel import SMALLEST, ByteLevel
from regard.data.tokenizers.chars import Characters
from regard.errors import DataError

GROUP = 64  # chunks encoded at a time, about 0.5 MB
LEARN_FROM = 100_000_000  # characters the vocabulary is learned from, at most, approximately

Files = dict[str, list[Path]]  # of the parts train and valid


def corpus_of(config: TextConfig, sources: list[Files], own: TextTokenizer | None) -> "TextCorpus | RecordCorpus":
    """The corpus of all sources; `own` is the tokenizer, unless it is to be learned."""
    files = chain.from_iterable((*source["train"], *source["valid"]) for source in sources)
    kinds = {kind_of(path, config.template) for path in files}
    if len(kinds) > 1:
        raise DataError("plain text and records cannot be mixed; validation data must have the training data's format")
    return RecordCorpus(config, sources, own) if kinds == {"records"} else TextCorpus(config, sources, own)


def kind_of(path: Path, template: str) -> str:
    first = next(read_records(path, template), None) if is_records(path) else None
    return "records" if isinstance(first, Record) else "text"


def _learn(config: TextConfig, characters: set[str], texts: Iterator[str], total: int) -> TextTokenizer:
    """The tokenizer of `config`, learned from every n-th text if there is plenty."""
    if config.tokens == "chars":
        return Characters(characters)
    sample = islice(texts, 0, None, -(-total // LEARN_FROM))
    return ByteLevel.train(sample, SMALLEST if config.tokens == "bytes" else config.vocab)


class TextCorpus:
    """Running text. The end of each source is the validation set, unless there are validation files."""

    kind = "text"

    def __init__(self, config: TextConfig, sources: list[Files], own: TextTokenizer | None):
        has_mark = config.tokens != "chars" if own is None else own.eos is not None
        characters: set[str] = set()
        self.report: Counter[str] = Counter()
        self.parts: dict[str, list[DocumentReader]] = {"train": [], "valid": []}
        valid = sources[0]["valid"]
        for source in sources:
            whole = DocumentReader(source["train"], between="" if has_mark else "\n")
            total = 0
            for block in filter(None, whole):
                total += len(block)
                if config.tokens == "chars":
                    characters |= set(block)
            self.report.update(documents=whole.documents, empty=whole.empty, characters=total)
            if not total:
                raise DataError(f"{', '.join(map(str, source['train'][:3]))}: empty; expected text")
            cut = int((1 - config.held_out) * total)
            self.parts["train"].append(whole if valid else replace(whole, stop=cut))
            if not valid:
                self.parts["valid"].append(replace(whole, start=cut))
        if valid:
            self.parts["valid"].append(DocumentReader(valid, between="" if has_mark else "\n"))
        for block in self.parts["valid"][0] if valid and own is None and config.tokens == "chars" else ():
            if unseen := set(block or "") - characters:
                raise DataError(
                    f"{valid[0]} holds {min(unseen)!r}, which the training text does not; "
                    "remove it, or train with --tokens bytes, which can encode everything"
                )
        train = (piece for reader in self.parts["train"] for piece in pieces(reader) if piece)
        self.tokenizer = own or _learn(config, characters, train, self.report["characters"])

    def passages(self, part: str) -> Iterator[str]:
        return chain.from_iterable(map(overlap.passages, self.parts[part]))

    @staticmethod
    def columns(ids: np.dtype) -> dict[str, Column]:
        return {"ids": Column(ids)}

    def write(self, part: str, source: int, writer: PartWriter, done: int) -> Iterator[int]:
        """Write the ids of a source's part, skipping its first `done` groups; yields the number written after each."""
        tokenizer = self.tokenizer
        begin, end = ([] if id is None else [id] for id in (tokenizer.bos, tokenizer.eos))
        between = np.array([*end, *begin], np.int64)
        if not done:
            writer.extend(ids=begin if source == 0 else [*end, *begin])
        groups = islice(in_groups(pieces(self.parts[part][source]), GROUP), done, None)
        encode = lambda group: iter(tokenizer.encode_batch([piece for piece in group if piece is not None]))  # noqa: E731
        for number, (group, encoded) in enumerate(one_ahead(encode, groups), done + 1):
            writer.extend(ids=np.concatenate([between if piece is None else next(encoded) for piece in group]))
            if part == "valid":
                text = [piece for piece in group if piece is not None]
                words, size = (sum(map(len, map(of, text))) for of in (str.split, str.encode))
                self.report.update(valid_bytes=size, valid_words=words)
            yield number


class RecordCorpus:
    """Prompts and answers."""

    kind = "records"

    def __init__(self, config: TextConfig, sources: list[Files], own: TextTokenizer | None):
        self.sources, self.template, self.max_length = sources, config.template, config.max_length
        self.report: Counter[str] = Counter()
        characters: set[str] = set()
        hashes = array("Q")
        for record in chain.from_iterable(self._read(source["train"]) for source in sources):
            text = plain(record)
            self.report.update(documents=1, characters=len(text))
            characters |= set(text)
            hashes.append(split.hash64(text))
        self.legacy = config.split_rule == LEGACY_SPLIT  # then the validation set is the end
        last = -int((1 - config.held_out) * len(hashes))
        self.cut = last if self.legacy else split.threshold(hashes, config.held_out)
        self.parts = {"train": sources, "valid": sources[:1] if sources[0]["valid"] else sources}
        self.tokenizer = own or _learn(config, characters, self.passages("train"), self.report["characters"])

    def _read(self, paths: list[Path]) -> Iterator[Record]:
        for path in paths:
            for record in read_records(path, self.template):
                assert isinstance(record, Record)
                yield record

    def _part(self, part: str, source: int) -> Iterator[Record]:
        if self.sources[0]["valid"]:
            return self._read(self.sources[source][part])
        every, held = enumerate(self._read(self.sources[source]["train"])), part == "valid"
        return (r for n, r in every if ((-n if self.legacy else split.hash64(plain(r))) <= self.cut) == held)

    def passages(self, part: str) -> Iterator[str]:
        return (plain(record) for source in range(len(self.parts[part])) for record in self._part(part, source))

    @staticmethod
    def columns(ids: np.dtype) -> dict[str, Column]:
        return {"ids": Column(ids, ragged=True), "answers": Column(np.bool_, ragged=True)}

    def write(self, part: str, source: int, writer: PartWriter, done: int) -> Iterator[int]:
        """As `TextCorpus.write`; records are one group."""
        for record in self._part(part, source):
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
        yield 1
