"""The engine process: it loads the models and runs them.

A message is a line of JSON: requests on stdin, answers on stdout. The process ends when its stdin closes, and so with
the server.
"""

import json
import os
import signal
import sys
import threading
from typing import Any

from regard.errors import RegardError
from regard.serve.api.errors import APIError
from regard.serve.api.lanes import Lane, LaneSettings, Message, open_lane


class EngineProcess:
    def __init__(self, out: Any, settings: LaneSettings):
        self.out, self.settings = out, settings
        self.lock, self.swap = threading.Lock(), threading.Lock()
        self.lanes: dict[str, list[Lane]] = {}  # the last one takes requests, the others finish theirs

    def send(self, message: Message) -> None:
        line = json.dumps(message).encode() + b"\n"
        with self.lock:
            self.out.write(line)
            self.out.flush()

    def load(self, id: int, name: str, path: str) -> None:
        """Load a model. If it fails, the others keep running, and so does the one it was to replace."""
        try:
            lane = open_lane(path, self.settings, lambda message: self.send({"from": name, **message}))
        except Exception as e:
            what = str(e) if isinstance(e, RegardError) else f"{path}: {type(e).__name__}: {e}"
            self.send({"id": id, "model": name, "failed": what})
            return
        threading.Thread(target=lane.run, name=f"regard-{name}", daemon=True).start()
        with self.swap:
            self.retire(name)
            self.lanes.setdefault(name, []).append(lane)
            self.send({"id": id, "model": name, "ready": lane.about()})

    def retire(self, name: str) -> None:
        """Let the lanes of this name finish their requests and end."""
        lanes = self.lanes[name] = [lane for lane in self.lanes.get(name, ()) if not lane.ended]
        for lane in lanes:
            lane.inbox.put({"do": "close", "id": -1})

    def listen(self, lines: Any) -> None:
        for line in lines:
            message = json.loads(line)
            do, name = message["do"], message["model"]
            if do == "load":
                threading.Thread(target=self.load, args=(message["id"], name, message["path"]), daemon=True).start()
                continue
            with self.swap:
                lanes = self.lanes.get(name, [])
                if do == "unload":
                    self.retire(name)
                    self.lanes[name] = []
                elif do == "cancel":
                    for lane in lanes:
                        lane.inbox.put(message)
                elif lanes:
                    lanes[-1].inbox.put(message)
                else:
                    self.send({"id": message["id"], "error": vars(APIError(503, f"{name} is not loaded"))})


def main(settings: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C, and ends this process when it is done
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is not a message
    import tokenizers  # noqa: F401 - before the threads that load models: two that import it at once fail

    EngineProcess(out, LaneSettings(**json.loads(settings))).listen(sys.stdin.buffer)
    os._exit(0)  # a normal exit may crash while a lane is in the middle of a step


if __name__ == "__main__":
    main(sys.argv[1])
