"""Small parallel text, made by a seeded grammar, and files of it."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

NOUNS = [("man", "homme"), ("friend", "ami"), ("house", "maison"), ("child", "enfant"), ("tree", "arbre")]
VERBS = [("sees", "voit"), ("likes", "aime"), ("isn't", "n'est pas"), ("has", "a"), ("draws", "dessine")]
TIMES = [("today", "aujourd'hui"), ("at 10 o'clock", "à 10 heures"), ("in 2024", "en 2024"), ("often", "souvent")]


def sentences(count: int, seed: int = 0) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    out = []
    for _ in range(count):
        a, b, v, t = draw.choice(NOUNS), draw.choice(NOUNS), draw.choice(VERBS), draw.choice(TIMES)
        n = draw.randint(1, 999)
        out.append((f"The {a[0]} {v[0]} {n} {b[0]} {t[0]}.", f"L'{a[1]} {v[1]} {n} {b[1]} {t[1]} !"))
    return out


@pytest.fixture
def corpus() -> Callable[..., list[tuple[str, str]]]:
    return sentences


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """Write pairs as two files; gives their paths."""

    def write(pairs: list[tuple[str, str]], name: str = "train") -> tuple[str, str]:
        paths = tmp_path / f"{name}.en", tmp_path / f"{name}.fr"
        for side, path in enumerate(paths):
            path.write_text("".join(pair[side] + "\n" for pair in pairs), "utf-8")
        return str(paths[0]), str(paths[1])

    return write


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for this test alone."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
