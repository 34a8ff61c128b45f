"""Rows of tables on the command line: one classified, many scored, a file labelled."""

from typing import TYPE_CHECKING

from regard.errors import ConfigError
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.predictors import RowClassifier
    from regard.predictors.labeller import Answer


def classify_row(model: "RowClassifier", text: str, flags: Console) -> "Answer":
    """`hours=12, school=north`: the columns that are known, the others are missing."""
    row = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            names = ", ".join(f"{c.name}=…" for c in model.columns[:3])
            raise ConfigError(f"wanted columns as name=value, by commas, got {part.strip()!r}; for example: {names}")
        row[name.strip()] = value.strip()
    (answer,) = model.classify([row])
    for line in model.unlike_training([row]):
        flags.say(line)
    return answer
