"""The source as syntax trees, read once."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def trees() -> dict[str, ast.Module]:
    """Path below src/regard -> its syntax tree."""
    home = ROOT / "src" / "regard"
    return {f.relative_to(home).as_posix(): ast.parse(f.read_text("utf-8")) for f in sorted(home.rglob("*.py"))}
