"""The bodies of requests. A field that is not supported is refused by name, never ignored."""

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError

from regard.config import MAX_SEED, unknown
from regard.serve.api.errors import APIError, too_deep

Body = TypeVar("Body", bound=BaseModel)
Text = StrictStr
Whole = StrictInt
MOST_TOP = 20  # alternatives per token

# Fields of OpenAI's API that this server does not support, with the values that have no effect and are accepted.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "audio": (), "best_of": (1,), "dimensions": (), "echo": (False,), "frequency_penalty": (0,),
    "function_call": ("none",), "functions": ([],), "logit_bias": ({},), "metadata": ({},), "modalities": (["text"],),
    "parallel_tool_calls": (), "prediction": (), "presence_penalty": (0,), "reasoning_effort": (),
    "response_format": ({"type": "text"},), "service_tier": ("auto",), "store": (False,), "suffix": ("",),
    "tool_choice": ("none",), "tools": ([],), "user": (), "verbosity": (), "web_search_options": (),
}  # fmt: skip


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class StreamOptions(Strict):
    include_usage: StrictBool = False


class SamplingBody(Strict):
    """How text is generated."""

    model: Text
    stream: StrictBool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[Whole, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100, strict=True)] | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1, strict=True)] | None = 1.0
    top_k: Annotated[Whole, Field(ge=0)] | None = 0
    min_p: Annotated[float, Field(ge=0, le=1, strict=True)] | None = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=100, strict=True)] | None = 1.0
    no_repeat_ngram: Annotated[Whole, Field(ge=0)] | None = 0
    n: Annotated[Whole, Field(ge=1)] | None = 1
    stop: Annotated[Text, Field(min_length=1)] | list[Annotated[Text, Field(min_length=1)]] | None = None
    seed: Annotated[Whole, Field(ge=0, le=MAX_SEED)] | None = None

    def sampling(self, seed: int) -> dict[str, Any]:
        """The fields of `generate.Sampling`; null means the default."""
        names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "no_repeat_ngram", "n", "max_tokens")
        values = {name: value for name in names if (value := getattr(self, name)) is not None}
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return values | {"seed": seed if self.seed is None else self.seed, "stop": stop, "logprobs": self.top}

    @property
    def top(self) -> int:
        """How many alternatives per token the engine reports; 0: not even the token's own log-probability."""
        return 0


class CompletionBody(SamplingBody):
    prompt: Text | list[Text] | list[Whole] | list[list[Whole]]
    max_tokens: Annotated[Whole, Field(ge=1)] | None = 16
    logprobs: Annotated[Whole, Field(ge=0, le=MOST_TOP)] | None = None

    @property
    def top(self) -> int:
        return 0 if self.logprobs is None else max(self.logprobs, 1)

    @property
    def prompts(self) -> list[str | list[int]]:
        """Texts, or ids."""
        some: Any = self.prompt
        return some if isinstance(some, list) and some and not isinstance(some[0], int) else [some]


class TextPart(Strict):
    type: Literal["text"]
    text: Text


class MessageBody(Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart]

    def plain(self) -> dict[str, str]:
        """The message as chat templates expect it."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class ChatBody(SamplingBody):
    messages: Annotated[list[MessageBody], Field(min_length=1)]
    max_completion_tokens: Annotated[Whole, Field(ge=1)] | None = None
    logprobs: StrictBool | None = False
    top_logprobs: Annotated[Whole, Field(ge=0, le=MOST_TOP)] | None = None

    @property
    def top(self) -> int:
        return max(self.top_logprobs or 0, 1) if self.logprobs else 0

    def sampling(self, seed: int) -> dict[str, Any]:
        limit = self.max_completion_tokens or self.max_tokens
        return super().sampling(seed) | ({"max_tokens": limit} if limit else {})


class EmbeddingBody(Strict):
    model: Text
    input: Text | Annotated[list[Text], Field(min_length=1)]
    encoding_format: Literal["float", "base64"] | None = "float"


class TranscriptionBody(Strict):
    """The fields of a form, besides its file."""

    model: Text
    language: Text = ""
    response_format: Literal["json", "text", "verbose_json", "srt", "vtt"] = "json"


class LoadBody(Strict):
    name: Annotated[Text, Field(min_length=1, max_length=200)]
    path: Annotated[Text, Field(min_length=1)]


class PredictBody(Strict):
    inputs: Annotated[list[Any], Field(min_length=1)]
    options: dict[str, Any] = {}
    explain: StrictBool = False


def parse_json(data: bytes) -> Any:
    """Parse JSON, without NaN and lone surrogates."""

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(data, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise too_deep() from None
    except (ValueError, UnicodeError) as e:
        raise APIError(400, f"the body is not JSON in UTF-8: {e}") from None
    return value


def parse_body(cls: type[Body], data: bytes) -> Body:
    return check_body(cls, parse_json(data))


def check_body(cls: type[Body], value: Any) -> Body:
    """The body; `APIError` names the wrong field, what it holds and what was expected."""
    if not isinstance(value, dict):
        raise APIError(
            400, f"the body is {json.dumps(value):.80}; expected an object with {', '.join(cls.model_fields)}"
        )
    kept = {}
    for name, held in value.items():
        if name in cls.model_fields:
            kept[name] = held
        elif name not in UNSUPPORTED:
            raise APIError(400, str(unknown("field", name, cls.model_fields)), name, "unknown_parameter")
        elif held is not None and held not in UNSUPPORTED[name]:
            what = f"{name} is not supported by this server; leave it out"
            raise APIError(400, what, name, "unsupported_parameter")
    try:
        return cls.model_validate(kept)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"] if not isinstance(part, str) or part in names_in(kept))
        got = "" if first["type"] == "missing" else f", got {json.dumps(first['input'], default=str):.80}"
        where = where or str(first["loc"][0])
        raise APIError(400, f"{where}: {first['msg']}{got}", where) from None


def names_in(value: Any) -> set[str]:
    """All names of fields in a body, to tell them from pydantic's names of alternatives."""
    if isinstance(value, dict):
        return {*value, *(name for inner in value.values() for name in names_in(inner))}
    return {name for inner in value for name in names_in(inner)} if isinstance(value, list) else set()
