"""A look as a picture for slides: the heads of the sharpest layer, or the states, and the answer."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.errors import ConfigError
from regard.explain import picture
from regard.inside.attention import Attention, stages
from regard.inside.looked import Looked
from regard.inside.pair import text_of
from regard.inside.recurrent import unrolled

BARS = 10
ACROSS = 4  # heads per row


def draw(looked: Looked, path: str | Path, title: str = "", layer: int = 0, head: int = 0) -> Path:
    """Write a picture in the format of its extension. Of several kinds of attention the last is drawn: a translator's
    cross-attention.

    `layer` and `head` count from 1; 0 is the sharpest layer, and all of its heads.
    """
    kinds = list(looked.attention)
    bars, unit = answers(looked)
    attention = looked.attention[kinds[-1]] if kinds else None
    check_choice(attention, layer, head)
    count = attention.heads if attention and not head else 1
    rows, across = math.ceil(count / ACROSS), min(count, ACROSS)
    tall = [3.1 * rows, *([0.28 * len(bars) + 0.6] if bars else []), *([2.4] if looked.compared else [])]
    fig = picture.figure(max(6.0, 3.1 * across), sum(tall) + 0.6)
    parts = fig.subfigures(len(tall), 1, height_ratios=tall, squeeze=False)[:, 0]
    if attention:
        chosen = layer - 1 if layer else looked.overviews[kinds[-1]].sharpest[0]
        shown = [head - 1] if head else range(attention.heads)
        heads(parts[0], looked, attention, chosen, shown, rows, across)
    elif hasattr(looked.predictor.model.config, "cell"):
        states(parts[0], looked)
    if bars:
        axes = parts[1].subplots()
        names, values = [picture.plain(name) for name, _ in bars], [value for _, value in bars]
        axes.barh(range(len(bars)), values, color=picture.COLOURS[0])
        axes.set_yticks(range(len(bars)), names)
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel(unit)
        for place, value in enumerate(values):
            text = f"{value:.1%}" if unit == "probability" else f"{value:.3f}"
            axes.text(min(max(value, 0) + 0.01, 0.94), place, text, va="center", fontsize=8)
    if looked.compared:
        compared(parts[-1], looked.compared[0])
    if title:
        fig.suptitle(picture.plain(title), fontsize=10)
    return picture.save(fig, path)


def check_choice(attention: Attention | None, layer: int, head: int) -> None:
    """Raise `ConfigError` for a layer or head that does not exist."""
    if attention is None:
        if layer or head:
            raise ConfigError("--layer and --head are for models with attention; this one has none")
        return
    for name, number, most in (("layer", layer, len(attention.layers)), ("head", head, attention.heads)):
        if not 0 <= number <= most:
            raise ConfigError(f"--{name} {number}: there are {name}s 1 to {most}")


def heads(
    part: Any, looked: Looked, attention: Attention, layer: int, shown: Sequence[int], rows: int, across: int
) -> None:
    names = [[chip["shown"] for chip in looked.streams[side]] for side in (attention.rows, attention.columns)]
    grid = part.subplots(rows, across, squeeze=False, sharex=True, sharey=True)
    weights = [stages(attention.layers[layer], head)["weights"].cpu().numpy() for head in shown]
    most = max(float(table.max()) for table in weights)
    for axes in grid.flat[len(shown) :]:
        axes.set_axis_off()
    for axes, head, table in zip(grid.flat, shown, weights, strict=False):
        picture.heatmap(axes, table, names[0], names[1], f"layer {layer + 1}, head {head + 1}", most)
    part.colorbar(grid[0, 0].images[0], ax=grid, label="weight", shrink=0.8)
    part.supxlabel(f"{attention.kind} attention: a row attends to its columns", fontsize=8)


def states(part: Any, looked: Looked) -> None:
    header, tensors = unrolled(looked)
    axes = part.subplots()
    image = axes.imshow(tensors["states"][-1].float().T.cpu().numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    names = [chip["shown"] for chip in looked.streams[header["stream"]]][: header["rows"]]
    picture.ticks(axes.set_xticks, names, rotation=90)
    axes.set_ylabel(f"units of the last {header['cell']} layer")
    part.colorbar(image, ax=axes, label="state")


def compared(part: Any, header: dict[str, Any]) -> None:
    """The cosine of a word's vectors in two texts, after the embedding and after every layer."""
    axes = part.subplots()
    axes.plot(range(len(header["cosine"])), header["cosine"], marker="o", color=picture.COLOURS[1])
    names = (text_of([header[f"tokens_{s}"][i] for i in header["rows"][s]["tokens"]]) for s in "ab")
    first, second = (picture.plain(name) for name in names)
    axes.set_title(f"“{first}” in the first text and “{second}” in the second", fontsize=9)
    axes.set_xticks(range(len(header["cosine"])))
    axes.set_xlabel("after layer (0: the embedding)")
    axes.set_ylabel("cosine")


def answers(looked: Looked) -> tuple[list[tuple[str, float]], str]:
    """The bars to draw, names and values, and the unit of the values."""
    if bars := probabilities(looked):
        return bars, "probability"
    if "similar" in looked.results:
        return [("the two texts", looked.results["similar"]["cosine"])], "cosine"
    return [], ""


def probabilities(looked: Looked) -> list[tuple[str, float]]:
    results = looked.results
    if "next" in results:
        return [(repr(word["text"])[1:-1].replace(" ", "␣"), word["p"]) for word in results["next"]["top"][:BARS]]
    if "classes" in results:
        return [(one["label"], one["p"]) for one in results["classes"]]
    if "tags" in results:
        return [(f"{tag['word']}  {tag['label']}", tag["p"]) for tag in results["tags"]][: picture.SHOWN]
    if results.get("fill"):
        return [(word["text"], word["p"]) for word in results["fill"][0]["words"][:BARS]]
    if "translation" in results:
        pieces = results["translation"]["hypotheses"][0]["tokens"]
        return [(piece["text"].replace(" ", "␣"), math.exp(piece["logp"])) for piece in pieces][: picture.SHOWN]
    return []
