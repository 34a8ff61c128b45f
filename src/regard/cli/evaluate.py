"""`regard evaluate` and `regard compare`: one system's score, and whether two differ."""

import dataclasses
import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.common import Beam, Device, Flags, Json, Run, new_file, show
from regard.cli.info import read_json
from regard.cli.translate import LengthPenalty, open_translator, translations
from regard.errors import ConfigError

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
    source: Source = "",
    target: Target = "",
    beam: Beam = 5,
    length_penalty: LengthPenalty = 0.6,
    tokenize: Tokenize = "auto",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also keep the translations here.", show_default=False)
    ] = None,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Score a run: BLEU and chrF, with intervals.

    BLEU is sacreBLEU's, with its signature and a 95 % bootstrap interval; BLEU by source length comes below it.
    The score is also noted in the run's scores.jsonl, where `regard info` finds it.

    \b
    Examples:
      regard evaluate runs/demo
      regard evaluate runs/demo --source test.en --target test.fr
      regard evaluate runs/multi30k --tokenize none --beam 5 --json
    """
    from regard.evaluate.bleu import score

    flags: Flags = ctx.obj
    tokenize = pick_tokenize(run, tokenize)
    what, sources, references = test_set(run, source, target)
    flags.say(f"translating {len(sources):,} sentences of {what}")
    texts = _best(open_translator(run, device), sources, beam, length_penalty)
    result = score(texts, references, sources=sources, tokenize=tokenize)
    if out is not None:
        with new_file(out) as sheet:
            sheet.writelines(text + "\n" for text in texts)
    found = {"run": run, "on": what, "beam": beam, "length_penalty": length_penalty, **dataclasses.asdict(result)}
    note_score(Path(run), found)
    if json:
        show(found)
    else:
        print(f"{run} on {what}, beam {beam}\n{result}")


def compare(
    ctx: typer.Context,
    first: Annotated[str, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="RUN", help="Another one.", show_default=False)],
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

    Both translate the same sentences; paired bootstrap resampling gives the p-value of the difference.

    \b
    Examples:
      regard compare runs/a runs/b
      regard compare runs/a runs/b --source test.en --target test.fr --json
    """
    from regard.evaluate.compare import compare as test
    from regard.evaluate.compare import verdict

    flags: Flags = ctx.obj
    tokenize = pick_tokenize(first, tokenize)
    what, sources, references = test_set(first, source, target)
    translators = {run: open_translator(run, device) for run in (first, second)}
    texts = {}
    for run, translator in translators.items():
        flags.say(f"translating {len(sources):,} sentences of {what} with {run}")
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
    settings = (read_json(Path(run) / "run.json") or {}).get("data", {})
    if settings.get("name"):
        from regard.data.fetch import get

        files = get(settings["name"])
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
    settings = (read_json(Path(run) / "run.json") or {}).get("data", {})
    return "none" if settings.get("split") == "spaces" else "13a"


def note_score(run: Path, found: dict[str, Any]) -> None:
    """Best effort: a score is worth printing even if the folder is read-only."""
    keep = ("on", "beam", "length_penalty", "bleu", "bleu_low", "bleu_high", "chrf", "sentences", "signature")
    try:
        with open(run / "scores.jsonl", "a", encoding="utf-8") as file:
            file.write(jsonlib.dumps({k: found[k] for k in keep}, ensure_ascii=False) + "\n")
    except OSError:
        pass


def _best(translator: Any, sources: list[str], beam: int, length_penalty: float) -> list[str]:
    how = dict(beam=beam, n_best=1, length_penalty=length_penalty)
    return [found[0].text if found else "" for found in translations(translator, sources, how)]
