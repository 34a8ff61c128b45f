"""A trained Whisper at work: sound in, text out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.config import unknown
from regard.data.tokenizers.pretrained import Pretrained
from regard.data.tokenizers.tiktoken import END, LANGUAGES, NO_TIMES, START
from regard.data.waveform import HOP, RATE, log_mel, windows
from regard.errors import CheckpointError, ConfigError
from regard.generate.search import Search, beam_search
from regard.models.whisper import Whisper
from regard.predictors.base import Predictor, chunks
from regard.ticks import tick

CHUNK = 64  # recordings read at a time
SILENCE = 1e-3  # quieter than this is not speech; the model would make something up


@dataclass(frozen=True)
class Passage:
    """What was said between two moments, in seconds."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Transcript:
    """What is said in a recording, and when."""

    passages: list[Passage]

    @property
    def text(self) -> str:
        return " ".join(passage.text for passage in self.passages if passage.text)


def token_ids(settings: dict[str, Any], name: str, vocab: int) -> tuple[int, ...]:
    """A list of tokens in generation_config.json."""
    ids = settings.get(name) or []
    if not isinstance(ids, list) or not all(type(id) is int and 0 <= id < vocab for id in ids):
        raise CheckpointError(
            f"generation_config.json: {name} must be a list of token ids below {vocab:,}, got {ids!r:.80}"
        )
    return tuple(ids)


class Transcriber(Predictor):
    """A model, its tokenizer, and what generation_config.json says of it."""

    def __init__(self, model: Whisper, tokenizer: Pretrained, device: str, settings: dict[str, Any]):
        self.model = model.to(device).eval()
        self.tokenizer, self.device = tokenizer, torch.device(device)
        self.never, self.not_first = (
            token_ids(settings, name, model.config.vocab) for name in ("suppress_tokens", "begin_suppress_tokens")
        )
        self.multilingual = bool(settings.get("is_multilingual"))
        self.start, self.eos = self._id(START), tokenizer.eos if tokenizer.eos is not None else self._id(END)

    def _id(self, sign: str) -> int:
        if (id := self.tokenizer.tokenizer.token_to_id(sign)) is None:
            raise CheckpointError(f"the tokenizer of this model has no {sign}")
        return id

    @property
    def window(self) -> int:
        """Samples the model hears at once: 30 seconds."""
        return self.model.config.frames * HOP

    def prompt(self, language: str) -> list[int]:
        """What follows the start: which language, what to do, and that no times are wanted."""
        if not self.multilingual and language != "en":
            raise ConfigError(f"this model knows English only, not {language!r}")
        if language not in LANGUAGES:
            raise unknown("language", language, LANGUAGES)
        signs = [*([f"<|{language}|>", "<|transcribe|>"] if self.multilingual else []), NO_TIMES]
        return [self._id(sign) for sign in signs]

    def predict(self, inputs: Iterable[Tensor], *, beam: int = 5, language: str = "en") -> Iterator[Transcript]:
        """What is said in each recording, samples at `RATE`."""
        for some in chunks(inputs, CHUNK):
            yield from map(Transcript, self.transcribe(some, beam=beam, language=language))

    def transcribe(
        self, sounds: Sequence[Tensor], *, beam: int = 5, language: str = "en", batch: int = 8
    ) -> list[list[Passage]]:
        """For each sound, samples at `RATE`, its passages: one, or of a long one several, cut where it is quiet.

        `batch` passages are decoded together; it changes speed, not results.
        """
        places = [(n, *ends) for n, sound in enumerate(sounds) for ends in windows(sound, self.window)]
        texts = [""] * len(places)
        audible = [i for i, (n, a, b) in enumerate(places) if sounds[n][a:b].abs().max() > SILENCE]
        for first in range(0, len(audible), batch):
            rows = audible[first : first + batch]
            ids = self.ids([sounds[places[i][0]][places[i][1] : places[i][2]] for i in rows], beam, language)
            for i, tokens in zip(rows, ids, strict=True):
                texts[i] = self.tokenizer.decode(tokens).strip()
            tick(len(rows))
        passages: list[list[Passage]] = [[] for _ in sounds]
        for (n, start, stop), text in zip(places, texts, strict=True):
            passages[n].append(Passage(start / RATE, stop / RATE, text))
        return passages

    def ids(self, parts: Sequence[Tensor], beam: int, language: str = "en") -> list[list[int]]:
        """The pieces of each part, which fits into the window; the prompt is left out."""
        begin = self.prompt(language)
        search = Search(beams=beam, alpha=1.0, eos=self.eos, pad=self.start, never=self.never, not_first=self.not_first)
        prefix = torch.tensor([begin] * len(parts), dtype=torch.long, device=self.device)
        room = self.model.config.max_length // 2 + len(begin)  # half of the positions are for a text that came before
        limits = torch.full((len(parts),), room, device=self.device)
        look_every = 1 if self.device.type == "cpu" else 4
        result = beam_search(self.model, self.pictures(parts), None, limits, search, prefix, look_every)
        sizes = result.lengths[:, 0].tolist()
        return [row[len(begin) : size] for row, size in zip(result.ids[:, 0].tolist(), sizes, strict=True)]

    def pictures(self, parts: Sequence[Tensor]) -> Tensor:
        """Each part, filled up with silence, as the model sees it: B mels F."""
        mels, size = self.model.config.mels, self.window
        return torch.stack([log_mel(F.pad(x, (0, size - len(x))), mels) for x in parts]).to(self.device)
