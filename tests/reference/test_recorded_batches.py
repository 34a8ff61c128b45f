"""Batches of small data of every family against recorded digests (`tests/fixtures/batches.json`).

The same examples in the same order, the same random streams, the same halves, and saved positions that still restore.
The digests were recorded at commit 0f35c63, when every family had a loader of its own, and at 9d658d4, when a
loader could serve one of several processes. To record them again:

    python -m tests.reference.test_recorded_batches
"""

import hashlib
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.data.audio import AudioSource, Spectrograms
from regard.data.augment import Augment
from regard.data.blocks import TextRows
from regard.data.captions import Captioned, CaptionSource
from regard.data.features import TableSource, Vectors
from regard.data.history import Windows
from regard.data.images import Images, ImageSource
from regard.data.labelled import LabelledConfig, prepare_labels
from regard.data.loader import FixedSize, Loader, Source, TokenBudget, class_odds, in_order
from regard.data.masked import MaskedConfig, prepare_masked
from regard.data.masking import MaskedRows
from regard.data.prepare import PairsConfig, prepare
from regard.data.series import Curves
from regard.data.series_batch import HiddenSource, SeriesSource
from regard.data.sources import LabelledSource, PairSource
from regard.data.text import TextConfig, prepare_text
from regard.data.tokenizers.bpe import BPE, BPEDropout
from regard.tasks.mlm import make_rules

FIXTURE = Path(__file__).parents[1] / "fixtures" / "batches.json"
NAMES = {
    "pairs": ("source", "source_lengths", "target", "target_lengths", "inputs", "chosen", "rows", "host_lengths"),
    "text": ("ids", "counts", "documents", "chosen", "rows", "count"),
    "labels": ("ids", "lengths", "sentences", "labels", "chosen", "rows", "count"),
    "masked": ("ids", "sentences", "lengths", "starts", "chosen", "targets", "follows", "rows", "host_targets",
               "host_lengths", "count", "weight"),
    "samples": ("inputs", "targets", "rows"),
}  # fmt: skip
WORDS = [
    "a",
    "the",
    "red",
    "old",
    "tree",
    "house",
    "child",
    "sees",
    "finds",
    "draws",
    "likes",
    "10",
    "2024",
    "quickly",
    "never,",
    "often.",
    "and",
    "into",
]


def plain(value: Any) -> Iterator[Any]:
    """What a value is made of, as bytes."""
    if isinstance(value, tuple):
        for x in value:
            yield from plain(x)
    elif isinstance(value, torch.Tensor | np.ndarray):
        array = np.ascontiguousarray(value.numpy() if isinstance(value, torch.Tensor) else value)
        yield f"{array.dtype} {array.shape}".encode()
        yield array.tobytes()
    else:
        yield repr(value).encode()


def digest(batches: Iterable[Any], names: Iterable[str]) -> str:
    """A hash of the named fields of batches, their dtypes and shapes included."""
    state = hashlib.sha256()
    for batch in batches:
        for name in names:
            for part in plain(getattr(batch, name)):
                state.update(part)
    return state.hexdigest()[:16]


def summary(loader: Any, valid: Iterable[Any], family: str) -> dict[str, Any]:
    """Three epochs, the halves of the first batch, one pass for validation, and the state on the way."""
    names = NAMES[family]
    epochs = []
    for _ in range(3):
        batches = list(islice(loader, loader.batches_per_epoch))
        epochs.append(digest(batches, names))
    padding = {} if family in ("samples", "text") else {"padding": loader.padding}
    return {
        "epochs": epochs,
        "halves": digest([half for batch in batches[:3] for half in batch.split()], names),
        "valid": digest(valid, names),
        "state": loader.state(),
        **padding,
    }


def sentence(rng: random.Random, least: int = 1, most: int = 14) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


def write_files(folder: Path) -> dict[str, str]:
    """Files of every text family; the validation sets are files of their own, so that no split is drawn."""
    rng = random.Random(5)
    paths: dict[str, str] = {}

    def write(name: str, lines: Iterable[str]) -> None:
        paths[name] = str(folder / name)
        Path(paths[name]).write_text("\n".join(lines) + "\n", "utf-8")

    for part, count in (("train", 300), ("valid", 40)):
        pairs = [(sentence(rng, 2), sentence(rng, 2)) for _ in range(count)]
        write(f"{part}.en", [source for source, _ in pairs])
        write(f"{part}.fr", [target for _, target in pairs])
        write(f"{part}.txt", [sentence(rng) for _ in range(count)])
        write(f"{part}.jsonl", [json.dumps({"prompt": sentence(rng), "response": sentence(rng)}) for _ in range(count)])
        label = ["good", "bad", "odd"].__getitem__
        write(f"{part}.csv", ["text,label", *(f'"{sentence(rng, 3)} {i}",{label(i % 3)}' for i in range(count))])
        write(f"{part}.pairs.csv", ["text,second,label", *(
            f'"{sentence(rng, 3)} {i}","{sentence(rng)}",{label(i % 2)}' for i in range(count)
        )])  # fmt: skip
        tagged = [
            "\n".join(f"{word}\t{'N' if len(word) > 4 else 'O'}" for word in sentence(rng).split())
            for _ in range(count)
        ]
        write(f"{part}.conll", [block + "\n" for block in tagged])
        write(
            f"{part}.docs.txt",
            ["\n".join(sentence(rng, 4) + "." for _ in range(rng.randint(1, 6))) + "\n" for _ in range(count)],
        )
    return paths


def curves() -> dict[str, Any]:
    """The points of 30 series of different lengths, as arguments of `Curves`."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(3, 30, 30)
    total = int(lengths.sum())
    return {
        "offsets": np.concatenate([[0], np.cumsum(lengths)]),
        "times": np.concatenate([np.sort(rng.random(n)) for n in lengths]),
        "values": rng.random(total),
        "errors": rng.random(total),
        "bands": rng.integers(0, 3, total),
        "labels": ["a", "b", "c"] * 10,
    }


# Loaders as the tasks make them


def pairs(files: dict[str, str]) -> Iterator[tuple[str, Loader, Iterator[Any]]]:
    named = {"source": "train.en", "target": "train.fr", "valid_source": "valid.en", "valid_target": "valid.fr"}
    config = PairsConfig(**{side: files[name] for side, name in named.items()}, vocab=340, max_length=20)
    data = prepare(config, lambda _: None)
    bpe, content = data.tokenizer, data.content
    valid = lambda: in_order(PairSource(**data.valid, eos=bpe.eos, pad=bpe.pad), TokenBudget(200))  # noqa: E731
    yield (
        "pairs",
        Loader(PairSource(**data.train, eos=bpe.eos, pad=bpe.pad), TokenBudget(300), 4, content=content),
        valid(),
    )
    segmented = PairSource(**data.train, eos=bpe.eos, pad=bpe.pad, multiple=8, dropout=BPEDropout(bpe, 0.2, 4, 20))
    yield "pairs, dropout", Loader(segmented, TokenBudget(300), 4, content), valid()


def text(files: dict[str, str]) -> Iterator[tuple[str, Loader, Iterator[Any]]]:
    for name, ending in (("text", "txt"), ("records", "jsonl")):
        config = TextConfig(path=files[f"train.{ending}"], valid=files[f"valid.{ending}"], vocab=340)
        data = prepare_text(config, lambda _: None)
        train, valid = TextRows(data.train, 24, 200), TextRows(data.valid, 24, 200)
        yield name, Loader(train, train.plan, 7, data.content), in_order(valid, valid.plan)


def labels(files: dict[str, str]) -> Iterator[tuple[str, Loader, Iterator[Any]]]:
    for kind, ending in (("classify", "csv"), ("pair", "pairs.csv"), ("tag", "conll")):
        paths = {"path": files[f"train.{ending}"], "valid": files[f"valid.{ending}"]}
        data = prepare_labels(LabelledConfig(**paths, vocab=200, max_length=16), kind, lambda _: None)
        train, valid = (LabelledSource(**part, pad=data.tokenizer.pad) for part in (data.train, data.valid))
        yield kind, Loader(train, train.plan(160), 2, data.content), in_order(valid, valid.plan(160))


def masked(files: dict[str, str]) -> Iterator[tuple[str, Loader, Iterator[Any]]]:
    for name, more in (
        ("padded", {}),
        ("packed", {"whole_words": True}),
        ("swapped", {"negatives": "swapped"}),
        ("alone", {"next_sentence": False}),
    ):
        paths = {"path": files["train.docs.txt"], "valid": files["valid.docs.txt"]}
        config = MaskedConfig(**paths, vocab=200, max_length=40, **more)
        data = prepare_masked(config, lambda _: None)
        rules = make_rules(config, data.tokenizer)
        train, valid = MaskedRows(data.train, rules, 400, name == "packed"), MaskedRows(data.valid, rules, 400)
        loader = Loader(train, train.plan, 3, data.content)
        yield f"masked, {name}", loader, in_order(valid, valid.plan)


def samples(files: dict[str, str]) -> Iterator[tuple[str, Loader, Iterator[Any]]]:
    rng = np.random.default_rng(0)
    pixels, classes = rng.integers(0, 256, (50, 3, 8, 8)).astype(np.uint8), rng.integers(0, 3, 50)
    rows = TableSource(Vectors(features=rng.random((50, 4)).astype(np.float32), labels=classes))
    frames = [torch.from_numpy(rng.random((6, int(n))).astype(np.float32)) for n in rng.integers(4, 12, 50)]
    series, names = Curves(ids=[str(i) for i in range(30)], **curves()), ("a", "b", "c")
    windows = Windows(rng.random((80, 2)), 0, 80, 12, 4)
    texts = Path(files["train.txt"]).read_text("utf-8").splitlines()
    captions = Captioned(pixels[:25], [texts[3 * i : 3 * i + 1 + i % 3] for i in range(25)])
    config = PairsConfig(source=files["train.en"], target=files["train.fr"], valid_source=files["valid.en"],
                         valid_target=files["valid.fr"], vocab=340, max_length=20)  # fmt: skip
    bpe: BPE = prepare(config, lambda _: None).tokenizer
    sources: dict[str, tuple[Source, Source]] = {
        "images": (
            ImageSource(Images(pixels, classes), 3, Augment(crop=0.2, flip=True)),
            ImageSource(Images(pixels, classes), 3),
        ),
        "tables": (rows, rows),
        "audio": (AudioSource(Spectrograms(frames, classes), 2, 0.5), AudioSource(Spectrograms(frames, classes))),
        "series": (
            SeriesSource(series, names, 25, window=12, jitter=0.5, hide=0.2, thin=0.3),
            SeriesSource(series, names, 25),
        ),
        "masked series": (HiddenSource(series, names, 25, window=12), HiddenSource(series, names, 25)),
        "forecast": (windows, windows),
        "captions": (CaptionSource(captions, bpe, 12, Augment(flip=True)), CaptionSource(captions, bpe, 12)),
    }
    for name, (train, valid) in sources.items():
        odds = class_odds(classes) if name in ("tables", "audio") else None
        yield name, Loader(train, FixedSize(8, odds), 9, 77), in_order(valid, FixedSize(16))


FAMILIES = {"pairs": pairs, "text": text, "labels": labels, "masked": masked, "samples": samples}


@pytest.mark.parametrize("family", FAMILIES)
def test_batches_equal_the_recorded(family, tmp_path):
    recorded = json.loads(FIXTURE.read_text("utf-8"))
    for name, loader, valid in FAMILIES[family](write_files(tmp_path)):
        assert summary(loader, valid, family) == recorded[name], name
        state = recorded[name]["state"]
        loader.restore(state)
        assert loader.state() == state


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REGARD_CACHE"] = folder
        made = {
            name: summary(loader, valid, family)
            for family, loaders in FAMILIES.items()
            for name, loader, valid in loaders(write_files(Path(folder)))
        }
    FIXTURE.write_text(json.dumps(made, indent=1) + "\n", "utf-8")
    sys.exit(f"{len(made)} loaders recorded in {FIXTURE}")
