"""Chat and instruction records, one JSON object a line: how they are written as text, and which of it is learned.

Known forms: `messages` (a list of `role` and `content`), a prompt with its answer under one of the names in `FORMS`,
or `text` alone, which is plain text to be learned whole.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.chat import Message, conversations
from regard.data.pairs import read_lines
from regard.data.tokenizers import TextTokenizer
from regard.errors import CheckpointError, ConfigError, DataError

FORMS = (
    ("prompt", "completion"),
    ("prompt", "response"),
    ("instruction", "output"),  # and, where there is one, "input" below the instruction
    ("question", "answer"),
    ("source", "target"),
    ("text", "summary"),
)
ROLES = ("system", "user", "assistant")
PROMPT = "{prompt}"  # its place in a template


@dataclass(frozen=True)
class Record:
    """A conversation whose answers are to be learned."""

    messages: list[Message]
    references: list[str]  # the last answer, and its alternatives


def read_records(path: Path, template: str = "") -> Iterator[str | Record]:
    """What each line of a JSONL file holds, plain text or a `Record`; `template` says how prompts are worded."""
    if template and PROMPT not in template:
        raise ConfigError(f"data.template is {template!r}; it needs {PROMPT} where the prompt goes")
    first: type | None = None
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as e:
            raise DataError(f'{where} is not JSON ({e}); expected one record a line, as {{"text": "…"}}') from None
        record = _read(values, template, where)
        if first is not None and type(record) is not first:
            raise DataError(f"{where} mixes plain text with prompts and answers; put them in two files")
        first = type(record)
        yield record


def render(messages: Sequence[Message], tokenizer: TextTokenizer, add_generation_prompt: bool = False) -> str:
    """A conversation as text, special tokens included: encode it with `special=True`."""
    return render_all([(messages, add_generation_prompt)], tokenizer)[0]


def render_all(talks: Sequence[tuple[Sequence[Message], bool]], tokenizer: TextTokenizer) -> list[str]:
    """`render` for many: in the form of the tokenizer's chat template, or under the headings of Alpaca (Taori et al.
    2023) where it has none."""
    if tokenizer.chat_template:
        return conversations(tokenizer.chat_template, talks, tokenizer.special)
    begin = "" if tokenizer.bos is None else tokenizer.token_bytes(tokenizer.bos).decode()
    end = "\n\n" if tokenizer.eos is None else tokenizer.token_bytes(tokenizer.eos).decode()
    return [begin + _plain(messages, end, ask) for messages, ask in talks]


def encode_record(record: Record, tokenizer: TextTokenizer) -> tuple[list[int], list[bool]]:
    """The ids of a record and, for each, whether it is to be learned: the answers, with the id that ends them.

    Cut where an answer begins, as when a model is asked: the prompt is encoded first, and the answer comes after.
    """
    messages, done = record.messages, 0
    segments: list[tuple[str, bool]] = []
    answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    parts = [part for i in answers for part in ((messages[:i], True), (messages[: i + 1], False))]
    whole, *rendered = render_all([(messages, False), *parts], tokenizer)
    for before, after in zip(rendered[::2], rendered[1::2], strict=True):
        if not (after.startswith(before) and whole.startswith(after) and done <= len(before)):
            raise CheckpointError(
                "the model's chat template rewrites earlier turns, so answers cannot be located; "
                "give records with one prompt and one answer each"
            )
        segments += [(whole[done : len(before)], False), (whole[len(before) : len(after)], True)]
        done = len(after)
    ids: list[int] = []
    learned: list[bool] = []
    for new, (_, answer) in zip(tokenizer.encode_batch([t for t, _ in segments], special=True), segments, strict=True):
        last = max((place for place, id in enumerate(new) if id in tokenizer.ends), default=len(new) - 1)
        ids += new
        learned += [answer and place <= last for place in range(len(new))]
    return ids, learned


def plain(record: Record) -> str:
    """A record as text without special tokens: what a vocabulary is learned from."""
    return _plain(record.messages, "\n\n", False)


# Reading


def _read(values: Any, template: str, where: str) -> str | Record:
    if not isinstance(values, dict):
        raise DataError(f'{where} is not a record; expected a JSON object, as {{"text": "…"}}')
    if "messages" in values:
        return _conversation(values["messages"], where)
    for asked, answered in FORMS:
        if asked in values and answered in values:
            prompt = " ".join(_texts(values[asked], f"{where}: {asked}"))  # a list holds sentences
            if asked == "instruction" and values.get("input"):
                prompt += "\n\n" + " ".join(_texts(values["input"], f"{where}: input"))
            answers = _texts(values[answered], f"{where}: {answered}")  # a list holds alternatives
            prompt = template.replace(PROMPT, prompt) if template else prompt
            return Record([{"role": "user", "content": prompt}, {"role": "assistant", "content": answers[0]}], answers)
    if "text" in values:
        return _texts(values["text"], f"{where}: text")[0]
    forms = ", ".join(f"{a} and {b}" for a, b in FORMS)
    raise DataError(f"{where} has {', '.join(map(repr, values)) or 'nothing'}; expected messages, or text, or {forms}")


def _conversation(messages: Any, where: str) -> Record:
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise DataError(f"{where}: messages expects a list of objects with role and content")
    read = []
    for message in messages:
        if message.get("role") not in ROLES:
            raise DataError(
                f"{where}: a message has the role {message.get('role')!r}; expected one of {', '.join(ROLES)}"
            )
        read.append({"role": message["role"], "content": _texts(message.get("content"), f"{where}: content")[0]})
    spoken = [m["role"] for m in read if m["role"] != "system"]
    if "assistant" not in spoken or spoken[0] != "user":
        raise DataError(f"{where}: expected a user's message first and an assistant's answer after it")
    return Record(read, [m["content"] for m in read if m["role"] == "assistant"][-1:])


def _texts(value: Any, where: str) -> list[str]:
    """A text, or a list of texts, as a list that is not empty."""
    texts = value if isinstance(value, list) and value else [value]
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"{where} is {json.dumps(value)[:40]}; expected text")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DataError(f"{where} holds half of a surrogate pair; write the file again as UTF-8") from None
    return texts


# Writing


def _plain(messages: Sequence[Message], end: str, add_generation_prompt: bool) -> str:
    out = []
    for message in messages:
        if message["role"] == "assistant":
            out.append(f"### Response:\n{message['content']}{end}")
        elif message["role"] == "user":
            out.append(f"### Instruction:\n{message['content']}\n\n")
        else:
            out.append(f"{message['content']}\n\n")
    return "".join(out) + "### Response:\n" * add_generation_prompt
