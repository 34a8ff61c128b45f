"""A corpus that need not fit into memory: made, prepared, trained on by two processes, killed and resumed.

python bench/corpus.py           # 50 MB
python bench/corpus.py 1000      # 1 GB: about 25 minutes on two cores
python bench/corpus.py 50 200 prepare   # only the preparation, of both sizes

The text is that of this Python's packages, its paragraphs repeated in random order, as .txt, .jsonl.gz and .parquet.
Rates are of the whole preparation vs. the tokenizers library alone, on the same cores, by wall-clock time and by CPU
time, which a busy machine disturbs less; memory is the largest resident set of any process.
"""

import gzip
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from tokenizers import Tokenizer

from regard.data.documents import DocumentReader, pieces
from regard.data.files import in_groups

MB = 1_000_000
FILE = 5 * MB  # characters of a file
SAMPLE = 20 * MB  # characters that the library alone encodes
MINUTE = 60.0  # seconds of training before a process is killed
SETTINGS = ("vocab=8000", "max_length=256", "held_out=0.001")  # little for validation: every evaluation reads it all


def paragraphs() -> list[str]:
    """The paragraphs of the sources and documents of the installed packages."""
    found: set[str] = set()
    for path in sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*")):
        if path.suffix in (".py", ".md", ".rst", ".txt") and path.stat().st_size < MB:
            found.update(path.read_text("utf-8", "ignore").replace("\0", "").split("\n\n"))
        if len(found) > 300_000:
            break
    return sorted(found)


def make_corpus(folder: Path, size: int) -> None:
    """Write about `size` characters of text in files of three formats."""
    texts, rng, written = paragraphs(), random.Random(0), 0
    for number in range(max(1, size // FILE)):
        documents, length = [], 0
        while length < min(FILE, size):
            documents.append("\n\n".join(rng.choices(texts, k=20)) + "\n")
            length += len(documents[-1])
        name = folder / f"part-{number:04}"
        if number % 3 == 0:
            name.with_suffix(".txt").write_text("".join(documents), "utf-8")
        elif number % 3 == 1:
            lines = "".join(json.dumps({"text": text}) + "\n" for text in documents)
            name.with_suffix(".jsonl.gz").write_bytes(gzip.compress(lines.encode(), 1))
        else:
            parquet.write_table(pa.table({"text": documents}), name.with_suffix(".parquet"), row_group_size=1000)
        written += length
    report(stage="made", megabytes=written / MB)


def report(**line: Any) -> None:
    print(json.dumps({k: round(v, 2) if isinstance(v, float) else v for k, v in line.items()}), flush=True)


def library_rate(folder: Path, tokenizer: Path) -> tuple[float, float]:
    """Characters per second of the tokenizers library alone, on all cores; and per second of CPU time."""
    alone, done, seconds, busy = Tokenizer.from_file(str(tokenizer)), 0, 0.0, 0.0
    texts: Iterator[str] = (piece for piece in pieces(DocumentReader(sorted(folder.glob("*")))) if piece)
    for group in in_groups(texts, 1000):
        start, began = time.perf_counter(), time.process_time()
        alone.encode_batch_fast(group, add_special_tokens=False)
        seconds += time.perf_counter() - start
        busy += time.process_time() - began
        done += sum(map(len, group))
        if done > SAMPLE:
            break
    return done / seconds, done / busy


def watched(command: list[str], log: Path | None = None) -> dict[str, Any]:
    """Seconds, the exit code, and the largest resident set of a process in MB, with and without memory-mapped files;
    `MINUTE` seconds after the first line of `log` one process is killed."""
    began = 0.0
    start, most, own, killed, before = time.perf_counter(), 0.0, 0.0, False, os.times()
    process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    while process.poll() is None:
        family = [process.pid, *descendants(process.pid)]
        most, own = (
            max([most, *(resident(p, "VmRSS") for p in family)]),
            max([own, *(resident(p, "RssAnon") for p in family)]),
        )
        began = began or time.perf_counter() * (log is not None and log.exists() and log.stat().st_size > 0)
        if began and not killed and time.perf_counter() - began > MINUTE:
            os.kill(family[-1], signal.SIGKILL)
            killed = True
        time.sleep(0.2)
    seconds = time.perf_counter() - start
    busy = sum(os.times()[2:4]) - sum(before[2:4])  # of children that have ended
    return {
        "seconds": seconds,
        "processor_seconds": busy,
        "resident_mb": most,
        "without_files_mb": own,
        "code": process.returncode,
    }


def descendants(parent: int) -> list[int]:
    try:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return []
    return [process for child in map(int, children) for process in (child, *descendants(child))]


def resident(process: int, field: str) -> float:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith(field)), 0.0)


def measure(megabytes: int, train: bool) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder, cache = Path(temporary, "corpus"), Path(temporary, "cache")
        os.environ["REGARD_CACHE"] = str(cache)
        folder.mkdir()
        make_corpus(folder, megabytes * MB)
        config = f"TextConfig(path=sys.argv[1], {', '.join(SETTINGS)})"
        prepare = f"import sys; from regard.data.text import *; prepare_text({config})"
        line = watched([sys.executable, "-c", prepare, str(folder)])
        (tokenizer,) = cache.rglob("tokenizer.json")
        manifest = json.loads((tokenizer.parent / "manifest.json").read_text())
        characters = manifest["report"]["characters"]
        tokens = manifest["parts"]["train"]["rows"]
        report(stage="prepared and learned", rate=characters / line["seconds"] / MB, tokens=tokens, **line)
        again = prepare.replace("argv[1],", "argv[1], tokenizer=sys.argv[2],")
        line = watched([sys.executable, "-c", again, str(folder), str(tokenizer.parent)])
        alone, busy = library_rate(folder, tokenizer)
        ratios = {
            "ratio": characters / line["seconds"] / alone,
            "processor": characters / line["processor_seconds"] / busy,
        }
        report(stage="prepared", rate=characters / line["seconds"] / MB, library_alone=alone / MB, **ratios, **line)
        if not train:
            return
        train_two = [sys.executable, "-m", "regard", "train", "--processes", "2"]
        where = Path(temporary, "run")
        log = where / "metrics.jsonl"
        settings = [f"--set=data.{setting}" for setting in SETTINGS]  # so that it is prepared already
        run = [*train_two, "lm", "--data", str(folder), "--size=tiny", "--minutes=2", "--set=save_every=50", *settings,
               "--name", str(where)]  # fmt: skip
        report(stage="trained until killed", **watched(run, log), **(killed := trained(log)))
        report(stage="resumed", **watched([*train_two, "--resume", str(where)]), **trained(log, killed["step"]))


def trained(log: Path, after: int = 0) -> dict[str, Any]:
    """The last step of a run, and its median rate after the step `after`."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    rates = [event["targets_per_second"] for event in events if event["step"] > after and "lr" in event]
    return {"step": events[-1]["step"], "tokens_per_second": statistics.median(rates)}


if __name__ == "__main__":
    for size in [int(word) for word in sys.argv[1:] if word.isdecimal()] or [50]:
        measure(size, train="prepare" not in sys.argv)
