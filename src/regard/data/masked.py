"""Documents to a prepared store for BERT's pre-training: WordPiece, and the ids of sentences."""

import hashlib
import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from regard.config import to_dict
from regard.data import split, store
from regard.data.files import in_groups
from regard.data.folders import Say, to_stderr, user_path
from regard.data.sentences import Corpus, sentences
from regard.data.settings import MaskedConfig
from regard.data.store import Column, Flat, Store, StoreWriter
from regard.data.text import text_files
from regard.data.tokenizers.encoder import EncoderTokenizer
from regard.data.tokenizers.wordpiece import SPECIAL, WordPiece
from regard.errors import DataError

VERSION = 1  # of the prepared format
LEARN_FROM = 100_000_000  # characters the vocabulary is learned from, at most, approximately
GROUP = 64  # documents encoded at a time


class SentenceIds:
    """The ids of documents, sentence by sentence, without [CLS] and [SEP]."""

    def __init__(self, ids: Flat, sentences: np.ndarray, documents: np.ndarray):
        self.ids = ids
        self.sentences = sentences  # S+1 offsets in `ids`
        self.documents = documents  # N+1 offsets in `sentences`

    @classmethod
    def of(cls, documents: list[list[list[int]]]) -> "SentenceIds":
        """From lists in memory: documents of sentences of ids."""
        flat = [s for document in documents for s in document]
        ids = np.array([i for s in flat for i in s], np.int64)
        return cls(Flat([ids]), _places(map(len, flat)), _places(map(len, documents)))

    @classmethod
    def open(cls, columns: dict[str, Any]) -> "SentenceIds":
        lengths = columns["lengths"]
        return cls(columns["ids"].values, _places(lengths.values[:]), lengths.offsets)

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.documents) - 1


def _places(lengths: Iterable[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.fromiter(lengths, np.int64))]).astype(np.int64)


@dataclass(frozen=True)
class PreparedMasked(Store):
    """Documents, ready."""

    tokenizer: EncoderTokenizer
    train: SentenceIds
    valid: SentenceIds

    @property
    def entropy(self) -> float:
        """The unigram entropy of the training text, in nats."""
        return self.manifest["report"]["entropy"]

    def report(self) -> str:
        """What was read, and notes, in a few lines."""
        r, train = self.manifest["report"], self.train
        lines = [
            f"{len(train):,} documents of {len(train.sentences) - 1:,} sentences and {len(train.ids):,} tokens to "
            f"train on, {len(self.valid):,} for validation, vocabulary of {self.manifest['vocab']:,}; unigram entropy "
            f"{r['entropy']:.3f}"
        ]
        if r["repeated"]:
            lines.append(
                f"{r['repeated']:,} of {r['lines']:,} lines ({r['repeated'] / r['lines']:.1%}) repeat an earlier one; "
                "they are kept, and bias the model towards them"
            )
        if r["leaked"]:
            lines.append(f"{r['leaked']:,} validation lines are also in the training text; the loss will be too low")
        for part, text in (("training", train), ("validation", self.valid)):
            if self.manifest["config"]["negatives"] == "random" and (np.diff(text.documents) >= 2).sum() == 1:
                lines.append(f"only one {part} document has two sentences: its wrong next sentences are swapped ones")
        if r["cut"]:
            lines.append(f"{r['cut']:,} sentences were cut into parts of at most {r['longest']} tokens; all are kept")
        return "\n".join(lines)


def special_ids(tokenizer: EncoderTokenizer) -> np.ndarray:
    """V: which ids are [PAD], [UNK], [CLS], [SEP] or [MASK], never masked and never used as replacements."""
    special = np.zeros(tokenizer.size, bool)
    special[[tokenizer.pad, tokenizer.unk, tokenizer.cls, tokenizer.sep, tokenizer.mask]] = True
    return special


def inside_ids(tokenizer: EncoderTokenizer) -> np.ndarray:
    """V: which tokens continue a word."""
    return np.array([tokenizer.continues(i) for i in range(tokenizer.size)])


def prepare_masked(config: MaskedConfig, say: Say = to_stderr) -> PreparedMasked:
    """Everything training needs, built from `config`'s documents or found in the cache."""
    files, border = text_files(config, say), border_of(config)
    hashes = {part: [store.sha256(path) for path in paths] for part, paths in files.items()}
    shaping = {k: getattr(config, k) for k in ("held_out", "vocab", "lower", "max_length")} | {"border": border}
    ready = store.prepare(
        store.key("masked", VERSION, shaping, hashes),
        lambda writer: _build(config, Corpus(files["train"], border), Corpus(files["valid"], border), hashes, writer),
        say,
        "reading the documents, learning the vocabulary, encoding",
    )
    parts = (SentenceIds.open(ready.part(name)) for name in ("train", "valid"))
    prepared = PreparedMasked(ready.folder, ready.manifest, WordPiece.load(ready.folder), *parts)
    say(prepared.report())
    return prepared


def border_of(config: MaskedConfig) -> str:
    """Where documents end."""
    folder = bool(config.path) and user_path(config.path).is_dir()
    return config.documents or ("files" if folder else "blank")


def read_sentences(path: str, tokenizer: EncoderTokenizer, config: MaskedConfig) -> SentenceIds:
    """The documents of a text, a folder or a .jsonl, encoded and held in memory, for evaluation."""
    config = replace(config, name="", path=path, valid="")
    corpus = Corpus(text_files(config)["train"], border_of(config))
    longest = config.longest
    documents = [
        [ids[start : start + longest] for ids in document for start in range(0, len(ids), longest)]
        for document in _encoded(_Split(corpus), tokenizer)
    ]
    if not documents:
        raise DataError(f"{path}: no text to score on")
    return SentenceIds.of(documents)


# Building


@dataclass(frozen=True)
class _Split:
    """One part of the documents: those whose hash is above `cut`, or not. Without a cut, all of them."""

    corpus: Corpus
    cut: int | None = None
    above: bool = True
    every: int = 1

    def __iter__(self) -> Iterator[list[str]]:
        chosen = (d for d in self.corpus if self.cut is None or (_hash("\n".join(d)) > self.cut) == self.above)
        return islice(chosen, 0, None, self.every)


@dataclass(frozen=True)
class _Lines:
    """The lines of documents, for the vocabulary, which reads them twice."""

    documents: _Split

    def __iter__(self) -> Iterator[str]:
        return (line for document in self.documents for line in document)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _build(
    config: MaskedConfig, corpus: Corpus, valid: Corpus, hashes: dict[str, Any], writer: StoreWriter
) -> dict[str, Any]:
    whole, characters = array("Q"), 0
    for document in corpus:
        whole.append(_hash("\n".join(document)))
        characters += sum(map(len, document))
    least = 1 if valid.paths else 2
    if len(set(whole)) < least:
        raise DataError(
            f"{corpus.paths[0]}: {len(set(whole))} different documents, expected at least {least}; put blank lines "
            "between them, or make each line one: --set data.documents=lines"
        )
    cut = None if valid.paths else split.threshold(whole, config.held_out, least=2)
    parts = {"train": _Split(corpus, cut), "valid": _Split(valid) if valid.paths else _Split(corpus, cut, above=False)}
    sample = replace(parts["train"], every=-(-characters // LEARN_FROM))
    tokenizer = WordPiece.train(_Lines(sample), config.vocab, config.lower)
    tokenizer.save(writer.folder, config.max_length)
    tokenizer = WordPiece.load(writer.folder)
    columns = {"ids": Column(store.id_type(tokenizer.size), ragged=True), "lengths": Column(np.int32, ragged=True)}
    counts = np.zeros(tokenizer.size, np.int64)
    lines, too_long = {}, 0
    for name, documents in parts.items():
        with writer.part(name, **columns) as part:
            for encoded in _encoded(documents, tokenizer):
                ids = [i for sentence in encoded for i in sentence]
                part.append(ids=ids, lengths=[n for s in encoded for n in _pieces(len(s), config.longest)])
                too_long += sum(len(sentence) > config.longest for sentence in encoded)
                if name == "train":
                    np.add.at(counts, ids, 1)
        lines[name] = np.fromiter((_hash(line) for line in _Lines(documents)), np.uint64)
        if not part.length("ids"):
            raise DataError(f"{documents.corpus.paths[0]}: no text left for {name}; give more")
    counts[special_ids(tokenizer)] = 0
    share = counts[counts > 0] / max(1, counts.sum())
    report = {
        "lines": sum(map(len, lines.values())),
        "repeated": sum(len(x) - len(np.unique(x)) for x in lines.values()),
        "leaked": int(np.isin(lines["valid"], lines["train"]).sum()),
        "cut": too_long,
        "longest": config.longest,
        "entropy": float(-(share * np.log(share)).sum()) if len(share) else math.nan,
    }
    return {"kind": "masked", "config": to_dict(config), "inputs": hashes, "vocab": tokenizer.size, "report": report}


def _pieces(length: int, longest: int) -> list[int]:
    """The lengths of the parts a sentence is cut into."""
    return [min(longest, length - start) for start in range(0, length, longest)]


def _encoded(documents: _Split, tokenizer: EncoderTokenizer) -> Iterator[list[list[int]]]:
    """The ids of each document's sentences. Special tokens in a text are plain text."""
    for group in in_groups(documents, GROUP):
        split_up = [[s for line in document for s in sentences(line)] for document in group]
        flat = [_unspecial(s) for document in split_up for s in document]
        encodings = iter(tokenizer.tokenizer.encode_batch_fast(flat, add_special_tokens=False))
        for document in split_up:
            if ids := [e.ids for _, e in zip(document, encodings, strict=False) if e.ids]:
                yield ids


def _unspecial(text: str) -> str:
    if "[" in text:
        for token in SPECIAL:
            text = text.replace(token, f"[ {token[1:-1]} ]")
    return text
