"""The engine's process, driven by messages."""

import io
import json
import queue
import threading

import pytest

from regard.serve.api.lanes import LaneSettings
from regard.serve.api.process import EngineProcess


class Pipe:
    """The lines that are written to a process."""

    def __init__(self) -> None:
        self.lines: queue.Queue[str] = queue.Queue()

    def __iter__(self):
        return iter(self.lines.get, "")

    def send(self, **message) -> None:
        self.lines.put(json.dumps(message))


class Replies(io.RawIOBase):
    def __init__(self) -> None:
        self.messages: queue.Queue[dict] = queue.Queue()

    def write(self, line) -> int:
        message = json.loads(bytes(line))
        if "stats" not in message:
            self.messages.put(message)
        return len(line)


@pytest.mark.parametrize(("name", "field"), [("gpt", "text"), ("classifier", "label")])
def test_a_replaced_model_finishes_what_it_was_asked(folders, name, field):
    """Requests before, and those after, are all answered; the lane that was replaced ends."""
    pipe, out = Pipe(), Replies()
    process = EngineProcess(out, LaneSettings(slots=2))
    threading.Thread(target=process.listen, args=(pipe,), daemon=True).start()

    def ask(id: int) -> None:
        pipe.send(
            do="predict", model=name, id=id, inputs=["The cat"], options={"max_tokens": 30} if name == "gpt" else {}
        )

    pipe.send(do="load", model=name, id=100, path=str(folders / name))
    assert out.messages.get(timeout=30)["id"] == 100
    old = process.lanes[name][-1]
    for id in range(5):
        ask(id)
    pipe.send(do="load", model=name, id=101, path=str(folders / name))
    replies = [out.messages.get(timeout=30) for _ in range(6)]
    for id in range(5, 8):
        ask(id)
    replies += [out.messages.get(timeout=30) for _ in range(3)]
    answers = {m["id"]: m["outputs"][0][field] for m in replies if "outputs" in m}
    assert sorted(answers) == [*range(8)] and len(set(answers.values())) == 1
    pipe.send(do="load", model=name, id=102, path="runs/nothing")
    assert "no run" in out.messages.get(timeout=30)["failed"]
    ask(8)
    assert out.messages.get(timeout=30)["outputs"][0][field] == answers[0], "what cannot be loaded replaces nothing"
    pipe.send(do="unload", model=name)
    ask(9)
    assert out.messages.get(timeout=30)["error"]["status"] == 503
    assert old.ended and process.lanes[name] == []
