"""Sounds on the command line: transcribed, classified, scored, and whole folders of them written down."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.classes import write_rows
from regard.cli.common import Beam, Device, Json, another, pick_device, show, show_line
from regard.cli.info import note
from regard.errors import ConfigError, DataError
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.data.clips import Clip
    from regard.predictors import ClipClassifier, Transcriber
    from regard.predictors.labeller import Answer
    from regard.predictors.transcriber import Passage

CHUNK = 64  # clips heard at a time


def transcribe(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="whisper-tiny, or the folder of a Whisper model.", show_default=False),
    ],
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE.wav…", help="WAV files, of any rate and length.", show_default=False)
    ],
    beam: Beam = 5,
    language: Annotated[
        str, typer.Option(metavar="CODE", help="What is spoken, for a model of many languages: en, de, …")
    ] = "en",
    times: Annotated[bool, typer.Option("--times", help="Say from when to when, a line for each passage.")] = False,
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Write down what is said in a WAV file.

    A sound of more than 30 seconds is cut into passages, where it is quiet.

    \b
    Examples:
      regard transcribe whisper-tiny clip.wav
      regard transcribe whisper-tiny talk.wav --times
      regard transcribe whisper-tiny *.wav --beam 1 --json
      regard evaluate whisper-tiny --data clips.csv          # file and text: the word error rate
    """
    from regard.data.audio import load_wav
    from regard.predictors import Transcriber
    from regard.tasks.load import load

    transcriber = load(model, device=pick_device(device))
    if not isinstance(transcriber, Transcriber):
        raise another(model, transcriber, "does not transcribe, as whisper-tiny does")
    for file in files:
        with ctx.obj.progress("passages"):
            (passages,) = transcriber.transcribe([load_wav(file)], beam=beam, language=language)
        if json:
            said = [dataclasses.asdict(passage) for passage in passages]
            show_line({"file": str(file), "text": text_of(passages), "passages": said})
            continue
        name = f"{file}: " if len(files) > 1 else ""
        if times:
            for passage in passages:
                print(f"{name}{clock(passage.start)} - {clock(passage.end)}  {passage.text}")
        else:
            print(name + text_of(passages))


def text_of(passages: "list[Passage]") -> str:
    return " ".join(passage.text for passage in passages if passage.text)


def clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes):02d}:{rest:05.2f}"


def classify_clip(model: "ClipClassifier", file: str) -> "Answer":
    (answer,) = model.classify([file])
    return answer


def sounds_of(clips: "list[Clip]", flags: Console) -> Iterator[tuple["Clip", Any]]:
    """Each clip and its samples; one that cannot be read has none, and is told of."""
    for clip in clips:
        try:
            yield clip, clip.sound()
        except DataError as e:
            flags.say(f"passed over: {e}")
            yield clip, None


def evaluate_transcripts(model: "Transcriber", run: str, data: str, beam: int, json: bool, flags: Console) -> None:
    """The word error rate over a table of files and what is said in them."""
    from regard.data.clips import list_clips
    from regard.data.folders import user_path
    from regard.data.tables import is_table
    from regard.evaluate.wer import word_errors

    if not is_table(data):
        raise ConfigError(f"score on what? type: regard evaluate {run} --data clips.csv, a table of file and text")
    clips = list_clips(user_path(data), label="text")
    heard = [(clip, sound) for clip, sound in sounds_of(clips, flags) if sound is not None]
    if not heard:
        raise DataError(f"{data}: no clips to score on")
    with flags.progress("passages"):
        texts = [text_of(passages) for passages in model.transcribe([sound for _, sound in heard], beam=beam)]
    found = word_errors([clip.label for clip, _ in heard], texts)
    noted = {"on": data, "beam": beam, "wer": found.rate, "clips": len(heard), **dataclasses.asdict(found)}
    note(Path(run), noted)
    if json:
        show({"run": run, "task": "transcribe", **noted})
        return
    print(f"{run} on {data}, {len(heard):,} clips of {found.words:,} words, beam {beam}")
    print(f"word error rate {found.rate:.2%}")
    print(f"{found.substituted:,} words were taken for others, {found.deleted:,} left out, {found.inserted:,} added")


def predict_clips(
    model: "ClipClassifier | Transcriber", file: Path, out: Path | None, beam: int, json: bool, flags: Console
) -> None:
    """Every clip of a folder, an archive or a table, or one, with its label and probabilities, or with its text."""
    from regard.data.clips import list_clips
    from regard.predictors import Transcriber

    clips = list_clips(file, labelled=False)
    if not clips:
        raise DataError(f"{file} holds no WAV files")
    what, total = ("passages", 0) if isinstance(model, Transcriber) else ("clips", len(clips))
    write_rows(answers(model, clips, beam, flags), out, json, flags, what, total)


def answers(
    model: "ClipClassifier | Transcriber", clips: "list[Clip]", beam: int, flags: Console
) -> Iterator[dict[str, Any]]:
    """A row for each clip, in order; the cells of one that cannot be read are empty."""
    from regard.predictors import Transcriber

    for start in range(0, len(clips), CHUNK):
        found = list(sounds_of(clips[start : start + CHUNK], flags))
        heard = [sound for _, sound in found if sound is not None]
        if isinstance(model, Transcriber):
            names, made = ["text"], [[text_of(x)] for x in model.transcribe(heard, beam=beam)]
        else:
            likely = model.probabilities(heard)
            names = ["label", *(f"probability_{label}" for label in model.labels)]
            made = [[model.labels[int(p.argmax())], *(round(float(x), 6) for x in p)] for p in likely]
        rows = iter(made)
        for clip, sound in found:
            cells = next(rows) if sound is not None else [""] * len(names)
            yield {"file": clip.file, **dict(zip(names, cells, strict=True))}
