"""The measurements of `regard gradients` as tables, with a finding under each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from regard.lab import gradients, recall
from regard.lab.gradients import Clipping, Decay
from regard.lab.recall import Parameters, Recall, StepTime
from regard.words import table

TITLES = {
    "models": "untrained networks",
    "radii": "an RNN, its recurrent matrix scaled",
    "remedies": "remedies",
}


@dataclass(kw_only=True)
class Measurements:
    """The groups in the order of the report; one that was not measured is empty."""

    models: list[Decay] = field(default_factory=list)
    radii: list[Decay] = field(default_factory=list)
    remedies: list[Decay] = field(default_factory=list)
    clipping: list[Clipping] = field(default_factory=list)
    memory: list[Recall] = field(default_factory=list)
    weights: list[Parameters] = field(default_factory=list)
    speed: list[StepTime] = field(default_factory=list)


def measure(
    archs: Sequence[str], length: int, seed: int, device: str, memory: bool, speed: bool, say: Callable[[str], None]
) -> Measurements:
    """Measure the gradients of untrained networks; with `memory` and `speed`, also what they recall and how fast."""
    say(f"measuring gradients over {length} steps")
    measured = Measurements(
        models=[gradients.architecture(arch, length, seed) for arch in archs],
        radii=gradients.radii(length, seed),
        remedies=gradients.remedies(length, seed),
        clipping=gradients.clipping(length, seed),
    )
    for arch in archs if memory else ():
        say(f"training {arch} to recall")
        orders = (False,) if arch == recall.FIXED_LENGTH else (False, True)
        measured.memory += [recall.recall(arch, short_first, seed, device) for short_first in orders]
        measured.weights.append(recall.parameters(arch))
    for arch in archs if speed else ():
        if arch != recall.FIXED_LENGTH:  # it answers once per text, the others at every token
            say(f"timing {arch}")
            measured.speed.append(recall.step_time(arch, seed, device))
    return measured


def sections(measured: Measurements, device: str) -> list[tuple[str, str]]:
    """A table and a finding for each group that was measured."""
    parts = [
        (decay_table(TITLES["models"], measured.models), of_models(measured.models)),
        (decay_table(TITLES["radii"], measured.radii), of_radii(measured.radii)),
        (decay_table(TITLES["remedies"], measured.remedies), of_remedies(measured.remedies)),
        of_clipping(measured.clipping),
    ]
    if measured.memory:
        parts += [of_recall(measured.memory), of_parameters(measured.weights)]
    return parts + ([of_speed(measured.speed, device)] if measured.speed else [])


def number(value: float) -> str:
    if value >= 10_000 or 0 < value < 0.001:
        return f"{value:.0e}"
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def listed(items: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(items[:-1])] * (len(items) > 1) + list(items[-1:]))


def aligned(rows: Sequence[Sequence[str]]) -> str:
    return table(rows, right=range(1, len(rows[0])))


def decay_table(title: str, decays: Sequence[Decay]) -> str:
    length = len(decays[0].norms) - 1
    shown = sorted({k for k in (0, 10, 50, 100, 200, 500) if k <= length} | {length})
    rows = [[d.name, *(number(d.at(k)) for k in shown), str(d.step)] for d in decays]
    return aligned([[title, *(f"k={k}" for k in shown), "per step"], *rows])


def of_models(decays: Sequence[Decay]) -> str:
    parts = []
    for d in decays:
        gone = next((k for k, norm in enumerate(d.norms) if norm < gradients.FLOAT32), None)
        lost = "too small for float32" if gone and d.norms[gone] else "exactly zero"
        end = f"; {lost} from {gone} steps on" if gone else ""
        parts.append(f"of {d.name} {d.fate} ({number(d.at(-1))}{end})")
    text = f"Over {len(decays[0].norms) - 1} steps the gradient {listed(parts).replace(' of ', ' that of ')}."
    for d in decays:
        if d.at(0) > 10:
            text += f" What {d.name} gets from each position is 1/{d.at(0):.0f} of what it gets from its own."
    return text


def of_radii(decays: Sequence[Decay]) -> str:
    def where(activation: str, fate: str) -> str:
        names = [d.name.split()[-1] for d in decays if d.name.startswith(activation) and d.fate == fate]
        return f"{fate} at radius {listed(names)}" if names else f"never {fate}"

    tanh, normed = decays[-2:]
    return (
        f"Without an activation the factor is the radius: the gradient {where('linear', 'vanishes')} and "
        f"{where('linear', 'explodes')}. With tanh, which passes less the more it saturates, it "
        f"{where('tanh', 'vanishes')} and {where('tanh', 'explodes')}; there layer norm turns {number(tanh.at(-1))} "
        f"into {number(normed.at(-1))}."
    )


def of_remedies(decays: Sequence[Decay]) -> str:
    none, *others = decays
    fates = {"persists": "stays within a factor of 100", "vanishes": "vanishes", "explodes": "explodes"}
    parts = []
    for fate, verb in fates.items():
        if names := [f"{d.name.split(': ')[1]} ({number(d.at(-1))})" for d in others if d.fate == fate]:
            parts.append(f"{verb} with {listed(names)}")
    steps, left = len(none.norms) - 1, number(none.at(-1))
    return f"Over {steps} steps the gradient {'; it '.join(parts)}. Without a remedy {left} is left."


def of_clipping(rows: Sequence[Clipping]) -> tuple[str, str]:
    cells = [[c.name, *(number(v) for v in (c.before, c.after, c.far_before, c.far_after))] for c in rows]
    header = [f"clipping to {gradients.LIMIT:g}", "before", "after", "far/near before", "far/near after"]
    weak, strong = rows
    return aligned([header, *cells]), (
        f"Clipping turns a gradient of {number(strong.before)} into one of {number(strong.after)}. It shrinks all "
        f"distances alike: what has vanished ({number(weak.far_before)}) stays vanished ({number(weak.far_after)})."
    )


def of_recall(results: Sequence[Recall]) -> tuple[str, str]:
    def reached(short_first: bool) -> str:
        return listed([f"{r.name} to {r.farthest:,}" for r in results if r.short_first == short_first]) or "none"

    rows = [["accuracy", *(f"at {d:,}" for d in recall.DISTANCES)]]
    for r in results:
        shares = [f"{100 * r.accuracy[d]:.0f} %" if d in r.accuracy else "–" for d in recall.DISTANCES]
        rows.append([f"{r.name}, {'short distances first' if r.short_first else 'each from scratch'}", *shares])
    return aligned(rows), (
        f"At least 95 % right: each distance from scratch, {reached(False)}; short distances first, {reached(True)}. "
        f"Budget: at most {recall.UPDATES} updates of {recall.ROWS} sequences a distance and {recall.BUDGET:,} tokens, "
        f"one layer (four of convolutions), one seed; tested on {recall.TESTED}; guessing is right 1 time in "
        f"{recall.SYMBOLS}; after a failure (–) longer distances are not tried."
    )


def of_parameters(results: Sequence[Parameters]) -> tuple[str, str]:
    rows = [["parameters, to recall", *(f"at {d:,}" for d in results[0].numbers)]]
    rows += [[p.name, *(f"{n:,}" for n in p.numbers.values())] for p in results]
    growing = [f"{p.name} {p.per_token:,.0f}" for p in results if p.per_token]
    growing += ["the others none"] * (len(growing) < len(results))
    return aligned(rows), f"Parameters per additional token: {listed(growing)}."


def of_speed(results: Sequence[StepTime], device: str) -> tuple[str, str]:
    lengths = list(results[0].seconds)
    first, last = lengths[0], lengths[-1]
    rows = [[f"ms for {recall.TOKENS:,} tokens on {device}", *(f"T={n:,}" for n in lengths)]]
    rows += [[t.name, *(f"{1000 * t.seconds[n]:.1f}" for n in lengths)] for t in results]
    slower = listed([f"{t.name} {t.seconds[last] / t.seconds[first]:.1f} times" for t in results])
    fastest = min(results, key=lambda t: t.seconds[last]).name
    return aligned(rows), (
        f"In sequences of {last:,} instead of {first} the same tokens take longer: {slower}. "
        f"Fastest at {last:,} is {fastest}, on {device}."
    )
