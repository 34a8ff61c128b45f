"""`regard evaluate` and `regard compare`: one system's score, and whether two differ."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.captions import evaluate_captions
from regard.cli.common import Beam, Device, Json, Run, pick_device, show, write_lines
from regard.cli.info import note
from regard.cli.labels import compare_labellers, evaluate_labels, labels_of_run
from regard.cli.masked import evaluate_masked
from regard.cli.series import evaluate_forecast, evaluate_series
from regard.cli.sounds import evaluate_transcripts
from regard.cli.translate import LengthPenalty, translations
from regard.errors import ConfigError, DataError
from regard.jsonfile import group, read_json_if_any
from regard.output import check_output
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.data.text import TokenFile
    from regard.predictors import Writer
    from regard.tasks.base import Task
    from regard.tasks.use import Options, Verdict

ROUGE = {"rouge_l": "its answers", "rouge_l_first": "the first sentence of each text instead"}
Source = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="Source sentences, one a line; else the run's own test or validation set.",
        show_default=False,
    ),
]
Target = Annotated[str, typer.Option(metavar="FILE", help="Their reference translations.", show_default=False)]
Tokenize = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="sacreBLEU's tokeniser: 13a, none (text is tokenised already), intl, char, zh, auto."
    ),
]


def evaluate(
    ctx: typer.Context,
    run: Run,
    data: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="For a language model text, or JSONL, whose answers are scored; for BERT text; for labels examples; "
            "for images and clips a folder or CSV; for Whisper a CSV of file and text; for series and forecasts their "
            "files; else its own test or held-out part.",
            show_default=False,
        ),
    ] = "",
    labels: Annotated[
        str, typer.Option(metavar="FILE", help="For series: a table of ids and labels.", show_default=False)
    ] = "",
    context: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="For a language model: tokens it sees at once.",
            show_default="as in training",
        ),
    ] = 0,
    stride: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="For a language model: tokens between two windows; fewer give each more context, and cost more.",
            show_default="the context",
        ),
    ] = 0,
    source: Source = "",
    target: Target = "",
    beam: Beam = 5,
    length_penalty: LengthPenalty = 0.6,
    tokenize: Tokenize = "auto",
    picture: Annotated[
        str,
        typer.Option(metavar="FILE", help="For a classifier: draw how sure and how right it is.", show_default=False),
    ] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also keep the translations here.", show_default=False)
    ] = None,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Score a run: BLEU for a translator, perplexity for a language model, accuracy and F1 for labels, errors for
    forecasts.

    BLEU is sacreBLEU's, with its signature and a 95 % bootstrap interval; BLEU by source length comes below it.
    Perplexity is told per token, per byte and per word, with the context and stride it was measured with. A model that
    was fine-tuned to summarise is also judged by ROUGE-L when it is given --data; BERT by the hidden words it finds.
    A classifier stands beside a bag of words, with its confusion table and calibration; a tagger of entities is judged
    by strict IOB2.
    The score is also noted in the run's scores.jsonl, where `regard info` finds it.

    \b
    Examples:
      regard evaluate runs/demo
      regard evaluate runs/demo --source test.en --target test.fr
      regard evaluate runs/x --data test.txt --stride 64
      regard evaluate runs/sent --data dev.csv --picture sure.png
      regard evaluate runs/multi30k --tokenize none --beam 5 --json
    """
    from regard.evaluate.bleu import check_equal, empty_references, score
    from regard.predictors import (
        Embedder,
        Filler,
        ForecastPredictor,
        ImageCaptioner,
        Labeller,
        SeriesClassifier,
        Transcriber,
        Writer,
    )
    from regard.tasks.base import Task
    from regard.tasks.load import open_model
    from regard.tasks.use import Options

    flags: Console = ctx.obj
    if out is not None:
        check_output(out, source, target, data)
    task, model = open_model(run, device=pick_device(device))
    if type(task).evaluate is not Task.evaluate:
        options = Options(data=data, labels=labels, context=context, stride=stride, source=source, target=target,
                          beam=beam, picture=picture, out=out)  # fmt: skip
        show_verdict(run, task, task_verdict(run, task, model, options, flags), json)
        return
    if isinstance(model, ImageCaptioner):
        evaluate_captions(model, run, data, beam, json, out, flags)
        return
    if isinstance(model, SeriesClassifier):
        evaluate_series(model, run, data, labels, picture, json, flags)
        return
    if isinstance(model, ForecastPredictor):
        evaluate_forecast(model, run, data, json, flags)
        return
    if isinstance(model, Transcriber):
        evaluate_transcripts(model, run, data, beam, json, flags)
        return
    if isinstance(model, Labeller):
        evaluate_labels(model, run, data, picture, json, flags)
        return
    if isinstance(model, Filler):
        evaluate_masked(model, run, data, json, flags)
        return
    if isinstance(model, Embedder):
        raise ConfigError(
            f"{run} turns texts into vectors, which have no score of their own; type: regard similar {run}"
        )
    if isinstance(model, Writer):
        evaluate_text(model, run, data, context, stride, json, flags)
        return
    tokenize = pick_tokenize(run, tokenize)
    what, sources, references = test_set(run, source, target)
    check_equal(sources, references)
    if empty := empty_references(references):
        flags.say(f"{empty:,} of {len(references):,} references are empty; no translation scores anything there")
    flags.say(f"translating {len(sources):,} sentences of {what}")
    with flags.progress("sentences", len(sources)):
        texts = _best(model, sources, beam, length_penalty)
    result = score(texts, references, sources=sources, tokenize=tokenize)
    if out is not None:
        write_lines((text + "\n" for text in texts), out, flags)
    found = {"run": run, "on": what, "beam": beam, "length_penalty": length_penalty, **dataclasses.asdict(result)}
    seen, warning = seen_sentences(Path(run), sources)
    found |= {"seen_in_training": seen}
    note_score(Path(run), found)
    if json:
        show(found)
    else:
        print("\n".join(filter(None, [f"{run} on {what}, beam {beam}", str(result), warning])))


def seen_sentences(run: Path, sources: list[str]) -> tuple[int | None, str]:
    """How many sentences the run was trained on, and that in words; None: nobody knows."""
    from regard.data.overlap import evaluation_warning
    from regard.data.prepare import seen_in_training
    from regard.tasks.plan import read_run

    if not (run / "run.json").is_file():
        return None, ""
    seen = seen_in_training(read_run(run).data, sources)
    return seen, evaluation_warning(seen, len(sources), "sentences")


def seen_passages(run: Path, data: str, unit: str, tokenizer: Any) -> tuple[int | None, str]:
    """The same of a text, whose passages are compared, or of records."""
    from regard.data.overlap import evaluation_warning
    from regard.data.text import scored_passages, seen_in_training
    from regard.tasks.plan import read_run

    if not data or not (run / "run.json").is_file():
        return None, ""
    config = read_run(run).data
    passages = scored_passages(Path(data), config.template)
    seen = seen_in_training(config, passages, tokenizer)
    return seen, evaluation_warning(seen, len(passages), unit)


def task_verdict(run: str, task: "Task", model: Any, options: "Options", console: Console) -> "Verdict":
    """What the task says of the model, noted in the run's scores.jsonl."""
    from regard.models.fetched import resolve

    options.refuse_others("evaluate", task.name, task.evaluate_takes)
    if options.picture:
        from regard.explain.picture import check_picture

        check_picture(options.picture)
    folder = resolve(run)
    verdict = task.evaluate(model, folder, options, console)
    note(folder, verdict.noted())
    return verdict


def show_verdict(run: str, task: "Task", verdict: "Verdict", json: bool) -> None:
    if json:
        show({"run": run, "task": task.name, "on": verdict.on, **verdict.values})
    else:
        print(f"{run} on {verdict.on}, {verdict.count}\n{verdict.text}")


def evaluate_text(model: "Writer", run: str, data: str, context: int, stride: int, json: bool, flags: Console) -> None:
    """How surprised a language model is by a text, or by the answers of records."""
    from regard.evaluate.perplexity import perplexity, perplexity_of_answers
    from regard.models.fetched import resolve

    folder = resolve(run)
    trained = group(read_json_if_any(folder / "run.json"), "data").get("context", 0)
    context = context or trained or model.model.config.context or 256
    what, text, size, words = held_out_text(model, folder, data, context)
    flags.say(f"reading {len(text):,} tokens of {what}")
    how: dict[str, Any] = dict(device=model.device, bytes=size, words=words)
    if text.records:
        if stride not in (0, context):
            raise ConfigError("--stride is for running text; records are read one by one, leave it out")
        assert text.answers is not None, "records know what is to be learned of them"
        with flags.progress("tokens of answers", int(text.answers.read(0, len(text)).sum())):
            found = perplexity_of_answers(model.model, text, context, **how)
    else:
        with flags.progress("tokens", len(text)):
            found = perplexity(model.model, text.ids.read(0, len(text)), context, stride or context, **how)
    noted: dict[str, Any] = {"on": what, **dataclasses.asdict(found)}
    said = ""
    if model.template and data and text.records:  # a model that was taught to answer is also judged by its answers
        noted |= (told := rouge_of_answers(model, data, flags))
        said = "".join(f"\n{name}: ROUGE-L {told[key]:.1f}" for key, name in ROUGE.items())
    seen, warning = seen_passages(folder, data, "records" if text.records else "passages", model.tokenizer)
    noted |= {"seen_in_training": seen}
    note(folder, noted)
    if json:
        show({"run": run, **noted})
    else:
        print("\n".join(filter(None, [f"{run} on {what}", f"{found}{said}", warning])))


def rouge_of_answers(model: "Writer", data: str, flags: Console) -> dict[str, float]:
    """ROUGE-L of greedy answers to the prompts of a JSONL file, and of the prompts' first sentences beside it."""
    from regard.data.records import Record, read_records
    from regard.evaluate.rouge import first_sentence, quick

    records = [record for record in read_records(Path(data)) if isinstance(record, Record)]
    prompts, references = [r.messages[-2]["content"] for r in records], [r.references for r in records]
    flags.say(f"answering {len(prompts):,} prompts")
    with flags.progress("answers", len(prompts)):
        made = model.answer(prompts, temperature=0.0, max_tokens=80)
    first = [first_sentence(prompt) for prompt in prompts]
    return {"rouge_l": quick(made, references)["rougeL"], "rouge_l_first": quick(first, references)["rougeL"]}


def held_out_text(model: "Writer", folder: Path, data: str, context: int) -> tuple[str, "TokenFile", int, int]:
    """What to score on: its name, its ids, and how many bytes and words are scored: all of records' answers, and of a
    text all but its first token."""
    from regard.data.documents import is_jsonl, read_whole
    from regard.data.text import TextConfig, TokenFile, prepare_text
    from regard.tasks.plan import read_run

    if data and not is_jsonl(Path(data)):
        text = read_whole(Path(data))
        if not text.strip():
            raise DataError(f"{data} is empty; wanted a text")
        tokens, size, words = TokenFile.of(model.encode(text)), len(text.encode()), len(text.split())
    else:
        if data:
            config = TextConfig(path=data, valid=data, max_length=context, template=model.template)
        elif (folder / "run.json").is_file():
            config = read_run(folder).data
        else:
            raise ConfigError(f"{folder} has no text of its own; type: regard evaluate {folder} --data FILE")
        assert isinstance(config, TextConfig), "a language model was trained on text"
        if data or config.tokenizer:  # its own copy: the model it was fine-tuned from may be gone
            config = dataclasses.replace(config, tokenizer=str(folder))
        prepared = prepare_text(config, lambda _: None)
        tokens, size, words = prepared.valid, prepared.valid_bytes, prepared.valid_words
    if not tokens.records and len(tokens):
        first = int(tokens.ids.read(0, 1)[0])
        size -= 0 if first == model.tokenizer.bos else len(model.tokenizer.token_bytes(first))
    return data or "its own held-out text", tokens, size, words


def compare(
    ctx: typer.Context,
    first: Annotated[str, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="RUN", help="Another one.", show_default=False)],
    data: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="For language models: the text both read. For labels: examples; else those held out.",
            show_default=False,
        ),
    ] = "",
    source: Source = "",
    target: Target = "",
    beam: Beam = 5,
    length_penalty: LengthPenalty = 0.6,
    tokenize: Tokenize = "auto",
    samples: Annotated[int, typer.Option(metavar="N", min=100, help="Bootstrap resamples.")] = 1000,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Is one run better than another, or was it luck?

    Both translate the same sentences, read the same text or label the same examples; paired bootstrap resampling gives
    the p-value of the difference. Language models are compared in bits per byte, which do not depend on how they cut
    text into tokens, classifiers by accuracy, taggers by the F1 of entities or by accuracy.

    \b
    Examples:
      regard compare runs/a runs/b
      regard compare runs/a runs/b --source test.en --target test.fr --json
      regard compare runs/gpt runs/lstm --data test.txt
      regard compare runs/sent runs/lstm --data dev.tsv
    """
    from regard.evaluate.compare import compare as test
    from regard.evaluate.compare import verdict

    flags: Console = ctx.obj
    if any(labels_of_run(run) for run in (first, second)):
        compare_labellers(first, second, data, samples, json, pick_device(device), flags)
        return
    if data:
        compare_texts(first, second, data, samples, json, pick_device(device))
        return
    from regard.predictors import Translator, Writer
    from regard.tasks.load import load

    models = {run: load(run, device=pick_device(device)) for run in (first, second)}
    if all(isinstance(model, Writer) for model in models.values()):
        raise ConfigError(
            f"language models are compared by a text both read; type: regard compare {first} {second} --data FILE"
        )
    if not all(isinstance(model, Translator) for model in models.values()):
        raise ConfigError(
            "two translators are compared, two language models, or two models that label texts; of others read both "
            f"scores: regard evaluate {first} ; regard evaluate {second}"
        )
    tokenize = pick_tokenize(first, tokenize)
    what, sources, references = test_set(first, source, target)
    texts = {}
    for run, translator in models.items():
        flags.say(f"translating {len(sources):,} sentences of {what} with {run}")
        with flags.progress("sentences", len(sources)):
            texts[run] = _best(translator, sources, beam, length_penalty)
    found = test(texts[first], texts[second], references, tokenize=tokenize, samples=samples)
    if json:
        values = [dataclasses.asdict(d) | {"difference": d.difference} for d in found]
        show({"first": first, "second": second, "on": what, "sentences": len(references), "metrics": values})
        return
    print(f"first {first}, second {second}, on {len(references):,} sentences of {what}")
    print("       first second   difference")
    for difference in found:
        print(difference)
    print(verdict(found[0], first, second))
    bleu, chrf = found
    if bleu.difference * chrf.difference < 0:
        print("BLEU and chrF disagree: read some of the translations before you believe either.")


def compare_texts(first: str, second: str, data: str, samples: int, json: bool, device: str) -> None:
    """Two language models on the same text, part by part."""
    from regard.cli.language import open_writer
    from regard.data.documents import read_whole
    from regard.evaluate.compare import compare_bits, verdict

    parts = cut_text(read_whole(Path(data)))
    one, two = ([writer.bits(part) for part in parts] for writer in (open_writer(r, device) for r in (first, second)))
    found = compare_bits(one, two, [len(part.encode()) for part in parts], samples=samples)
    if json:
        values = dataclasses.asdict(found) | {"difference": found.difference}
        show({"first": first, "second": second, "on": data, "parts": len(parts), "metrics": [values]})
        return
    print(f"first {first}, second {second}, on {len(parts):,} parts of {data}")
    print(f"bits per byte {found.first:.4f} {found.second:.4f}   {found.difference:+.4f}   p = {found.p_value:.4f}")
    print(verdict(found, first, second))


def cut_text(text: str, size: int = 400) -> list[str]:
    """Parts of at least `size` characters that end with a line, for a test that needs many."""
    parts, part = [], ""
    for line in text.splitlines(keepends=True):
        part += line
        if len(part) >= size:
            parts.append(part)
            part = ""
    if len(parts) < 20:
        raise ConfigError(f"the text has {len(parts)} parts of {size} characters; a comparison wants at least 20")
    return parts


def test_set(run: str, source: str, target: str) -> tuple[str, list[str], list[str]]:
    """What to score on: the files given, or the test (else validation) set of the data the run was trained on."""
    from regard.data.pairs import read_pairs

    if bool(source) != bool(target):
        raise ConfigError("--source and --target go together: line n of one is the translation of line n of the other")
    name = source
    if not source:
        name, source, target = own_test_set(run)
    pairs = list(read_pairs(Path(source), Path(target)))
    return name, [s for s, _ in pairs], [t for _, t in pairs]


def own_test_set(run: str) -> tuple[str, str, str]:
    if not (Path(run) / "config.json").is_file():
        from regard.config import no_run

        raise no_run(Path(run))
    settings = group(read_json_if_any(Path(run) / "run.json"), "data")
    if settings.get("name"):
        from regard.data.fetch import get_pairs

        files = get_pairs(settings["name"])
        if files.test_source:
            return f"{settings['name']} (test)", str(files.test_source), str(files.test_target)
        if files.valid_source:
            return f"{settings['name']} (validation)", str(files.valid_source), str(files.valid_target)
    if settings.get("valid_source"):
        return f"{settings['valid_source']} (validation)", settings["valid_source"], settings["valid_target"]
    raise ConfigError(f"{run} has no test set of its own; type: regard evaluate {run} --source FILE --target FILE")


def pick_tokenize(run: str, tokenize: str) -> str:
    """auto: none for a run trained on text that was tokenised already (its scores are only comparable so), else 13a."""
    from regard.config import unknown
    from regard.evaluate.bleu import TOKENIZERS

    if tokenize != "auto":
        if tokenize.lower() not in TOKENIZERS:
            raise unknown("BLEU tokeniser", tokenize, ["auto", *TOKENIZERS])
        return tokenize.lower()
    settings = group(read_json_if_any(Path(run) / "run.json"), "data")
    return "none" if settings.get("split") == "spaces" else "13a"


def note_score(run: Path, found: dict[str, Any]) -> None:
    keep = ("on", "beam", "length_penalty", "bleu", "bleu_low", "bleu_high", "chrf", "sentences", "signature",
            "seen_in_training")  # fmt: skip
    note(run, {k: found[k] for k in keep})


def _best(translator: Any, sources: list[str], beam: int, length_penalty: float) -> list[str]:
    how = dict(beam=beam, n_best=1, length_penalty=length_penalty)
    return [found[0].text if found else "" for found in translations(translator, sources, how)]
