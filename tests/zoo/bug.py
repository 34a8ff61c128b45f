"""What a planted bug is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    name: str
    file: str  # below src/regard
    old: str  # occurs exactly once there
    new: str
    noticed_by: tuple[str, ...]  # below tests/


def bugs(file: str, *edits: tuple[str, str, str, tuple[str, ...] | str]) -> list[Bug]:
    return [Bug(n, file, old, new, (by,) if isinstance(by, str) else by) for n, old, new, by in edits]
