"""`regard classify`, `tag`, `fill`, `caption`, `transcribe`, `forecast`: answers to inputs on the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.common import (
    Beam,
    Device,
    Encoder,
    Json,
    Run,
    Weights,
    argument,
    flag,
    open_for,
    option,
    show,
    show_line,
    write_rows,
)
from regard.errors import ConfigError
from regard.output import check_output
from regard.tasks.use import Predictions
from regard.ticks import Console
from regard.words import names_file, table

SHOWN = 12  # answers printed at most


def ask(
    console: Console,
    verb: str,
    run: str,
    words: Sequence[str],
    device: str,
    weights: str,
    attention: str = "",
    **options: Any,
) -> tuple[Any, Any, list[Any]]:
    """The task of a run, the typed inputs and their answers; the first's attention is drawn to the file `attention`."""
    task, model = open_for(verb, run, device, weights)
    if attention:
        from regard.explain.picture import check_picture

        if not task.draws_attention:
            raise ConfigError(f"--attention is not for {task.name}; leave it out")
        check_picture(attention)
    if task.reads == "text" and len(words) == 1 and Path(words[0]).suffix and names_file(words[0]):
        raise ConfigError(f"{words[0]} is a file, expected a text; for the whole file: regard predict {run} {words[0]}")
    if "labels" in options and not task.takes_labels:
        raise ConfigError(f"--labels is for CLIP, which learned no classes; {run} has its own, leave it out")
    inputs = task.parse_inputs(model, words, console)
    answers = list(model.predict(inputs, **options))
    if attention:
        console.say(f"attention: {task.draw_attention(model, words, inputs, answers, attention)}")
    return task, inputs, answers


def classify(
    ctx: typer.Context,
    run: Run,
    inputs: Annotated[
        list[str],
        argument(
            "INPUT",
            "A text, or two for a pair; image or audio files; a file of series, and the table of their metadata; or "
            "rows: column=value, …",
        ),
    ],
    labels: Annotated[str, option("A,B", "For CLIP: the names of the classes to choose from.")] = "",
    attention: Annotated[str, option("FILE", "For an image or a series: draw where the model looked.")] = "",
    json: Json = False,
    weights: Weights = "fp32",
    device: Device = "auto",
) -> None:
    """Label a text, a pair of texts, an image, a clip, series or a row, with all probabilities.

    A model trained by `regress` answers with a number, one trained by `multilabel` with all labels that apply.

    \b
    Examples:
      regard classify runs/sent "A stirring, funny film."
      regard classify runs/pair "A man sleeps." "Nobody is awake."
      regard classify runs/vit picture.png --attention overlay.png
      regard classify hf:openai/clip-vit-base-patch32 picture.png --labels "cat,dog"
      regard classify runs/digits seven.wav eight.wav
      regard classify runs/pass "hours=12, school=north"
      regard classify runs/s curve.csv --attention curve.png
      regard predict runs/sent new.csv --out scored.csv      # a whole file
    """
    options = {"labels": [label.strip() for label in labels.split(",")]} if labels else {}
    task, read, answers = ask(ctx.obj, "classify", run, inputs, device, weights, attention, **options)
    if len(answers) == 1:
        show(task.to_json(answers[0])) if json else print(task.text(answers[0]))
        return
    named = list(zip(getattr(read, "ids", inputs), answers, strict=True))
    if json:
        show([{"id": name, **task.to_json(answer)} for name, answer in named])
        return
    print(table([(name, *task.brief(answer)) for name, answer in named[:SHOWN]], right=[2]))
    if len(named) > SHOWN:
        ctx.obj.say(f"and {len(named) - SHOWN:,} more; all of them: regard predict {run} {inputs[0]} --out labels.csv")


def tag(
    ctx: typer.Context,
    run: Run,
    text: Annotated[str, argument("TEXT", "A text.")],
    json: Json = False,
    weights: Weights = "fp32",
    device: Device = "auto",
) -> None:
    """Label each word of a text.

    \b
    Examples:
      regard tag runs/ner "Ada met Grace in Paris."
      regard predict runs/ner lines.txt --out tagged.conll   # a whole file
    """
    task, _, (answer,) = ask(ctx.obj, "tag", run, [text], device, weights)
    show(task.to_json(answer)) if json else print(task.text(answer))


def fill(
    ctx: typer.Context,
    model: Encoder,
    text: Annotated[str, argument("TEXT", "A text with [MASK] in it.")],
    top: Annotated[int, option("N", "Rows of the table.", default=True, min=1)] = 5,
    json: Json = False,
    weights: Weights = "fp32",
    device: Device = "auto",
) -> None:
    """Fill the gaps of a text with the likeliest words, by a BERT that kept its masked-word head.

    \b
    Examples:
      regard fill runs/bert "BERT, lift your [MASK]."
      regard fill runs/bert "The [MASK] kitten climbed the [MASK]." --top 10 --json
    """
    task, _, (answer,) = ask(ctx.obj, "fill", model, [text], device, weights, top=top)
    show(task.to_json(answer)) if json else print(task.text(answer))


def caption(
    ctx: typer.Context,
    run: Run,
    image: Annotated[str, argument("IMAGE", "The file of an image.")],
    beam: Beam = 5,
    n_best: Annotated[int, option("N", "Show the N best captions.", default=True, min=1)] = 1,
    attention: Annotated[str, option("FILE", "Draw where the model looked for each word.")] = "",
    json: Json = False,
    weights: Weights = "fp32",
    device: Device = "auto",
) -> None:
    """Describe an image.

    \b
    Examples:
      regard caption runs/cap picture.jpg --beam 5
      regard caption runs/cap picture.jpg --attention words.png
      regard predict runs/cap photos/ --out captions.csv
    """
    task, _, (answer,) = ask(ctx.obj, "caption", run, [image], device, weights, attention, beam=beam, n_best=n_best)
    show(task.to_json(answer)) if json else print(task.text(answer))


def transcribe(
    ctx: typer.Context,
    model: Annotated[
        str,
        argument("MODEL", "whisper-tiny, or the folder of a Whisper model."),
    ],
    files: Annotated[list[Path], argument("FILE…", "Recordings, of any rate and length.")],
    beam: Beam = 5,
    language: Annotated[
        str, option("CODE", "The language spoken, for a multilingual model: en, de, …", default="detected")
    ] = "",
    translate: Annotated[bool, flag("--translate", "Translate into English.")] = False,
    timestamps: Annotated[bool, flag("--timestamps", "A line for each passage, with its start and end.")] = False,
    json: Json = False,
    weights: Weights = "fp32",
    device: Device = "auto",
) -> None:
    """Transcribe recordings.

    One of more than 30 seconds is cut where it is quiet; with --timestamps the model divides it into sentences.

    \b
    Examples:
      regard transcribe whisper-tiny clip.wav
      regard transcribe whisper-tiny talk.wav --timestamps
      regard transcribe hf:openai/whisper-small rede.mp3 --language de --translate
      regard transcribe whisper-tiny *.wav --beam 1 --json
      regard evaluate whisper-tiny --data clips.csv          # file and text: the word error rate
    """
    task, transcriber = open_for("transcribe", model, device, weights)
    for file in files:
        with ctx.obj.progress("passages"):
            inputs = task.parse_inputs(transcriber, [str(file)], ctx.obj)
            how = dict(beam=beam, language=language, translate=translate, timestamps=timestamps)
            (answer,) = transcriber.predict(inputs, **how)
        name = f"{file}: " if len(files) > 1 else ""
        if json:
            show_line({"file": str(file), **task.to_json(answer)})
        elif timestamps:
            for passage in answer.passages:
                print(f"{name}{clock(passage.start)} - {clock(passage.end)}  {passage.text}")
        else:
            print(name + task.text(answer))


def clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes):02d}:{rest:05.2f}"


def forecast(
    ctx: typer.Context,
    run: Run,
    data: Annotated[str, option("FILE|NAME", "The table so far; its last rows are read.")] = "",
    plot: Annotated[str, option("FILE", "Draw the past, the forecast and its intervals.")] = "",
    out: Annotated[Path | None, option("FILE.csv", "Write the forecast here.", default="stdout")] = None,
    json: Json = False,
    weights: Weights = "fp32",
    device: Device = "auto",
) -> None:
    """Forecast the next rows of a table over time, with quantiles.

    \b
    Examples:
      regard forecast runs/f --data prices.csv --plot out.png
      regard forecast runs/f --data prices.csv --out next.csv
    """
    from regard.models.fetched import resolve

    task, model = open_for("forecast", run, device, weights)
    if plot:
        from regard.explain.picture import check_picture

        check_picture(plot)
    file = task.find_table(resolve(run), data)
    if out is not None:
        check_output(out, file)
    inputs = task.parse_inputs(model, [str(file)], ctx.obj)
    answers = list(model.predict(inputs))
    task.check_answers(answers, ctx.obj.say)
    if out is not None:
        write_rows(Predictions(rows=task.rows(answers)), out, json, ctx.obj)
    elif json:
        show(task.rows(answers))
    else:
        print("\n\n".join(map(task.text, answers[:SHOWN])))
        if len(answers) > SHOWN:
            ctx.obj.say(f"and {len(answers) - SHOWN:,} more series; all of them: --out next.csv")
    if plot:
        from regard.explain.series import draw_forecast

        ctx.obj.say(f"picture: {draw_forecast(inputs, answers, plot)}")
