"""Command lines at random, and files made to fill the memory: words and an exit code, and nothing else changed."""

import gzip
import io
import struct
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.fuzz.findings import failures, findings
from tests.fuzz.lines import Lines, parse
from tests.fuzz.models import TINY
from tests.fuzz.world import Case, World

SEED, CASES = 12, 80


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("fuzz")) as world:
        yield world


def claimed(size: int) -> bytes:
    """An NPZ file with a column of this size, as its headers tell before it is unpacked."""
    box = io.BytesIO()
    np.savez(box, close=np.zeros(50))
    real = zipfile.ZipFile(box).infolist()[0].file_size
    return box.getvalue().replace(struct.pack("<I", real), struct.pack("<I", size))


@pytest.fixture(scope="module")
def bombs(world) -> Path:
    """Small files that hold gigabytes, beside the folder of the command lines."""
    folder = world.root.parent / "bombs"
    folder.mkdir()
    block = gzip.compress(b"x" * (32 << 20), 9)  # members one after the other are one file
    (folder / "line.txt.gz").write_bytes(block * 192)  # 6 GB
    (folder / "column.npz").write_bytes(claimed(3 << 30))
    return folder


BOMBS = {
    "train translate --source={bombs}/line.txt.gz --target=data/few.fr": "line 1 is longer than",
    "predict runs/translator {bombs}/line.txt.gz": "line 1 is longer than",
    "evaluate runs/gpt --data={bombs}/line.txt.gz": "would need 1.0 GB",
    "predict runs/classifier {bombs}/line.txt.gz": "holds more than",
    "forecast runs/forecaster --data={bombs}/column.npz": "would need 3.0 GB",
    "train series --data={bombs}/column.npz": "would need 3.0 GB",
    "train series --data=data/page.csv --label=class": "line 1001, column 'id': 1,000,000 characters",
    "transcribe runs/whisper data/fast.wav": "4,000,000,000 samples per second",
    "classify runs/tones data/slow.wav": "1 samples per second",
}


def test_a_small_file_does_not_fill_the_memory(world, bombs):
    for line, said in BOMBS.items():
        case = Case(tuple(line.format(bombs=bombs).split()) + (tuple(TINY.split()) if line.startswith("train") else ()))
        answer, changed = world.run(case)
        assert not findings(case, answer, changed)
        assert answer.code == 2 and said in answer.err


def test_a_long_cell_among_short_ones_is_read(world):
    """Padded to every row it would be four gigabytes."""
    line = f"train classify --arch=mlp --data=data/pages.csv --label=passed --valid=data/students.csv {TINY}"
    answer, changed = world.run(Case(tuple(line.split())))
    assert answer.code == 0 and not changed, answer.err


def test_every_verb_and_option_is_tried(world):
    """Every task of a verb, and every option with some of its tasks."""
    lines = Lines(world.work, SEED)
    missed: set[tuple[str, ...]] = {verb.words for verb in lines.verbs}
    missed |= {(verb.words[0], name) for verb in lines.verbs for param in verb.options for name in param.opts}
    for number in range(8000):
        args = lines.case(number).args
        with suppress(LookupError):  # a task that does not exist
            missed -= {parse(" ".join(args[:3]), lines.verbs)[0].words}
            missed -= {(args[0], word.partition("=")[0]) for word in args}
        if not missed:
            break
    assert not missed


def test_no_command_line_fails_in_an_unforeseen_way(world):
    assert not failures(world, SEED, range(CASES))
