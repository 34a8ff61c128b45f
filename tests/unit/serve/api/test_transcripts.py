"""Subtitles, against examples written by hand."""

import pytest

from regard.serve.api.transcripts import transcript

OUTPUT = {
    "text": "Good morning. And good night.",
    "language": "en",
    "duration": 3800.0,
    "passages": [
        {"start": 0.0, "end": 2.5, "text": "Good morning."},
        {"start": 2.5, "end": 30.0, "text": ""},
        {"start": 3661.0004, "end": 3725.9996, "text": "And good night."},
    ],
}
SRT = """1
00:00:00,000 --> 00:00:02,500
Good morning.

2
01:01:01,000 --> 01:02:06,000
And good night.
"""


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("json", {"text": OUTPUT["text"]}),
        ("text", OUTPUT["text"] + "\n"),
        ("srt", SRT),
        (
            "vtt",
            "WEBVTT\n\n00:00:00.000 --> 00:00:02.500\nGood morning.\n\n"
            "01:01:01.000 --> 01:02:06.000\nAnd good night.\n",
        ),
    ],
)
def test_transcripts_have_the_requested_form(form, expected):
    assert transcript(OUTPUT, form) == expected


def test_verbose_json_has_the_times_of_its_segments():
    verbose = transcript(OUTPUT, "verbose_json")
    assert verbose["duration"] == 3800 and verbose["language"] == "en"
    assert [(s["id"], s["start"]) for s in verbose["segments"]] == [(0, 0.0), (1, 2.5), (2, 3661.0004)]
