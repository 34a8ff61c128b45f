"""Transcribe recordings with Whisper."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.config import unknown
from regard.data.tokenizers.pretrained import Pretrained
from regard.data.tokenizers.tiktoken import END, LANGUAGES, NO_TIMES, START, TIMES
from regard.data.waveform import HOP, RATE, log_mel, windows
from regard.errors import CheckpointError, ConfigError
from regard.generate.search import Search, beam_search
from regard.generate.timestamps import TimestampRules
from regard.models.whisper import Whisper
from regard.predictors.base import Predictor, chunks
from regard.ticks import tick

STEP = 0.02  # seconds between timestamps
CHUNK = 64  # recordings read at a time
SILENCE = 1e-3  # peak amplitude; below this there is no speech, and the model would hallucinate


@dataclass(frozen=True)
class Passage:
    """What is said between `start` and `stop`, in seconds."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Transcript:
    """What is said in a recording, when, and in which language."""

    passages: list[Passage]
    language: str = "en"
    duration: float = 0.0  # of the recording, in seconds

    @property
    def text(self) -> str:
        return " ".join(passage.text for passage in self.passages if passage.text)


def token_ids(settings: dict[str, Any], name: str, vocab: int) -> tuple[int, ...]:
    """A list of token ids in generation_config.json."""
    ids = settings.get(name) or []
    if not isinstance(ids, list) or not all(type(id) is int and 0 <= id < vocab for id in ids):
        raise CheckpointError(
            f"generation_config.json: {name} must be a list of token ids below {vocab:,}, got {ids!r:.80}"
        )
    return tuple(ids)


class Transcriber(Predictor):
    """A model, its tokenizer, and its generation_config.json."""

    def __init__(self, model: Whisper, tokenizer: Pretrained, device: str, settings: dict[str, Any]):
        self.model = model.to(device).eval()
        self.tokenizer, self.device = tokenizer, torch.device(device)
        self.never, self.not_first = (
            token_ids(settings, name, model.config.vocab) for name in ("suppress_tokens", "begin_suppress_tokens")
        )
        self.multilingual = bool(settings.get("is_multilingual"))
        self.start, self.eos = self._id(START), tokenizer.eos if tokenizer.eos is not None else self._id(END)
        times = tokenizer.tokenizer.token_to_id(TIMES[0])  # None in published folders before 2023
        self.times = None if times in self.never else times
        self.latest = settings.get("max_initial_timestamp_index")
        if not isinstance(self.latest, int | None):
            raise CheckpointError(f"max_initial_timestamp_index must be a number of steps, got {self.latest!r:.80}")

    def _id(self, sign: str) -> int:
        if (id := self.tokenizer.tokenizer.token_to_id(sign)) is None:
            raise CheckpointError(f"the tokenizer of this model has no {sign}")
        return id

    @property
    def window(self) -> int:
        """Samples of one window: 30 seconds."""
        return self.model.config.frames * HOP

    @property
    def languages(self) -> dict[int, str]:
        """The languages of the model, by the id of their token."""
        ids = {self.tokenizer.tokenizer.token_to_id(f"<|{code}|>"): code for code in LANGUAGES}
        return {id: code for id, code in ids.items() if id is not None} if self.multilingual else {}

    def prompt(self, language: str, translate: bool = False, timestamps: bool = False) -> list[int]:
        """The tokens after the start: language, task, and no-timestamps."""
        if not self.multilingual and language != "en":
            raise ConfigError(f"this model transcribes English only, not {language!r}")
        if not self.multilingual and translate:
            raise ConfigError("this model transcribes English only and cannot translate; leave out --translate")
        if language not in LANGUAGES:
            raise unknown("language", language, LANGUAGES)
        task = "<|translate|>" if translate else "<|transcribe|>"
        signs = [*([f"<|{language}|>", task] if self.multilingual else []), *([] if timestamps else [NO_TIMES])]
        return [self._id(sign) for sign in signs]

    def predict(self, inputs: Iterable[Tensor], **options: Any) -> Iterator[Transcript]:
        """A transcript of each recording, samples at `RATE`; options as for `transcripts`."""
        for some in chunks(inputs, CHUNK):
            yield from self.transcripts(some, **options)

    def transcribe(self, sounds: Sequence[Tensor], **options: Any) -> list[list[Passage]]:
        """The passages of each recording; options as for `transcripts`."""
        return [transcript.passages for transcript in self.transcripts(sounds, **options)]

    def transcripts(
        self, sounds: Sequence[Tensor], *, beam: int = 5, language: str = "", translate: bool = False,
        timestamps: bool = False, batch: int = 8,
    ) -> list[Transcript]:  # fmt: skip
        """A transcript of each recording, samples at `RATE`; a long one has several passages, cut where it is quiet.

        With `timestamps` the model marks where passages begin and end, if its tokenizer has timestamps. Without a
        `language` it is detected. `translate` writes English whatever is spoken. `batch` passages are decoded together;
        it changes speed, not results.
        """
        timestamps = timestamps and self.times is not None
        places = [(n, *ends) for n, sound in enumerate(sounds) for ends in windows(sound, self.window)]
        audible = [(n, a, b) for n, a, b in places if sounds[n][a:b].abs().max() > SILENCE]
        languages = [language] * len(sounds) if language else self.detect(sounds, audible)
        prompts = [self.prompt(code, translate, timestamps) for code in languages]
        passages: dict[tuple[int, int, int], list[Passage]] = {}
        for first in range(0, len(audible), batch):
            rows = audible[first : first + batch]
            parts, begins = [sounds[n][a:b] for n, a, b in rows], [prompts[n] for n, _, _ in rows]
            for place, ids in zip(rows, self.ids(parts, beam, begins, timestamps), strict=True):
                start, stop = place[1] / RATE, place[2] / RATE
                whole = Passage(start, stop, self.tokenizer.decode(ids).strip())
                passages[place] = list(self.passages(ids, start, stop)) if timestamps else [whole]
            tick(len(rows))
        results = [Transcript([], code, len(x) / RATE) for code, x in zip(languages, sounds, strict=True)]
        for place in places:
            n, start, stop = place
            results[n].passages.extend(passages.get(place) or [Passage(start / RATE, stop / RATE, "")])
        return results

    @torch.inference_mode()
    def detect(self, sounds: Sequence[Tensor], audible: Sequence[tuple[int, int, int]]) -> list[str]:
        """The likeliest language of each recording, by its first `audible` part; English if there is none."""
        languages, first = self.languages, {n: (a, b) for n, a, b in reversed(audible)}
        detected = ["en"] * len(sounds)
        for n, (a, b) in first.items() if languages else ():
            start = torch.tensor([[self.start]], device=self.device)
            logits = self.model.logits(self.model(self.pictures([sounds[n][a:b]]), None, start))[0, -1]
            ids = list(languages)
            detected[n] = languages[ids[int(logits[ids].argmax())]]
        return detected

    def passages(self, ids: Sequence[int], start: float, stop: float) -> Iterator[Passage]:
        """The passages of a part that lasts from `start` to `stop`; the last may lack its end timestamp."""
        begin, words = start, []
        for id in ids:
            if self.times is None or id < self.times:
                words.append(id)
                continue
            moment = min(start + (id - self.times) * STEP, stop)
            if words:
                yield Passage(begin, moment, self.tokenizer.decode(words).strip())
            begin, words = moment, []
        if text := self.tokenizer.decode(words).strip():
            yield Passage(begin, stop, text)

    def ids(
        self, parts: Sequence[Tensor], beam: int, prompts: Sequence[list[int]], timestamps: bool = False
    ) -> list[list[int]]:
        """The token ids of each part, of at most one window, without the prompt."""
        size, rules = len(prompts[0]), None
        if timestamps and self.times is not None:
            rules = TimestampRules(self.times, self._id(NO_TIMES), self.eos, self.latest)
        marks: dict[str, Any] = dict(never=self.never, not_first=self.not_first, times=rules)
        search = Search(beams=beam, alpha=1.0, eos=self.eos, pad=self.start, **marks)
        prefix = torch.tensor(prompts, dtype=torch.long, device=self.device) if size else None
        room = self.model.config.max_length // 2 + size  # half of the positions are reserved for a previous text
        limits = torch.full((len(parts),), room, device=self.device)
        look_every = 1 if self.device.type == "cpu" else 4
        result = beam_search(self.model, self.pictures(parts), None, limits, search, prefix, look_every)
        sizes = result.lengths[:, 0].tolist()
        return [row[size:length] for row, length in zip(result.ids[:, 0].tolist(), sizes, strict=True)]

    def pictures(self, parts: Sequence[Tensor]) -> Tensor:
        """The spectrogram of each part, padded with silence: B mels F."""
        mels, size = self.model.config.mels, self.window
        return torch.stack([log_mel(F.pad(x, (0, size - len(x))), mels) for x in parts]).to(self.device)
