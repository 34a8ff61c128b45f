"""What OpenAI's own client gets from the server, against the models used without it."""

import base64
import json

import numpy as np
import openai
import pytest

import regard

PROMPT = "The cat drank"
TALK = [{"role": "system", "content": "I"}, {"role": "user", "content": "it was"}]


@pytest.fixture(scope="module")
def writer(folders):
    return regard.load(folders / "gpt")


@pytest.mark.parametrize("name", ["gpt", "llama", "lstm"])
def test_completions_equal_those_of_the_model_alone(client, folders, name):
    settings = dict(max_tokens=20, temperature=0.8, top_p=0.9, seed=5)
    answer = client.completions.create(model=name, prompt=[PROMPT, "Looks like"], n=2, **settings)
    groups = regard.load(folders / name).generate([PROMPT, "Looks like"], n=2, **settings)
    written = [one for group in groups for one in group]
    assert [c.text for c in answer.choices] == [one.text for one in written]
    assert [c.index for c in answer.choices] == [0, 1, 2, 3]
    assert [c.finish_reason for c in answer.choices] == [one.finish for one in written]
    assert answer.usage.completion_tokens == sum(len(one.ids) for one in written)


def test_ids_as_a_prompt_equal_their_text(client, writer):
    ids = writer.encode(PROMPT)
    one, two = (client.completions.create(model="gpt", prompt=p, temperature=0) for p in (PROMPT, ids))
    assert one.choices[0].text == two.choices[0].text
    assert one.usage == two.usage and one.usage.prompt_tokens == len(ids) and one.usage.completion_tokens == 16


def test_chat_equals_chat_without_a_server(client, writer):
    answer = client.chat.completions.create(model="gpt", messages=TALK, max_completion_tokens=12, seed=3)
    expected = "".join(writer.chat(TALK, max_tokens=12, seed=3))
    assert answer.choices[0].message.content == expected and answer.choices[0].message.role == "assistant"
    parts = [{"role": "developer", "content": [{"type": "text", "text": "I"}]}, TALK[1]]
    again = client.chat.completions.create(model="gpt", messages=parts, max_tokens=12, seed=3)
    assert again.choices[0].message.content == expected


def test_streams_add_up_to_the_whole_text(client):
    settings = dict(model="gpt", messages=TALK, max_tokens=15, seed=1, n=3)
    whole = client.chat.completions.create(**settings)
    texts, ends, usage = {}, {}, []
    for chunk in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **settings):
        usage += [chunk.usage] if chunk.usage else []
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            ends |= {choice.index: choice.finish_reason} if choice.finish_reason else {}
        assert "usage" in chunk.model_fields_set, "null in all chunks but the last"
    assert [texts[i] for i in range(3)] == [c.message.content for c in whole.choices]
    assert [ends[i] for i in range(3)] == [c.finish_reason for c in whole.choices]
    assert usage == [whole.usage]


def test_a_stream_ends_with_done_and_nothing_after(http):
    body = {"model": "gpt", "prompt": PROMPT, "stream": True, "max_tokens": 3}
    answer = http.post("/v1/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert "usage" not in answer.text
    assert events[-2:] == ["data: [DONE]", ""] and all(e.startswith("data: {") for e in events[:-2])


def test_logprobs_are_those_of_the_model(client, writer):
    answer = client.chat.completions.create(
        model="gpt", messages=TALK, max_tokens=6, temperature=0, logprobs=True, top_logprobs=3
    )
    from regard.data.records import render

    written = writer.generate([render(TALK, writer.tokenizer, True)], True, max_tokens=6, temperature=0, logprobs=3)
    tokens = answer.choices[0].logprobs.content
    assert [t.logprob for t in tokens] == pytest.approx(written[0][0].logprobs, abs=1e-4)
    assert b"".join(bytes(t.bytes) for t in tokens) == b"".join(map(writer.tokenizer.token_bytes, written[0][0].ids))
    assert [[o.logprob for o in t.top_logprobs] for t in tokens] == [
        pytest.approx([p for _, p in place], abs=1e-4) for place in written[0][0].top
    ]
    old = client.completions.create(model="gpt", prompt=PROMPT, max_tokens=4, temperature=0, logprobs=2).choices[0]
    assert len(old.logprobs.tokens) == 4 and [len(t) for t in old.logprobs.top_logprobs] == [2] * 4
    assert old.logprobs.text_offset[0] == 0


def test_stop_strings_end_a_text_and_are_not_part_of_it(client):
    whole = client.completions.create(model="gpt", prompt=PROMPT, temperature=0, max_tokens=30).choices[0].text
    stop = whole[12:14]
    settings = dict(model="gpt", prompt=PROMPT, temperature=0, max_tokens=30, stop=[stop], logprobs=1)
    one = client.completions.create(**settings).choices[0]
    assert one.text == whole[: whole.index(stop)] and one.finish_reason == "stop"
    chunks = list(client.completions.create(stream=True, **settings))
    assert "".join(c.choices[0].text for c in chunks) == one.text
    assert [t for c in chunks for t in c.choices[0].logprobs.tokens] == one.logprobs.tokens


def test_equal_seeds_write_the_same_and_none_does_not(client):
    def text(**seed):
        return client.completions.create(model="gpt", prompt=PROMPT, max_tokens=30, **seed).choices[0].text

    assert text(seed=7) == text(seed=7) != text(seed=8)
    assert text() != text()


@pytest.mark.parametrize("form", ["float", "base64"])
def test_embeddings_are_those_of_the_encoder(client, folders, form):
    texts = ["The cat", "Server, can I have the check?", "The cat"]
    expected = regard.load(folders / "encoder").embed(texts)
    answer = client.embeddings.create(model="encoder", input=texts, encoding_format=form)
    vectors = [d.embedding for d in answer.data]
    if form == "base64":
        vectors = [np.frombuffer(base64.b64decode(v), np.float32) for v in vectors]
    np.testing.assert_allclose(np.array(vectors), expected, rtol=1e-5, atol=1e-6)
    assert [d.index for d in answer.data] == [0, 1, 2] and answer.usage.prompt_tokens > 12


def test_models_are_listed_with_what_they_are_for(client):
    listed = {model.id: model for model in client.models.list()}
    assert listed["gpt"].task == "lm" and listed["gpt"].endpoints == ["completions", "chat", "predict"]
    assert client.models.retrieve("encoder").endpoints == ["embeddings", "predict"]
    with pytest.raises(openai.NotFoundError, match="did you mean 'gpt'"):
        client.models.retrieve("gtp")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(model="encoder"), "is not a model for /v1/completions; use /v1/embeddings, /v1/predict/encoder"),
        (dict(extra_body={"temprature": 1}), "no field 'temprature'; did you mean 'temperature'?"),
        (dict(extra_body={"tools": [{"type": "function"}]}), "tools is not supported by this server; leave it out"),
        (dict(extra_body={"response_format": {"type": "json_object"}}), "response_format is not supported"),
        (dict(n=0), "n: Input should be greater than or equal to 1, got 0"),
        (dict(max_tokens="many"), 'max_tokens: Input should be a valid integer, got "many"'),
        (dict(prompt="x" * 90), "the prompt has 90 tokens, this model reads at most 63"),
        (dict(max_tokens=100), "and max_tokens is 100, together"),
        (dict(prompt=[[1], [5000]]), "this model has 0 to 299"),
        (dict(extra_body={"stream_options": {}}), "stream_options needs stream: true"),
        (dict(prompt="\ud800"), "not JSON in UTF-8"),
        (dict(stop=""), "stop: String should have at least 1 character"),
        (dict(prompt=[]), "prompt: List should have at least 1 item"),
        (
            dict(stream=True, stream_options={"include_usge": True}),
            "stream_options: no field 'include_usge'; did you mean",
        ),
    ],
    ids=lambda x: str(x)[:40],
)
def test_bad_requests_say_what_is_wrong(client, http, settings, message):
    body = {"model": "gpt", "prompt": PROMPT, **settings}
    body |= body.pop("extra_body", {})
    answer = http.post("/v1/completions", content=json.dumps(body), headers={"content-type": "application/json"})
    error = answer.json()["error"]
    assert answer.status_code == 400 and message in error["message"], error
    assert error["type"] == "invalid_request_error" and set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("message", "param", "expected"),
    [
        ({"rol": "user", "content": "hi"}, "messages.0.rol", "messages.0: no field 'rol'; did you mean 'role'?"),
        ({"content": "hi"}, "messages.0.role", "messages.0.role: Field required"),
        ({"role": "user", "content": 3}, "messages.0.content", "messages.0.content: Input should be a valid string"),
        ({"role": "user", "content": "hi", "name": "x"}, "messages.0.name", "messages.0: name is not supported"),
        ({"role": "user", "content": [{"type": "txt", "text": "hi"}]}, "messages.0.content.0.type", "should be 'text'"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "messages.0.content.0.image_url",
         "messages.0.content.0: image_url is not supported"),
        (3, "messages.0", "messages.0: Input should be an object, got 3"),
    ],
)  # fmt: skip
def test_fields_inside_of_messages_are_named(http, message, param, expected):
    answer = http.post("/v1/chat/completions", json={"model": "gpt", "messages": [message]})
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"] == param and expected in error["message"], error


def test_an_answer_can_be_sent_back_as_a_message(client):
    """With the fields that its type has, which are null."""
    first = client.chat.completions.create(
        model="lstm", messages=[{"role": "user", "content": "a"}], max_tokens=1, seed=1
    )
    talk = [{"role": "user", "content": "a"}, first.choices[0].message, {"role": "user", "content": "b"}]
    plain = [talk[0], {"role": "assistant", "content": first.choices[0].message.content}, talk[2]]
    one, two = (client.chat.completions.create(model="lstm", messages=t, max_tokens=2, seed=2) for t in (talk, plain))
    assert one.choices == two.choices


def test_two_limits_of_tokens_are_not_chosen_from(client):
    with pytest.raises(openai.BadRequestError, match="max_tokens is the old name of max_completion_tokens"):
        client.chat.completions.create(model="gpt", messages=TALK, max_tokens=3, max_completion_tokens=5)


def test_clients_see_errors_as_exceptions_of_theirs(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="gpt", prompt="x" * 90, stream=True)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="dimensions is not supported"):
        client.embeddings.create(model="encoder", input="x", dimensions=8)
    with pytest.raises(openai.UnprocessableEntityError, match="n is 1,000; this server allows at most 128"):
        client.completions.create(model="gpt", prompt="x", n=1000)
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="nothing", prompt="x")
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()
