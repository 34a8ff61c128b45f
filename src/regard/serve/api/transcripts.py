"""Transcripts in the formats of OpenAI's API."""

from typing import Any


def clock(seconds: float, mark: str) -> str:
    """A time as in subtitles, 00:01:02,345; WebVTT has a full stop for the comma."""
    whole = round(1000 * seconds)
    return f"{whole // 3_600_000:02d}:{whole // 60_000 % 60:02d}:{whole // 1000 % 60:02d}{mark}{whole % 1000:03d}"


def subtitles(passages: list[dict[str, Any]], mark: str, numbered: bool) -> str:
    cues = []
    for number, passage in enumerate((p for p in passages if p["text"]), 1):
        times = f"{clock(passage['start'], mark)} --> {clock(passage['end'], mark)}"
        cues.append((f"{number}\n" if numbered else "") + f"{times}\n{passage['text']}\n")
    return "\n".join(cues)


def transcript(output: dict[str, Any], form: str) -> dict[str, Any] | str:
    """A transcript as the value of a JSON response, or as text."""
    text, passages = output["text"], output["passages"]
    if form == "json":
        return {"text": text}
    if form == "verbose_json":
        segments = [{"id": i, "seek": 0, **passage} for i, passage in enumerate(passages)]
        about = {"task": "transcribe", "language": output["language"], "duration": output["duration"]}
        return {**about, "text": text, "segments": segments}
    if form == "srt":
        return subtitles(passages, ",", True)
    return "WEBVTT\n\n" + subtitles(passages, ".", False) if form == "vtt" else text + "\n"
