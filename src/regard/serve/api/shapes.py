"""The engine's reports in the format of OpenAI's responses."""

import time
from typing import Any
from uuid import uuid4

Message = dict[str, Any]


class CompletionShape:
    """Responses of `/v1/completions`."""

    object = chunk_object = "text_completion"
    prefix = "cmpl-"

    def __init__(self, model: str, usage: bool = False):
        """With `usage` every chunk has the field; it is null in all but the last."""
        self.usage = usage
        self.head = {"id": self.prefix + uuid4().hex, "created": int(time.time()), "model": model}
        self.offsets: dict[int, int] = {}  # characters of each choice so far

    def choice(self, report: Message, logprobs: int | None) -> Message:
        return {
            "index": report["index"],
            "text": report["text"],
            "logprobs": None if logprobs is None else self.logprobs(report, logprobs),
            "finish_reason": report["finish"] or None,
        }

    chunk_choice = choice

    def logprobs(self, report: Message, top: int) -> Message:
        offset, offsets = self.offsets.get(report["index"], 0), []
        for token in report["tokens"]:
            offsets.append(offset)
            offset += len(token["token"])
        self.offsets[report["index"]] = offset
        return {
            "tokens": [token["token"] for token in report["tokens"]],
            "token_logprobs": [token["logprob"] for token in report["tokens"]],
            "top_logprobs": [{t["token"]: t["logprob"] for t in token["top"][:top]} for token in report["tokens"]],
            "text_offset": offsets,
        }

    def begin(self) -> Message | None:
        """The first chunk of a choice, before its text."""
        return None

    def whole(self, choices: list[Message], usage: Message) -> Message:
        return {**self.head, "object": self.object, "choices": choices, "usage": usage}

    def chunk(self, choices: list[Message], usage: Message | None = None) -> Message:
        return {
            **self.head,
            "object": self.chunk_object,
            "choices": choices,
            **({"usage": usage} if self.usage else {}),
        }


class ChatShape(CompletionShape):
    """Responses of `/v1/chat/completions`."""

    object, chunk_object, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"

    def choice(self, report: Message, logprobs: int | None) -> Message:
        message = {"role": "assistant", "content": report["text"], "refusal": None}
        return self.rest(report, logprobs) | {"message": message}

    def chunk_choice(self, report: Message, logprobs: int | None) -> Message:
        return self.rest(report, logprobs) | {"delta": {"content": report["text"]} if report["text"] else {}}

    def rest(self, report: Message, logprobs: int | None) -> Message:
        content = None if logprobs is None else {"content": self.content(report, logprobs), "refusal": None}
        return {"index": report["index"], "logprobs": content, "finish_reason": report["finish"] or None}

    def content(self, report: Message, top: int) -> list[Message]:
        return [
            {**plain(token), "top_logprobs": [plain(other) for other in token["top"][:top]]}
            for token in report["tokens"]
        ]

    def begin(self) -> Message | None:
        return {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}


def plain(token: Message) -> Message:
    return {name: token[name] for name in ("token", "bytes", "logprob")}


def usage_of(report: Message) -> Message:
    """The usage of a request, from its last report."""
    prompt, completion = report["prompt_tokens"], report["completion_tokens"]
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
