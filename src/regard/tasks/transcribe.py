"""Transcribe: what is said in a recording, by a published Whisper; there is no training."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.folders import user_path
from regard.errors import ConfigError
from regard.jsonfile import read_json_if_any
from regard.tasks.audio import audio_inputs, load_files, readable
from regard.tasks.base import Card, Fit, Task
from regard.tasks.served import BEAM, NUMBER, STRING, Setting, array, record
from regard.tasks.use import Inputs, Options, TestSet, Verdict
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.data.contents import Contents
    from regard.metrics.compare import Sums


class Transcribe(Task):
    name = "transcribe"
    summary = "what is said in a recording"
    settings = type(None)
    card = Card(pipeline="automatic-speech-recognition", title="A transcriber", use="transcribe {} clip.wav")
    reads = "audio"
    purpose = "transcribe speech"
    verbs = ("transcribe",)
    search = predict_takes = ("beam",)
    evaluate_takes, compare_takes = ("data", "beam", "strict"), ("data", "beam")
    endpoints = ("transcriptions",)
    answer_schema = record(
        text=STRING,
        language=STRING,
        duration=NUMBER,
        passages=array(record(start=NUMBER, end=NUMBER, text=STRING)),
    )
    request_settings = {
        "beam": BEAM,
        "language": Setting(default="", help="The language: en, de, …; detected if empty."),
        "translate": Setting(default=False, help="Write English, whatever is spoken."),
        "timestamps": Setting(default=False, help="Passages with timestamps, as the model divides them."),
    }

    def fits(self, contents: "Contents") -> Fit | None:
        from shlex import quote

        from regard.data.files import AUDIO

        if not contents.count(AUDIO):
            return None
        way = "predict" if contents.path.is_dir() else "transcribe"
        return Fit("recorded speech; no training needed", (f"regard {way} whisper-tiny {quote(str(contents.path))}",))

    def serves(self, config: Any) -> bool:
        from regard.models.whisper import WhisperConfig

        return isinstance(config, WhisperConfig)

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.data.tokenizers import load
        from regard.predictors import Transcriber

        settings = read_json_if_any(folder / "generation_config.json")
        return Transcriber(model, load(folder), device, settings)

    def parse_inputs(self, predictor: Any, words: Sequence[str], console: Console) -> Any:
        return load_files(words)

    def to_json(self, answer: Any) -> Any:
        passages = [dataclasses.asdict(passage) for passage in answer.passages]
        return {"text": answer.text, "language": answer.language, "duration": answer.duration, "passages": passages}

    def read_inputs(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Inputs:
        return dataclasses.replace(audio_inputs(file, console), unit="passages", total=0)

    def test_set(self, predictor: Any, folder: Path, options: Options, console: Console) -> TestSet:
        """A table of files and their transcripts."""
        from regard.data.audio import list_clips
        from regard.data.tables import is_table

        data = options.data
        if not is_table(data):
            way = f"regard evaluate {folder} --data clips.csv, a table of file and text"
            raise ConfigError(f"score on what? type: {way}")
        clips = readable(list_clips(user_path(data), label="text", strict=options.strict), data, console)
        return TestSet(on=data, inputs=[samples for _, samples in clips], targets=[clip.label for clip, _ in clips])

    def transcripts(self, predictor: Any, test: TestSet, options: Options, console: Console) -> list[str]:
        with console.progress("passages"):
            return [answer.text for answer in predictor.predict(test.inputs, beam=options.beam)]

    def evaluate(self, predictor: Any, folder: Path, options: Options, console: Console) -> Verdict:
        """The word error rate."""
        from regard.metrics.wer import word_errors

        test = self.test_set(predictor, folder, options, console)
        errors = word_errors(test.targets, self.transcripts(predictor, test, options, console))
        clips = len(test.targets)
        values = {"beam": options.beam, "wer": errors.rate, "clips": clips, **dataclasses.asdict(errors)}
        detail = f"{clips:,} clips of {errors.words:,} words, beam {options.beam}"
        return Verdict(on=test.on, detail=detail, values=values, text=str(errors))

    def outcomes(self, predictor: Any, test: TestSet, options: Options, console: Console) -> "Sums":
        from regard.metrics.compare import Sums
        from regard.metrics.wer import word_errors

        texts = self.transcripts(predictor, test, options, console)
        clips = [word_errors([reference], [text]) for reference, text in zip(test.targets, texts, strict=True)]
        errors, words = [clip.errors for clip in clips], [clip.words for clip in clips]
        return Sums(metric="word error rate", above=errors, below=words, lower_is_better=True)
