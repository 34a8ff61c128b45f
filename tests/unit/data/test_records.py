"""Records: every form is read, conversations are written as transformers writes them, and only answers are learned."""

import json
from itertools import groupby

import pyarrow as pa
import pytest
from pyarrow import parquet

from regard.data.records import Record, check_records, encode_record, read_records, render
from regard.data.tokenizers import load
from regard.data.tokenizers.bytelevel import EOS, ByteLevel
from regard.data.tokenizers.chars import Characters
from regard.errors import CheckpointError, ConfigError, DataError, LimitError

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}\
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
INDENTED = """
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role not in ["system", "user", "assistant"] %}
        {{- raise_exception("unknown role") }}
    {%- endif %}
    {%- if message.role == "assistant" %}
    {% generation %}{{ "[" + message.content | trim + "]" + eos_token }}{% endgeneration %}
    {%- else %}
    {%- if not message.content %}{% continue %}{% endif %}
        {{- message | tojson + "\n" }}
    {%- endif %}
{%- endfor %}"""
TALK = [
    {"role": "user", "content": 'Who is <b>there</b> & "why"?'},
    {"role": "assistant", "content": "Me."},
    {"role": "user", "content": "Ça va ?"},
    {"role": "assistant", "content": "Yes,\nvery."},
]
SHARED = [{"from": {"user": "human", "assistant": "gpt"}[m["role"]], "value": m["content"]} for m in TALK]
BRIEF = {"role": "system", "content": "Be brief."}


def chatting(template: str = "", bos: str = "") -> ByteLevel:
    """Pieces with ChatML's special tokens and a template."""
    plain = ByteLevel.train(["a chat about the weather, " * 9], 280)
    plain.tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    config = {"eos_token": "<|im_end|>"} | ({"bos_token": bos} if bos else {})
    return ByteLevel(plain.tokenizer, config, chat_template=template)


def write(path, *lines) -> str:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), "utf-8")
    return path


def user(text: str, answer: str, *others: str) -> Record:
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]
    return Record(messages, [answer, *others])


# Reading


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"text": "plain", "label": 1}, "plain"),
        ({"prompt": "p", "completion": "c"}, user("p", "c")),
        ({"prompt": "p", "response": "c"}, user("p", "c")),
        ({"instruction": "i", "input": "x", "output": "o"}, user("i\n\nx", "o")),
        ({"instruction": "i", "input": "", "output": "o"}, user("i", "o")),
        ({"instruction": "i", "output": "o"}, user("i", "o")),
        ({"question": "q", "answer": "a"}, user("q", "a")),
        ({"text": "long", "summary": "short"}, user("long", "short")),
        ({"source": ["One.", "Two."], "target": ["both", "two"], "title": "t"}, user("One. Two.", "both", "two")),
        ({"messages": TALK}, Record(TALK, ["Yes,\nvery."])),
        ({"conversations": SHARED, "id": "7"}, Record(TALK, ["Yes,\nvery."])),
        ({"conversations": [{"from": "gpt", "value": "Hello!"}, *SHARED]}, Record(TALK, ["Yes,\nvery."])),
        ({"system": "Be brief.", "conversations": SHARED}, Record([BRIEF, *TALK], ["Yes,\nvery."])),
    ],
)
def test_every_form_is_read(tmp_path, line, expected):
    assert list(read_records(write(tmp_path / "a.jsonl", line, "", line))) == [expected] * 2
    (tmp_path / "a.json").write_text(json.dumps([line, line], indent=2))
    assert list(read_records(tmp_path / "a.json")) == [expected] * 2
    parquet.write_table(pa.Table.from_pylist([line, line]), tmp_path / "a.parquet")
    assert list(read_records(tmp_path / "a.parquet")) == [expected] * 2


@pytest.mark.parametrize(
    ("record", "form"),
    [
        ({"instruction": "Add.", "input": "1 1", "output": "2"}, "Alpaca's format: instruction and output"),
        ({"conversations": SHARED}, "ShareGPT's format: conversations of from and value"),
        ({"messages": TALK}, "messages of role and content"),
    ],
)  # fmt: skip
def test_the_form_of_records_is_reported(tmp_path, record, form):
    messages, path = [], tmp_path / "a.json"
    path.write_text(json.dumps([record, record, {"other": 1}, record, record]))
    check_records(path, "", False, messages.append)
    assert "skipped 1 of 5 records: line 1: has 'other'" in messages[0] and f"4 records in {form};" in messages[1]


def test_a_template_words_the_prompts(tmp_path):
    path = write(tmp_path / "a.jsonl", {"source": "Long {x}", "target": "short"})
    assert list(read_records(path, "Sum up: {prompt}!")) == [user("Sum up: Long {x}!", "short")]
    with pytest.raises(ConfigError, match=r"needs \{prompt\}"):
        list(read_records(path, "Sum up"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"text": "a', "line 2: not JSON"),
        ("[1]", "line 2: expected an object"),
        (
            {"title": "t", "body": "b"},
            "line 2: has 'title', 'body'; expected messages, conversations, or text, or prompt and completion",
        ),
        ({}, "line 2: has nothing"),
        ({"text": 3}, "line 2: text is 3; expected text"),
        ({"text": None}, "line 2: text is null"),
        ({"source": [], "target": "a"}, r"line 2: source is \[\]"),
        ({"text": "\ud800"}, "line 2: text holds half of a surrogate pair"),
        ({"prompt": "a", "completion": "b"}, "line 2: mixes plain text with prompts"),
        ({"messages": "hello"}, "line 2: messages expects a list"),
        (
            {"messages": [{"role": "tool", "content": "x"}]},
            "line 2: a message has the role 'tool'; expected one of system",
        ),
        ({"messages": [{"role": "user"}]}, "line 2: content is null"),
        (
            {"messages": [{"role": "user", "content": "x"}]},
            "line 2: expected a user's message first and an assistant's",
        ),
        ({"messages": TALK[1:]}, "line 2: expected a user's message first"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, words):
    path = write(tmp_path / "a.jsonl", {"text": "good"}, line)
    with pytest.raises(DataError, match=words) as e:
        check_records(path, "", True, print)
    assert str(path) in str(e.value) and "\n" not in str(e.value)
    assert list(read_records(path)) == ["good"]


# Writing


@pytest.mark.parametrize("ask", [True, False])
@pytest.mark.parametrize("template", [CHATML, INDENTED], ids=["chatml", "indented"])
@pytest.mark.parametrize("messages", [TALK, TALK[:1], [{"role": "system", "content": "Be brief."}, *TALK[:3]]])
def test_conversations_are_written_as_transformers_writes_them(tmp_path, template, messages, ask):
    from transformers import AutoTokenizer

    ours = chatting(template, bos=EOS)
    ours.save(tmp_path)
    other = AutoTokenizer.from_pretrained(tmp_path)
    text = render(messages, ours, ask)
    assert text == other.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask)
    assert ours.encode(text, special=True) == other(text, split_special_tokens=False)["input_ids"]


def test_without_a_template_there_are_headings():
    ours = ByteLevel.train(["a"], 257)
    first = 'Be brief.\n\n### Instruction:\nWho is <b>there</b> & "why"?\n\n### Response:\n'
    system = {"role": "system", "content": "Be brief."}
    assert render([system, TALK[0]], ours, True) == first
    whole = f"{first}Me.{EOS}### Instruction:\nÇa va ?\n\n### Response:\nYes,\nvery.{EOS}"
    assert render([system, *TALK], ours) == whole
    assert render(TALK[:2], Characters("x")).endswith("### Response:\nMe.\n\n")  # no end mark: an empty line


def test_a_template_that_fails_or_reaches_out():
    for template, words in [
        ("{{ raise_exception('no tools') }}", "no tools"),
        ("{% if %}", "not valid Jinja"),
        ("{{ messages.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
    ]:
        with pytest.raises(CheckpointError, match=f"(?s)chat template.*{words}"):
            render(TALK, chatting(template))


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 10 ** 8 }}",
        "{{ 10 ** (10 ** 10) }}",
        "{{ 'x' * 10 ** 12 }}",
        "{{ '%999999999d' % 1 }}",
        "{{ 'x'.center(2 * 10 ** 9) }}",
        "{% set n = namespace(x='x') %}{% for a in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ '" + "(" * 3000 + "' }}" + "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    ],
    ids=["loops", "output", "power", "memory", "format", "method", "doubling", "recursion", "nesting"],
)
def test_a_template_that_takes_too_long_or_too_much_is_stopped(template):
    with pytest.raises((LimitError, CheckpointError), match="chat template"):
        render(TALK, chatting(template))
    assert render(TALK[:1], chatting("{{ messages[0].role }}")) == "user", "and others work as before"


# What is learned


def learned_text(record: Record, tokenizer) -> tuple[str, list[str]]:
    """The whole as text, and the stretches that are learned, special tokens shown."""
    pairs = list(zip(*encode_record(record, tokenizer), strict=True))
    stretches = [(yes, list(group)) for yes, group in groupby(pairs, lambda pair: pair[1])]
    shown = [(yes, b"".join(tokenizer.token_bytes(id) for id, _ in group).decode()) for yes, group in stretches]
    return "".join(text for _, text in shown), [text for yes, text in shown if yes]


def test_only_answers_and_their_ends_are_learned():
    talk = Record(TALK, [""])
    for ours, ends in ((chatting(CHATML), "<|im_end|>"), (ByteLevel.train(["a"], 257), EOS)):
        whole, learned = learned_text(talk, ours)
        assert whole == render(TALK, ours)
        assert learned == ["Me." + ends, "Yes,\nvery." + ends]
    whole, learned = learned_text(talk, Characters(render(TALK, Characters("x"))))
    assert learned == ["Me.\n\n", "Yes,\nvery.\n\n"]


def test_a_prompt_is_cut_from_its_answer_as_when_a_model_is_asked():
    ours = chatting(CHATML)
    ids, learned = encode_record(user("a chat", "the weather"), ours)
    asked = ours.encode(render([{"role": "user", "content": "a chat"}], ours, True), special=True)
    assert ids[: len(asked)] == asked and not any(learned[: len(asked)]) and learned[len(asked)]


def test_a_start_mark_is_written_once(tmp_path, published):
    ours = load(published("llama3", tmp_path))
    ids, learned = encode_record(user("a", "b"), ours)
    assert ids[0] == ours.bos and ids.count(ours.bos) == 1 and ids[-1] == ours.eos
    assert not learned[0] and learned[-1]


def test_a_template_that_rewrites_the_past_is_refused():
    forgets = "{% for m in messages[-2:] %}{{ m.role + m.content }}{% endfor %}"
    with pytest.raises(CheckpointError, match="one prompt and one answer each"):
        encode_record(Record(TALK, [""]), chatting(forgets))
