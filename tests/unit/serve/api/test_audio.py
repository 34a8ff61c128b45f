"""A recording through OpenAI's client."""

import base64
import io
import wave

import numpy as np
import openai
import pytest
import soundfile

import regard


@pytest.fixture(scope="module")
def clip() -> bytes:
    samples = (8000 * np.sin(np.arange(16000) / 9)).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, 16000, len(samples), "NONE", ""))
        out.writeframes(samples.tobytes())
    return file.getvalue()


def test_transcriptions_are_those_of_the_model(client, folders, clip, tmp_path):
    from regard.data.waveform import load_waveform

    (tmp_path / "clip.wav").write_bytes(clip)
    (expected,) = regard.load(folders / "whisper").predict([load_waveform(tmp_path / "clip.wav")])
    answer = client.audio.transcriptions.create(model="whisper", file=("clip.wav", clip))
    assert answer.text == expected.text != ""
    verbose = client.audio.transcriptions.create(model="whisper", file=("c.wav", clip), response_format="verbose_json")
    assert verbose.duration == 1.0 and verbose.language == "en"
    assert [(s.start, s.end, s.text) for s in verbose.segments] == [(p.start, p.end, p.text) for p in expected.passages]
    srt = client.audio.transcriptions.create(model="whisper", file=("c.wav", clip), response_format="srt")
    assert srt.startswith("1\n00:00:00,000 --> 00:00:0") and expected.text in srt


def test_files_reach_predict_as_a_form(http, clip):
    files = [("file", ("a.wav", clip)), ("file", ("b.wav", clip))]
    answer = http.post("/v1/predict/whisper", files=files, data={"options": '{"beam": 1}'}).json()
    one, two = answer["outputs"]
    assert one == two and one["passages"][0]["start"] == 0


def test_the_length_of_a_recording_is_limited(folders, clip):
    from regard.data.waveform import count_seconds
    from regard.errors import LimitError
    from regard.tasks.load import open_model
    from regard.ticks import Console

    task, predictor = open_model(folders / "whisper")
    value = {"file": base64.b64encode(clip).decode(), "name": "x.wav"}
    read = lambda most: task.request_input(predictor, value, folders, Console(quiet=True), {"seconds": most})  # noqa: E731
    assert len(read(1.0)) == 1 and count_seconds(folders / "input.wav") == 1.0
    with pytest.raises(LimitError, match="the file has 1 seconds; this server allows at most 0"):
        read(0.4)
    flac = io.BytesIO()
    soundfile.write(flac, np.zeros(24_000), 16_000, format="FLAC")
    (folders / "x.flac").write_bytes(flac.getvalue())
    assert count_seconds(folders / "x.flac") == 1.5


def test_what_is_no_recording_is_refused(client, http, clip):
    with pytest.raises(openai.BadRequestError, match=r"inputs\[0\]: "):
        client.audio.transcriptions.create(model="whisper", file=("x.wav", b"RIFF no sound"))
    with pytest.raises(openai.BadRequestError, match="is not a model for /v1/audio/transcriptions"):
        client.audio.transcriptions.create(model="gpt", file=("x.wav", clip))
    answer = http.post(
        "/v1/audio/transcriptions", files={"file": ("x.wav", clip)}, data={"model": "whisper", "prompt": "x"}
    )
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt"
    assert http.post("/v1/audio/transcriptions", json={"model": "whisper"}).status_code == 400


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"model": ["whisper", "gpt"]}, "model", "model appears twice; expected it once"),
        ({"model": "whisper", "timestamp_granularities[]": "word"}, "timestamp_granularities[]", "is not supported"),
        ({"model": "whisper", "temperature": "0.5"}, "temperature", "temperature is not supported by this server"),
        ({"model": "whisper", "languag": "en"}, "languag", "did you mean 'language'?"),
        ({"model": "whisper", "response_format": "xml"}, "response_format", "'srt' or 'vtt', got \"xml\""),
        ({"model": "whisper", "file": "clip.wav"}, "file", "file is a text; expected a file: curl -F file=@NAME"),
    ],
)
def test_no_field_of_a_form_is_ignored(http, clip, fields, param, message):
    answer = http.post("/v1/audio/transcriptions", files={"file": ("x.wav", clip)}, data=fields)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text
    assert message in answer.json()["error"]["message"]


def test_fields_without_effect_are_accepted(client, clip):
    settings = dict(response_format="verbose_json", timestamp_granularities=["segment"], temperature=0)
    assert client.audio.transcriptions.create(model="whisper", file=("x.wav", clip), **settings).segments


def test_files_of_a_form_have_one_name(http, clip):
    for name, fields in (("sound", {}), ("file", {"inputs": '["x"]'}), ("file", {"options": "{beam: 1}"})):
        answer = http.post("/v1/predict/whisper", files={name: ("x.wav", clip)}, data=fields)
        message = answer.json()["error"]["message"]
        assert answer.status_code == 400
        assert message.startswith(
            (
                "sound is a file; expected files under the name file",
                "the inputs of a form are its files",
                "the field options is",
            )
        ), message
