"""Continue texts, answer, and show what a language model expects next."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.data.records import PROMPT, render, render_all
from regard.data.tokenizers import TextTokenizer
from regard.errors import ConfigError, DataError
from regard.generate.engine import Engine, Sampling, fitting
from regard.generate.prompted import best
from regard.generate.sampling import narrowed
from regard.generate.text import Written, stream, write
from regard.models.base import LanguageModel
from regard.nn.taps import watch
from regard.predictors.base import Predictor, chunks

CHUNK = 512  # texts continued at a time
LOG2 = math.log(2)


@dataclass(frozen=True)
class Candidate:
    """A candidate for the next token. `kept` is its probability after temperature, top-k, top-p and min-p."""

    rank: int
    id: int
    piece: str
    probability: float
    cumulative: float
    kept: float


@dataclass(frozen=True)
class Surprise:
    """One token of a text: how likely it was, and its rank among all tokens (1: the likeliest)."""

    piece: str
    id: int
    probability: float
    bits: float
    rank: int


class Writer(Predictor):
    """A language model and its tokenizer."""

    family = "language"

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: TextTokenizer,
        device: str = "cpu",
        template: str = "",
    ):
        self.model = model.to(device).eval()
        self.tokenizer = tokenizer
        self.template = template  # the prompt of an instruction-tuned model, such as "Summarise: {prompt}"
        self.device = torch.device(device)
        self.engine = Engine(self.model, tokenizer.ends)

    # -- writing --------------------------------------------------------------------------------------------------

    def predict(self, inputs: Iterable[str], **options: Any) -> Iterator[Written]:
        """A continuation of each text, or with a `template` an answer to it; options as in `Sampling`."""
        for some in chunks(inputs, CHUNK):
            for written in self.generate(self.asked(some), special=bool(self.template), **options):
                yield written[0]

    def generate(self, prompts: Sequence[str], special: bool = False, **settings: Any) -> list[list[Written]]:
        """Continue every prompt, `n` times each; settings as in `Sampling`. Other prompts and order change nothing."""
        if isinstance(prompts, str):
            raise ConfigError("expected a list of prompts, got one text; write [prompt], in brackets")
        ids = [self.encode(prompt, special) for prompt in prompts]
        return write(self.engine, self.tokenizer.token_bytes, ids, Sampling(**settings))

    def stream(self, prompt: str, special: bool = False, **settings: Any) -> Generator[str, None, None]:
        """Continue one prompt, yielding pieces of text as soon as they are final."""
        ids = [self.encode(prompt, special)]
        with closing(stream(self.engine, self.tokenizer.token_bytes, ids, Sampling(**settings))) as pieces:
            for _, piece in pieces:
                yield piece

    def chat(self, messages: Sequence[dict[str, str]], **settings: Any) -> Iterator[str]:
        """The answer to a dialogue, a piece at a time. Messages have a "role" and a "content"."""
        return self.stream(render(messages, self.tokenizer, True), special=True, **settings)

    def answer(self, texts: Sequence[str], **settings: Any) -> list[str]:
        """The answer to each text by a model with a `template`; without one, its continuation."""
        return [written.text.strip() for written in self.predict(texts, **settings)]

    def summarise(self, texts: Sequence[str], say: Callable[[str], None], **settings: Any) -> list[str]:
        """A summary of each text, by a model trained to write one; texts that are cut are reported."""
        self.report_cuts(self.asked(texts), settings["max_tokens"], say, special=bool(self.template))
        return self.answer(texts, **settings)

    def report_cuts(
        self, prompts: Sequence[str], max_tokens: int, say: Callable[[str], None], special: bool = False
    ) -> None:
        """Report prompts that are cut to leave room for `max_tokens`."""
        for number, prompt in enumerate(prompts, 1):
            ids = self.encode(prompt, special)
            read, cut = fitting(self.model, ids, f"prompt {number}", self.tokenizer.ends, max_tokens)
            if cut:
                say(
                    f"the prompt has {len(read) + cut:,} tokens, this model's context {self.model.config.context:,}; "
                    f"it reads the last {len(read):,} of them"
                )

    def asked(self, texts: Sequence[str]) -> list[str]:
        """The texts as prompts for `answer`."""
        if not self.template:
            return list(texts)
        talks = [[{"role": "user", "content": self.template.replace(PROMPT, text)}] for text in texts]
        return render_all([(messages, True) for messages in talks], self.tokenizer)

    def beam(
        self, prompts: Sequence[str], beams: int = 5, n: int = 1, max_tokens: int = 256, no_repeat_ngram: int = 0
    ) -> list[list[Written]]:
        """The `n` likeliest continuations of each prompt, by beam search, best first."""
        ids = [self.encode(prompt) for prompt in prompts]
        how: Any = dict(beams=max(beams, n), max_tokens=max_tokens, no_repeat_ngram=no_repeat_ngram)
        groups = best(self.model, ids, self.tokenizer.ends, **how)
        return [
            [Written(ids=c.ids, finish="stop", cut=c.cut, text=self.tokenizer.decode(c.ids)) for c in group[:n]]
            for group in groups
        ]

    # -- looking --------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def next(
        self,
        text: str,
        *,
        top: int = 10,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        words: Sequence[str] = (),
    ) -> list[Candidate]:
        """The `top` likeliest next tokens over the whole vocabulary, then the first token of each of `words`."""
        logits = self.model.logits(self.hidden(self.seen(self.encode(text)))[-1]).double()
        first_ids = [self.tokenizer.encode(word)[:1] for word in words]
        if not all(first_ids):
            raise ConfigError("a word to look for is empty; give at least one character")
        first_ids = [id for (id,) in first_ids]
        return self.table(logits, top, narrowed(logits, temperature, top_k, top_p, min_p).softmax(-1), first_ids)

    @torch.inference_mode()
    def surprisal(self, text: str) -> list[Surprise]:
        """How likely each token of a text was, given those before it; the first, with none before it, is left out."""
        ids = self.encode(text)
        room = self.model.config.context
        if len(ids) < 2 or (room and len(ids) > room):
            raise DataError(f"a text of {len(ids)} tokens; expected at least 2 and at most {room or 'any number'}")
        words = self.model.logits(self.hidden(ids[:-1])).double().log_softmax(-1)  # T V
        right = words.gather(1, torch.tensor(ids[1:], device=self.device)[:, None])  # T 1
        ranks = (words > right).sum(1) + 1
        return [
            Surprise(self.tokenizer.piece(id), id, likely.exp().item(), -likely.item() / LOG2, int(rank))
            for id, likely, rank in zip(ids[1:], right[:, 0], ranks, strict=True)
        ]

    @torch.inference_mode()
    def bits(self, text: str, after: str = "\n") -> float:
        """The bits of a whole text under the model, read `after` another, in windows of its context."""
        skip = len(self.encode(after)) - 1  # targets before the text
        ids = [*self.encode(after), *self.tokenizer.encode(text)]
        step = self.model.config.context or len(ids)
        total = 0.0
        for start in range(0, len(ids) - 1, step):
            part = ids[start : start + step + 1]
            words = self.model.logits(self.hidden(part[:-1])).double().log_softmax(-1)
            right = words.gather(1, torch.tensor(part[1:], device=self.device)[:, None])
            total -= right[skip if start == 0 else 0 :].sum().item() / LOG2
        return total

    @torch.inference_mode()
    def lens(self, text: str, top: int = 1) -> list[list[Candidate]]:
        """The likeliest next tokens if the model ended after each of its layers (the logit lens)."""
        with watch(self.model, "blocks.*.out") as streams:
            self.hidden(self.seen(self.encode(text)))
        if not streams:
            raise ConfigError("the logit lens needs the layers of a Transformer; this model is recurrent")
        layers = []
        for stream_ in streams.values():
            logits = self.model.lens(stream_[0][0, -1]).double()
            layers.append(self.table(logits, top, logits.softmax(-1)))
        return layers

    def table(self, logits: Tensor, top: int, kept: Tensor, asked: Sequence[int] = ()) -> list[Candidate]:
        likely = logits.softmax(-1)  # V
        ordered, order = likely.sort(descending=True, stable=True)
        sums = ordered.cumsum(0)
        places = list(range(min(top, len(order))))
        places += [int((order == id).nonzero()[0, 0]) for id in asked]
        return [
            Candidate(
                place + 1, id := int(order[place]), self.tokenizer.piece(id), float(ordered[place]), float(sums[place]),
                float(kept[id]),
            )
            for place in places
        ]  # fmt: skip

    # -- text and ids ---------------------------------------------------------------------------------------------

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The ids of a text, with the published tokenizer's prefix. Never empty."""
        ids = self.tokenizer.encode(text, special=special)
        before = [] if self.tokenizer.bos is None or special else [self.tokenizer.bos]
        if not ids and not before:
            if self.tokenizer.eos is None:
                raise DataError("the prompt is empty; give at least one character to begin with")
            return [self.tokenizer.eos]  # a new document
        return before + ids

    def seen(self, ids: list[int]) -> list[int]:
        """The ids within the model's context: all, or as many of the last as fit."""
        return ids[-self.model.config.context :] if self.model.config.context else ids

    def hidden(self, ids: list[int]) -> Tensor:
        return self.model(torch.tensor([ids], device=self.device))[0]  # T D
