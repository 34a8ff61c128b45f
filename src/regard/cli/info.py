"""`regard info`: describe a run folder."""

from pathlib import Path
from typing import Any

from regard.cli.common import Json, Run, show
from regard.config import to_dict
from regard.jsonfile import group, read_json_if_any, read_json_lines
from regard.words import count, metric_name, table

SHOWN = ("start", "lora", "frozen", "steps", "minutes", "seconds", "tokens", "batch", "accumulate", "seed",
        "precision", "smoothing", "consistency", "teachers")  # fmt: skip

NAMES = {"bleu": "BLEU", "bleu_low": "BLEU, low", "bleu_high": "BLEU, high", "chrf": "chrF"}
HOW = ("beam", "length_penalty", "signature", "context", "stride")  # what a score depends on besides the data


def info(run: Run, json: Json = False) -> None:
    """Show what a run is, how it was trained and what it scored.

    Parameters are counted by part. A folder of several runs is shown as one table.

    \b
    Examples:
      regard info runs/demo
      regard info runs/demo --json
    """
    from regard.models.fetched import resolve
    from regard.tasks.jobs import PLAN
    from regard.tasks.registry import TASKS

    folder = resolve(run)
    if (folder / PLAN).is_file():
        several(folder, json)
        return
    about = describe(folder)
    if json:
        show(about)
        return
    print(f"{run}: {about['what']}")
    print(f"\nparameters  {sum(about['parameters'].values()):,}")
    print(_indented([(name, f"{n:,}") for name, n in about["parameters"].items()], right=[1]))
    for title, values in (("model", about["model"]), ("data", about["data"]), ("training", about["training"])):
        if values:
            print(f"\n{title}")
            print(_indented([(k, _flat(v) if isinstance(v, dict) else str(v)) for k, v in values.items()]))
    if about["held_out"]:
        print("\non the validation set")
        scores = [
            (metric_name(k), f"{v:.4g}" if isinstance(v, float) else str(v)) for k, v in about["held_out"].items()
        ]
        print(_indented(scores))
    for score in about["scores"]:
        how = ", ".join(f"{name} {score[name]}" for name in ("beam", "context", "stride") if name in score)
        print(f"\nscored on {score.get('on')}" + (f", {how}" if how else ""))
        values = [(NAMES.get(k, k.replace("_", " ")), v) for k, v in score.items() if k not in HOW]
        print(_indented([(k, f"{v:.4g}") for k, v in values if isinstance(v, float) and v]))
        if "signature" in score:
            print(f"  {score['signature']}")
    task = TASKS[about["task"]]
    if not about["scores"] and task.scored:
        print(f"\nnot scored on a test set yet; type: {task.how_to_score(run, about['data'])}")


def several(folder: Path, json: bool) -> None:
    """Print the runs of a folder as one table."""
    from regard.explain.curves import results_table
    from regard.tasks.jobs import read_plan

    groups: dict[str, list[dict[str, Any]]] = {}
    jobs = read_plan(folder)
    for label, place, _ in jobs:
        metrics = {k: v for k, v in held_out(place).items() if isinstance(v, float)}
        groups.setdefault(label, []).append(metrics)
    if json:
        show({"folder": str(folder), "runs": [str(place) for _, place, _ in jobs], "held_out": groups})
        return
    print(f"{folder}: {count(len(jobs), 'run')}, validation scores as mean ± standard deviation over the seeds\n")
    print(results_table(groups))
    print("\n" + "\n".join(f"regard info {place}" for _, place, _ in jobs))


def describe(folder: Path) -> dict[str, Any]:
    """Everything `info` prints, as plain values."""
    from regard.explain.cost import parameters_by_part
    from regard.models import model_type, outline
    from regard.models.published import check_fit, read_config
    from regard.models.published.weights import read_shapes, weight_files
    from regard.tasks.load import task_of
    from regard.tasks.plan import read_run

    if (folder / "config.json").is_file() or not (folder / "run.json").is_file():
        config = read_config(folder)
    else:  # a run before its first evaluation
        config = read_run(folder).model
    weights = any(path.exists() for path in weight_files(folder))
    model = check_fit(config, read_shapes(folder), str(folder)) if weights else outline(config)
    run, card = (read_json_if_any(folder / name) for name in ("run.json", "regard.json"))
    task = task_of(config, run if "task" in run else card, folder)
    data = {k: v for k, v in group(run, "data").items() if v not in ("", 0, 0.0, None)}
    unused = "batch" if "vocab" in group(run, "data") else "tokens"  # text is counted in tokens, all else in samples
    training = {k: run[k] for k in SHOWN if run.get(k) and k != unused} | {
        "optimiser": _flat(group(run, "optim")),
        "schedule": _flat(group(run, "schedule")),
    }
    return {
        "what": f"a {model_type(config)} to {task.purpose}",
        "folder": str(folder),
        "task": task.name,
        "parameters": parameters_by_part(model),
        "model": to_dict(config),
        "data": data,
        "training": {k: v for k, v in training.items() if v} if run else {},
        "held_out": held_out(folder),
        "versions": card.get("versions", {}),
        "scores": read_scores(folder),
    }


def held_out(folder: Path) -> dict[str, Any]:
    """The validation metrics of the model that was kept; for a run in progress, its best evaluation so far."""
    from regard.explain.curves import outcome, read_metrics

    if not (folder / "metrics.jsonl").is_file():
        return {}
    events = read_metrics(folder)
    if result := outcome(events):
        return {"kept": result["kept"], **result["metrics"], "seconds": result["seconds"]}
    best = [e for e in events if e.get("better")]
    return {k: v for k, v in best[-1].items() if k not in ("better", "seconds")} if best else {}


def read_scores(folder: Path) -> list[dict[str, Any]]:
    """The scores that `regard evaluate` recorded, newest last; one entry per test set and setting."""
    path = folder / "scores.jsonl"
    scores = read_json_lines(path) if path.is_file() else ()
    return list({tuple(str(s.get(k)) for k in ("on", *HOW)): s for s in scores}.values())


def _flat(values: dict[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in values.items())


def _indented(rows: list[tuple[str, str]], right: list[int] | None = None) -> str:
    return "\n".join("  " + line for line in table(rows, right or []).splitlines())
