"""Embed: a vector for each text, by a published encoder, which can be fine-tuned on pairs of texts."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.settings import AlikeConfig
from regard.errors import ConfigError
from regard.tasks.base import Card, Fit, Say, Task
from regard.tasks.presets import fine_tuning
from regard.tasks.served import NUMBER, array, record
from regard.tasks.use import Inputs, Options
from regard.ticks import Console
from regard.training.settings import Optim, Schedule
from regard.words import count, some

if TYPE_CHECKING:
    from regard.data.contents import Contents
    from regard.training.run import Run


LENGTH = 32  # tokens of a text, for estimating memory


class Embed(Task):
    name = "embed"
    summary = "a vector for each text"
    answer_schema = record(vector=array(NUMBER))
    settings = AlikeConfig
    options = ("valid", "text", "second")
    data_help = "A table with two columns of texts that belong together."
    examples = ("regard finetune minilm embed --data pairs.csv --text question --second answer",)
    starts, lora_targets, finetune_length = ("bert",), ("layers.*",), "3 epochs"
    card = Card(pipeline="feature-extraction", title="A text encoder", use='similar {} "…" --in FILE')
    family, views = "encoder", ("similar",)
    example_texts = ("The cat drank the milk because it was hungry.", "The cat drank the milk because it was sweet.")
    purpose = "embed texts"
    verbs = ("embed", "similar")
    endpoints = ("embeddings",)

    def fits(self, contents: "Contents") -> Fit | None:
        from shlex import quote

        texts, lines = contents.holding("texts"), contents.path.is_file() and contents.count((".txt",))
        if not texts and not lines:
            return None
        column = f" --text {quote(texts[0].name)}" if texts else ""
        command = f'regard similar minilm "some words" --in {quote(str(contents.path))}{column}'
        pairs = len(texts) == 2 and not contents.labels() and self.fit_for(
            contents, "", "minilm", text=texts[0].name, second=texts[1].name
        )  # fmt: skip
        return Fit("texts to search by meaning; no training needed", (command, *(pairs.commands if pairs else ())))

    def serves(self, config: Any) -> bool:
        from regard.models.bert import LABELLED, MASKED, BertConfig

        return isinstance(config, BertConfig) and config.head not in (*MASKED, *LABELLED)

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.data.tokenizers import load
        from regard.models.published.sentence import Sentences
        from regard.predictors import Embedder

        return Embedder(model, load(folder), device, Sentences.load(folder))

    def finetune_run(self, start: Path, data: AlikeConfig, device: str, lora: int) -> "Run":
        from regard.models.published import read_config
        from regard.training.run import Run

        config: Any = read_config(start)
        where, length = str(start.absolute()), min(data.max_length, config.max_length)
        head = config.head if self.serves(config) else "none"
        return Run(
            **fine_tuning(self.name, start, device, lora),
            model=dataclasses.replace(config, head=head, labels=(), pooling="cls"),
            data=dataclasses.replace(data, tokenizer=where, max_length=length),
            optim=Optim(lr=1e-3 if lora else 5e-5, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01),
            schedule=Schedule(kind="linear", warmup=50),
            epochs=3.0,
            batch=64,  # each pair is contrasted with 63 others
            smoothing=0.0,
        )

    def read(self, run: "Run", say: Say) -> Any:
        from regard.data.alike import load_alike

        data = load_alike(run.data, say)
        say(data.report())
        return data

    def objective(self, run: "Run", data: Any = None) -> Any:
        from regard.models.published.sentence import Sentences
        from regard.objectives.contrast import ContrastLoss

        return ContrastLoss(Sentences.load(Path(run.start)).pooling)

    def source(self, run: "Run", data: Any, part: str, device: str) -> Any:
        from regard.data.alike import AlikeSource

        return AlikeSource(getattr(data, part), data.tokenizer, run.data.max_length)

    def baselines(self, run: "Run", data: Any) -> Any:
        from regard.training.baseline import Baseline

        return [Baseline("a random second text", "accuracy", 1 / len(data.valid))]

    def remarks(self, run: "Run", data: Any, loader: Any) -> Iterable[str]:
        yield f"an epoch is {count(loader.batches_per_epoch, 'batch')} of {run.batch} pairs"

    def example(self, run: "Run") -> Any:
        import numpy as np
        import torch

        from regard.data.batch import Samples

        ids, sizes = torch.zeros(run.batch, LENGTH, dtype=torch.long), torch.full((run.batch,), LENGTH)
        return Samples((ids, sizes, ids, sizes), torch.arange(run.batch), np.arange(run.batch))

    def show(self, run: "Run", data: Any, batch: Any, row: int) -> str:
        one, size, two, other = (x[row] for x in batch.inputs)
        sides = (one[: int(size)].tolist(), two[: int(other)].tolist())
        return " ↔ ".join(some(map(data.tokenizer.piece, ids)) for ids in sides)

    def write_files(self, folder: Path, run: "Run", data: Any) -> None:
        from regard.models.published.sentence import Sentences

        settings = Sentences.load(Path(run.start))
        data.tokenizer.save(folder, run.data.max_length)
        length = max(run.data.max_length, settings.max_length)
        dataclasses.replace(settings, max_length=length).save(folder, run.model.width)

    def count_tokens(self, predictor: Any, inputs: Any) -> int:
        return sum(map(len, predictor.encode(inputs)[0]))

    def to_json(self, answer: Any) -> Any:
        return {"vector": answer.vector.tolist()}

    def read_inputs(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Inputs:
        raise no_answers(folder, file)


def no_answers(folder: Path, file: Path) -> ConfigError:
    vectors = f"regard embed {folder} {file} --out vectors.npy"
    return ConfigError(
        f"{folder} turns texts into vectors ({vectors}); for answers fine-tune it first: regard finetune {folder} "
        "classify …"
    )
