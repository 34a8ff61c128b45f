"""The table of training results, and the commands to type next."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.common import show
from regard.errors import MissingExtra
from regard.jsonfile import group, read_json_if_any
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.api import Trained


def report(trained: "Trained", json: bool, flags: Console) -> None:
    """Print the results as a table, or as JSON; draw the curves of several runs."""
    from regard.explain.curves import draw, results_table
    from regard.tasks.registry import get

    runs, folder = trained.runs, trained.folder
    if not runs:  # rank 0 reports
        return
    results: dict[str, Any] = {"folder": str(folder), "runs": runs}
    groups: dict[str, list[Any]] = {}
    for run in runs:
        groups.setdefault(run["label"], []).append(run)
    if len(runs) > 1:
        try:
            curves = {label: [run["folder"] for run in group] for label, group in groups.items()}
            results["picture"] = str(draw(curves, folder / "curves.png"))
        except MissingExtra as e:
            flags.say(f"no picture: {e}")
    if json:
        show(results)
        return
    print(results_table({label: [run["metrics"] for run in group] for label, group in groups.items()}))
    best = trained.best["folder"]
    if "picture" in results:
        flags.say(f"curves: {results['picture']}")
    settings, about = (read_json_if_any(Path(best) / name) for name in ("run.json", "regard.json"))
    task = get(str(settings.get("task")))
    use = task.answering if about.get("template") and task.answering else task.card.use
    used = use.format(best)
    score_line = f"\n  {task.how_to_score(best, group(settings, 'data'))}" if task.scored else ""
    flags.say(f"next:\n  regard {used}{score_line}\n  regard info {best}")
