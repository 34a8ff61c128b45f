"""Model folders and GGUF files as a stranger, a crash or a bad disk may leave them: one seed, one mutant."""

import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent / "fixtures" / "runs"
NUMBERS = [-1, 0, 1, 2, 3, 7, 64, 1.5, 10**5, 2**31 - 1, 2**31, 10**9, 2**63 - 1, 2**63, 10**18, 10**30, 1e-300, 1e308]
ODD = [
    None,
    True,
    "",
    "x",
    "../..",
    "\u0000",
    "é" * 999,
    [],
    {},
    [[]],
    [1] * 999,
    {"a": {}},
    float("nan"),
    float("inf"),
]
TEXTS = [b"", b"[]", b"{}", b"null", b"0", b'"x"', b"{", b"\xff\xfe\x00", b"[" * 50_000, b'{"a":' * 50_000, b"9" * 5000]
DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
TOKENIZER_PARTS = [  # of tokenizer.json: what the library hangs, grows or panics on
    ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}),
    ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}),
    ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(e|e)*z"}, "behavior": "Removed", "invert": True}),
    ("pre_tokenizer", {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}),
    ("normalizer", {"type": "Sequence", "normalizers": [DOUBLE] * 30}),
    ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
    ("normalizer", {"type": "Prepend", "prepend": "x" * 1000}),
    ("post_processor", {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}),
    ("decoder", {"type": "Strip", "content": "a", "start": 10**9, "stop": 10**9}),
    ("padding", {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}),
    ("truncation", {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 5}),
]


def mutate(source: Path, target: Path, seed: int) -> str:
    """A copy of a folder, or of a GGUF file, with a few things wrong; and in words, which."""
    rng = random.Random(seed)
    if source.is_file():
        target.write_bytes(source.read_bytes())
        return mutate_gguf(target, rng)
    shutil.copytree(source, target)
    names = sorted(path for path in target.rglob("*") if path.is_file() and path.suffix != ".md")
    return "; ".join(mutate_file(rng.choice(names), rng) for _ in range(rng.choice((1, 1, 1, 2, 3))))


def mutate_file(path: Path, rng: random.Random) -> str:
    if not path.is_file():
        return f"{path.name} is gone already"
    ways: list[Callable[[Path, random.Random], str]] = [damage]
    if path.suffix == ".json":
        ways += [change_json] * 6
    if path.name == "tokenizer.json":
        ways += [change_tokenizer] * 3
    if path.suffix == ".jsonl":
        ways += [change_line] * 3
    if path.suffix == ".safetensors":
        ways += [change_header] * 4 + [change_values]
    return f"{path.name}: {rng.choice(ways)(path, rng)}"


def damage(path: Path, rng: random.Random) -> str:
    data, what = path.read_bytes(), rng.randrange(7)
    if what == 0:
        path.write_bytes(data[: rng.randrange(len(data) + 1)])
        return "cut short"
    if what == 1:
        path.write_bytes(flipped(data, rng, rng.choice((1, 10, 100))))
        return "flipped bytes"
    if what == 2:
        path.write_bytes(text := rng.choice(TEXTS))
        return f"replaced by {text[:9]!r}"
    path.unlink()
    if what == 3:
        path.mkdir()
        return "a folder"
    if what == 4:
        path.symlink_to(path.name)
        return "a link to itself"
    if what == 5:
        os.mkfifo(path)
        return "a pipe nobody writes to"
    return "removed"


def flipped(data: bytes, rng: random.Random, count: int, within: int = 0) -> bytes:
    changed = bytearray(data)
    for _ in range(count if data else 0):
        changed[rng.randrange(min(len(data), within or len(data)))] = rng.randrange(256)
    return bytes(changed)


def change_json(path: Path, rng: random.Random) -> str:
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return "damaged already"
    said = change_value(value, rng)
    path.write_text(json.dumps(value))
    return said


def change_value(value: Any, rng: random.Random) -> str:
    """One place of a JSON value, anywhere in it, becomes something else; few of them are in a vocabulary."""
    places = [p for p in entries(value) if len(p) < 3] if rng.random() < 0.8 else list(entries(value))
    if not places:
        return "nothing to change"
    *way, last = rng.choice(places)
    for key in way:
        value = value[key]
    if rng.random() < 0.15:
        del value[last]
        return f"{[*way, last]} removed"
    value[last] = new = rng.choice(
        NUMBERS if type(value[last]) in (int, float) and rng.random() < 0.8 else ODD + NUMBERS
    )
    return f"{[*way, last]} is {new!r:.40}"


def entries(value: Any, way: tuple = ()) -> Iterator[tuple]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*way, key)
        yield from entries(inner, (*way, key))


def change_tokenizer(path: Path, rng: random.Random) -> str:
    try:
        value = json.loads(path.read_bytes())
        name, part = rng.choice(TOKENIZER_PARTS)
        value[name] = part
    except (ValueError, TypeError, RecursionError):
        return "damaged already"
    path.write_text(json.dumps(value))
    return f"{name} {part.get('type', part)}"


def change_line(path: Path, rng: random.Random) -> str:
    lines = path.read_bytes().splitlines(keepends=True) or [b""]
    at = rng.randrange(len(lines))
    try:
        value = json.loads(lines[at])
        said = change_value(value, rng)
        lines[at] = json.dumps(value).encode() + b"\n"
    except (ValueError, RecursionError):
        said, lines[at] = "another line", rng.choice(TEXTS) + b"\n"
    path.write_bytes(b"".join(lines))
    return f"line {at + 1}: {said}"


def change_header(path: Path, rng: random.Random) -> str:
    """The table of contents of a safetensors file, or only its length."""
    data = path.read_bytes()
    try:
        (size,) = struct.unpack("<Q", data[:8])
        table = json.loads(data[8 : 8 + size])
    except (ValueError, RecursionError, struct.error):
        return "damaged already"
    if rng.random() < 0.1:
        path.write_bytes(struct.pack("<Q", rng.choice([0, 1, 10**9, 2**63])) + data[8:])
        return "another length of its header"
    said = change_value(table, rng)
    header = json.dumps(table).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + size :])
    return said


def change_values(path: Path, rng: random.Random) -> str:
    data = path.read_bytes()
    path.write_bytes(data[:-4] + struct.pack("<f", rng.choice([float("nan"), float("inf"), 1e38])))
    return "a strange last number"


def mutate_gguf(path: Path, rng: random.Random) -> str:
    """Settings follow their names: 4 bytes of type, then the value. The rest is damage."""
    data = path.read_bytes()
    names = [b"context_length", b"block_count", b"embedding_length", b"feed_forward_length", b"head_count", b"merges"]
    names += [b"head_count_kv", b"dimension_count", b"freq_base", b"epsilon", b"tokens", b"token_type", b"eos_token_id"]
    what = rng.randrange(5)
    if what <= 2:
        name = rng.choice(names)
        at = data.find(name) + len(name) + 4
        new = struct.pack("<I", rng.choice([0, 1, 3, 5, 10**6, 10**9, 2**31 - 1, 2**32 - 1]))
        path.write_bytes(data[:at] + new + data[at + 4 :])
        return f"{name.decode()} is {new.hex()}"
    if what == 3:
        path.write_bytes(flipped(data, rng, rng.choice((1, 5, 50)), within=rng.choice((64, 9_000, len(data)))))
        return "flipped bytes"
    path.write_bytes(data[: rng.randrange(len(data))])
    return "cut short"
