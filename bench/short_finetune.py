"""One minute of fine-tuning MiniLM on a few rows of SST-2, compared with a bag of words learned from the same rows.

python bench/short_finetune.py                # 100, 500 and 2,000 rows, three seeds of each: nine minutes
python bench/short_finetune.py 100 --seeds 1  # one of them

Each seed samples other rows. Both are scored on the 872 sentences of the validation set, which neither has seen.
"""

import argparse
import csv
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.data.labelled import LabelledConfig, read_parts
from regard.words import table


def run(*words: str) -> str:
    command = [sys.executable, "-m", "regard", "-q", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def write(path: Path, rows: Sequence[Any]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *((row.text, row.label) for row in rows)])
    return str(path)


def scores(train: Sequence[Any], valid: Sequence[Any], seed: int, minutes: str) -> tuple[float, float, int]:
    """The accuracy of the model and of the bag of words, and the number of steps."""
    with tempfile.TemporaryDirectory() as place:
        data, test = write(Path(place, "train.csv"), train), write(Path(place, "dev.csv"), valid)
        folder = str(Path(place, "run"))
        options = ["--minutes", minutes, "--seed", str(seed), "--name", folder]
        ended = json.loads(run("finetune", "minilm", "classify", "--data", data, *options, "--json"))
        score = json.loads(run("evaluate", folder, "--data", test, "--json"))
        return score["accuracy"], score["bag_of_words"], ended["runs"][0]["steps"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="*", default=[100, 500, 2000])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", default="1")
    args = parser.parse_args()
    train, valid, _ = read_parts(LabelledConfig(name="sst2"), "classify", print)
    lines = [("ROWS", "SEED", "STEPS", "MINILM", "BAG OF WORDS")]
    for size in args.rows:
        both: list[tuple[float, float]] = []
        for seed in range(args.seeds):
            *scored, steps = scores(random.Random(seed).sample(list(train), size), valid, seed, args.minutes)
            both.append((scored[0], scored[1]))
            lines.append((str(size), str(seed), str(steps), *(f"{100 * s:.1f}" for s in scored)))
        means = [f"{100 * statistics.mean(column):.1f}" for column in zip(*both, strict=True)]
        lines.append((str(size), "mean", "", *means))
        print(table(lines, right=[0, 2, 3, 4]), flush=True)


if __name__ == "__main__":
    main()
