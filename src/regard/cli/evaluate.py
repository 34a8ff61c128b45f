"""`regard predict`, `evaluate` and `compare`: a model over a file, its score, and whether two scores differ."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

import regard
from regard.cli.common import (
    Beam,
    Device,
    Json,
    Run,
    Weights,
    argument,
    flag,
    option,
    pick_device,
    show,
    write_lines,
    write_rows,
)
from regard.cli.pieces import names_folder, predict_pieces
from regard.cli.processes import Processes, several_processes, share_between
from regard.cli.remote import Server, predict_remotely
from regard.errors import ConfigError
from regard.output import check_output
from regard.tasks.use import Options

LengthPenalty = Annotated[float, option("X", "Above 0 favours longer translations (Wu et al. 2016).", default=True)]
Source = Annotated[str, option("FILE", "Source sentences, one a line; else the run's own test or validation set.")]
Target = Annotated[str, option("FILE", "Their reference translations.")]
Labels = Annotated[str, option("FILE", "For series: a table of ids and labels.")]
Tokenize = Annotated[
    str,
    option("NAME", "sacreBLEU's tokeniser: 13a, none (text is tokenised already), intl, char, zh, auto.", default=True),
]


def predict(
    ctx: typer.Context,
    run: Run,
    file: Annotated[
        Path,
        argument(
            "FILE", "A text file, one example a line, or a table, .gz too; for images and audio a folder, or one file."
        ),
    ],
    out: Annotated[
        str, option("FILE", "Write here; FOLDER/ for pieces, so that a killed job can continue.", default="stdout")
    ] = "",
    text: Annotated[str, option("COLUMN", "For a table: the column of the text.", default="as in training")] = "",
    second: Annotated[str, option("COLUMN", "The column of the second text.", default="as in training")] = "",
    labels: Labels = "",
    beam: Beam = 5,
    length_penalty: LengthPenalty = 0.6,
    weights: Weights = "fp32",
    processes: Processes = 1,
    server: Server = "",
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Run a model over a file, whatever its task.

    Line i of the output belongs to line i of the file. The output file appears when it is complete, never half-written.

    \b
    Examples:
      regard predict runs/demo in.txt --out out.txt
      regard predict runs/demo in.txt.gz --json > out.jsonl
      regard predict runs/sent new.csv --out scored.csv
      regard predict runs/sent tables/ --out scored/ --processes 4     # or torchrun: see docs/scale.md

    A classifier reads a table (CSV, TSV, JSON, Excel, Parquet, …) and adds label and probabilities after the other
    columns. One of images writes a table: file, label, probabilities; one of series: id, label, probabilities. A
    forecaster writes the next rows.
    """
    from regard.models.fetched import resolve
    from regard.tasks.load import open_model
    from regard.training.parallel import join

    if server:
        if out:
            check_output(out, file)
        predict_remotely(server, run, file, Path(out) if out else None, text, second, ctx.obj)
        return
    pieces = names_folder(out)
    if not pieces and (processes > 1 or several_processes()):
        raise ConfigError("several processes write several files; name a folder: --out answers/")
    share_between(processes, ctx)
    if out and not pieces:
        check_output(out, file)
    chosen = pick_device(device)
    join(chosen)  # selects this process's GPU
    task, model = open_model(run, chosen, weights)
    options = Options(text=text, second=second, labels=labels, beam=beam, length_penalty=length_penalty)
    options.refuse_others("predict", task.name, task.predict_takes)
    if pieces:
        predict_pieces(task, model, resolve(run), file, Path(out), options, json, chosen, weights)
        ctx.obj.say(f"wrote {out}")
        return
    answers = task.predictions(model, resolve(run), file, options, ctx.obj)
    write_rows(answers, Path(out) if out else None, json, ctx.obj)


def evaluate(
    ctx: typer.Context,
    run: Run,
    data: Annotated[
        str,
        option(
            "FILE",
            "Examples to score on, in the form the model was trained on; for a language model text, or JSONL, "
            "whose answers are scored; for Whisper a table of file and text; else its own test or validation set.",
        ),
    ] = "",
    labels: Labels = "",
    context: Annotated[
        int, option("N", "For a language model: tokens it sees at once.", default="as in training", min=0)
    ] = 0,
    stride: Annotated[
        int,
        option(
            "N",
            "For a language model: tokens between two windows; fewer give each more context, and cost more.",
            default="the context",
            min=0,
        ),
    ] = 0,
    source: Source = "",
    target: Target = "",
    beam: Beam = 5,
    length_penalty: LengthPenalty = 0.6,
    tokenize: Tokenize = "auto",
    picture: Annotated[str, option("FILE", "For a classifier: draw its calibration.")] = "",
    out: Annotated[Path | None, option("FILE", "Also write the translations or captions.")] = None,
    strict: Annotated[bool, flag("--strict", "Fail on a row that cannot be used; else it is skipped.")] = False,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Score a run: BLEU for a translator, perplexity for a language model, accuracy and F1 for labels, errors for
    forecasts.

    BLEU is sacreBLEU's, with its signature and a 95 % bootstrap interval; BLEU by source length comes below it.
    Perplexity is reported per token, per byte and per word, with the context and stride it was measured with. A model
    fine-tuned to summarise is also scored by ROUGE-L on --data, and BERT by the masked words it predicts. A classifier
    is compared with a bag of words or the majority class, with its confusion table and calibration; a tagger of
    entities is scored by strict IOB2. The score is also recorded in the run's scores.jsonl, which `regard info` shows.

    \b
    Examples:
      regard evaluate runs/demo
      regard evaluate runs/demo --source test.en --target test.fr
      regard evaluate runs/x --data test.txt --stride 64
      regard evaluate runs/sent --data dev.csv --picture calibration.png
      regard evaluate runs/multi30k --tokenize none --beam 5 --json
    """
    if out is not None:
        check_output(out, source, target, data)
    verdict = regard.evaluate(
        run, data, labels=labels, context=context, stride=stride, source=source, target=target, beam=beam,
        length_penalty=length_penalty, tokenize=tokenize, picture=picture, out=out, strict=strict, device=device,
        quiet=ctx.obj.quiet,
    )  # fmt: skip
    if out is not None:
        write_lines((line + "\n" for line in verdict.outputs), out, ctx.obj)
    if json:
        show({"run": run, "task": verdict.task, "on": verdict.on, **verdict.values})
    else:
        print(f"{run} {verdict}")


def compare(
    ctx: typer.Context,
    first: Annotated[str, argument("RUN", "A run folder.")],
    second: Annotated[str, argument("RUN", "Another one.")],
    data: Annotated[
        str,
        option("FILE", "Examples for both, as for `regard evaluate`; else the first run's own test or validation set."),
    ] = "",
    labels: Labels = "",
    source: Source = "",
    target: Target = "",
    beam: Beam = 5,
    length_penalty: LengthPenalty = 0.6,
    tokenize: Tokenize = "auto",
    samples: Annotated[int, option("N", "Bootstrap resamples.", default=True, min=100)] = 1000,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Is one run better than another, or is the difference noise?

    Both answer the same examples, and a paired test gives the p-value of the difference: bootstrap resampling, or
    McNemar's exact test where an answer is right or wrong. Language models are compared in bits per byte, which do not
    depend on their tokenizers, translators by BLEU, classifiers by accuracy, taggers by the F1 of entities.

    \b
    Examples:
      regard compare runs/a runs/b
      regard compare runs/a runs/b --source test.en --target test.fr --json
      regard compare runs/gpt runs/lstm --data test.txt
      regard compare runs/sent runs/lstm --data dev.tsv
    """
    from regard.metrics.compare import verdict

    result = regard.compare(
        first, second, data, labels=labels, source=source, target=target, beam=beam, length_penalty=length_penalty,
        tokenize=tokenize, samples=samples, device=device, quiet=ctx.obj.quiet,
    )  # fmt: skip
    differences = result.differences
    if json:
        values = [dataclasses.asdict(d) | {"difference": d.difference} for d in differences]
        show({"first": first, "second": second, "on": result.on, "examples": result.examples, "metrics": values})
        return
    print(f"first {first}, second {second}, on {result.examples:,} {result.unit} of {result.on}")
    for difference in differences:
        print(difference)
    print(verdict(differences[0], first, second))
    if len({d.difference > 0 for d in differences if d.difference}) > 1:
        metrics = " and ".join(d.metric for d in differences)
        print(f"{metrics} disagree: read some of the answers before you believe either.")
