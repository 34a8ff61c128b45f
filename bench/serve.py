"""Many clients at once over HTTP: `regard serve` compared with `transformers serve`, on the same weights, in fp32.

    python bench/serve.py                   # everything, 7 minutes on 2 cores
    python bench/serve.py --only texts      # or alone, embeddings
    python bench/serve.py --seconds 5       # of each measurement, for a first look

texts: 16 clients with prompts of 20 to 400 tokens and 16 to 200 new ones, each sending the next request as soon as it
has an answer; tokens that arrived in time, and the 95th percentile of the time to the first token. transformers without
continuous batching, and with it, in blocks and batches that suit a CPU (its defaults are for GPUs); and our engine
without HTTP. alone: one client, compared with the same text without a server. embeddings: 64 clients with a sentence
each. Figures with a target are printed with it.
"""

import argparse
import asyncio
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from _common import report
from tokenizers import Tokenizer

from regard.models.fetched import resolve
from regard.serve.api.engine import EngineClient, ServedModel
from regard.serve.api.lanes import LaneSettings

MODEL, ENCODER = "smollm2-135m", "minilm"
WORDS = (Path(__file__).parents[1] / "README.md").read_text("utf-8").split()
CLIENTS, ENCODER_CLIENTS, REPEATS = 16, 64, 7
PROMPT_ALONE = "The station is closed today, so the travellers"
PROMPT, OUTPUT, CONTEXT = (20, 400), (16, 200), 640
TUNED = ("--continuous-batching", "--cb-block-size", "32", "--cb-num-blocks", "512", "--cb-max-batch-tokens", "256")


@contextmanager
def running(line: list[str], address: str) -> Iterator[str]:
    """Start a server; yields its address once it is ready."""
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
    """Requests for texts, and the tokens that arrived in time."""

    model: str  # its name at the server
    tokenizer: Tokenizer
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    ends: float = 0.0
    waits: list[float] = field(default_factory=list)
    written: list[str] = field(default_factory=list)

    def request(self) -> tuple[str, int]:
        """A prompt with a unique beginning, and the number of tokens to generate."""
        words = self.rng.sample(WORDS, PROMPT[1])
        ids = self.tokenizer.encode(" ".join(words)).ids[: self.rng.randint(*PROMPT)]
        return self.tokenizer.decode(ids), self.rng.randint(*OUTPUT)

    def ask(self, address: str, prompt: str, tokens: int) -> None:
        """One request, cut off when the time is up."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
        with self.timed() as add, post(address, "/v1/completions", body, self.ends - time.perf_counter()) as answer:
            for line in answer:
                choices = json.loads(line[6:])["choices"] if line.startswith(b"data: {") else []
                if not add(choices[0]["text"] if choices else ""):
                    break

    async def ask_engine(self, engine: EngineClient, prompt: str, tokens: int) -> None:
        """The same without HTTP."""
        message = {"prompts": [prompt], "sampling": {"max_tokens": tokens, "temperature": 0.0, "seed": 0}}
        with self.timed() as add:
            async with asyncio.timeout(self.ends - time.perf_counter()):
                reports = engine.ask(engine.models[self.model], "completions", stream=True, **message)
                async with aclosing(reports):
                    async for report in reports:
                        add(report["text"])

    @contextmanager
    def timed(self) -> Iterator[Callable[[str], bool]]:
        """A function that records a piece of the text, and returns whether there is time for another."""
        begin, waits, pieces = time.perf_counter(), [], []

        def add(piece: str) -> bool:
            now = time.perf_counter()
            if piece and now <= self.ends:
                waits.append(now - begin)
                pieces.append(piece)
            return now <= self.ends

        with suppress(TimeoutError):
            yield add
        self.waits.append(waits[0] if waits else time.perf_counter() - begin)
        self.written.append("".join(pieces))

    def tokens(self) -> int:
        return sum(len(self.tokenizer.encode(text).ids) for text in self.written)

    def result(self, seconds: float) -> tuple[float, float]:
        """Tokens per second of all clients, and the 95th percentile of the time to the first token."""
        return self.tokens() / seconds, sorted(self.waits)[int(0.95 * len(self.waits))]


def clients(count: int, work: Callable[[int], None], until: float) -> None:
    """Run clients concurrently, each repeating its request until the time is up."""

    def client(number: int) -> None:
        while time.perf_counter() < until:
            work(number)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(client, range(count)))


def many_texts(server: Any, model: str, seconds: float) -> tuple[float, float]:
    run = Texts(model, Tokenizer.from_file(str(resolve(MODEL) / "tokenizer.json")))
    requests = [[run.request() for _ in range(100)] for _ in range(CLIENTS)]
    with server as address, ThreadPoolExecutor(CLIENTS) as pool:
        body = {"model": model, "max_tokens": 8, "temperature": 0}
        list(
            pool.map(lambda own: post(address, "/v1/completions", body | {"prompt": own[-1][0][:100]}).read(), requests)
        )
        run.ends = time.perf_counter() + seconds
        clients(CLIENTS, lambda number: run.ask(address, *requests[number].pop()), run.ends)
    return run.result(seconds)


async def many_texts_without_http(seconds: float) -> tuple[float, float]:
    run = Texts("m", Tokenizer.from_file(str(resolve(MODEL) / "tokenizer.json")))
    requests = [[run.request() for _ in range(100)] for _ in range(CLIENTS)]
    engine = EngineClient([ServedModel("m", MODEL)], LaneSettings(context=CONTEXT))
    running = asyncio.create_task(engine.run())
    while not engine.ready:
        await asyncio.sleep(0.1)

    async def client(own: list[tuple[str, int]]) -> None:
        while time.perf_counter() < run.ends:
            await run.ask_engine(engine, *own.pop())

    run.ends = time.perf_counter() + 60
    await asyncio.gather(*(run.ask_engine(engine, own[-1][0][:100], 8) for own in requests))
    run.waits, run.written, run.ends = [], [], time.perf_counter() + seconds
    await asyncio.gather(*map(client, requests))
    await engine.close()
    await running
    return run.result(seconds)


def judge(what: str, value: float, least: float = 0.0, most: float = 0.0) -> None:
    """Print a figure and its target."""
    met = value >= least if least else value <= most
    bar = f"at least {least:g}" if least else f"at most {most:g}"
    print(f"{'reached' if met else 'MISSED '}  {what}: {value:.3g} ({bar})", flush=True)


def texts(seconds: float) -> None:
    folder = str(resolve(MODEL))
    sides = {
        "regard": (ours(MODEL, "--context", str(CONTEXT)), "m"),
        "regard_int8": (ours(MODEL, "--context", str(CONTEXT), "--int8"), "m"),
        "transformers_batching": (theirs(MODEL, *TUNED), folder),
        "transformers": (theirs(MODEL), folder),
    }
    rates, waits, begin = {}, {}, time.perf_counter()
    rates["engine"], waits["engine"] = asyncio.run(many_texts_without_http(seconds))
    for name, (server, model) in sides.items():
        print(f"{time.perf_counter() - begin:.0f} s: {name} …", flush=True)
        rates[name], waits[name] = many_texts(server, model, seconds)
    for name, rate in rates.items():
        print(f"{name}: {rate:.1f} tokens/s, first token within {waits[name]:.2f} s (95 %)", flush=True)
    better = max("transformers_batching", "transformers", key=rates.__getitem__)
    report("serve-texts", "cpu", "tokens/s", 1.0, **{name: [1 / max(rate, 1e-9)] for name, rate in rates.items()})
    judge(f"tokens/s, regard fp32 over {better}", rates["regard"] / max(rates[better], 1e-9), least=3)
    print(f"         tokens/s, regard int8 over {better}: {rates['regard_int8'] / max(rates[better], 1e-9):.3g}")
    shortest = min(waits["transformers_batching"], waits["transformers"])
    judge("95 % of first tokens, regard over the shorter of transformers", waits["regard"] / shortest, most=1)
    judge("share of tokens/s that HTTP costs", 1 - rates["regard"] / rates["engine"], most=0.1)


def alone() -> None:
    """One client: a text of 64 tokens, and one token, with and without HTTP; each side in its own process."""
    times = {"generate": own_process("generate", 64), "engine": own_process("engine", 1)}
    with ours(MODEL, "--context", str(CONTEXT)) as address:

        def over_http(tokens: int) -> None:
            body = {"model": "m", "prompt": PROMPT_ALONE, "max_tokens": tokens, "temperature": 0}
            post(address, "/v1/completions", body).read()

        times |= {"server": repeated(over_http, 64), "server, 1 token": repeated(over_http, 1)}
    medians = {name: 1000 * statistics.median(values) for name, values in times.items()}
    print(f"milliseconds, medians of {REPEATS}: {', '.join(f'{name} {ms:.1f}' for name, ms in medians.items())}")
    report("serve-alone", "cpu", "tokens/s", 64, server=times["server"], generate=times["generate"])
    judge("seconds of 64 tokens, server over generate (medians)", medians["server"] / medians["generate"], most=1.1)
    judge("milliseconds that HTTP adds to one token", medians["server, 1 token"] - medians["engine"], most=3)


def repeated(work: Callable[[int], None], tokens: int) -> list[float]:
    """Seconds of each repetition after the first, which warms up."""
    times = []
    for _ in range(REPEATS + 1):
        begin = time.perf_counter()
        work(tokens)
        times.append(time.perf_counter() - begin)
    return times[1:]


def own_process(side: str, tokens: int) -> list[float]:
    """The seconds of `side` without HTTP, with the waiting of threads that `regard` sets for all its processes."""
    line = [sys.executable, __file__, "--side", side, "--tokens", str(tokens)]
    environment = os.environ | {"GOMP_SPINCOUNT": "1000"}
    return json.loads(subprocess.run(line, env=environment, stdout=subprocess.PIPE, check=True).stdout)


def one_side(side: str, tokens: int) -> None:
    """Print the seconds of `regard generate`, or of the engine's thread, as JSON."""
    from regard.serve.api.lanes import open_lane

    done = threading.Event()
    lane = open_lane(MODEL, LaneSettings(context=CONTEXT), lambda message: done.set() if message.get("last") else None)

    def generate(tokens: int) -> None:
        lane.predictor.generate([PROMPT_ALONE], max_tokens=tokens, temperature=0.0)

    def engine(tokens: int) -> None:
        done.clear()
        sampling = {"max_tokens": tokens, "temperature": 0.0, "seed": 0}
        lane.inbox.put({"do": "completions", "id": 1, "prompts": [PROMPT_ALONE], "sampling": sampling})
        done.wait()

    if side == "engine":
        threading.Thread(target=lane.run, daemon=True).start()
    print(json.dumps(repeated(engine if side == "engine" else generate, tokens)), flush=True)
    os._exit(0)  # the lane's thread never ends


def embeddings(seconds: float) -> None:
    rng = random.Random(0)
    sentences = [" ".join(rng.choices(WORDS, k=rng.randint(5, 30))) for _ in range(500)]
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
    judge("sentences/s, 64 clients over one at a time", rates["together"] / rates["one_at_a_time"], least=2)
    judge("99 % over the median", last / median, most=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("texts", "alone", "embeddings"))
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--side", choices=("generate", "engine"), help=argparse.SUPPRESS)
    parser.add_argument("--tokens", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        one_side(args.side, args.tokens)
    os.environ |= {"OMP_NUM_THREADS": str(os.cpu_count()), "HF_HUB_OFFLINE": "1"}  # of all processes that run models
    if args.only in (None, "texts"):
        texts(args.seconds)
    if args.only in (None, "alone"):
        alone()
    if args.only in (None, "embeddings"):
        embeddings(args.seconds / 5)


if __name__ == "__main__":
    main()
