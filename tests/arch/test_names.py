"""The public names are one sorted list, each there and each written down once."""

import ast

import regard


def test_public_names_are_sorted_and_exist():
    assert regard.__all__ == sorted(regard.__all__)
    missing = [name for name in regard.__all__ if not callable(getattr(regard, name))]
    assert not missing, missing


def test_public_names_do_not_shadow_subpackages():
    """A name like `train` would turn from a function into the subpackage as soon as that was imported."""
    modules = {
        "checkpoint",
        "cli",
        "data",
        "evaluate",
        "explain",
        "generate",
        "models",
        "nn",
        "objectives",
        "tasks",
        "train",
    }
    assert not modules & set(regard.__all__)


def test_type_checkers_see_the_same_names(trees):
    seen = {
        a.asname or a.name for n in ast.walk(trees["__init__.py"]) if isinstance(n, ast.ImportFrom) for a in n.names
    }
    assert set(regard.__all__) <= seen


def test_other_lists_of_names_are_sorted_too(trees):
    wrong = []
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets):
                names = ast.literal_eval(node.value)
                if names != sorted(names):
                    wrong.append(path)
    assert not wrong, wrong
