"""Many clients at once over HTTP: continuous batching compared with one text at a time, on the same weights.

    python bench/serve.py --model smollm2-135m              # texts: 16 clients, prompts of 20 to 400 tokens
    python bench/serve.py --encoder minilm                  # embeddings: 64 clients with a sentence each

Prints and records tokens (or sentences) a second, and the 50th and 95th (99th) percentile of what a client waits.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from _common import report

TEXT = "The station is closed today, so the travellers wait for a bus that takes them to the next town. "


@contextmanager
def served(model: str, *words: str) -> Iterator[str]:
    """The address of a server whose model is loaded."""
    line = [sys.executable, "-m", "regard", "serve", f"m={model}", "--port", "0", "-q", *words]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        while True:
            try:
                urlopen(f"{address}/health")
                break
            except HTTPError:
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


def post(address: str, path: str, body: dict[str, Any]) -> Any:
    return urlopen(Request(address + path, json.dumps(body).encode(), {"content-type": "application/json"}))


def text(address: str, prompt: str, tokens: int) -> tuple[int, float]:
    """Tokens written, and seconds until the first."""
    body = {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
    begin, first, usage = time.perf_counter(), 0.0, 0
    with post(address, "/v1/completions", body | {"stream_options": {"include_usage": True}}) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                first = first or time.perf_counter() - begin
                usage = (json.loads(line[6:]).get("usage") or {}).get("completion_tokens", usage)
    return usage, first


def embedding(address: str, sentence: str, _: int) -> tuple[int, float]:
    begin = time.perf_counter()
    with post(address, "/v1/embeddings", {"model": "m", "input": sentence}) as answer:
        answer.read()
    return 1, time.perf_counter() - begin


def run(ask: Callable[..., tuple[int, float]], address: str, clients: int, work: list[tuple[str, int]]) -> list[Any]:
    """Units done, seconds in all, and what each client waited."""
    with ThreadPoolExecutor(clients) as pool:
        begin = time.perf_counter()
        answers = list(pool.map(lambda one: ask(address, *one), work))
        return [sum(n for n, _ in answers), time.perf_counter() - begin, sorted(s for _, s in answers)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="")
    parser.add_argument("--encoder", default="")
    parser.add_argument("--clients", type=int, default=0)
    parser.add_argument("--requests", type=int, default=0)
    given = parser.parse_args()
    rng, texts = random.Random(0), bool(given.model)
    clients, count = given.clients or (16 if texts else 64), given.requests or (64 if texts else 640)
    longest = 20 if texts else 3  # repetitions of TEXT, which has about 20 tokens
    work = [(TEXT * rng.randint(1, longest), rng.randint(16, 200)) for _ in range(count)]
    ask = text if texts else embedding
    with served(given.model or given.encoder, "--slots", str(clients)) as address:
        run(ask, address, clients, work[: 2 * clients])  # warm
        units, together, waits = run(ask, address, clients, work)
        few = work[: max(8, count // 8)]
        alone_units, alone, _ = run(ask, address, 1, few)
    share = 0.95 if texts else 0.99
    last = waits[int(share * len(waits))]
    print(f"{clients} clients waited {statistics.median(waits):.3f} s (median), {last:.3f} s ({share:.0%} percentile)")
    unit = "tokens" if texts else "sentences"
    report(f"serve-{unit}", "cpu", f"{unit}/s", 1.0, together=[together / units], one_at_a_time=[alone / alone_units])


if __name__ == "__main__":
    main()
