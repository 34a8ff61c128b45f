"""`regard translate`, `predict`, `tokens`: a trained model at work."""

import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.classes import write_rows
from regard.cli.common import (
    SEED,
    Beam,
    Device,
    Json,
    Run,
    another,
    names_file,
    pick_device,
    show,
    show_line,
    visible,
    write_lines,
)
from regard.errors import ConfigError, DataError
from regard.output import check_output
from regard.ticks import Console
from regard.words import table

if TYPE_CHECKING:
    from regard.explain.alignment import Alignment
    from regard.predictors import Hypothesis, Translator

CHUNK = 512  # sentences read before the first is translated: enough to batch by length, few enough to flow

LengthPenalty = Annotated[
    float, typer.Option(metavar="X", help="Above 0 favours longer translations (Wu et al. 2016).")
]


def translate(
    ctx: typer.Context,
    run: Run,
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT", help="Sentences; without any, lines are read from stdin or asked for.", show_default=False
        ),
    ] = None,
    beam: Beam = 5,
    n_best: Annotated[int, typer.Option(metavar="N", min=1, help="Show that many translations with their scores.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Show the score the search ranks by.")] = False,
    length_penalty: LengthPenalty = 0.6,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Make the translation begin with these words.")] = "",
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw a translation by chance instead of searching.")
    ] = False,
    temperature: Annotated[float, typer.Option(metavar="X", min=0.01, help="With --sample: below 1 is tamer.")] = 1.0,
    seed: Annotated[int, typer.Option(**SEED, help="With --sample: the same seed draws the same.")] = 0,
    alignment: Annotated[
        bool, typer.Option("--alignment", help="Show which source words were looked at, in per cent.")
    ] = False,
    picture: Annotated[str, typer.Option(metavar="FILE", help="Draw the alignment to this .png, .svg or .pdf.")] = "",
    given: Annotated[
        str, typer.Option(metavar="TEXT", help="Do not translate: score and align this translation.")
    ] = "",
    layer: Annotated[
        int, typer.Option(metavar="N", min=0, help="Decoder layer of the alignment, from 1; 0 is the sharpest.")
    ] = 0,
    head: Annotated[
        int, typer.Option(metavar="N", min=0, help="Attention head of the alignment, from 1; 0 is their mean.")
    ] = 0,
    heads: Annotated[
        bool, typer.Option("--heads", help="Every layer and head, in the --picture or the --json.")
    ] = False,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Translate sentences, lines or what you type.

    Sentences on the command line are answered for reading; lines from a pipe give one line each, extra columns after
    a tab, so that line i of the output belongs to line i of the input.

    \b
    Examples:
      regard translate runs/demo "Where is the station?"
      regard translate runs/demo "Where is the station?" --beam 5 --n-best 3 --alignment
      regard translate runs/demo "Good night." --given "Bonne nuit." --picture night.png
      regard translate runs/demo < in.txt > out.txt
      regard translate runs/demo                      # asks; an empty line ends
    """
    if n_best > beam and not sample:
        raise ConfigError(f"--n-best {n_best} needs at least as many beams; type --beam {n_best}")
    if picture:
        from regard.explain.picture import check_picture

        check_picture(picture)
    if (given or picture) and len(text or []) != 1:
        raise ConfigError("--given and --picture want exactly one sentence on the command line")
    if heads and not (picture or json):
        raise ConfigError("--heads shows every head in a picture or as JSON; add --picture heads.png or --json")
    if sample and (n_best > 1 or prefix):
        raise ConfigError("--sample draws one free translation; leave out --n-best and --prefix")
    if not sample and (temperature != 1.0 or seed):
        raise ConfigError("--temperature and --seed are for drawing a translation; add --sample")
    translator = open_translator(run, device)
    search: dict[str, Any] = dict(beam=beam, n_best=n_best, length_penalty=length_penalty)
    if sample:
        search = dict(temperature=temperature, seed=seed)
    answer = Answer(
        translator=translator,
        search=search,
        prefix=prefix,
        scores=scores or n_best > 1,
        numbered=n_best > 1,
        look=Looking(translator, layer, head, heads, picture) if alignment or picture or given or heads else None,
        json=json,
    )
    if given:
        answer.given(text[0] if text else "", given)
    elif text:
        for name in text:
            if names_file(name):
                ctx.obj.say(f"{name} is read as a sentence; to translate the file: regard translate {run} < {name}")
        answer.read(text)
    elif sys.stdin.isatty():
        answer.read(_typed(ctx.obj))
    else:
        answer.pipe(read_stdin())


@dataclass(frozen=True)
class Looking:
    """Which attention is looked at, and where it is drawn."""

    translator: "Translator"
    layer: int
    head: int
    heads: bool
    picture: str

    def words(self, text: str, target: str) -> "Alignment":
        from regard.explain.alignment import align_pieces, choose

        seen = self.translator.attention(text, target)
        tokenizer = self.translator.tokenizer
        return align_pieces(choose(seen.weights, self.layer, self.head), seen.source, seen.target, tokenizer)

    def draw(self, text: str, target: str) -> None:
        from regard.explain.alignment import draw_heads

        if self.heads:
            seen = self.translator.attention(text, target)
            piece = self.translator.tokenizer.piece
            source, target_ = ([piece(i) for i in side] for side in (seen.source, seen.target))
            path = draw_heads(seen.weights, source, target_, self.picture)
        else:
            path = self.words(text, target).draw(self.picture)
        print(f"drew {path}", file=sys.stderr)

    def as_dict(self, text: str, target: str) -> dict[str, Any]:
        found: dict[str, Any] = {"alignment": self.words(text, target).to_dict()}
        if self.heads:
            seen, piece = self.translator.attention(text, target), self.translator.tokenizer.piece
            found["attention"] = {
                "source": [piece(i) for i in seen.source],
                "target": [piece(i) for i in seen.target],
                "weights": seen.weights.round(4).tolist(),  # layers, heads, target pieces, source pieces
            }
        return found


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How translations are shown: for reading, for a pipe, or as JSON."""

    translator: "Translator"
    search: dict[str, Any]
    prefix: str
    scores: bool
    numbered: bool
    look: Looking | None
    json: bool

    def read(self, texts: Iterable[str]) -> None:
        """Answer one by one, for a person."""
        for number, text in enumerate(texts, 1):
            found = translations(self.translator, [text], self.search, self.prefix, first=number)[0]
            if self.json:
                show_line(self._as_dict(text, found))
            else:
                for hypothesis in found:
                    print(f"{hypothesis.score:8.3f}  {hypothesis.text}" if self.scores else hypothesis.text)
            if self.look and found:
                self._show_alignment(self.look, text, found[0].text)

    def pipe(self, lines: Iterable[str]) -> None:
        """Answer in batches, one line (or n-best lines, numbered) for each line read."""
        for start, chunk in _chunks(lines, CHUNK):
            answers = translations(self.translator, chunk, self.search, self.prefix, first=start)
            for number, (text, found) in enumerate(zip(chunk, answers, strict=True), start):
                if self.json:
                    show_line(self._as_dict(text, found))
                    continue
                for hypothesis in found or [None]:
                    columns = [str(number)] if self.numbered else []
                    columns.append(hypothesis.text if hypothesis else "")
                    if self.scores:
                        columns.append(f"{hypothesis.score:.4f}" if hypothesis else "")
                    if self.look:
                        columns.append(self.look.words(text, hypothesis.text).pharaoh() if hypothesis else "")
                    print("\t".join(columns))
            sys.stdout.flush()

    def given(self, text: str, target: str) -> None:
        """Score and align a translation somebody else made."""
        assert self.look is not None
        score = self.translator.score([text], [target])[0]
        if self.json:
            show_line({"source": text, "given": target, "log_probability": score, **self.look.as_dict(text, target)})
        else:
            print(f"{score:8.3f}  {target}")
        self._show_alignment(self.look, text, target)

    def _as_dict(self, text: str, found: "list[Hypothesis]") -> dict[str, Any]:
        best = [{"text": h.text, "score": h.score, "log_probability": h.log_probability} for h in found]
        extra = self.look.as_dict(text, found[0].text) if self.look and found else {}
        return {"source": text, "translations": best, **extra}

    def _show_alignment(self, look: Looking, text: str, target: str) -> None:
        if not self.json:
            words = look.words(text, target)
            print(f"\n{words.table()}\n\n{words.pharaoh()}")
        if look.picture:
            look.draw(text, target)


def predict(
    ctx: typer.Context,
    run: Run,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A text file, one example a line, or a table, .gz too; for images and sounds a folder, or one.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write here instead of stdout.", show_default="stdout")
    ] = None,
    text: Annotated[
        str, typer.Option(metavar="COLUMN", help="Of a table: the column of the text.", show_default="as in training")
    ] = "",
    second: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column of the second text.", show_default="as in training")
    ] = "",
    beam: Beam = 5,
    length_penalty: LengthPenalty = 0.6,
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

    A classifier reads a table (CSV, TSV, JSONL, Parquet, Arrow) and adds label and probabilities after the other
    columns. One of images writes a table: file, label, probabilities; one of series: id, label, probabilities. A
    forecaster writes the next rows.
    """
    from regard.data.pairs import read_lines
    from regard.predictors import (
        Embedder,
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
        check_output(out, file)
    lines = read_lines(file)
    task, model = open_model(run, device=pick_device(device))
    if type(task).predictions is not Task.predictions:
        from regard.models.fetched import resolve

        options = Options(text=text, second=second, beam=beam)
        made = task.predictions(model, resolve(run), file, options, flags)
        write_rows(made.rows, out, json, flags, made.unit, made.total)
        return
    if isinstance(model, ImageCaptioner):
        from regard.cli.captions import predict_captions

        predict_captions(model, file, out, beam, json, flags)
        return
    if isinstance(model, SeriesClassifier):
        from regard.cli.series import predict_series

        predict_series(model, file, second, out, json, flags)
        return
    if isinstance(model, ForecastPredictor):
        from regard.cli.series import predict_rows

        predict_rows(model, file, out, json, flags)
        return
    if isinstance(model, Transcriber):
        from regard.cli.sounds import predict_clips

        predict_clips(model, file, out, beam, json, flags)
        return
    if isinstance(model, Labeller):
        from regard.cli.labels import predict_labels

        predict_labels(model, run, file, out, text, second, json, flags)
        return
    if isinstance(model, Embedder):
        raise ConfigError(
            f"{run} turns texts into vectors (regard embed {run} {file} --out vectors.npy); for answers fine-tune it "
            f"first: regard finetune {run} classify …"
        )
    how = dict(beam=beam, n_best=1, length_penalty=length_penalty)

    def answers() -> Iterator[str]:
        import json as jsonlib

        for start, chunk in _chunks(lines, CHUNK):
            if isinstance(model, Writer):  # greedy, and one line each: line i belongs to line i
                made = iter(model.answer([text for text in chunk if text.strip()], temperature=0.0, stop=("\n",)))
                found = [" ".join(next(made).split()) if text.strip() else "" for text in chunk]
            else:
                found = [best[0].text if best else "" for best in translations(model, chunk, how, first=start)]
            for text, best in zip(chunk, found, strict=True):
                yield jsonlib.dumps({"source": text, "text": best}, ensure_ascii=False) if json else best

    write_lines((line + "\n" for line in answers()), out, flags)


def tokens(
    run: Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Some text.", show_default=False)],
    sentences: Annotated[
        bool,
        typer.Option("--sentences", help="Of a BERT: two sentences, as lectures number them and as the model does."),
    ] = False,
    json: Json = False,
) -> None:
    """Show the pieces, ids and positions of a text.

    \b
    Examples:
      regard tokens runs/demo "some text"
      regard tokens runs/demo "some text" --json
      regard tokens minilm "Be alert! BERT will hurt!" --sentences
    """
    from regard.cli.features import show_pieces
    from regard.data.pairs import clean
    from regard.data.tokenizers import load
    from regard.data.tokenizers.wordpiece import WordPiece
    from regard.models.fetched import resolve

    pieces = load(resolve(run))
    if isinstance(pieces, WordPiece):
        show_pieces(pieces, text, sentences, json)
        return
    if sentences:
        raise ConfigError(f"--sentences is for BERT, whose texts come in pairs; {run} is none; leave it out")
    translates = hasattr(pieces, "encode_targets")  # a translator reads tidied lines, and an end mark after them
    ids = [*pieces.encode_batch([clean(text)])[0], pieces.eos] if translates else pieces.encode(text)
    if json:
        show([{"position": i, "piece": pieces.piece(n), "id": n} for i, n in enumerate(ids)])
        return
    shown = [pieces.piece(n) if translates else visible(pieces.piece(n)) for n in ids]
    rows = [("POSITION", "PIECE", "ID"), *((str(i), shown[i], str(n)) for i, n in enumerate(ids))]
    print(table(rows, right=[0, 2]))


def open_translator(run: str, device: str) -> "Translator":
    from regard.predictors import ImageCaptioner, Translator
    from regard.tasks.load import load

    found = load(run, device=pick_device(device))
    if not isinstance(found, Translator) or isinstance(found, ImageCaptioner):
        raise another(run, found, "does not translate")
    return found


def translations(
    translator: "Translator", texts: list[str], search: dict[str, Any], prefix: str = "", first: int = 1
) -> "list[list[Hypothesis]]":
    """The best of every text, by beam search or (with a temperature) by chance; a blank text has none.

    `first` is the line number of the first text, for the message about one that is too long.
    """
    room = getattr(translator.model.config, "max_length", sys.maxsize)
    for number, ids in enumerate(translator.encode(texts), first):
        if len(ids) >= room:
            raise DataError(f"line {number} has {len(ids) + 1:,} pieces, this model reads at most {room:,}; split it")
    rows = [i for i, text in enumerate(texts) if text.strip()]
    chosen = [texts[i] for i in rows]
    found: list[list[Any]] = [[] for _ in texts]
    if "temperature" in search:
        answers = [[h] for h in translator.sample(chosen, first=first - 1, **search)]
    else:
        answers = translator.hypotheses(chosen, **search, prefix=[prefix] * len(rows) if prefix else None)
    for i, best in zip(rows, answers, strict=True):
        found[i] = best
    return found


def read_stdin() -> Iterator[str]:
    """Lines of UTF-8 from the pipe; a wrong byte is an error that names its line."""
    from regard.data.files import read_bounded_lines

    for number, raw in enumerate(read_bounded_lines(sys.stdin.buffer, "stdin"), 1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as e:
            raise DataError(f"stdin: line {number} is not UTF-8 (byte {e.start + 1}); convert it with iconv") from None
        yield (line.removeprefix("\ufeff") if number == 1 else line).rstrip("\r\n")


def _typed(flags: Console) -> Iterator[str]:
    flags.say("Type a sentence; an empty line ends.")
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line.strip():
            return
        yield line.strip()


def _chunks(lines: Iterable[str], size: int) -> Iterator[tuple[int, list[str]]]:
    """Some lines at a time, with the number of the first."""
    lines, start = iter(lines), 1
    while chunk := list(itertools.islice(lines, size)):
        yield start, chunk
        start += len(chunk)
