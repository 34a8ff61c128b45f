"""Series and forecasts: what `classify`, `predict` and `evaluate` do with them, and `regard forecast`."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.classes import show_answer, write_rows
from regard.cli.common import Device, Json, Run, pick_device, show
from regard.cli.info import note
from regard.errors import ConfigError, DataError
from regard.output import check_output
from regard.ticks import Console
from regard.words import table

if TYPE_CHECKING:
    from regard.data.history import History
    from regard.data.series import Curves, SeriesConfig
    from regard.predictors import ForecastPredictor, Outlook, SeriesClassifier

SHOWN = 12  # series, or rows of a forecast, that are printed


def forecast(
    ctx: typer.Context,
    run: Run,
    data: Annotated[
        str,
        typer.Option(metavar="FILE|NAME", help="The table so far; its last rows are looked at.", show_default=False),
    ] = "",
    plot: Annotated[
        str, typer.Option(metavar="FILE", help="Draw the past, the forecast and its intervals.", show_default=False)
    ] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Write the forecast here.", show_default="stdout")
    ] = None,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """The next rows of a table over time, with quantiles.

    \b
    Examples:
      regard forecast runs/f --data prices.csv --plot out.png
      regard forecast runs/f --data prices.csv --out next.csv
    """
    from regard.predictors import ForecastPredictor
    from regard.tasks.load import load

    flags: Console = ctx.obj
    model = load(run, device=pick_device(device))
    if not isinstance(model, ForecastPredictor):
        raise ConfigError(f"{run} is no forecaster; train one: regard train forecast --data prices.csv --target close")
    if plot:
        from regard.explain.picture import check_picture

        check_picture(plot)
    file = table_of(run, data)
    if out is not None:
        check_output(out, file)
    history, rows = told(model, file, flags)
    if out is not None:
        write_rows(rows, out, json, flags)
    elif json:
        show(rows)
    else:
        cells = [list(rows[0]), *([str(cell) for cell in row.values()] for row in rows)]
        shown = cells if len(cells) <= SHOWN + 1 else [*cells[:SHOWN], ["…"] * len(cells[0]), cells[-1]]
        print(table(shown, right=range(1, len(cells[0]))))
    if plot:
        from regard.explain.series import draw_forecast

        flags.say(f"picture: {draw_forecast(history, model.forecast(history), plot)}")


def table_of(run: str, data: str) -> Path:
    """The file asked for, a known set, or the table the run was trained on."""
    from regard.data.catalog import is_known
    from regard.data.fetch import get_files
    from regard.tasks.plan import read_run

    if data and not is_known(data):
        return Path(data)
    name = data
    if not data:
        if not (Path(run) / "run.json").is_file():
            raise ConfigError(f"forecast what? type: regard forecast {run} --data FILE")
        config: Any = read_run(run).data
        if config.path:
            return Path(config.path)
        name = config.name
    return get_files(name, "history").train


def told(model: "ForecastPredictor", file: Path, flags: Console) -> tuple["History", list[dict[str, Any]]]:
    """The table, and the rows that come next."""
    history = model.read(file)
    for line in history.told():
        flags.say(line)
    outlook = model.forecast(history)
    band = outlook.quantiles if outlook.levels else outlook.mean[..., None]
    if outside := int(((outlook.mean < band[..., 0]) | (outlook.mean > band[..., -1])).sum()):
        flags.say(
            f"{outside:,} of {outlook.mean.size:,} means lie outside their own quantiles: learned from too little, or "
            "for too short a time"
        )
    return history, rows_of(outlook, history.dated)


def predict_rows(model: "ForecastPredictor", file: Path, out: Path | None, json: bool, flags: Console) -> None:
    """All of the next rows."""
    write_rows(told(model, file, flags)[1], out, json, flags)


def rows_of(outlook: "Outlook", dated: bool) -> list[dict[str, Any]]:
    """A row for each time: of each column the mean and the quantiles."""
    from regard.explain.series import as_dates

    times = [str(t).replace("T", " ") for t in as_dates(outlook.times)] if dated else outlook.times.tolist()
    if dated and all(t.endswith(" 00:00:00") for t in times):
        times = [t[:10] for t in times]
    groups = [[name, *(f"{name} {q:.0%}" for q in outlook.levels)] for name in outlook.columns]
    names = ["time", *(name for group in groups for name in group)]
    rows = []
    for h, when in enumerate(times):
        told = [
            float(f"{x:.6g}")
            for c in range(len(outlook.columns))
            for x in (outlook.mean[h, c], *outlook.quantiles[h, c])
        ]
        rows.append(dict(zip(names, [when, *told], strict=True)))
    return rows


# -- series -------------------------------------------------------------------------------------------------------


def classify_file(
    model: "SeriesClassifier", run: str, file: str, labels: str, attention: str, json: bool, flags: Console
) -> None:
    """The class of each series of a file; with a picture of where the model looked, of the first."""
    if attention:
        from regard.explain.picture import check_picture

        check_picture(attention)
    curves = read_curves(model, file, labels, flags)
    answers = model.classify(curves)
    if len(answers) == 1:
        show_answer(answers[0], json)
    elif json:
        show([{"id": i, **dataclasses.asdict(a)} for i, a in zip(curves.ids, answers, strict=True)])
    else:
        rows = [(i, a.label, f"{a.probabilities[a.label]:.1%}") for i, a in zip(curves.ids, answers, strict=True)]
        print(table(rows[:SHOWN], right=[2]))
        if len(rows) > SHOWN:
            flags.say(f"and {len(rows) - SHOWN:,} more; all of them: regard predict {run} {file} --out labels.csv")
    if attention:
        from regard.explain.series import draw_attention

        best = answers[0]
        title = f"{curves.ids[0]}: {best.label} ({best.probabilities[best.label]:.0%})"
        flags.say(f"picture: {draw_attention(curves, 0, model.attention(curves), title, attention)}")


def read_curves(model: "SeriesClassifier", file: str, labels: str, flags: Console) -> "Curves":
    curves = model.read(file, labels)
    for line in curves.told():
        flags.say(line)
    if cut := int((curves.lengths > model.max_length).sum()):
        flags.say(f"{cut:,} series are longer than {model.max_length} points; the rest was not read")
    return curves


def predict_series(
    model: "SeriesClassifier", file: Path, labels: str, out: Path | None, json: bool, flags: Console
) -> None:
    """A row for each series: its id, its label, all probabilities; one of no usable point gets no label."""
    curves = read_curves(model, str(file), labels, flags)
    with flags.progress("series", len(curves)):
        found = dict(zip(curves.ids, model.probabilities(curves), strict=True))
    names = [f"probability_{label}" for label in model.labels]
    rows = []
    for name in curves.listed:
        p = found.get(name)
        label = "" if p is None else model.labels[int(p.argmax())]
        numbers = [""] * len(names) if p is None else [round(float(x), 6) for x in p]
        rows.append({"id": name, "label": label, **dict(zip(names, numbers, strict=True))})
    write_rows(rows, out, json, flags)


def evaluate_series(
    model: "SeriesClassifier", run: str, data: str, labels: str, picture: str, json: bool, flags: Console
) -> None:
    """Accuracy, balanced accuracy, F1, confusion and calibration, beside the nearest by summary."""
    import numpy as np

    from regard.data.series import fitting
    from regard.evaluate.series import balanced_accuracy, weighted_log_loss
    from regard.tasks.classes import class_verdict
    from regard.tasks.series import baseline, class_weights

    if picture:
        from regard.explain.picture import check_picture

        check_picture(picture)
    what, config, train, curves = series_set(model, run, data, labels, flags)
    curves = fitting(curves, model.model.config.bands, model.labels)
    with flags.progress("series", len(curves)):
        likely = model.probabilities(curves)
    at = {label: i for i, label in enumerate(model.labels)}
    true = np.array([at[label] for label in curves.labels])
    found: dict[str, Any] = {"balanced_accuracy": balanced_accuracy(true, likely.argmax(1))}
    lines = [f"balanced     {found['balanced_accuracy']:.2%}: of each class, on average"]
    if config.weights:
        found["weighted_loss"] = weighted_log_loss(likely, true, class_weights(config, model.labels))
        lines.append(f"weighted     log-loss {found['weighted_loss']:.4f} ({', '.join(config.weights)}, the others 1)")
    if train is None:
        flags.say("no baseline beside it: the training file is not here")
    else:
        beside = baseline(train, curves)
        found |= dataclasses.asdict(beside)
        lines.append(f"beside it    {beside}")
    verdict = class_verdict(what, likely, true, model.labels, "series", found, lines, picture, flags)
    note(Path(run), verdict.noted())
    if json:
        show({"run": run, "task": "series", "on": what, **verdict.values})
    else:
        print(f"{run} on {what}, {len(curves):,} series\n{verdict.text}")


def series_set(
    model: "SeriesClassifier", run: str, data: str, labels: str, flags: Console
) -> tuple[str, "SeriesConfig", "Curves | None", "Curves"]:
    """What to score on: its name, the settings it is read with, the training part if it is here, and the series."""
    from regard.data.series import SeriesConfig, read_parts, read_test
    from regard.tasks.plan import read_run

    if not (Path(run) / "run.json").is_file():
        if not data:
            raise ConfigError(f"{run} has no series of its own; type: regard evaluate {run} --data FILE")
        return data, SeriesConfig(), None, model.read(data, labels, labelled=True)
    config: Any = read_run(run).data
    try:
        parts = read_parts(config, flags.say)
    except DataError:
        if not data:
            raise
        return data, config, None, model.read(data, labels or config.labels, labelled=True)
    if data:
        return data, config, parts.train, model.read(data, labels or config.labels, labelled=True)
    test = read_test(config, flags.say)
    if test is not None:
        return f"{config.name} (test)", config, parts.train, test
    return "its own held-out series", config, parts.train, parts.valid


# -- forecasts ----------------------------------------------------------------------------------------------------


def evaluate_forecast(model: "ForecastPredictor", run: str, data: str, json: bool, flags: Console) -> None:
    """Every window of the test part, beside the last season again and a linear map."""
    import torch

    from regard.data.history import HistoryConfig, read_parts
    from regard.data.loader import FixedSize, in_order
    from regard.objectives.forecast import Forecast
    from regard.tasks.forecast import baselines
    from regard.tasks.plan import read_run

    if (Path(run) / "run.json").is_file():
        config: Any = read_run(run).data
    elif data:
        c = model.config
        config = HistoryConfig(path=data, target=c.columns, lookback=c.lookback, horizon=c.horizon, time=model.time)
    else:
        raise ConfigError(f"{run} has no table of its own; type: regard evaluate {run} --data FILE")
    if data:
        config = dataclasses.replace(config, name="", path=data, target=model.config.columns)
    parts = read_parts(config, flags.say)
    with torch.inference_mode():
        scores = Forecast().held_out(model.model, (b.to(model.device) for b in in_order(parts.test, FixedSize(256))))
    rows = baselines(parts, parts.test, config, model.model.spread.double().cpu().numpy())
    what = f"{data or 'its own table'} (test)"
    found: dict[str, Any] = {"on": what, "mse": scores["loss"], "mae": scores["mae"]}
    if "inside" in scores:
        found["inside"] = scores["inside"]
    found |= {"windows": len(parts.test), "lookback": config.lookback, "horizon": config.horizon}
    note(Path(run), found | {f"mse of {row.name}": row.mse for row in rows})
    if json:
        show({"run": run, "task": "forecast", **found, "beside": [dataclasses.asdict(row) for row in rows]})
        return
    size = f"{len(parts.test):,} windows, all there are; look-back {config.lookback}, horizon {config.horizon}"
    print(f"{run} on {what}: {size}; errors in units of each column's spread in training")
    lines = [("", "SQUARED", "ABSOLUTE"), ("this model", f"{scores['loss']:.4f}", f"{scores['mae']:.4f}")]
    print(table([*lines, *((row.name, f"{row.mse:.4f}", f"{row.mae:.4f}") for row in rows)], right=[1, 2]))
    if "inside" in scores:
        low, *_, high = model.config.quantiles
        print(f"between its {low:.0%} and {high:.0%} quantiles lie {scores['inside']:.1%}, wanted {high - low:.0%}")
