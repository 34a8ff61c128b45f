"""SECURITY.md says what the code does."""

import ast

import pytest

from regard import confine
from regard.serve import guard

PICKLES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}


@pytest.fixture(scope="module")
def page(root) -> str:
    return (root / "SECURITY.md").read_text("utf-8")


def calls(trees, name: str) -> list[tuple[str, dict[str, object]]]:
    """Every call of `name` in the package: the file, and the keyword arguments that are constants."""
    return [
        (file, {k.arg: k.value.value for k in node.keywords if k.arg and isinstance(k.value, ast.Constant)})
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == name
    ]


def test_only_weights_are_unpickled_and_only_their_tensors(trees, page):
    files = ("models/openai.py", "models/published/weights.py")
    assert calls(trees, "torch.load") == [(file, {"map_location": "cpu", "weights_only": True}) for file in files]
    assert "torch.load(..., weights_only=True)" in page


def test_nothing_else_is_unpickled(trees):
    for file, tree in trees.items():
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not PICKLES & {name.split(".")[0] for name in names}, file
    arrays = calls(trees, "np.load")
    assert arrays and all(said.get("allow_pickle", False) is False for _, said in arrays)


def test_the_limits_are_those_of_the_page(page):
    assert f"{guard.LARGEST >> 20} MB" in page and f"{confine.MEMORY >> 20} MB" in page
