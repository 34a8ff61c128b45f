"""Files with something cut, doubled, put in or turned round."""

import json
import random
import re
from typing import Any

from tests.fuzz.values import BYTES, FLOATS, INTEGERS, JSON


def damage(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = rng.choice((cut, double, put_in, put_in, write_over, renumber, reorder))(rng, data)
    return data


def _part(rng: random.Random, data: bytes) -> tuple[int, int]:
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return start, end


def cut(rng: random.Random, data: bytes) -> bytes:
    start, end = _part(rng, data)
    return data[:start] + (data[end:] if rng.random() < 0.5 else b"")


def double(rng: random.Random, data: bytes) -> bytes:
    start, end = _part(rng, data)
    return data[:end] + data[start:]


def put_in(rng: random.Random, data: bytes) -> bytes:
    start, _ = _part(rng, data)
    return data[:start] + rng.choice(BYTES) + data[start:]


def write_over(rng: random.Random, data: bytes) -> bytes:
    start, _ = _part(rng, data)
    new = rng.choice(BYTES) if rng.random() < 0.3 else bytes([rng.randrange(256)])
    return data[:start] + new + data[start + len(new) :]


def renumber(rng: random.Random, data: bytes) -> bytes:
    if not (numbers := list(re.finditer(rb"-?\d+(?:\.\d+)?", data))):
        return data
    place = rng.choice(numbers)
    return data[: place.start()] + rng.choice([*INTEGERS, *FLOATS]).encode() + data[place.end() :]


def reorder(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    way = rng.randrange(3)
    if way == 0:
        rng.shuffle(lines)
    elif way == 1:
        lines.insert(0, rng.choice(lines))
    else:
        lines.pop(rng.randrange(len(lines)))
    return rng.choice((b"\n", b"\n", b"\r\n", b"\r", b"")).join(lines)


def damage_json(rng: random.Random, data: bytes) -> bytes:
    """Mostly JSON still, with a value replaced or gone."""
    if rng.random() < 0.2:
        return damage(rng, data)
    if rng.random() < 0.1:
        return rng.choice((b"[]", b"{}", b"null", b"3", b'"x"', b"[" * 100_000, b'{"a":' * 50_000, b"NaN", b""))
    whole = {"": json.loads(data)}
    holders: list[Any] = [whole]
    for holder in holders:
        inside = list(holder.values()) if isinstance(holder, dict) else holder[:30]
        holders += [value for value in inside if isinstance(value, dict | list) and value]
    for _ in range(rng.choice((1, 1, 2))):
        holder = rng.choice(holders)
        if not holder:
            continue
        key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        if rng.random() < 0.25 and len(holder) > 1:
            del holder[key]
        else:
            holder[key] = rng.choice(JSON)
    return json.dumps(whole[""]).encode()
