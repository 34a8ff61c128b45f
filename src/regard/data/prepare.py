"""Parallel text to a prepared store: which pairs are kept, a vocabulary, and the ids of both sides."""

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from regard.config import to_dict
from regard.data import fetch, split, store, tokenizers
from regard.data.catalog import find
from regard.data.files import in_groups
from regard.data.folders import Say, to_stderr, user_path
from regard.data.pairs import PairFiles, clean, read_pairs
from regard.data.settings import LEGACY_SPLIT, PairsConfig
from regard.data.store import Column, Store, StoreWriter
from regard.data.tokenizers.bpe import BPE
from regard.errors import ConfigError, DataError

VERSION = 1  # of the prepared format
REPORTED = (
    "kept", "source_tokens", "target_tokens", "held_out", "empty", "too_many_words", "too_long", "ratio",
    "overlap_pairs", "overlap_sources", "longest", "longest_line",
)  # fmt: skip
BLOCK = 10_000  # lines encoded at a time
LEARN_FROM = 1_000_000  # lines the vocabulary is learned from, at most
HELD_OUT = 1_000  # validation sentences if no files are given, at most, and at most 1 % of the pairs
SHORT = 10  # tokens; below this a ratio of lengths means nothing ("Hi." may be "Je te salue.")


@dataclass(frozen=True)
class PreparedPairs(Store):
    """Prepared parallel text: ids without end tokens in the columns `source` and `target`."""

    files: PairFiles  # `valid_*` are those held out if the user gave none
    tokenizer: BPE
    train: dict[str, Any]
    valid: dict[str, Any]

    def valid_text(self) -> tuple[list[str], list[str]]:
        """The validation sentences and their translations, except pairs with an empty side."""
        assert self.files.valid_source and self.files.valid_target
        pairs = (map(clean, pair) for pair in read_pairs(self.files.valid_source, self.files.valid_target))
        kept = [(source, target) for source, target in pairs if source and target]
        return [source for source, _ in kept], [target for _, target in kept]

    def report(self) -> str:
        """What was kept, what was dropped and why, in a few lines."""
        return describe(self)


def prepare(config: PairsConfig, say: Say = to_stderr) -> PreparedPairs:
    """Everything training needs, built from `config`'s text or found in the cache."""
    files = locate(config, say)
    hashes = {
        name: store.sha256(path, "a text file, one sentence per line")
        for name in ("train_source", "train_target", "valid_source", "valid_target")
        if (path := getattr(files, name)) is not None
    }
    names = ("vocab", "split", "max_length", "max_ratio", "max_words")
    shaping = {k: getattr(config, k) for k in names} | split.key(config, files.valid_source)
    shaping |= {"cut": True} if config.cut else {}
    if config.tokenizer:
        hashes |= {path.name: store.sha256(path) for path in tokenizers.files_of(Path(config.tokenizer))}
    ready = store.prepare(
        store.key(VERSION, shaping, hashes),
        lambda writer: _build(config, files, hashes, writer),
        say,
        "reading the text, learning the vocabulary, encoding",
    )
    if files.valid_source is None:
        files = replace(files, **_held_out_files(ready.folder))
    parts = (ready.part(name) for name in ("train", "valid"))
    tokenizer = tokenizers.load(Path(config.tokenizer), writes=True) if config.tokenizer else BPE.load(ready.folder)
    prepared = PreparedPairs(ready.folder, ready.manifest, files, tokenizer, *parts)
    say(prepared.report())
    return prepared


def locate(config: PairsConfig, say: Say = to_stderr) -> PairFiles:
    """The files of `config`; a named data set is fetched if not in the cache."""
    own = [config.source, config.target, config.valid_source, config.valid_target]
    if config.name:
        if any(own):
            raise ConfigError(f"give either the data set {config.name!r} or files of your own, not both")
        return fetch.get_pairs(config.name, say)
    if not (config.source and config.target):
        raise ConfigError("no data; name a set (--data tatoeba-en-fr) or give --source FILE and --target FILE")
    if bool(config.valid_source) != bool(config.valid_target):
        raise ConfigError("validation needs both files; give --valid-source FILE and --valid-target FILE, or neither")
    valid_source, valid_target = (user_path(path) if path else None for path in own[2:])
    return PairFiles(user_path(own[0]), user_path(own[1]), valid_source, valid_target)


def describe(ready: Store) -> str:
    manifest = ready.manifest
    r, c = manifest["report"], manifest["config"]
    lines = [
        f"{r['kept']:,} of {r['pairs']:,} training pairs kept, {r['valid']:,} for validation, "
        f"vocabulary of {manifest['vocab']:,} ({r['source_tokens']:,} source and {r['target_tokens']:,} target tokens)"
    ]
    reasons = {
        "held_out": "in the validation set, or with a source that is",
        "empty": "an empty side",
        "too_many_words": f"more than {c['max_words']} source words",
        "too_long": f"more than {c['max_length']} tokens on a side",
        "ratio": f"one side more than {c['max_ratio']:g} times the other",
    }
    lines += [f"dropped {r[key]:,}: {why}" for key, why in reasons.items() if r[key]]
    if r["too_long"]:
        lines.append(f"longest: {r['longest']:,} tokens, on line {r['longest_line']:,} of the training files")
    if r["valid_dropped"]:
        lines.append(f"left out of the validation loss {r['valid_dropped']:,}: empty, or too long")
    if r["overlap_pairs"]:
        lines.append(f"warning: {r['overlap_pairs']:,} training pairs are also in valid; its scores will be inflated")
    if r["overlap_sources"] > r["overlap_pairs"]:
        lines.append(f"note: {r['overlap_sources']:,} training pairs have a source that is in valid")
    return "\n".join(lines)


def training_sources(config: PairsConfig) -> Iterator[str]:
    """The source sentences a run with these settings was trained on; `DataError` if its data is gone."""
    if config.name and fetch.local_pairs(find(config.name)) is None:
        raise DataError(f"{config.name} is not downloaded; type: regard data get {config.name}")
    files = locate(config)
    _, held_out = _survey(files, config.split_rule)
    return (source for _, source, _ in _Reader(files, config.max_words, held_out))


# Building


def _build(config: PairsConfig, files: PairFiles, hashes: dict[str, str], writer: StoreWriter) -> dict[str, Any]:
    pairs, held_out = _survey(files, config.split_rule)
    if files.valid_source is None:
        files = _hold_out(files, held_out, writer.folder)
    reader = _Reader(files, config.max_words, held_out)
    sample = _Sample(reader, every=-(-2 * pairs // LEARN_FROM))
    if not any(True for _ in sample):
        why = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in reader.dropped.items())
        raise DataError(f"no pair to train on in {files.train_source} and {files.train_target}: {why}")
    if config.tokenizer:
        tokenizer = tokenizers.load(Path(config.tokenizer), writes=True)
    else:
        tokenizer = BPE.train(sample, config.vocab, config.split)
        tokenizer.save(writer.folder, config.max_length)
    valid, valid_report = _write_valid(config, files, tokenizer, writer)
    report = _write_train(config, reader, valid, tokenizer, writer)
    if not report["kept"] or not valid_report["valid"]:
        raise DataError(
            f"nothing left {'for validation' if report['kept'] else 'to train on'} of {pairs:,} training pairs "
            f"and {valid_report.total():,} validation pairs: {report['too_long']:,} training pairs are too long, "
            f"{report['ratio']:,} have unequal sides; try --set data.max_length={2 * config.max_length}"
        )
    about = {name: report[name] for name in REPORTED} | {n: valid_report[n] for n in ("valid", "valid_dropped")}
    return {"config": to_dict(config), "inputs": hashes, "vocab": tokenizer.size, "report": {"pairs": pairs, **about}}


def _sides(tokenizer: BPE) -> dict[str, Column]:
    return {side: Column(store.id_type(tokenizer.size), ragged=True) for side in ("source", "target")}


def _write_valid(
    config: PairsConfig, files: PairFiles, tokenizer: BPE, writer: StoreWriter
) -> tuple[set[tuple[str, str]], Counter[str]]:
    """The validation pairs as text, including those left out of the loss, and how many were left out."""
    seen, report = set(), Counter[str]()
    assert files.valid_source and files.valid_target
    with writer.part("valid", **_sides(tokenizer)) as part:
        for block in in_groups(_numbered(files.valid_source, files.valid_target), BLOCK):
            seen.update((source, target) for _, source, target in block)
            for _, source, target in _encode(block, tokenizer, config):
                fits = source and target and max(len(source), len(target)) < config.max_length
                if fits:
                    part.append(source=source, target=target)
                report["valid" if fits else "valid_dropped"] += 1
    return seen, report


def _write_train(
    config: PairsConfig, reader: "_Reader", valid: set[tuple[str, str]], tokenizer: BPE, writer: StoreWriter
) -> Counter[str]:
    report: Counter[str] = Counter()
    reader.dropped = report  # only this pass counts
    valid_sources = {source for source, _ in valid}
    longest = (0, 0)
    with writer.part("train", **_sides(tokenizer)) as part:
        for block in in_groups(reader, BLOCK):
            for _, source, target in block:
                if source in valid_sources:
                    report["overlap_sources"] += 1
                    report["overlap_pairs"] += (source, target) in valid
            for number, source, target in _encode(block, tokenizer, config):
                long, short = max(len(source), len(target)) + 1, min(len(source), len(target)) + 1
                longest = max(longest, (long, -number))
                if long > config.max_length:
                    report["too_long"] += 1
                elif long > SHORT and long > config.max_ratio * short:
                    report["ratio"] += 1
                else:
                    part.append(source=source, target=target)
    report.update(kept=part.rows, source_tokens=part.length("source"), target_tokens=part.length("target"))
    report.update(longest=longest[0], longest_line=-longest[1])
    return report


def _survey(files: PairFiles, rule: str) -> tuple[int, set[str]]:
    """A first pass: the number of pairs, and the sources to hold out if needed."""
    pairs = 0
    smallest: list[int] = []  # a heap of negated hashes: the largest of the smallest is first
    chosen: dict[int, str] = {}
    for pairs, source, target in _numbered(files.train_source, files.train_target):  # noqa: B007 - the last counts
        if files.valid_source is not None or not source or not target:
            continue
        order = split.hash64(source)
        if order in chosen or (len(chosen) == HELD_OUT and order > -smallest[0]):
            continue
        heapq.heappush(smallest, -order)
        chosen[order] = source
        if len(chosen) > HELD_OUT:
            del chosen[-heapq.heappop(smallest)]
    most = max(1, pairs // 100 if rule == LEGACY_SPLIT else split.count(pairs, 0.01))
    return pairs, {chosen[order] for order in sorted(chosen)[:most]}


def _hold_out(files: PairFiles, sources: set[str], folder: Path) -> PairFiles:
    """Write the first pair of each of these sources as the validation files."""
    pairs: dict[str, str] = {}  # at most `HELD_OUT`
    for _, source, target in _numbered(files.train_source, files.train_target):
        if source in sources and target:
            pairs.setdefault(source, target)
    out = _held_out_files(folder)
    for path, lines in zip(out.values(), (pairs, pairs.values()), strict=True):
        path.write_text("".join(line + "\n" for line in lines), "utf-8")
    return replace(files, **out)


def _held_out_files(folder: Path) -> dict[str, Path]:
    return {f"valid_{side}": folder / f"valid.{side}.txt" for side in ("source", "target")}


Numbered = tuple[int, str, str]


def _numbered(source: Path, target: Path) -> Iterator[Numbered]:
    for number, (first, second) in enumerate(read_pairs(source, target), 1):
        yield number, clean(first), clean(second)


@dataclass
class _Reader:
    """The training pairs that pass the text filters; can be iterated repeatedly."""

    files: PairFiles
    max_words: int
    held_out: set[str]
    dropped: Counter[str] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[Numbered]:
        for number, source, target in _numbered(self.files.train_source, self.files.train_target):
            if not source or not target:
                self.dropped["empty"] += 1
            elif source in self.held_out:
                self.dropped["held_out"] += 1
            elif self.max_words and source.count(" ") >= self.max_words:
                self.dropped["too_many_words"] += 1
            else:
                yield number, source, target


@dataclass
class _Sample:
    """Both sides of every n-th training pair, to learn the vocabulary from."""

    reader: _Reader
    every: int

    def __iter__(self) -> Iterator[str]:
        for _, source, target in islice(self.reader, 0, None, self.every):
            yield source
            yield target


def _encode(block: list[Numbered], tokenizer: BPE, config: PairsConfig) -> Iterator[tuple[int, list[int], list[int]]]:
    numbers, sources, targets = zip(*block, strict=True)
    ids = tokenizer.encode_batch(sources)
    if config.cut:
        ids = [source[: config.max_length - 1] for source in ids]
    yield from zip(numbers, ids, tokenizer.encode_targets(targets), strict=True)
