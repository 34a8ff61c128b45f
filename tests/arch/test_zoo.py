"""The zoo is run before a release; that its bugs can still be planted, and their tests exist, is checked always."""

from pathlib import Path

import pytest
from tests.zoo.bug import Bug
from tests.zoo.bugs import BUGS

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_every_planted_bug_applies(bug: Bug):
    assert bug.planted(TESTS.parent / "src/regard")


@pytest.mark.parametrize("node", sorted({node for bug in BUGS for node in bug.noticed_by}))
def test_every_test_a_bug_names_exists(node: str):
    path, _, name = node.partition("::")
    text = (TESTS / path).read_text("utf-8") if path.endswith(".py") else ""
    assert (TESTS / path).exists() and f"def {name.partition('[')[0]}" in (text or "def ")


def test_every_planted_bug_has_a_name_of_its_own():
    names = [bug.name for bug in BUGS]
    assert len(set(names)) == len(names) >= 24
