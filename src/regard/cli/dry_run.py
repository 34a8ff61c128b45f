"""`--dry-run`: describe a run from its settings and the head of its data."""

import dataclasses
from typing import TYPE_CHECKING, Any

from regard.words import table

if TYPE_CHECKING:
    from regard.training.run import Run


def describe(label: str, run: "Run", device: str) -> dict[str, Any]:
    """The settings, parameters by part, tokens per step and memory of a run, and how its data is read."""
    from regard.tasks import cost
    from regard.tasks.preview import preview

    parameters, memory = cost(run)
    return {
        "label": label,
        "device": device,
        "data": dataclasses.asdict(preview(run)),
        "settings": run.to_dict(),
        "parameters": parameters,
        **({"tokens_per_step": run.tokens * run.accumulate} if hasattr(run.data, "vocab") else {}),
        **({"samples_per_step": run.batch * run.accumulate} if not hasattr(run.data, "vocab") else {}),
        "memory": dataclasses.asdict(memory) | {"total": memory.total},
    }


def as_text(plan: dict[str, Any]) -> str:
    from regard.explain.cost import readable

    parts, memory, text = plan["parameters"], plan["memory"], "tokens_per_step" in plan
    rows = [(f"  {key}", str(value)) for key, value in flat(plan["settings"]) if key != "arch"]
    weights = [(f"  {part}", f"{n:,}") for part, n in [*parts.items(), ("all", sum(parts.values()))]]
    bytes_ = [(f"  {part}", readable(n)) for part, n in memory.items()]
    return "\n".join(
        [
            f"{plan['label']} on {plan['device']}: dry run, nothing is trained or written",
            *data_text(plan["data"]),
            "\nsettings (change with --set name=value)",
            table(rows),
            "\nparameters" + " (for the vocabulary requested; a small corpus may yield fewer pieces)" * text,
            table(weights, right=[1]),
            f"\ntokens per step: at most {plan['tokens_per_step']:,}, padding included, on the longer side"
            if text
            else f"\nsamples per step: {plan['samples_per_step']:,}",
            "\nmemory of a training step, estimated",
            table(bytes_, right=[1]),
        ]
    )


def data_text(data: dict[str, Any]) -> list[str]:
    lines = ["\ndata" + " (its head)" * (not data["whole"]), *(f"  {note}" for note in data["notes"])]
    if data["examples"]:
        lines += ["\nexamples, as the model sees them", *(f"  {example}" for example in data["examples"])]
    return lines


def flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested settings as the dotted names `--set` takes."""
    pairs: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            pairs += flat(value, f"{prefix}{key}.")
        else:
            shown = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
            pairs.append((prefix + key, shown))
    return pairs
