"""Translate: from parallel text to a trained encoder-decoder."""

import dataclasses
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.settings import PairsConfig
from regard.tasks import presets
from regard.tasks.base import CELLS, Arch, Card, Preset, Say, Task
from regard.words import count

if TYPE_CHECKING:
    from regard.data.prepare import PreparedPairs
    from regard.train.run import Run

LENGTH = 32  # pieces of a sentence, when memory is estimated
FEW = 50  # validation sentences; of fewer, BLEU is mostly noise, and the validation loss chooses the checkpoint
DEV_SENTENCES = 500  # translated greedily at each evaluation: enough to rank checkpoints, cheap next to the training


class Translate(Task):
    name = "translate"
    summary = "sentences from one language to another"
    settings = PairsConfig
    options = ("source", "target", "valid_source", "valid_target")
    data_help = "A data set by name (regard data list); for files of your own: --source and --target."
    examples = (
        "regard train translate --data tatoeba-en-fr    # more: regard data list",
        "regard train translate --source train.en --target train.de --minutes 20",
        "regard train translate --data tatoeba-en-fr --arch transformer,lstm --seeds 3",
    )
    archs = {
        "transformer": Arch("transformer"),
        **{
            cell + suffix: Arch("seq2seq", {"cell": cell, "attention": attention})
            for suffix, attention in (("", True), ("-bottleneck", False))
            for cell in CELLS
        },
    }
    presets = presets.TRANSLATE
    card = Card(pipeline="translation", title="A translation model", use='translate {} "…"')

    def complete(self, data: PairsConfig, preset: Preset) -> PairsConfig:
        from regard.data.catalog import find

        if data.name:
            known = find(data.name)
            data = dataclasses.replace(data, name=known.name, split=known.split)
        return super().complete(data, preset)

    def read(self, run: "Run", say: Say) -> "PreparedPairs":
        from regard.data.prepare import prepare

        return prepare(run.data, say)

    def fit(self, run: "Run", data: "PreparedPairs") -> "Run":
        return dataclasses.replace(run, model=dataclasses.replace(run.model, vocab=data.tokenizer.size))

    def objective(self, run: "Run", data: Any = None) -> Any:
        from regard.objectives.translate import ConsistentTranslate
        from regard.objectives.translate import Translate as Objective

        if run.consistency:
            return ConsistentTranslate(run.smoothing, run.consistency)
        return Objective(run.smoothing)

    def fingerprint(self, data: "PreparedPairs") -> dict[str, int]:
        return {"content": data.content}

    def source(self, run: "Run", data: "PreparedPairs", part: str, device: str) -> Any:
        from regard.data.sources import PairSource
        from regard.data.tokenizers.bpe import Dropout

        bpe, c = data.tokenizer, run.data
        if part == "valid":
            return PairSource(**data.valid, eos=bpe.eos, pad=bpe.pad)
        dropout = Dropout(bpe, c.bpe_dropout, run.seed, c.max_length) if c.bpe_dropout else None
        multiple = 8 if run.compile else 1  # few different shapes, so few compilations
        return PairSource(**data.train, eos=bpe.eos, pad=bpe.pad, multiple=multiple, dropout=dropout)

    def plan(self, run: "Run", data: "PreparedPairs", part: str, source: Any) -> Any:
        from regard.data.loader import TokenBudget

        return TokenBudget(run.tokens)

    def remarks(self, run: "Run", data: "PreparedPairs", loader: Any) -> Iterable[str]:
        return [f"an epoch is {count(loader.batches_per_epoch, 'batch')}, {loader.padding:.1%} padding"]

    def metric(self, run: "Run", data: "PreparedPairs", device: str) -> Callable[[Any], dict[str, float]] | None:
        """BLEU and chrF of greedy translations of the first validation sentences: how the best checkpoint is chosen."""
        from regard.evaluate.bleu import quick
        from regard.predictors import Translator

        texts = zip(*data.valid_text(), strict=True)  # those too long for the validation loss are left out here too
        fitting = (pair for pair in texts if len(data.tokenizer.encode(pair[0])) < run.data.max_length)
        pairs = list(islice(fitting, DEV_SENTENCES))
        if len(pairs) < FEW:
            return None
        sources, references = [source for source, _ in pairs], [target for _, target in pairs]
        tokenize = "none" if run.data.split == "spaces" else "13a"

        def metric(model: Any) -> dict[str, float]:
            training = model.training
            translations = Translator(model, data.tokenizer, device).translate(sources, beam=1)
            model.train(training)
            return quick(translations, references, tokenize)

        return metric

    def example(self, run: "Run") -> Any:
        from regard.data.batch import collate

        length = min(LENGTH, run.tokens)
        ids = [[0] * (length - 1)] * (run.tokens // length)
        return collate(ids, ids, eos=0, pad=run.model.vocab - 1)

    def about(self, run: "Run", data: "PreparedPairs") -> dict[str, Any]:
        return {"name": run.data.name, "inputs": data.manifest["inputs"]}

    def generation(self, run: "Run", data: "PreparedPairs") -> dict[str, Any]:
        bpe = data.tokenizer
        return {"num_beams": 5, "eos_token_id": bpe.eos, "pad_token_id": bpe.pad, "decoder_start_token_id": bpe.pad,
                "bad_words_ids": [[bpe.pad]], "max_length": run.data.max_length}  # fmt: skip

    def write_files(self, folder: Path, run: "Run", data: "PreparedPairs") -> None:
        data.tokenizer.save(folder, max_length=run.data.max_length)

    def named(self, data: PairsConfig) -> str:
        return data.name or f"{data.source} → {data.target}"

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str, int8: bool) -> Any:
        from regard.data.tokenizers import load
        from regard.predictors import Translator

        return Translator(model, load(folder), device)
