"""Many clients at once over HTTP: `regard serve` compared with `transformers serve`, on the same weights, in fp32.

    python bench/serve.py                   # everything, 7 minutes on 2 cores
    python bench/serve.py --only texts      # or alone, embeddings
    python bench/serve.py --seconds 20      # of each measurement, for a first look

texts: 16 clients with prompts of 20 to 400 tokens and 16 to 200 new ones, each asking again as soon as it is answered;
tokens that arrived within the time, and the 95th percentile of what a client waits for its first one. transformers
without continuous batching, and with it, in blocks and batches that suit a CPU (its defaults are for GPUs).
alone: one client, compared with the same text without a server. embeddings: 64 clients with a sentence each.
"""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from _common import report
from tokenizers import Tokenizer

from regard.models.fetched import resolve

MODEL, ENCODER = "smollm2-135m", "minilm"
WORDS = Path(__file__).parents[1] / "README.md"
CLIENTS, ENCODER_CLIENTS, REPEATS = 16, 64, 7
PROMPT, OUTPUT = (20, 400), (16, 200)
TUNED = ("--continuous-batching", "--cb-block-size", "32", "--cb-num-blocks", "512", "--cb-max-batch-tokens", "256")


@contextmanager
def running(line: list[str], address: str) -> Iterator[str]:
    """The address of a server that is ready."""
    env = os.environ | {"OMP_NUM_THREADS": str(os.cpu_count()), "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    try:
        while True:
            try:
                urlopen(f"{address}/health")
                break
            except (URLError, ConnectionError):
                assert process.poll() is None, f"ended: {' '.join(line)}"
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


def ours(model: str, *words: str) -> Any:
    port = free_port()
    line = [sys.executable, "-m", "regard", "serve", f"m={model}", "--port", str(port), "-q", *words]
    return running(line, f"http://127.0.0.1:{port}")


def theirs(model: str, *words: str) -> Any:
    port = free_port()
    command = [str(Path(sys.executable).with_name("transformers")), "serve", str(resolve(model)), "--device", "cpu"]
    line = [*command, "--dtype", "float32", "--port", str(port), *words]
    return running(line, f"http://localhost:{port}")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def post(address: str, path: str, body: dict[str, Any], patience: float = 600.0) -> Any:
    data = json.dumps(body).encode()
    return urlopen(Request(address + path, data, {"content-type": "application/json"}), timeout=max(patience, 0.01))


@dataclass
class Texts:
    """Requests for texts, and what came of them while the clock ran."""

    model: str  # its name at the server
    tokenizer: Tokenizer
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    ends: float = 0.0
    waits: list[float] = field(default_factory=list)
    written: list[str] = field(default_factory=list)

    def request(self) -> tuple[str, int]:
        """A prompt that begins like no other, and how many tokens are to follow it."""
        words = WORDS.read_text("utf-8").split()
        self.rng.shuffle(words)
        ids = self.tokenizer.encode(" ".join(words)).ids[: self.rng.randint(*PROMPT)]
        return self.tokenizer.decode(ids), self.rng.randint(*OUTPUT)

    def ask(self, address: str, prompt: str, tokens: int) -> None:
        """One request, as far as it comes before the clock stops."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
        begin, first, text = time.perf_counter(), 0.0, ""
        with suppress(TimeoutError), post(address, "/v1/completions", body, self.ends - begin) as answer:
            for line in answer:
                now = time.perf_counter()
                if now > self.ends:
                    break
                choices = json.loads(line[6:])["choices"] if line.startswith(b"data: {") else []
                if choices and choices[0]["text"]:
                    first, text = first or now - begin, text + choices[0]["text"]
        self.waits.append(first or time.perf_counter() - begin)
        self.written.append(text)

    def tokens(self) -> int:
        return sum(len(self.tokenizer.encode(text).ids) for text in self.written)


def clients(count: int, work: Callable[[int], None], until: float) -> None:
    """So many at once, each again and again until then."""

    def client(number: int) -> None:
        while time.perf_counter() < until:
            work(number)

    threads = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def many_texts(server: Any, model: str, seconds: float) -> tuple[float, float]:
    """Tokens a second of all clients, and the 95th percentile of the time to the first token."""
    tokenizer = Tokenizer.from_file(str(resolve(MODEL) / "tokenizer.json"))
    with server as address:
        for length in (min(10.0, seconds), seconds):  # the first to warm up
            run = Texts(model, tokenizer, random.Random(length))
            requests = [[run.request() for _ in range(200)] for _ in range(CLIENTS)]
            run.ends = time.perf_counter() + length
            clients(CLIENTS, lambda number: run.ask(address, *requests[number].pop()), run.ends)  # noqa: B023
    return run.tokens() / seconds, sorted(run.waits)[int(0.95 * len(run.waits))]


def texts(seconds: float) -> None:
    folder = str(resolve(MODEL))
    sides = {
        "regard": (ours(MODEL, "--context", "640"), "m"),
        "regard_int8": (ours(MODEL, "--context", "640", "--int8"), "m"),
        "transformers_batching": (theirs(MODEL, *TUNED), folder),
        "transformers": (theirs(MODEL), folder),
    }
    rates = {}
    for name, (server, model) in sides.items():
        rates[name], wait = many_texts(server, model, seconds)
        print(f"{name}: {rates[name]:.1f} tokens/s, first token within {wait:.2f} s (95 %)", flush=True)
    report("serve-texts", "cpu", "tokens/s", 1.0, **{name: [1 / max(rate, 1e-9)] for name, rate in rates.items()})


def alone() -> None:
    """One client: a text of 64 tokens, and one token, with and without HTTP."""
    import torch

    from regard.serve.api.lanes import LaneSettings, open_lane

    torch.set_num_threads(os.cpu_count() or 1)
    prompt, done = "The station is closed today, so the travellers", threading.Event()
    lane = open_lane(MODEL, LaneSettings(context=640), lambda message: done.set() if message.get("last") else None)
    threading.Thread(target=lane.run, daemon=True).start()

    def without_http(tokens: int) -> None:
        done.clear()
        sampling = {"max_tokens": tokens, "temperature": 0.0, "seed": 0}
        lane.inbox.put({"do": "completions", "id": 1, "prompts": [prompt], "sampling": sampling})
        done.wait()

    def generated(tokens: int) -> None:
        lane.predictor.generate([prompt], max_tokens=tokens, temperature=0.0)

    with ours(MODEL, "--context", "640") as address:

        def over_http(tokens: int) -> None:
            body = {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0}
            post(address, "/v1/completions", body).read()

        times: dict[str, list[float]] = {}
        for tokens, ways in ((64, (over_http, generated)), (1, (over_http, without_http))):
            for repeat in range(REPEATS + 1):  # the first to warm up; one after the other, so that noise falls on all
                for way in ways:
                    begin = time.perf_counter()
                    way(tokens)
                    if repeat:
                        times.setdefault(f"{way.__name__} {tokens}", []).append(time.perf_counter() - begin)
    medians = {name: 1000 * statistics.median(values) for name, values in times.items()}
    print(f"milliseconds, medians of {REPEATS}: {', '.join(f'{name} {ms:.1f}' for name, ms in medians.items())}")
    report("serve-alone", "cpu", "tokens/s", 64, server=times["over_http 64"], generate=times["generated 64"])


def embeddings(seconds: float) -> None:
    rng, words = random.Random(0), WORDS.read_text("utf-8").split()
    sentences = [" ".join(rng.choices(words, k=rng.randint(5, 30))) for _ in range(500)]
    rates, waits = {}, {}
    with ours(ENCODER) as address:

        def ask(count: int, length: float) -> list[float]:
            spent: list[float] = []
            connections = [HTTPConnection(address.removeprefix("http://")) for _ in range(count)]

            def work(number: int) -> None:
                body = json.dumps({"model": "m", "input": rng.choice(sentences)})
                begin = time.perf_counter()
                connections[number].request("POST", "/v1/embeddings", body, {"content-type": "application/json"})
                connections[number].getresponse().read()
                spent.append(time.perf_counter() - begin)

            clients(count, work, time.perf_counter() + length)
            return sorted(spent)

        ask(ENCODER_CLIENTS, 2.0)
        for name, count in (("together", ENCODER_CLIENTS), ("one_at_a_time", 1)):
            waits[name] = ask(count, seconds)
            rates[name] = len(waits[name]) / seconds
    spent = waits["together"]
    median, last = statistics.median(spent), spent[int(0.99 * len(spent))]
    print(f"{ENCODER_CLIENTS} clients waited {1000 * median:.1f} ms (median), {1000 * last:.1f} ms (99 %)")
    report("serve-embeddings", "cpu", "sentences/s", 1.0, **{name: [1 / rate] for name, rate in rates.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("texts", "alone", "embeddings"))
    parser.add_argument("--seconds", type=float, default=75.0)
    args = parser.parse_args()
    if args.only in (None, "texts"):
        texts(args.seconds)
    if args.only in (None, "alone"):
        alone()
    if args.only in (None, "embeddings"):
        embeddings(args.seconds / 5)


if __name__ == "__main__":
    main()
