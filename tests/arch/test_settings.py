"""A setting that nothing reads is a promise not kept."""

import ast
from collections.abc import Iterator


def is_config(node: ast.AST) -> bool:
    """Ours are told by their decorator: @dataclass(frozen=True, kw_only=True)."""
    if not isinstance(node, ast.ClassDef):
        return False
    flags = {k.arg for d in node.decorator_list if isinstance(d, ast.Call) for k in d.keywords}
    return {"frozen", "kw_only"} <= flags


def settings(trees: dict[str, ast.Module]) -> Iterator[tuple[str, str]]:
    for tree in trees.values():
        for node in ast.walk(tree):
            if is_config(node):
                for line in node.body:
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                        yield node.name, line.target.id


def reads(node: ast.AST) -> Iterator[str]:
    """Names read as attributes; checking a value at birth is not yet using it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and child.name == "__post_init__":
            continue
        if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Load):
            yield child.attr
        yield from reads(child)


def test_every_setting_is_read_somewhere(trees):
    actual = list(settings(trees))
    assert {name for name, _ in actual} >= {"PairsConfig", "Run", "TransformerConfig"}, "configs are not found any more"
    read = {name for tree in trees.values() for name in reads(tree)}
    unread = [f"{config}.{field}" for config, field in actual if field not in read]
    assert not unread, f"settings that nothing reads: {unread}"
