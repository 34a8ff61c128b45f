"""A real server under load, when its engine dies, when clients leave, and when the disk is full.

REGARD_SOAK is the number of seconds under load (600), REGARD_SEED that of everything random (0).
"""

import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from tests.unit.inside import tiny
from tests.unit.serve.api.conftest import start, until_ready
from tests.unit.serve.api.test_app import numbers

import regard

SECONDS, SEED = float(os.environ.get("REGARD_SOAK", 600)), int(os.environ.get("REGARD_SEED", 0))
STREAMS, STAYS = 256, 1 << 30
TEXT = "The cat drank the milk because it was sweet. Server, can I have a check? Ein Mann liest"
PROMPTS = [" ".join(random.Random(number).sample(TEXT.split(), 2 + number % 5)) for number in range(50)]
POST = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SETTINGS = dict(temperature=0.9, top_p=0.95, max_tokens=24)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("served") / "gpt", "gpt")


@pytest.fixture(scope="module")
def alone(folder) -> dict[str, str]:
    """What each prompt is continued with when nothing else is there."""
    assert len(set(PROMPTS)) == 50
    writer = regard.load(folder)
    return {prompt: writer.generate([prompt], seed=SEED, **SETTINGS)[0][0].text for prompt in PROMPTS}


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


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def stream(client: httpx2.Client, prompt: str, leave_after: int = STAYS) -> str:
    body = {"model": "gpt", "prompt": prompt, "stream": True, "seed": SEED, **SETTINGS}
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


@pytest.mark.timeout(SECONDS + 600)
def test_streams_at_once_are_neither_lost_nor_mixed_up(server, alone):
    """256 at a time, some of whose clients leave: each text is that of its prompt alone, and nothing is leaked."""
    process, address = server
    pids = process.pid, engine_of(process)
    idle, rng, lock = [descriptors(pid) for pid in pids], random.Random(SEED), threading.Lock()
    done, sizes, begin = [], [], time.monotonic()

    def client() -> None:
        with httpx2.Client(base_url=address, timeout=300) as own:
            while time.monotonic() < begin + SECONDS:
                with lock:
                    prompt, leaves = rng.choice(PROMPTS), rng.randrange(5) if rng.random() < 0.1 else STAYS
                text = stream(own, prompt, leaves)
                assert leaves < STAYS or text == alone[prompt]
                done.append(leaves)

    with ThreadPoolExecutor(STREAMS) as pool:
        clients = [pool.submit(client) for _ in range(STREAMS)]
        while time.monotonic() < begin + SECONDS:
            time.sleep(SECONDS / 60)
            sizes.append([resident(pid) for pid in pids])
        for one in clients:
            one.result()
    time.sleep(2)
    warm, last = sum(sizes[len(sizes) // 4]), sum(resident(pid) for pid in pids)
    growth, left = last / warm - 1, [descriptors(pid) for pid in pids]
    kept = sum(leaves == STAYS for leaves in done)
    print(f"{kept:,} streams read to their end, {len(done) - kept:,} left, in {SECONDS:.0f} s; none lost or mixed up")
    print(f"memory {warm >> 20} to {last >> 20} MiB ({growth:+.2%}); descriptors {idle} before, {left} after")
    assert kept > STREAMS and growth < 0.02 and sum(left) <= sum(idle)


def test_clients_that_are_killed_cost_nothing(server, alone):
    """500 at random moments of their streams, some before they read anything: their rows are free, the others right."""
    process, address = server
    place, rng = urlsplit(address), random.Random(SEED)
    idle = descriptors(process.pid)

    def killed(number: int) -> None:
        prompt = PROMPTS[number % 50]
        body = json.dumps({"model": "gpt", "prompt": prompt, "stream": True, **SETTINGS, "max_tokens": 30}).encode()
        head = f"{POST}Content-Length: {len(body)}\r\n\r\n"
        with socket.create_connection((place.hostname, place.port), timeout=30) as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets
            raw.sendall(head.encode() + body)
            raw.settimeout(rng.random() * 0.5)
            try:
                while raw.recv(1 << rng.randrange(4, 12)) and rng.random() < 0.9:
                    pass
            except TimeoutError:
                pass

    with ThreadPoolExecutor(64) as pool, httpx2.Client(base_url=address, timeout=60) as client:
        leaving = [pool.submit(killed, number) for number in range(500)]
        for prompt in PROMPTS[:20]:
            assert stream(client, prompt) == alone[prompt]
        for one in leaving:
            one.result()
        end = time.monotonic() + 10
        while numbers(client)['regard_running{model="gpt"}'] or descriptors(process.pid) > idle + 1:
            assert time.monotonic() < end, "rows or connections of clients that left are still there"
            time.sleep(0.1)


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


def test_sigterm_under_load_loses_nothing_that_was_accepted(server, alone):
    """Streams that have begun are read to their end; the server ends with 0."""
    process, address = server
    begun, results = threading.Semaphore(0), []

    def client(number: int) -> None:
        prompt = PROMPTS[number % 50]
        body = {"model": "gpt", "prompt": prompt, "stream": True, "seed": SEED, **SETTINGS}
        with httpx2.stream("POST", f"{address}/v1/completions", json=body, timeout=60) as answer:
            begun.release()
            lines = [line for line in answer.iter_lines() if line]
        text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines[:-1])
        results.append((lines[-1], text == alone[prompt]))

    with ThreadPoolExecutor(128) as pool:
        clients = [pool.submit(client, number) for number in range(128)]
        for _ in range(128):
            begun.acquire()
        process.send_signal(signal.SIGTERM)
        for one in clients:
            one.result()
    assert results == [("data: [DONE]", True)] * 128 and process.wait(30) == 0


def test_a_full_disk_under_the_log_changes_nothing(folder, alone):
    line = [sys.executable, "-m", "regard", "serve", str(folder), "--port", "0"]
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=full, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        until_ready(address)
        with httpx2.Client(base_url=address, timeout=60) as client:
            for prompt in PROMPTS:
                assert stream(client, prompt) == alone[prompt]
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()
