"""A process that speaks as the engine's does. What a prompt says it should do, it does."""

import json
import os
import sys
import threading
import time
from pathlib import Path

cancelled = set()
ABOUT = {"task": "lm", "reads": "text", "endpoints": ["completions", "predict"], "settings": {}, "input": {}}


def send(message: dict) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def report(id: int, text: str, last: bool) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "first": 0.1, "between": None}
    ours = {"id": id, "index": 0, "text": text, "tokens": [], "finish": "stop" if last else "", "last": last}
    send({"from": "m", **ours, **(usage if last else {})})


def answer_when(there: Path, id: int) -> None:
    while not there.exists():
        time.sleep(0.01)
    report(id, "done", True)


for line in sys.stdin.buffer:
    message = json.loads(line)
    if message["do"] == "load":
        broken = (
            {"failed": "no such folder"}
            if message["path"] == "broken"
            else {"ready": ABOUT | {"folder": message["path"]}}
        )
        send({"id": message["id"], "model": message["model"], **broken})
        continue
    if message["do"] == "unload":
        continue
    id = message["id"]
    if message["do"] == "cancel":
        cancelled.add(id)
        continue
    (prompt,) = message["prompts"]
    if prompt == "die":
        os._exit(9)
    if prompt == "begin and die":
        report(id, "begun", False)
        time.sleep(0.1)
        os._exit(9)
    if prompt.startswith("until "):
        threading.Thread(target=answer_when, args=(Path(prompt[6:]), id)).start()
    elif prompt == "hang":
        report(id, "begun", False)
    elif prompt == "who left?":
        report(id, json.dumps(sorted(cancelled)), True)
    else:
        report(id, prompt, True)
