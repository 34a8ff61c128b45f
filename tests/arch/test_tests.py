"""Where tests are kept and how they are named."""

import ast
from pathlib import Path

import pytest
from tests.zoo.bugs import BUGS

LONGEST = 59  # characters of a name after `test_`: it states a unit and its behaviour
# What one test file says of several modules at once.
ACROSS = {
    "generate/test_memory.py": "every way to generate text refuses what memory cannot hold",
    "inside/test_states.py": "embeddings, positions, recurrent states and gradients of one look",
    "objectives/test_held_out.py": "the validation loss of every objective",
    "predictors/test_lengths.py": "the length penalty of every predictor that searches",
    "predictors/test_limits.py": "the longest input of every predictor",
    "test_linear_work.py": "the work of data, metrics and predictors grows linearly",
}


@pytest.fixture(scope="module")
def files(root) -> list[Path]:
    return sorted((root / "tests").rglob("test_*.py"))


def test_unit_tests_mirror_the_source(root, files):
    """`unit/x/test_y.py`, or `test_y_aspect.py` for one aspect of a large module, tests `regard/x/y.py`."""
    unit, source = root / "tests" / "unit", root / "src" / "regard"
    strays = set()
    for name in (f.relative_to(unit) for f in files if f.is_relative_to(unit)):
        words = name.stem.removeprefix("test_").split("_")
        modules = ["_".join(words[:n]) for n in range(1, len(words) + 1)]
        if not any((source / name.parent / m).with_suffix(end).exists() for m in modules for end in ("", ".py")):
            strays.add(name.as_posix())
    assert strays == set(ACROSS), sorted(strays ^ set(ACROSS))


def test_test_names_are_short(root, files):
    long = [
        f"{file.relative_to(root)}::{node.name}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and len(node.name) - len("test_") > LONGEST
    ]
    assert not long, f"over {LONGEST} characters:\n" + "\n".join(long)


def test_planted_bugs_name_tests_that_exist(root):
    missing = set()
    for node in {node for bug in BUGS for node in bug.noticed_by}:
        file, _, name = node.partition("::")
        path = root / "tests" / file
        if not path.is_file() or f"def {name.split('[')[0]}" not in path.read_text("utf-8"):
            missing.add(node)
    assert not missing, missing
