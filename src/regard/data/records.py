"""Chat and instruction records, JSON objects: how they become text, and which part of it is trained on.

Formats: `messages` (a list of `role` and `content`), `conversations` (ShareGPT's list of `from` and `value`), a prompt
and answer under one of the names in `FORMS`, or `text` alone, plain text that is trained on as a whole.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.data.chat import Message, conversations
from regard.data.columnar import ARROW, OBJECTS, PARQUET, read_rows, stream_rows
from regard.data.delimited import Delimited
from regard.data.files import ending
from regard.data.folders import Say
from regard.data.json_rows import fault, parse_lines, read_values
from regard.data.pairs import read_lines
from regard.data.skipped import BadRow, report
from regard.data.tables import read_data
from regard.data.tokenizers import TextTokenizer
from regard.errors import CheckpointError, ConfigError, DataError

FORMS = (
    ("prompt", "completion"),
    ("prompt", "response"),
    ("instruction", "output"),  # and, if any, "input" below the instruction
    ("question", "answer"),
    ("source", "target"),
    ("text", "summary"),
)
ROLES = {"system": "system", "user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant"}
KEYS = {"messages": ("role", "content"), "conversations": ("from", "value")}  # of the turns of a conversation
NAMES = {"instruction": "Alpaca's format: ", "conversations": "ShareGPT's format: "}
PROMPT = "{prompt}"  # its place in a template


@dataclass(frozen=True)
class Record:
    """A conversation whose answers are trained on."""

    messages: list[Message]
    references: list[str]  # the last answer, and its alternatives
    form: str = field(default="", compare=False)  # the format of the object


def is_records(path: Path) -> bool:
    """Whether a file, by its name, holds objects: in an array, one per line, or as rows of a table."""
    return ending(path) in OBJECTS


def read_records(path: Path, template: str = "", bad: list[BadRow] | None = None) -> Iterator[str | Record]:
    """The content of each object of a file, plain text or a `Record`; `template` words the prompts. Objects that cannot
    be used are skipped and added to `bad`."""
    if template and PROMPT not in template:
        raise ConfigError(f"data.template is {template!r}; it needs {PROMPT} where the prompt goes")
    first: type | None = None
    for number, values in objects(path):
        try:
            if reason := fault(values):
                raise DataError(reason)
            record = _read(values, template)
            if first is not None and type(record) is not first:
                raise DataError("mixes plain text with prompts and answers; put them in two files")
        except DataError as e:
            if bad is not None:
                bad.append(BadRow(number, str(e)))
            continue
        first = type(record)
        yield record


def check_records(path: Path, template: str, strict: bool, say: Say) -> None:
    """Report the format of a file's records, and those that cannot be used."""
    bad: list[BadRow] = []
    forms = Counter(record.form if isinstance(record, Record) else "" for record in read_records(path, template, bad))
    unit = "row" if ending(path) in (*PARQUET, *ARROW) else "line"
    report(path, bad, forms.total(), strict, say, unit, what="records")
    for form, count in forms.items():
        if form:
            say(f"{path}: {count:,} records in {form}; answers are trained on, prompts are not")


def objects(path: Path) -> Iterator[tuple[int, Any]]:
    """The objects of a file with their lines; JSONL and Parquet are streamed."""
    if path.suffix.lower() in PARQUET:
        return stream_rows(path)
    if ending(path) == ".jsonl":
        return parse_lines(read_lines(path))
    data = read_data(path)
    return read_values(path, Delimited(path, data)) if ending(path) == ".json" else read_rows(path, data)


def render(messages: Sequence[Message], tokenizer: TextTokenizer, add_generation_prompt: bool = False) -> str:
    """A conversation as text, special tokens included: encode it with `special=True`."""
    return render_all([(messages, add_generation_prompt)], tokenizer)[0]


def render_all(talks: Sequence[tuple[Sequence[Message], bool]], tokenizer: TextTokenizer) -> list[str]:
    """`render` for many, by the tokenizer's chat template or, if it has none, with Alpaca's headings (Taori et al.
    2023)."""
    if tokenizer.chat_template:
        return conversations(tokenizer.chat_template, talks, tokenizer.special)
    begin = "" if tokenizer.bos is None else tokenizer.token_bytes(tokenizer.bos).decode()
    end = "\n\n" if tokenizer.eos is None else tokenizer.token_bytes(tokenizer.eos).decode()
    return [begin + _plain(messages, end, ask) for messages, ask in talks]


def encode_record(record: Record, tokenizer: TextTokenizer) -> tuple[list[int], list[bool]]:
    """The ids of a record and, for each, whether it is trained on: the answers, with their end token.

    Prompt and answer are encoded separately, as in generation.
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
    """A record as text without special tokens, to learn a vocabulary from."""
    return _plain(record.messages, "\n\n", False)


# Reading


def _read(values: dict[str, Any], template: str) -> str | Record:
    for name, keys in KEYS.items():
        if name in values:
            return _conversation(values, name, *keys)
    for prompt_key, answer_key in FORMS:
        if prompt_key in values and answer_key in values:
            prompt = " ".join(_texts(values[prompt_key], prompt_key))  # a list holds sentences
            if prompt_key == "instruction" and values.get("input"):
                prompt += "\n\n" + " ".join(_texts(values["input"], "input"))
            answers = _texts(values[answer_key], answer_key)  # a list holds alternatives
            prompt = template.replace(PROMPT, prompt) if template else prompt
            messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answers[0]}]
            return Record(messages, answers, f"{NAMES.get(prompt_key, '')}{prompt_key} and {answer_key}")
    if "text" in values:
        return _texts(values["text"], "text")[0]
    forms = ", ".join(f"{a} and {b}" for a, b in FORMS)
    got = ", ".join(map(repr, values)) or "nothing"
    raise DataError(f"has {got}; expected messages, conversations, or text, or {forms}")


def _conversation(values: dict[str, Any], name: str, role: str, content: str) -> Record:
    turns = values[name]
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise DataError(f"{name} expects a list of objects with {role} and {content}")
    messages = []
    if values.get("system"):
        messages.append({"role": "system", "content": _texts(values["system"], "system")[0]})
    for turn in turns:
        by = turn.get(role)
        if not isinstance(by, str) or by not in ROLES:
            raise DataError(f"a message has the {role} {by!r}; expected one of {', '.join(ROLES)}")
        messages.append({"role": ROLES[by], "content": _texts(turn.get(content), content)[0]})
    if name == "conversations" and messages[:1] and messages[0]["role"] == "assistant":
        messages = messages[1:]  # an answer without its prompt
    spoken = [m["role"] for m in messages if m["role"] != "system"]
    if "assistant" not in spoken or spoken[0] != "user":
        raise DataError("expected a user's message first and an assistant's answer after it")
    answers = [m["content"] for m in messages if m["role"] == "assistant"]
    return Record(messages, answers[-1:], f"{NAMES.get(name, '')}{name} of {role} and {content}")


def _texts(value: Any, name: str) -> list[str]:
    """A text, or a list of texts, as a non-empty list."""
    texts = value if isinstance(value, list) and value else [value]
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"{name} is {json.dumps(value)[:40]}; expected text")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DataError(f"{name} holds half of a surrogate pair; write the file again as UTF-8") from None
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
