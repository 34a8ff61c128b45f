"""200 SIGKILLs at random moments, half of them inside a save: every run ends as if it had never been killed, and its
folder is readable all the while."""

import json
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.slow.fork_server import ForkServer, fork_server

import regard
from regard.checkpoint import load_state
from regard.errors import CheckpointError

KILLS = 50  # of each task
CALLS = 200  # writes, fsyncs and renames of a whole run, about
DATA = Path(__file__).parents[1] / "fixtures" / "data"
OFTEN = ["-q", "--device=cpu", "--steps=24", "--set=eval_every=4", "--set=save_every=3", "--set=log_every=2",
         "--set=schedule.warmup=3", "--set=keep_state=true"]  # fmt: skip
SMALL = ["--set=model.width=16", "--set=model.ffn=16", "--set=model.heads=2"]
LM = ["train", "lm", "--data=story.txt", *SMALL, "--set=model.layers=1", "--set=model.context=96",
      "--tokens=bytes", "--set=tokens=384"]  # fmt: skip
TASKS = {
    "lm": LM,
    "translate": ["train", "translate", "--source=train.en", "--target=train.fr", "--set=data.vocab=320", *SMALL,
                  "--set=model.encoder_layers=1", "--set=model.decoder_layers=1", "--set=tokens=512"],
    "image": ["train", "image", "--data=photos", "--set=data.size=8", "--set=data.held_out=0.25",
              "--set=model.width=16", "--set=model.ffn=16", "--set=model.layers=1", "--set=model.patch=2"],
    "finetune": ["finetune", "base/", "lm", "--data=questions.jsonl", "--lora", "--rank=2", "--set=tokens=384"],
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """A place with data and a model to begin from, and processes that live there."""
    place = tmp_path_factory.mktemp("kills")
    shutil.copytree(DATA, place, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("REGARD_CACHE", str(place / "cache"))
        with fork_server() as server:
            assert server.run([*LM, *OFTEN, "--name=base/"]) == 0
            yield server


def outcome(folder: Path) -> dict[str, Any]:
    """All that must be equal, bit for bit, however often a run was killed."""
    state: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.parent.name != "tensorboard"):
        name = path.relative_to(folder).as_posix()
        if path.name == "metrics.jsonl":
            events = [json.loads(line) for line in path.read_text().splitlines()]
            state[name] = [{k: v for k, v in e.items() if k not in ("seconds", "targets_per_second")} for e in events]
        elif path.name == "state.safetensors":
            tensors, meta = load_state(path)
            meta["progress"].pop("seconds")
            state[name] = json.dumps(meta), {k: t.numpy().tobytes() for k, t in tensors.items()}
        elif path.name != ".regard-manifest.json":  # it also lists the files of TensorBoard, one for each process
            state[name] = path.read_bytes()
    return state


class Reader:
    """Loads the model of a folder again and again; from the first time that it is there, it must always be."""

    def __init__(self, folder: Path):
        self.folder, self.loads, self.faults = folder, 0, []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._read)

    def __enter__(self) -> "Reader":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join()

    def _read(self) -> None:
        while not self.stopped.is_set():
            self.read()
            time.sleep(0.05)

    def read(self) -> None:
        try:
            regard.load(self.folder)
            self.loads += 1
        except CheckpointError as e:
            if self.loads or ("has no model yet" not in str(e) and "no run or model folder" not in str(e)):
                self.faults.append(e)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("task", TASKS)
def test_killed_runs_end_as_if_they_had_not_been(world: ForkServer, task: str):
    rng, kills, runs, loads = random.Random(task), 0, 0, 0
    begin = time.monotonic()
    assert world.run([*TASKS[task], *OFTEN, f"--name={task}/whole"]) == 0
    seconds, whole = time.monotonic() - begin, outcome(Path(task) / "whole")
    while kills < KILLS:
        folder = Path(task) / f"killed{runs}"
        runs += 1
        with Reader(folder) as reader:
            while True:
                known = (folder / "run.json").exists()
                words = ["train", "--resume", str(folder), "-q", "--device=cpu"]
                words = words if known else [*TASKS[task], *OFTEN, f"--name={folder}"]
                inside = rng.random() < 0.5
                how = {"kill_at": rng.randint(1, CALLS)} if inside else {"kill_after": rng.uniform(0, seconds)}
                ended = world.run(words, **how)
                assert ended in (0, -signal.SIGKILL), f"{task} ended with {ended}"
                reader.read()
                if ended == 0:
                    break
                kills += 1
        loads += reader.loads
        assert not reader.faults, f"{len(reader.faults)} of {reader.loads} times; the first: {reader.faults[0]}"
        ended = outcome(folder)
        changed = {name for name in ended.keys() | whole.keys() if ended.get(name) != whole.get(name)}
        assert not changed, f"after {kills} kills other content in: {', '.join(sorted(changed))}"
        shutil.rmtree(folder)
    print(f"{task}: {kills} kills, {runs} runs equal to the uninterrupted one, {loads} times read")
