"""`regard train`: one run, or several architectures and seeds side by side."""

import dataclasses
import itertools
import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.common import SEED, Device, Json, pick_device, show
from regard.cli.dry_run import as_text, describe
from regard.cli.studio import live
from regard.data.folders import user_path
from regard.errors import ConfigError, MissingExtra
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.tasks.jobs import Job
    from regard.train.run import Run

COLUMNS = ("text", "second", "label")
FILES = ("path", "valid", "labels", "images", "valid_images", "tokenizer")
PAIRS = ("source", "target", "valid_source", "valid_target")

# Options that `regard finetune` has too.
TextColumn = Annotated[
    str,
    typer.Option(
        metavar="COLUMN",
        help="For labels: the column of the text, by name or number.",
        rich_help_panel="Data",
        show_default="text, review, … or the first",
    ),
]
SecondColumn = Annotated[
    str,
    typer.Option(
        metavar="COLUMN", help="For pairs: that of the second text.", rich_help_panel="Data", show_default=False
    ),
]
LabelColumn = Annotated[
    str,
    typer.Option(
        metavar="COLUMN",
        help="For labels: that of the label.",
        rich_help_panel="Data",
        show_default="label, sentiment, … or the last",
    ),
]
Steps = Annotated[
    int,
    typer.Option(metavar="N", min=0, help="Train that many steps instead.", rich_help_panel="Run", show_default=False),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting, as name=value; --dry-run lists them.",
        rich_help_panel="Run",
        show_default=False,
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Replace the run that is there; files that regard did not write stay.", rich_help_panel="Run"
    ),
]
Studio = Annotated[
    bool, typer.Option("--studio", help="Watch the curves in the browser meanwhile.", rich_help_panel="Run")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show settings, parameters and memory; train and write nothing.")
]


def train(
    ctx: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="TASK|RECIPE.py",
            help="translate, lm, mlm, classify, pair, tag, image, caption, series, fill-series, forecast, audio, or a "
            "recipe file.",
            show_default=False,
        ),
    ] = "",
    data: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="A data set by name (regard data list), or your own: text, a folder or JSONL for lm and mlm, "
            "a table or CoNLL for labels, for images and audio a folder with a folder for each class, or a table of "
            "paths and labels, for captions a table of paths and captions, for series and forecasts a table or NPZ. "
            "A table is CSV, TSV, JSONL, Parquet or Arrow.",
            rich_help_panel="Data",
            show_default=False,
        ),
    ] = "",
    source: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Your source sentences, one a line.", rich_help_panel="Data", show_default=False
        ),
    ] = "",
    target: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Their translations, line by line; for forecast the columns, by comma.",
            rich_help_panel="Data",
            show_default=False,
        ),
    ] = "",
    horizon: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="For forecast: rows to tell.", rich_help_panel="Data", show_default="96"),
    ] = 0,
    valid_source: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Held-out sentences; only with them is BLEU watched.",
            rich_help_panel="Data",
            show_default="1 % of the source",
        ),
    ] = "",
    valid_target: Annotated[
        str, typer.Option(metavar="FILE", help="Their translations.", rich_help_panel="Data", show_default=False)
    ] = "",
    tokens: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="For lm: what text is cut into: bpe (learned here), chars or bytes.",
            rich_help_panel="Data",
            show_default="bpe",
        ),
    ] = "",
    valid: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="For lm, mlm, labels, images, series and audio: held-out data of the same form.",
            rich_help_panel="Data",
            show_default="a part of the data",
        ),
    ] = "",
    text: TextColumn = "",
    second: SecondColumn = "",
    label: LabelColumn = "",
    images: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="For captions: the folder, or the tar file, of the images.",
            rich_help_panel="Data",
            show_default="beside the table",
        ),
    ] = "",
    arch: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="To translate: transformer, lstm, gru, rnn, or these three with -bottleneck (no attention). "
            "For lm: gpt, llama, rnn, gru, lstm. For mlm: bert. For labels: transformer, rnn, gru, lstm. "
            "For images: vit, conv, mlp. For tables of numbers and categories: mlp. For captions: transformer, "
            "lstm. For series: transformer, rnn, gru, lstm. For audio: transformer. Several by comma.",
            rich_help_panel="Model",
            show_default="transformer, gpt, bert, vit",
        ),
    ] = "",
    size: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="tiny or small; to translate also base, big; for gpt also gpt2, medium, large, xl; for "
            "bert also mini, medium, base, large; for vit also ti, s, b, l.",
            rich_help_panel="Model",
            show_default="what suits the device",
        ),
    ] = "",
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="M",
            min=0,
            help="Train that long (each run).",
            rich_help_panel="Run",
            show_default="3 to 4 on a CPU",
        ),
    ] = None,
    steps: Steps = 0,
    seeds: Annotated[
        int, typer.Option(metavar="N", min=1, help="Train that many times, for a spread.", rich_help_panel="Run")
    ] = 1,
    seed: Annotated[
        int | None,
        typer.Option(**SEED, help="The (first) seed.", rich_help_panel="Run", show_default="0, or the recipe's"),
    ] = None,
    set_: Settings = None,
    name: Annotated[
        str,
        typer.Option(
            "--name",  # some versions of typer would make --NAME of this metavar
            metavar="NAME",
            help="Train into runs/NAME, or NAME if it has a slash.",
            rich_help_panel="Run",
            show_default="made from data and arch",
        ),
    ] = "",
    force: Force = False,
    resume: Annotated[
        str,
        typer.Option(
            metavar="RUN", help="Go on with an interrupted run folder.", rich_help_panel="Run", show_default=False
        ),
    ] = "",
    studio: Studio = False,
    dry_run: DryRun = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Train a model on your data.

    The run folder is the finished model: `regard translate`, `regard.load` and transformers open it as it is.

    \b
    Examples:
      regard train translate --data tatoeba-en-fr --name demo
      regard train translate --source train.en --target train.de --minutes 20
      regard train translate --data tatoeba-en-fr --arch transformer,lstm --seeds 3
      regard train lm --data my.txt --tokens chars
      regard train lm --data my.txt --arch rnn,lstm,gpt --minutes 3
      regard train mlm --arch bert --size small --data corpus/
      regard train classify --data reviews.csv --text review --label sentiment --arch transformer,lstm
      regard train image --data photos/ --arch vit,conv
      regard train classify --data students.csv --label passed --arch mlp
      regard train caption --data captions.tsv --images images/ --arch transformer,lstm
      regard train series --data curves.csv --label class
      regard train forecast --data prices.csv --target close --horizon 96
      regard train audio --data clips/
      regard train recipes/multi30k_en_de.py --set model.width=256
      regard train translate --data tatoeba-en-fr --dry-run
      regard train --resume runs/demo

    Ctrl-C saves and prints the line that resumes. Several architectures or seeds give a folder of runs, one table
    (mean ± standard deviation over the seeds) and one picture.
    """
    flags: Console = ctx.obj
    if resume:
        given = [name for name in ctx.params if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"]
        if set(given) - {"resume", "device", "json", "studio"}:
            raise ConfigError(f"--resume goes on with a run as it was started; type: regard train --resume {resume}")
        if studio:
            live(Path(resume).parent, flags)
        results = resume_folder(Path(resume), pick_device(device), flags)
    else:
        chosen = pick_device(device)
        own = dict(source=source, target=target, valid_source=valid_source, valid_target=valid_target)
        own |= dict(tokens=tokens, valid=valid, text=text, second=second, label=label, images=images)
        own |= dict(horizon=str(horizon or ""))
        runs = plan(what, data, own, arch, size, chosen)
        runs = {k: adjusted(r, minutes=minutes, steps=steps, seed=seed, settings=set_ or []) for k, r in runs.items()}
        if dry_run:
            dry = [describe(label, run, chosen) for label, run in runs.items()]
            show(dry) if json else print("\n\n".join(as_text(d) for d in dry))
            return
        folder = pick_folder(name, what, data, list(runs), force)
        if studio:
            live(folder.parent, flags)
        results = train_all(spread(runs, folder, seeds), folder, chosen, flags, force=force)
    report(results, json, flags)


# -- what to run --------------------------------------------------------------------------------------------------


def plan(what: str, data: str, own: dict[str, str], arch: str, size: str, device: str) -> dict[str, "Run"]:
    """The runs requested, by label: one per architecture, or the recipe's."""
    from regard.tasks.plan import default_run, load_recipe
    from regard.tasks.registry import TASKS, get

    if what.endswith(".py"):
        if data or any(own.values()) or size or arch:
            raise ConfigError(
                "a recipe has its own data and model; change them with --set, "
                "as in --set data.source=train.en --set model.width=256"
            )
        return load_recipe(what)
    if not what:
        ways = "regard train translate --data tatoeba-en-fr, or regard train lm --data my.txt"
        able = [name for name, task in TASKS.items() if task.archs]
        raise ConfigError(f"train what? there are: {', '.join(able)}; for example: {ways}")
    task = get(what).for_arch(arch.strip().lower())
    archs = list(dict.fromkeys(a.strip().lower() for a in (arch or task.arch).split(",") if a.strip()))
    if arch and not archs:
        raise ConfigError(f"--arch is empty; for example: --arch {task.arch},lstm")
    config = data_config(task.name, data, own)
    return {a: default_run(task.name, a, size, config, device) for a in archs or [""]}


def data_config(name: str, data: str, own: dict[str, str]) -> Any:
    """What `--data` and the options beside it say, as the settings of the task."""
    from regard.config import from_dict
    from regard.data.catalog import is_known
    from regard.tasks.registry import get

    task = get(name)
    if wrong := [f"--{key.replace('_', '-')}" for key, value in own.items() if value and key not in task.options]:
        raise ConfigError(f"{', '.join(wrong)}: not for the task {name}; see: regard train --help")
    values: dict[str, Any] = {key: own[key] for key in task.options if own.get(key)}
    if "source" in task.options:
        if data and values:
            raise ConfigError("--data names a whole data set; leave out --source, --target and the --valid files")
        return from_dict(task.settings, {"name": data, "vocab": 0, **values})
    if data and not is_known(data):
        path = user_path(data)
        if not path.exists():
            raise ConfigError(f"--data {data}: no such file or folder, and no data set of that name (regard data list)")
        values["path"] = str(path)
    elif data:
        values["name"] = data.lower()
    if hasattr(task.settings, "vocab"):
        values["vocab"] = 0
    return from_dict(task.settings, values)


def adjusted(run: "Run", *, minutes: float | None, steps: int, seed: int | None, settings: list[str]) -> "Run":
    """The run with the flags of the command line applied, `--set` last."""
    from regard.config import override
    from regard.tasks.plan import resolve_config

    if minutes == 0:
        raise ConfigError("--minutes 0 is no time at all; type a number above it, as --minutes 0.5")
    if minutes and steps:
        raise ConfigError("--minutes or --steps, not both")
    if minutes or steps:
        run = dataclasses.replace(run, minutes=minutes or 0.0, steps=steps, epochs=0.0)
    if seed is not None:
        run = dataclasses.replace(run, seed=seed)
    first = [setting for setting in settings if setting.startswith("data.")]  # on which the model depends
    run = override(run, first)
    run = resolve_config(dataclasses.replace(run, data=anywhere(run.data)))
    return resolve_config(override(run, [setting for setting in settings if setting not in first]))


def anywhere(data: Any) -> Any:
    """The same files, whichever folder they are looked for from."""
    given = {name: getattr(data, name, "") for name in (*FILES, *PAIRS)}
    texts = {name: value for name, value in given.items() if isinstance(value, str) and value}  # not columns of a table
    where: Any = {name: str(user_path(value).absolute()) for name, value in texts.items()}
    return dataclasses.replace(data, **where)


def pick_folder(name: str, what: str, data: str, labels: list[str], force: bool) -> Path:
    """runs/NAME, which must be free unless forced; a name we made up is numbered until it is."""
    from regard.run_folder import check_free

    if name:
        folder = Path(name) if "/" in name else Path("runs") / name
        check_free(folder, force)
        return folder
    recipe = Path(what).stem if what.endswith(".py") else ""
    base = recipe or "-".join([Path(data).stem.lower() or what.lower(), *labels])
    for number in itertools.count(1):
        folder = Path("runs") / (base if number == 1 else f"{base}-{number}")
        if force or not folder.exists():
            return folder
    raise AssertionError("unreachable: counting does not end")


def spread(runs: dict[str, "Run"], folder: Path, seeds: int) -> list["Job"]:
    """(label, folder, run) for every architecture and seed; a single run lives in the folder itself. Names that agree
    up to a slash, as the parts of a cross-validation, share a label."""
    if len(runs) == 1 and seeds == 1:
        return [(label, folder, run) for label, run in runs.items()]
    return [
        (
            name.split("/")[0],
            folder / f"{name.replace('/', '-')}-seed{run.seed + k}",
            dataclasses.replace(run, seed=run.seed + k),
        )
        for k in range(seeds)
        for name, run in runs.items()
    ]


# -- running ------------------------------------------------------------------------------------------------------


def train_all(
    jobs: list["Job"], folder: Path, device: str, flags: Console, *, resume: bool = False, force: bool = False
) -> dict[str, Any]:
    """Train every job, or with `resume` what is left of them, and gather what came out."""
    from regard.explain.curves import outcome, read_metrics
    from regard.tasks import train_run
    from regard.tasks.jobs import write_plan

    several = len(jobs) > 1
    if several and not resume:
        write_plan(folder, jobs, force)
    results = []
    for number, (label, place, run) in enumerate(jobs, 1):
        started = resume and (place / "run.json").is_file()
        result = outcome(read_metrics(place)) if started and (place / "metrics.jsonl").is_file() else None
        if result is not None:
            flags.say(
                f"{place} is finished; nothing is left to do (for longer, train anew with more --steps or --minutes)"
            )
        else:
            if several:
                flags.say(f"run {number} of {len(jobs)}: {place}")
            try:
                train_run(run, place, device=device, resume=started, force=force, quiet=flags.quiet)
            except SystemExit:
                if several:
                    flags.say(f"and with all that is left of {len(jobs)} runs: regard train --resume {folder}")
                raise
            result = outcome(read_metrics(place))
            assert result is not None, "a run that ends well says so in its metrics"
        results.append({"label": label, "folder": str(place), "seed": run.seed, **result})
    return {"folder": str(folder), "runs": results}


def resume_folder(folder: Path, device: str, flags: Console) -> dict[str, Any]:
    """Go on with one run, or with all that is left of several."""
    from regard.tasks.jobs import PLAN, read_plan
    from regard.tasks.plan import read_run

    if (folder / PLAN).is_file():
        return train_all(read_plan(folder), folder, device, flags, resume=True)
    return train_all([(folder.name, folder, read_run(folder))], folder, device, flags, resume=True)


def report(results: dict[str, Any], json: bool, flags: Console) -> None:
    """One table; for several runs also one picture."""
    from regard.explain.curves import draw, results_table
    from regard.tasks.registry import get
    from regard.train.select import score

    runs, folder = results["runs"], results["folder"]
    groups: dict[str, list[Any]] = {}
    for run in runs:
        groups.setdefault(run["label"], []).append(run)
    if len(runs) > 1:
        try:
            curves = {label: [run["folder"] for run in group] for label, group in groups.items()}
            results["picture"] = str(draw(curves, Path(folder) / "curves.png"))
        except MissingExtra as e:
            flags.say(f"no picture: {e}")
    if json:
        show(results)
        return
    print(results_table({label: [run["metrics"] for run in group] for label, group in groups.items()}))
    best = max(runs, key=lambda run: score(run["metrics"]))["folder"]
    if "picture" in results:
        flags.say(f"curves: {results['picture']}")
    known = jsonlib.loads((Path(best) / "run.json").read_text(encoding="utf-8"))
    about = jsonlib.loads((Path(best) / "regard.json").read_text(encoding="utf-8"))
    task = get(known["task"])
    use = task.answering if about.get("template") and task.answering else task.card.use
    used = use.format(best)
    judged = f"\n  {to_score(best, task.name, known['data'])}" if task.scored else ""
    flags.say(f"next:\n  regard {used}{judged}\n  regard info {best}")


def to_score(run: str, task: str, data: dict[str, Any]) -> str:
    """The line that scores a run; one without held-out files, as a model that was fetched, wants yours."""
    own = data.get("name") or data.get("valid_source") or (data and task != "translate")
    files = " --source FILE --target FILE" if task == "translate" else " --data FILE"
    return f"regard evaluate {run}" + ("" if own else files)
