"""A real server under load, when its engine dies, and when clients leave."""

import json
import os
import random
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from tests.unit.inside import tiny
from tests.unit.serve.api.conftest import start, until_ready

import regard

PROMPTS = ["The cat", "Server, can I", "Looks like I", "Ein Mann", "the milk because"] * 10
SETTINGS = dict(temperature=0.9, top_p=0.95, max_tokens=40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("served") / "gpt", "gpt")


@pytest.fixture
def server(folder):
    process, address = start(str(folder), "--slots", "32", "-q")
    until_ready(address)
    yield process, address
    process.kill()
    process.communicate()


def engine_of(server: subprocess.Popen) -> int:
    """The process id of the child that runs the models."""
    return int(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()[0])


def resident(pid: int) -> int:
    """Bytes of memory a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def stream(client: httpx2.Client, prompt: str, seed: int, leave_after: int = 1 << 30) -> str:
    body = {"model": "gpt", "prompt": prompt, "stream": True, "seed": seed, **SETTINGS}
    text = ""
    with client.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200
        for number, line in enumerate(line for line in answer.iter_lines() if line):
            if line == "data: [DONE]":
                return text
            if number == leave_after:
                return ""
            text += json.loads(line[6:])["choices"][0]["text"]
    raise AssertionError("a stream ended without [DONE]")


def test_streams_at_once_are_neither_lost_nor_mixed_up(server, folder):
    """256 at a time, some of whose clients leave; REGARD_SOAK seconds long, a minute by default."""
    process, address = server
    writer = regard.load(folder)
    keys = [(prompt, number % 7) for number, prompt in enumerate(PROMPTS)]
    alone = {key: writer.generate([key[0]], seed=key[1], **SETTINGS)[0][0].text for key in set(keys)}
    seconds, rng, sizes = float(os.environ.get("REGARD_SOAK", 60)), random.Random(0), []
    limits = httpx2.Limits(max_connections=300)
    with httpx2.Client(base_url=address, timeout=120, limits=limits) as client, ThreadPoolExecutor(256) as pool:
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            chosen = [(rng.choice(keys), rng.randrange(5) if rng.random() < 0.1 else 1 << 30) for _ in range(512)]
            texts = pool.map(lambda one: stream(client, *one[0], one[1]), chosen)
            for (key, leaves), text in zip(chosen, texts, strict=True):
                assert leaves < 1 << 30 or text == alone[key]
                count += 1
            sizes.append(resident(engine_of(process)) + resident(process.pid))
    print(f"{count} streams in {seconds:.0f} s; memory {sizes[0] >> 20} to {sizes[-1] >> 20} MiB")
    if len(sizes) > 8:
        assert sizes[-1] < 1.02 * sizes[len(sizes) // 4]
    assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < 340


def test_a_killed_engine_is_restarted_and_sigterm_loses_nothing(server):
    process, address = server
    body = {"model": "gpt", "prompt": "The cat", "temperature": 0, "max_tokens": 50}
    ask = lambda: httpx2.post(f"{address}/v1/completions", json=body, timeout=60)  # noqa: E731
    expected, engine, answers = ask().json()["choices"], engine_of(process), []
    os.kill(engine, signal.SIGSTOP)  # so that it is certainly at work when it dies
    asking = [threading.Thread(target=lambda: answers.append(ask())) for _ in range(3)]
    for thread in asking:
        thread.start()
    time.sleep(0.5)
    os.kill(engine, signal.SIGKILL)
    for thread in asking:
        thread.join()
    assert [answer.json()["error"]["code"] for answer in answers] == ["engine_restarted"] * 3
    until_ready(address)
    assert engine_of(process) != engine and ask().json()["choices"] == expected

    os.kill(engine_of(process), signal.SIGSTOP)
    accepted: list[httpx2.Response] = []
    asking = [threading.Thread(target=lambda: accepted.append(ask())) for _ in range(8)]
    for thread in asking:
        thread.start()
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    os.kill(engine_of(process), signal.SIGCONT)
    for thread in asking:
        thread.join()
    assert process.wait(30) == 0
    assert [answer.json()["choices"] for answer in accepted] == [expected] * 8
