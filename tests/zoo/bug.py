"""A planted bug: an edit inside one symbol, so that a refactor elsewhere in its file does not replant it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Bug:
    name: str
    module: str  # below regard
    symbol: str  # a function, a method as Class.method, a class or a name that is assigned
    old: str  # occurs exactly once there
    new: str
    noticed_by: tuple[str, ...]  # below tests/

    def path(self, package: Path) -> Path:
        path = package.joinpath(*self.module.split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def planted(self, package: Path) -> str:
        """The text of the module with the bug in it."""
        text = self.path(package).read_text("utf-8")
        where = f"{self.module}.{self.symbol}"
        spans = [span for name, *span in parsed(text) if name == self.symbol]
        assert len(spans) == 1, f"{where}: {len(spans)} such symbols; replant the bug {self.name!r}"
        lines = text.splitlines(keepends=True)
        first, last = spans[0]
        source = "".join(lines[first:last])
        assert source.count(self.old) == 1, f"{where}: {self.old!r} occurs {source.count(self.old)} times, expected 1"
        assert self.new != self.old
        return "".join([*lines[:first], source.replace(self.old, self.new), *lines[last:]])


@cache
def parsed(text: str) -> list[tuple[str, int, int]]:
    return list(symbols(ast.parse(text)))


def symbols(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    """Every function, class and assigned name with the lines it spans; what a class holds has the name Class.name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [child.name]
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        else:
            continue
        first = min([child.lineno, *(d.lineno for d in getattr(child, "decorator_list", []))])
        for name in names:
            yield prefix + name, first - 1, child.end_lineno or first
        if isinstance(child, ast.ClassDef):
            yield from symbols(child, f"{prefix}{child.name}.")


def bugs(module: str, *edits: tuple[str, str, str, str, tuple[str, ...] | str]) -> list[Bug]:
    """Bugs of one module: each a name, a symbol, the text there, what is planted for it, and who must notice."""
    return [
        Bug(name, module, symbol, old, new, (by,) if isinstance(by, str) else by)
        for name, symbol, old, new, by in edits
    ]
