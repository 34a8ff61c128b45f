"""`regard gradients`: how far back networks can learn from, measured."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.common import SEED, Json, pick_device, show_line
from regard.errors import ConfigError, MissingExtra
from regard.ticks import Console
from regard.words import table

if TYPE_CHECKING:
    from regard.explain.gradients import Clipping, Fading
    from regard.explain.recall import Pace, Recall, Weights


def gradients(
    ctx: typer.Context,
    arch: Annotated[
        str, typer.Option(metavar="NAME", help="rnn, gru, lstm, gpt, llama, mlp, conv3, conv9; several by comma.")
    ] = "rnn,gru,lstm,gpt",
    length: Annotated[int, typer.Option(metavar="N", min=10, max=1000, help="The farthest distance.")] = 200,
    memory: Annotated[
        bool, typer.Option("--memory", help="Also train tiny models to recall a symbol, 5 to 1,000 tokens later.")
    ] = False,
    speed: Annotated[
        bool, typer.Option("--speed", help="Also time a step of each, for sequences of 64 to 2,048 tokens.")
    ] = False,
    out: Annotated[
        str, typer.Option(metavar="FILE", help="Draw it to this .png, .svg or .pdf.", show_default=False)
    ] = "",
    seed: Annotated[int, typer.Option(**SEED, help="Other networks, other inputs.")] = 0,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="For --memory and --speed: auto, cpu, cuda or cuda:N.")
    ] = "cpu",
    json: Json = False,
) -> None:
    """Why recurrent nets forget: gradient against distance, and what each remedy does to it.

    Networks as they are born, on random input: how strongly does the last state depend on the input k steps
    before? Half a minute; --memory takes about two minutes more, --speed some seconds.

    \b
    Examples:
      regard gradients --arch rnn,lstm,gpt --length 200
      regard gradients --out gradients.png
      regard gradients --memory --speed --out all.svg
      regard gradients --arch mlp,conv3,conv9,lstm,gpt --memory --out limits.png
    """
    from regard.config import unknown
    from regard.explain.plain_text import PLAIN
    from regard.tasks.registry import get

    flags: Console = ctx.obj
    archs = list(dict.fromkeys(a.strip().lower() for a in arch.split(",") if a.strip()))
    if not archs:
        raise ConfigError("--arch is empty; for example: --arch rnn,lstm,gpt")
    for name in archs:
        if name not in (known := [*get("lm").archs, *PLAIN]):
            raise unknown("architecture", name, known)
    out, chosen = pictured(out, flags), pick_device(device)

    from regard.explain import gradients as measured

    flags.say(f"measuring gradients over {length} steps")
    groups = {
        "networks at birth": [measured.architecture(a, length, seed) for a in archs],
        "an RNN, its recurrent matrix scaled": measured.radii(length, seed),
        "remedies": measured.remedies(length, seed),
    }
    clips = measured.clipping(length, seed)
    recalls, costs, paces = [], [], []
    if memory or speed:
        from regard.explain.recall import ONE_LENGTH, pace, recall, weights

        for name in archs if memory else ():
            flags.say(f"teaching {name} to recall")
            ways = (False,) if name == ONE_LENGTH else (False, True)
            recalls += [recall(name, short_first, seed, chosen) for short_first in ways]
            costs.append(weights(name))
        for name in archs if speed else ():
            if name != ONE_LENGTH:  # it answers once a text, the others at every word
                flags.say(f"timing {name}")
                paces.append(pace(name, seed, chosen))
    report(groups, clips, recalls, costs, paces, json=json, seed=seed, device=chosen)
    if out:
        from regard.explain.gradients_picture import draw

        flags.say(f"picture: {draw(groups, recalls, costs, paces, out)}")


def pictured(out: str, flags: Console) -> str:
    """The picture's name, or none where matplotlib is not installed: the tables say the same."""
    if out:
        from regard.explain.picture import check_picture

        try:
            check_picture(out)
        except MissingExtra as e:
            flags.say(f"no picture: {e}")
            return ""
    return out


# -- tables and what they say -------------------------------------------------------------------------------------


def report(
    groups: "dict[str, list[Fading]]",
    clips: "list[Clipping]",
    recalls: "list[Recall]",
    costs: "list[Weights]",
    paces: "list[Pace]",
    *,
    json: bool,
    seed: int,
    device: str,
) -> None:
    from regard.explain.gradients import DRAWS, LIMIT, WIDTH

    models, scaled, remedies = groups.values()
    says = [of_models(models), of_radii(scaled), of_remedies(remedies), of_clipping(clips)]
    tables = [fading_table(title, found) for title, found in groups.items()]
    tables.append(clipping_table(f"clipping to {LIMIT:g}", clips))
    if recalls:
        tables += [recall_table(recalls), weights_table(costs)]
        says += [of_recall(recalls), of_weights(costs)]
    if paces:
        tables.append(pace_table(paces, device))
        says.append(of_pace(paces, device))
    if json:
        values = {"models": models, "radii": scaled, "remedies": remedies, "clipping": clips}
        values |= {"memory": recalls, "weights": costs, "speed": paces}
        plain = {name: [dataclasses.asdict(v) for v in found] for name, found in values.items()}
        show_line({"seed": seed, **plain, "findings": says})
        return
    print("Gradient of the last state by the input k steps before, relative to k = 1.")
    print(f"Medians of {DRAWS} untrained networks {WIDTH} wide, in float64, seed {seed};")
    print("'a step' is the factor that fits from k = 1 on (mean ± standard deviation).")
    for text, sentence in zip(tables, says, strict=True):
        print(f"\n{text}\n{sentence}")


def number(value: float) -> str:
    if value >= 10_000 or 0 < value < 0.001:
        return f"{value:.0e}"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + list(words[-1:]))


def fading_table(title: str, found: "Sequence[Fading]") -> str:
    length = len(found[0].norms) - 1
    shown = sorted({k for k in (0, 10, 50, 100, 200, 500) if k <= length} | {length})
    rows = [[title, *(f"k={k}" for k in shown), "a step"]]
    rows += [[f.name, *(number(f.at(k)) for k in shown), str(f.step)] for f in found]
    return table(rows, right=range(1, len(rows[0])))


def of_models(found: "Sequence[Fading]") -> str:
    from regard.explain.gradients import FLOAT32

    parts = []
    for f in found:
        gone = next((k for k, norm in enumerate(f.norms) if norm < FLOAT32), None)
        lost = "too small for float32" if gone and f.norms[gone] else "nothing at all"
        end = f"; {lost} from {gone} steps on" if gone else ""
        parts.append(f"that of {f.name} {f.fate} ({number(f.at(-1))}{end})")
    text = f"Over {len(found[0].norms) - 1} steps the gradient … {listed(parts)}.".replace("… that of", "of", 1)
    for f in found:
        if f.at(0) > 10:
            text += f" What {f.name} gets from each place is 1/{f.at(0):.0f} of what it gets from its own."
    return text


def of_radii(found: "Sequence[Fading]") -> str:
    def where(kind: str, fate: str) -> str:
        names = [f.name.split()[-1] for f in found if f.name.startswith(kind) and f.fate == fate]
        return f"{fate} at radius {listed(names)}" if names else f"never {fate}"

    wild, normed = found[-2:]
    return (
        f"Without an activation the factor is the radius: the gradient {where('linear', 'vanishes')} and "
        f"{where('linear', 'explodes')}. With tanh, which passes less the more it saturates, it "
        f"{where('tanh', 'vanishes')} and {where('tanh', 'explodes')}; there layer norm turns {number(wild.at(-1))} "
        f"into {number(normed.at(-1))}."
    )


def of_remedies(found: "Sequence[Fading]") -> str:
    none, *others = found
    said = {"is kept": "kept within a factor of 100", "vanishes": "fading", "explodes": "exploding"}
    parts = []
    for fate, words in said.items():
        if names := [f"{f.name.split(': ')[1]} ({number(f.at(-1))})" for f in others if f.fate == fate]:
            parts.append(f"{words} with {listed(names)}")
    steps, left = len(none.norms) - 1, number(none.at(-1))
    return f"Over {steps} steps the gradient is {'; '.join(parts)}. Without a remedy {left} is left."


def clipping_table(title: str, found: "Sequence[Clipping]") -> str:
    rows = [[title, "before", "after", "far/near before", "far/near after"]]
    rows += [[c.name, *(number(v) for v in (c.before, c.after, c.far_before, c.far_after))] for c in found]
    return table(rows, right=[1, 2, 3, 4])


def of_clipping(found: "Sequence[Clipping]") -> str:
    weak, wild = found
    return (
        f"Clipping turns a gradient of {number(wild.before)} into one of {number(wild.after)}. It shrinks all "
        f"distances alike: what has vanished ({number(weak.far_before)}) stays vanished ({number(weak.far_after)})."
    )


def recall_table(found: "Sequence[Recall]") -> str:
    from regard.explain.recall import DISTANCES

    rows = [["right answers", *(f"at {d:,}" for d in DISTANCES)]]
    for r in found:
        shares = [f"{r.accuracy[d]:.0%}".replace("%", " %") if d in r.accuracy else "–" for d in DISTANCES]
        rows.append([f"{r.name}, {'short distances first' if r.short_first else 'each from nothing'}", *shares])
    return table(rows, right=range(1, len(rows[0])))


def of_recall(found: "Sequence[Recall]") -> str:
    from regard.explain.recall import BUDGET, ROWS, SYMBOLS, TESTED, UPDATES

    def reached(short_first: bool) -> str:
        return listed([f"{r.name} to {r.farthest:,}" for r in found if r.short_first == short_first]) or "none"

    return (
        f"At least 95 % right: each distance from nothing, {reached(False)}; short distances first, {reached(True)}. "
        f"Budget: at most {UPDATES} updates of {ROWS} sequences a distance and {BUDGET:,} tokens, one layer "
        f"(of filters four), one seed; tested on {TESTED}; chance is 1 in {SYMBOLS}; after a failure (–) longer "
        "distances are not tried."
    )


def weights_table(found: "Sequence[Weights]") -> str:
    rows = [["weights, to recall", *(f"at {d:,}" for d in found[0].numbers)]]
    rows += [[w.name, *(f"{n:,}" for n in w.numbers.values())] for w in found]
    return table(rows, right=range(1, len(rows[0])))


def of_weights(found: "Sequence[Weights]") -> str:
    grown = [f"{w.name} {w.a_word:,.0f}" for w in found if w.a_word]
    grown += ["the others none"] * (len(grown) < len(found))
    return f"A word more costs so many weights: {listed(grown)}."


def pace_table(found: "Sequence[Pace]", device: str) -> str:
    from regard.explain.recall import TOKENS

    lengths = list(found[0].seconds)
    rows: list[list[Any]] = [[f"ms for {TOKENS:,} tokens on {device}", *(f"T={n:,}" for n in lengths)]]
    rows += [[p.name, *(f"{1000 * p.seconds[n]:.1f}" for n in lengths)] for p in found]
    return table(rows, right=range(1, len(rows[0])))


def of_pace(found: "Sequence[Pace]", device: str) -> str:
    lengths = list(found[0].seconds)
    grown = listed([f"{p.name} {p.seconds[lengths[-1]] / p.seconds[lengths[0]]:.1f}" for p in found])
    first = min(found, key=lambda p: p.seconds[lengths[-1]]).name
    return (
        f"In sequences of {lengths[-1]:,} instead of {lengths[0]} the same tokens take so many times as long: {grown}. "
        f"Fastest at {lengths[-1]:,} is {first}, on {device}."
    )
