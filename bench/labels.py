"""Fine-tuning MiniLM on labels: ours vs. transformers' Trainer, from the same weights, with the same settings.

python bench/labels.py                            # SST-2, WNUT-17 and EWT, three seeds of each, a table at the end
python bench/labels.py sst2 --lr 2e-4 --epochs 2  # one of them, with other settings on both sides
python bench/labels.py --jobs 9                   # nine at a time on one GPU (default 6; on a CPU 1)
python bench/labels.py --steps 4 --seeds 1        # a quick check

The data is fetched on first use (`regard data list`); the settings are those of recipes/*_minilm.py. Both take the same
number of steps of the same mean size, at the same rates; the same code scores the last weights on the validation set.
"""

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, machine

import regard
from regard.data.iob import is_iob
from regard.data.labelled import LabelledConfig, read_parts
from regard.metrics.labels import entity_score
from regard.tasks import assemble, train_run
from regard.tasks.plan import load_recipe

SETS = ("sst2", "wnut17", "ewt")
WHO = ("regard", "transformers")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def settings(name: str, seed: int, options: argparse.Namespace) -> regard.Run:
    """The settings of the recipe, with one evaluation at the end."""
    (run,) = load_recipe(Path(__file__).parents[1] / "recipes" / f"{name}_minilm.py").values()
    optim = dataclasses.replace(run.optim, lr=options.lr or run.optim.lr)
    run = dataclasses.replace(run, optim=optim, epochs=options.epochs or run.epochs, seed=seed, eval_every=1_000_000)
    return dataclasses.replace(run, steps=options.steps) if options.steps else run


def score(task: str, labels: Any, true: list[list[str]], guessed: list[list[str]]) -> float:
    """In per cent: strict F1 of entities if there are any, else accuracy."""
    if task == "tag" and is_iob(labels):
        return 100 * entity_score(true, guessed).f1
    pairs = [(a, b) for x, y in zip(true, guessed, strict=True) for a, b in zip(x, y, strict=True)]
    return 100 * sum(a == b for a, b in pairs) / len(pairs)


def ours(run: regard.Run, folder: str) -> Path:
    train_run(run, folder, device=DEVICE, force=True, quiet=True)
    return Path(folder)


def theirs(run: regard.Run, folder: str) -> Path:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    data = run.data
    assert isinstance(data, LabelledConfig)
    parts = assemble(run, "cpu", lambda _: None)
    run, labels = parts.run, parts.run.model.labels  # now with the number of steps
    train, _, _ = read_parts(data, run.task, lambda _: None)
    tokenizer = transformers.AutoTokenizer.from_pretrained(run.start)
    how: dict[str, Any] = dict(truncation=True, max_length=data.max_length)
    number = {label: i for i, label in enumerate(labels)}

    def features(row: Any) -> dict[str, Any]:
        if run.task != "tag":
            return {**tokenizer(row.text, **how), "labels": number[row.label]}
        results = tokenizer(list(row.words), is_split_into_words=True, **how)
        words = results.word_ids()
        firsts = [w is not None and (i == 0 or words[i - 1] != w) for i, w in enumerate(words)]
        marks = [number[row.tags[w]] if first else -100 for w, first in zip(words, firsts, strict=True)]
        return {**results, "labels": marks}

    kind: Any = transformers.AutoModelForSequenceClassification
    collate: Any = transformers.DataCollatorWithPadding(tokenizer)
    if run.task == "tag":
        kind, collate = (
            transformers.AutoModelForTokenClassification,
            transformers.DataCollatorForTokenClassification(tokenizer),
        )
    transformers.set_seed(run.seed)
    named = {"id2label": dict(enumerate(labels)), "label2id": number}
    model = kind.from_pretrained(run.start, num_labels=len(labels), dtype=torch.float32, **named)
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=round(len(train) / parts.loader.batches_per_epoch),
        learning_rate=run.optim.lr,
        weight_decay=run.optim.weight_decay,
        adam_beta2=run.optim.betas[1],
        max_grad_norm=run.optim.clip,
        warmup_steps=run.schedule.warmup,
        max_steps=run.steps,
        bf16=run.precision == "bf16",
        tf32=DEVICE == "cuda" or None,
        use_cpu=DEVICE == "cpu",
        seed=run.seed,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    rows: Any = [features(row) for row in train]
    transformers.Trainer(model=model, args=arguments, train_dataset=rows, data_collator=collate).train()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


def one(options: argparse.Namespace) -> None:
    """Train and score, in a separate process; prints a line of JSON."""
    who, name, seed = options.one
    torch.set_num_threads(2 if DEVICE == "cuda" else torch.get_num_threads())
    run = settings(name, int(seed), options)
    with tempfile.TemporaryDirectory() as folder:
        model: Any = regard.load({"regard": ours, "transformers": theirs}[who](run, folder), device=DEVICE)
    assert isinstance(run.data, LabelledConfig)
    _, valid, _ = read_parts(run.data, run.task, lambda _: None)
    if run.task == "tag":
        true = [list(row.tags) for row in valid]
        guessed = [labels for labels, _ in model.tag_words([row.words for row in valid])]
    else:
        true, guessed = [[row.label] for row in valid], [[a.label] for a in model.classify([r.text for r in valid])]
    print(json.dumps({"who": who, "set": name, "seed": seed, "score": score(run.task, model.labels, true, guessed)}))


def main(options: argparse.Namespace) -> None:
    names = options.sets or list(SETS)
    for name in names:  # once, before several would at the same time
        assemble(settings(name, 0, options), "cpu", lambda _: None)
    jobs = [
        (who, name, str(seed)) for name in names for seed in range(options.seeds) for who in ("regard", "transformers")
    ]
    passed = [f"--{k}={v}" for k in ("lr", "epochs", "steps") if (v := getattr(options, k))]

    def work(job: tuple[str, str, str]) -> dict[str, Any]:
        done = subprocess.run([sys.executable, __file__, *passed, "--one", *job], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(job)} failed:\n{done.stderr[-2000:]}")
        print(done.stdout.splitlines()[-1], flush=True)
        return json.loads(done.stdout.splitlines()[-1])

    with ThreadPoolExecutor(options.jobs or (6 if DEVICE == "cuda" else 1)) as pool:
        results = list(pool.map(work, jobs))
    print(f"\n{'':10}{'lr':>8}{'epochs':>8}{'regard':>18}{'transformers':>18}   one sd of theirs below: not lower than")
    for name in names:
        run = settings(name, 0, options)
        lr, epochs = run.optim.lr, run.epochs
        scores = {
            who: [f["score"] for f in results if f["set"] == name and f["who"] == who]
            for who in ("regard", "transformers")
        }
        mean = {who: statistics.mean(x) for who, x in scores.items()}
        sd = {who: statistics.stdev(x) if len(x) > 1 else 0.0 for who, x in scores.items()}
        cells = "".join(f"{mean[who]:>11.2f} ± {sd[who]:.2f}" for who in scores)
        floor = mean["transformers"] - sd["transformers"]
        verdict = "yes" if mean["regard"] >= floor else "NO"
        print(f"{name:10}{lr:>8.0e}{epochs:>8g}{cells:>36}   {floor:.2f}: {verdict}")
        line = dict(
            bench=f"labels-{name}", date=date.today().isoformat(), machine=machine(DEVICE), lr=lr, epochs=epochs
        )
        with RESULTS.open("a") as f:
            f.write(json.dumps(line | {"torch": torch.__version__, "scores": scores, "mean": mean, "sd": sd}) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--lr", type=float, default=0.0)
    parser.add_argument("--epochs", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--one", nargs=3, default=None)
    options = parser.parse_args()
    one(options) if options.one else main(options)
