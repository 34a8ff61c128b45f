"""The bodies of requests. A field that is not supported is refused by name, never ignored."""

import json
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError, model_validator

from regard.config import MAX_SEED, unknown
from regard.serve.api.errors import APIError, too_deep

Body = TypeVar("Body", bound="Strict")
Text = StrictStr
Filled = Annotated[StrictStr, Field(min_length=1)]
Whole = StrictInt
Item = TypeVar("Item")
Some = Annotated[list[Item], Field(min_length=1)]
MOST_TOP = 20  # alternatives per token

Unsupported = dict[str, tuple[Any, ...]]  # fields of OpenAI's API, with the values that have no effect here


class WrongField(ValueError):
    """A field that an object in a body cannot have."""

    def __init__(self, message: str, name: str, code: str):
        super().__init__(message)
        self.name, self.code = name, code


class Strict(BaseModel):
    """An object in a body. A field that it does not have is an error, which names the nearest one."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    unsupported: ClassVar[Unsupported] = {}

    @model_validator(mode="before")
    @classmethod
    def check_names(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        for name, held in value.items():
            if name in cls.model_fields:
                continue
            if name not in cls.unsupported:
                raise WrongField(str(unknown("field", name, cls.model_fields)), name, "unknown_parameter")
            if held is not None and held not in cls.unsupported[name]:
                what = f"{name} is not supported by this server; leave it out"
                raise WrongField(what, name, "unsupported_parameter")
        return {name: held for name, held in value.items() if name in cls.model_fields}


class StreamOptions(Strict):
    unsupported = {"include_obfuscation": (False,)}

    include_usage: StrictBool = False


class SamplingBody(Strict):
    """How text is generated."""

    unsupported = {
        "audio": (), "best_of": (1,), "echo": (False,), "frequency_penalty": (0,), "function_call": ("none",),
        "functions": ([],), "logit_bias": ({},), "metadata": ({},), "modalities": (["text"],),
        "parallel_tool_calls": (), "prediction": (), "presence_penalty": (0,), "prompt_cache_key": (),
        "reasoning_effort": (), "response_format": ({"type": "text"},), "safety_identifier": (),
        "service_tier": ("auto",), "store": (False,), "suffix": ("",), "tool_choice": ("none",), "tools": ([],),
        "user": (), "verbosity": (), "web_search_options": (),
    }  # fmt: skip

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
    stop: Filled | list[Filled] | None = None
    seed: Annotated[Whole, Field(ge=0, le=MAX_SEED)] | None = None

    def sampling(self, seed: int) -> dict[str, Any]:
        """The fields of `generate.Sampling`; null means the default."""
        names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "no_repeat_ngram", "n", "max_tokens")
        values = {name: value for name in names if (value := getattr(self, name)) is not None}
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return values | {"seed": seed if self.seed is None else self.seed, "stop": stop, "logprobs": self.top}

    @property
    def counts(self) -> bool:
        """Whether a stream ends with its usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def top(self) -> int:
        """How many alternatives per token the engine reports; 0: not even the token's own log-probability."""
        return 0


class CompletionBody(SamplingBody):
    prompt: Text | Some[Text] | Some[Whole] | Some[Some[Whole]]
    max_tokens: Annotated[Whole, Field(ge=1)] | None = 16
    logprobs: Annotated[Whole, Field(ge=0, le=MOST_TOP)] | None = None

    @property
    def top(self) -> int:
        return 0 if self.logprobs is None else max(self.logprobs, 1)

    @property
    def prompts(self) -> list[str | list[int]]:
        """Texts, or ids."""
        some: Any = self.prompt
        return some if isinstance(some, list) and not isinstance(some[0], int) else [some]


class TextPart(Strict):
    unsupported = {"file": (), "image_url": (), "input_audio": ()}

    type: Literal["text"]
    text: Text


class MessageBody(Strict):
    unsupported = {  # null in messages of the assistant that a client sends back
        "annotations": ([],), "audio": (), "function_call": (), "name": (), "refusal": (), "tool_call_id": (),
        "tool_calls": ([],),
    }  # fmt: skip

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[TextPart]

    def plain(self) -> dict[str, str]:
        """The message as chat templates expect it."""
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class ChatBody(SamplingBody):
    messages: Some[MessageBody]
    max_completion_tokens: Annotated[Whole, Field(ge=1)] | None = None
    logprobs: StrictBool | None = False
    top_logprobs: Annotated[Whole, Field(ge=0, le=MOST_TOP)] | None = None

    @property
    def top(self) -> int:
        return max(self.top_logprobs or 0, 1) if self.logprobs else 0

    def sampling(self, seed: int) -> dict[str, Any]:
        if self.max_completion_tokens and self.max_tokens:
            what = "max_tokens is the old name of max_completion_tokens; leave one of them out"
            raise APIError(400, what, "max_tokens")
        limit = self.max_completion_tokens or self.max_tokens
        return super().sampling(seed) | ({"max_tokens": limit} if limit else {})


class EmbeddingBody(Strict):
    unsupported = {"dimensions": (), "user": ()}

    model: Text
    input: Filled | Some[Filled]
    encoding_format: Literal["float", "base64"] | None = "float"


class TranscriptionBody(Strict):
    """The fields of a form, besides its file."""

    unsupported = {
        "chunking_strategy": (), "include[]": (), "prompt": ("",), "stream": ("false",), "temperature": ("0", "0.0"),
        "timestamp_granularities[]": ("segment",),
    }  # fmt: skip

    model: Text
    language: Text = ""
    response_format: Literal["json", "text", "verbose_json", "srt", "vtt"] = "json"


class LoadBody(Strict):
    name: Annotated[Text, Field(min_length=1, max_length=200)]
    path: Filled


class PredictBody(Strict):
    inputs: Some[Any]
    options: dict[str, Any] = {}
    explain: StrictBool = False


def parse_json(data: bytes, what: str = "the body") -> Any:
    """Parse JSON, without NaN and lone surrogates."""

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(data, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise too_deep() from None
    except (ValueError, UnicodeError) as e:
        raise APIError(400, f"{what} is not JSON in UTF-8: {e}") from None
    return value


def parse_body(cls: type[Body], data: bytes) -> Body:
    return check_body(cls, parse_json(data))


def check_body(cls: type[Body], value: Any) -> Body:
    """The body; `APIError` names the wrong field, what it holds and what was expected."""
    if not isinstance(value, dict):
        raise APIError(
            400, f"the body is {json.dumps(value):.80}; expected an object with {', '.join(cls.model_fields)}"
        )
    try:
        return cls.model_validate(value)
    except ValidationError as e:
        raise as_api_error(e, names_in(value)) from None


def as_api_error(e: ValidationError, names: set[str]) -> APIError:
    """The error for the deepest of the wrong values: of several alternatives, the one that the client meant."""
    wrong = max(
        e.errors(include_url=False), key=lambda w: (len(w["loc"]), w["type"] not in ("string_type", "list_type"))
    )
    where = [str(part) for part in wrong["loc"] if not isinstance(part, str) or part in names]
    if wrong["type"] == "missing" and wrong["loc"][-1] not in where:
        where.append(str(wrong["loc"][-1]))
    path, error = ".".join(where), wrong.get("ctx", {}).get("error")
    if isinstance(error, WrongField):
        return APIError(400, f"{path}: {error}" if path else str(error), ".".join([*where, error.name]), error.code)
    expected = "Input should be an object" if wrong["type"] == "model_type" else wrong["msg"]
    got = "" if wrong["type"] == "missing" else f", got {json.dumps(wrong['input'], default=str):.80}"
    return APIError(400, f"{path}: {expected}{got}", path)


def names_in(value: Any) -> set[str]:
    """All names of fields in a body, to tell them from pydantic's names of alternatives."""
    if isinstance(value, dict):
        return {*value, *(name for inner in value.values() for name in names_in(inner))}
    return {name for inner in value for name in names_in(inner)} if isinstance(value, list) else set()
