"""All use of matplotlib: figures are made here, and written completely or not at all."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.errors import ConfigError, MissingExtra
from regard.output import check_output, open_output

# Okabe and Ito (2008): eight colours that colour-blind readers can tell apart; dashes tell them apart in grey too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
DASHES = ("-", "--", "-.", ":")
KINDS = (".png", ".svg", ".pdf")
SHOWN = 48  # names along an axis; more would be unreadable


def check_picture(path: str | Path) -> Path:
    """`path`, if it can hold a picture and matplotlib is installed; call it before the work starts."""
    path = Path(path)
    if path.suffix.lower() not in KINDS:
        better = path.with_suffix(".png") if path.name else "picture.png"
        raise ConfigError(f"{path}: a picture's name must end in {', '.join(KINDS)}; try {better}")
    figure(1, 1)
    check_output(path)
    return path


def figure(width: float, height: float) -> Any:
    """An empty figure, in inches; needs no display."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("a picture", "plot") from None
    return Figure(figsize=(width, height), layout="constrained")


def plain(text: str) -> str:
    return text.replace("$", r"\$")  # matplotlib reads $…$ as a formula


def ticks(setter: Any, names: Sequence[str], **style: Any) -> None:
    """Names along an axis; if there are many, only some."""
    step = -(-len(names) // SHOWN) or 1
    setter(range(0, len(names), step), [plain(name) for name in names[::step]], fontsize=6, **style)


def heatmap(axes: Any, weights: Any, rows: Sequence[str], columns: Sequence[str], title: str, most: float) -> None:
    """The attention weights of one head, T S, with the tokens along both sides."""
    axes.imshow(weights, cmap="cividis", vmin=0.0, vmax=most, aspect="auto")
    axes.set_title(title, fontsize=8)
    ticks(axes.set_yticks, rows)
    ticks(axes.set_xticks, columns, rotation=90)


def save(fig: Any, path: str | Path) -> Path:
    """Write the figure in the format of its file extension: .png, .svg or .pdf."""
    path = check_picture(path)
    data = io.BytesIO()
    fig.savefig(data, format=path.suffix.lower()[1:], dpi=150)
    with open_output(path) as file:
        file.write(data.getvalue())
    return path
