"""`regard translate`: sentences, piped lines or typed ones, with scores and alignments on request."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.common import SEED, Beam, Device, Json, Run, Weights, argument, flag, open_for, option, show_line
from regard.cli.evaluate import LengthPenalty
from regard.errors import ConfigError, DataError
from regard.ticks import Console
from regard.words import names_file

if TYPE_CHECKING:
    from regard.explain.alignment import Alignment
    from regard.predictors import Translator
    from regard.predictors.translator import Hypotheses

OwnNoRepeat = Annotated[
    int | None,
    option("N", "Never repeat a sequence of N tokens; 0: off.", default="as the model's files say", min=0),
]


def translate(
    ctx: typer.Context,
    run: Run,
    text: Annotated[
        list[str] | None, argument("TEXT", "Sentences; without any, lines are read from stdin, or you are prompted.")
    ] = None,
    beam: Beam = 5,
    n_best: Annotated[int, option("N", "Show that many translations with their scores.", default=True, min=1)] = 1,
    scores: Annotated[bool, flag("--scores", "Show the score the search ranks by.")] = False,
    length_penalty: LengthPenalty = 0.6,
    no_repeat_ngram: OwnNoRepeat = None,
    prefix: Annotated[str, option("TEXT", "Make the translation begin with these words.", default=True)] = "",
    sample: Annotated[bool, flag("--sample", "Sample a translation instead of searching.")] = False,
    temperature: Annotated[float, option("X", "With --sample: below 1 is tamer.", default=True, min=0.01)] = 1.0,
    seed: Annotated[int, typer.Option(**SEED, help="With --sample: the same seed gives the same.")] = 0,
    alignment: Annotated[bool, flag("--alignment", "Show the attention to each source word, in per cent.")] = False,
    picture: Annotated[str, option("FILE", "Draw the alignment to this .png, .svg or .pdf.", default=True)] = "",
    given: Annotated[str, option("TEXT", "Do not translate: score and align this translation.", default=True)] = "",
    layer: Annotated[int, option("N", "Decoder layer to align, from 1; 0: the sharpest.", default=True, min=0)] = 0,
    head: Annotated[int, option("N", "Attention head to align, from 1; 0: their mean.", default=True, min=0)] = 0,
    heads: Annotated[bool, flag("--heads", "Every layer and head, in the --picture or the --json.")] = False,
    weights: Weights = "fp32",
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Translate sentences, lines or what you type.

    Translations of sentences on the command line are formatted for reading; lines from a pipe give one line each, with
    extra columns after a tab, so that line i of the output belongs to line i of the input.

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
        raise ConfigError("--given and --picture need exactly one sentence on the command line")
    if heads and not (picture or json):
        raise ConfigError("--heads shows every head in a picture or as JSON; add --picture heads.png or --json")
    if sample and (n_best > 1 or prefix):
        raise ConfigError("--sample gives one random translation; leave out --n-best and --prefix")
    if not sample and (temperature != 1.0 or seed):
        raise ConfigError("--temperature and --seed are for sampling; add --sample")
    _, translator = open_for("translate", run, device, weights)
    if sample:
        options: dict[str, Any] = dict(sampled=True, temperature=temperature, seed=seed)
    else:
        options = dict(beam=beam, n_best=n_best, length_penalty=length_penalty, prefix=prefix)
    options["no_repeat_ngram"] = no_repeat_ngram
    output = TranslationPrinter(
        translator=translator,
        options=options,
        scores=scores or n_best > 1,
        numbered=n_best > 1,
        look=Looking(translator, layer, head, heads, picture) if alignment or picture or given or heads else None,
        json=json,
    )
    if given:
        output.given(text[0] if text else "", given)
    elif text:
        for name in text:
            if names_file(name):
                ctx.obj.say(f"{name} is read as a sentence; to translate the file: regard translate {run} < {name}")
        output.read(text)
    elif sys.stdin.isatty():
        output.read(typed_lines(ctx.obj, "Type a sentence; an empty line ends."))
    else:
        output.pipe(read_stdin())


@dataclass(frozen=True)
class Looking:
    """Which attention is shown, and where it is drawn."""

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
        values: dict[str, Any] = {"alignment": self.words(text, target).to_dict()}
        if self.heads:
            seen, piece = self.translator.attention(text, target), self.translator.tokenizer.piece
            values["attention"] = {
                "source": [piece(i) for i in seen.source],
                "target": [piece(i) for i in seen.target],
                "weights": seen.weights.round(4).tolist(),  # layers, heads, target pieces, source pieces
            }
        return values


@dataclass(frozen=True, kw_only=True)
class TranslationPrinter:
    """How translations are shown: for reading, for a pipe, or as JSON."""

    translator: "Translator"
    options: dict[str, Any]  # of `Translator.predict`
    scores: bool
    numbered: bool
    look: Looking | None
    json: bool

    def read(self, texts: Iterable[str]) -> None:
        """Translate one by one, formatted for reading."""
        for number, text in enumerate(texts):
            (answer,) = self.translator.predict([text], first=number, **self.options)
            if self.json:
                show_line(self._as_dict(text, answer))
            else:
                for h in answer.candidates:
                    print(f"{h.score:8.3f}  {h.text}" if self.scores else h.text)
            if self.look and answer.candidates:
                self._show_alignment(self.look, text, answer.text)

    def pipe(self, lines: Iterable[str]) -> None:
        """One line (or n-best lines, numbered) for each line read."""
        texts: list[str] = []

        def kept() -> Iterator[str]:
            for line in lines:
                texts.append(line)
                yield line

        for number, answer in enumerate(self.translator.predict(kept(), **self.options), 1):
            text = texts.pop(0)
            if self.json:
                show_line(self._as_dict(text, answer))
                continue
            for h in answer.candidates or [None]:
                columns = [str(number)] if self.numbered else []
                columns.append(h.text if h else "")
                if self.scores:
                    columns.append(f"{h.score:.4f}" if h else "")
                if self.look:
                    columns.append(self.look.words(text, h.text).pharaoh() if h else "")
                print("\t".join(columns))
            if not texts:  # no more translations are ready
                sys.stdout.flush()

    def given(self, text: str, target: str) -> None:
        """Score and align a given translation."""
        assert self.look is not None
        score = self.translator.score([text], [target])[0]
        if self.json:
            show_line({"source": text, "given": target, "log_probability": score, **self.look.as_dict(text, target)})
        else:
            print(f"{score:8.3f}  {target}")
        self._show_alignment(self.look, text, target)

    def _as_dict(self, text: str, answer: "Hypotheses") -> dict[str, Any]:
        best = [{"text": h.text, "score": h.score, "log_probability": h.log_probability} for h in answer.candidates]
        extra = self.look.as_dict(text, answer.text) if self.look and best else {}
        return {"source": text, "translations": best, **extra}

    def _show_alignment(self, look: Looking, text: str, target: str) -> None:
        if not self.json:
            words = look.words(text, target)
            print(f"\n{words.table()}\n\n{words.pharaoh()}")
        if look.picture:
            look.draw(text, target)


def read_stdin() -> Iterator[str]:
    """Lines of UTF-8 from stdin; `DataError` with the line number for an invalid byte."""
    from regard.data.files import read_bounded_lines

    for number, raw in enumerate(read_bounded_lines(sys.stdin.buffer, "stdin"), 1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as e:
            raise DataError(f"stdin: line {number} is not UTF-8 (byte {e.start + 1}); convert it with iconv") from None
        yield (line.removeprefix("\ufeff") if number == 1 else line).rstrip("\r\n")


def typed_lines(console: Console, prompt: str) -> Iterator[str]:
    """The lines typed at the terminal, until an empty one."""
    console.say(prompt)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line.strip():
            return
        yield line.strip()
