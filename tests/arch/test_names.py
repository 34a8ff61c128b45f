"""The public names are one sorted list, each there and each written down once."""

import ast
from collections import defaultdict

import regard


def test_public_names_are_sorted_and_exist():
    assert regard.__all__ == sorted(regard.__all__)
    missing = [name for name in regard.__all__ if not callable(getattr(regard, name))]
    assert not missing, missing


def test_public_names_do_not_shadow_subpackages():
    """A name like `explain` would turn from a function into the subpackage as soon as that was imported."""
    modules = {
        "checkpoint",
        "cli",
        "data",
        "explain",
        "generate",
        "metrics",
        "models",
        "nn",
        "objectives",
        "tasks",
        "training",
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


def classes(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """The files that define each class."""
    files: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(path)
    return files


def test_no_two_classes_share_a_name(trees):
    shared = {name: files for name, files in classes(trees).items() if len(files) > 1}
    assert not shared, shared


def test_only_tasks_and_models_test_for_predictors_and_configs(trees):
    """Others ask: a task, predictor or model says what it offers."""
    homes = ("tasks/", "models/", "predictors/")
    files = classes(trees)
    guarded = {name for name, paths in files.items() if paths[0].startswith(homes[1:]) or name.endswith("Config")}
    assert guarded >= {"Translator", "Transformer", "PairsConfig", "BertConfig"}, "classes are not found any more"
    wrong = [
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for path, tree in trees.items()
        if not path.startswith(homes)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") in ("isinstance", "issubclass")
        and guarded & {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
    ]
    assert not wrong, wrong
