"""Translate: from parallel text to a trained encoder-decoder."""

import dataclasses
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import unknown
from regard.data.catalog import find
from regard.data.settings import PairsConfig
from regard.data.tokenizers import files_of
from regard.errors import CheckpointError, ConfigError
from regard.jsonfile import group, read_json_if_any
from regard.tasks.base import CELLS, Arch, Card, Fit, Preset, Say, Task
from regard.tasks.presets import fine_tuning, presets_of
from regard.tasks.served import BEAM, CANDIDATES, N_BEST, NO_REPEAT, STRING, Setting, record
from regard.tasks.use import Inputs, Options, TestSet, Verdict, text_inputs
from regard.ticks import Console
from regard.training.settings import Optim, Schedule
from regard.words import count, some

if TYPE_CHECKING:
    from regard.data.contents import Contents
    from regard.data.prepare import PreparedPairs
    from regard.training.run import Run

LENGTH = 32  # tokens of a sentence, for estimating memory
FEW = 50  # validation sentences; with fewer, BLEU is mostly noise, and the loss chooses the checkpoint
DEV_SENTENCES = 500  # translated greedily at each evaluation: enough to rank checkpoints, cheap compared with training


class Translate(Task):
    name, trains_on = "translate", "pairs"
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
    uses = ("t5", "bart")
    presets = presets_of("translate")
    starts, finetune_length = ("transformer", "t5", "bart"), "3 epochs"
    card = Card(pipeline="translation", title="A translation model", use='translate {} "…"')
    family, views = "translator", ("translation",)
    example_texts = ("The little boy is reading a red book.",)
    purpose = "translate"
    verbs = ("translate",)
    search = ("beam", "length_penalty")
    predict_takes = ("text", *search)
    evaluate_takes = ("source", "target", "beam", "length_penalty", "tokenize", "out")
    compare_takes = ("source", "target", "beam", "length_penalty", "tokenize")
    test_files = "--source FILE --target FILE"
    unit = "sentences"
    answer_schema = record(text=STRING, candidates=CANDIDATES)
    request_settings = {
        "beam": BEAM,
        "n_best": N_BEST,
        "length_penalty": Setting(default=0.6, least=-10, most=10, help="Above 0 favours longer translations."),
        "no_repeat_ngram": NO_REPEAT,
    }
    longest = 0  # tokens of an answer; 0: twice the source plus ten
    writes_lines = True
    table_ending = ".txt"

    def fits(self, contents: "Contents") -> Fit | None:
        """A table of sentences, or a text next to one of the same name in another language: train.en and train.de."""
        from shlex import quote

        path = contents.path
        if contents.named(("source",)) and contents.named(("target",)) and len(contents.columns) == 2:
            both = f"--source {quote(str(path))} --target {quote(str(path))}"
            return Fit("sentences in 'source', translations in 'target'", (f"regard train {self.name} {both}",))
        pair = [other for other in path.parent.glob(f"{path.stem}.??") if re.fullmatch(r"\.[a-z]{2}", other.suffix)]
        if len(pair) != 2 or path not in pair or not all(p.is_file() for p in pair):
            return None
        (other,) = (p for p in pair if p != path)
        files = f"--source {quote(str(path))} --target {quote(str(other))}"
        return Fit(f"sentences, with their translations in {other.name}", (f"regard train {self.name} {files}",))

    def complete(self, data: PairsConfig, preset: Preset) -> PairsConfig:
        return super().complete(with_split(data), preset)

    def finetune_run(self, start: Path, data: PairsConfig, device: str, lora: int) -> "Run":
        """From a translator, T5 or BART, with its own tokenizer."""
        from regard.models.published import read_config
        from regard.training.run import Run

        config: Any = read_config(start)
        where, room = str(start.absolute()), getattr(config, "max_length", data.max_length)
        own: Any = dict(tokenizer=where, vocab=config.vocab, max_length=min(data.max_length, room))
        own |= dict(max_ratio=100.0)  # targets may be much shorter
        return Run(
            **fine_tuning(self.name, start, device, lora),
            model=config,
            data=dataclasses.replace(with_split(data), **own),
            optim=Optim(lr=1e-3 if lora else 2e-4, betas=(0.9, 0.98), eps=1e-8),
            schedule=Schedule(kind="linear", warmup=50),
            epochs=3.0,
            tokens=1024 if device == "cpu" else 8192,
            smoothing=0.1,
        )

    def check(self, run: "Run", device: str) -> None:
        others = (
            ("consistency", run.consistency),
            ("teachers", run.teachers),
            ("compile", run.compile),
            ("model.output_bias", vars(run.model).get("output_bias")),
        )
        if run.sampled and (other := next((name for name, value in others if value), "")):
            raise ConfigError(f"sampled is {run.sampled}, which does not work with {other}; type: --set sampled=0")

    def read(self, run: "Run", say: Say) -> "PreparedPairs":
        from regard.data.prepare import prepare

        return prepare(run.data, say)

    def fit(self, run: "Run", data: "PreparedPairs") -> "Run":
        return run.with_model(vocab=run.model.vocab if run.start else data.tokenizer.size)

    def objective(self, run: "Run", data: Any = None) -> Any:
        from regard.objectives.translate import TranslateLoss as Objective

        return Objective(run.smoothing, 0 if data is None else run.sampled)  # a sample's cost depends on the data

    def fingerprint(self, data: "PreparedPairs") -> dict[str, int]:
        return {"content": data.content}

    def source(self, run: "Run", data: "PreparedPairs", part: str, device: str) -> Any:
        from regard.data.sources import PairSource
        from regard.data.tokenizers.bpe import BPEDropout

        bpe, c = data.tokenizer, run.data
        marks = dict(eos=bpe.eos, pad=bpe.pad, start=getattr(run.model, "start", bpe.pad))
        if part == "valid":
            return PairSource(**data.valid, **marks)
        dropout = BPEDropout(bpe, c.bpe_dropout, run.seed, c.max_length) if c.bpe_dropout else None
        multiple = 8 if run.compile else 1  # few shapes, so few compilations
        return PairSource(**data.train, **marks, multiple=multiple, dropout=dropout, repeat_short=c.repeat_short)

    def show(self, run: "Run", data: "PreparedPairs", batch: Any, row: int) -> str:
        sides = zip((batch.source, batch.target), batch.host_lengths[row], strict=True)
        return " → ".join(some(map(data.tokenizer.piece, ids[row, :length].tolist())) for ids, length in sides)

    def plan(self, run: "Run", data: "PreparedPairs", part: str, source: Any) -> Any:
        from regard.data.loader import TokenBudget

        return TokenBudget(run.tokens)

    def remarks(self, run: "Run", data: "PreparedPairs", loader: Any) -> Iterable[str]:
        return [f"an epoch is {count(loader.batches_per_epoch, 'batch')}, {loader.padding:.1%} padding"]

    def metric(self, run: "Run", data: "PreparedPairs", device: str) -> Callable[[Any], dict[str, float]] | None:
        """BLEU and chrF of greedy translations of the first validation sentences, which choose the best checkpoint."""
        from regard.predictors import Translator

        texts = zip(*data.valid_text(), strict=True)  # without those too long for the validation loss
        fitting = (pair for pair in texts if len(data.tokenizer.encode_batch([pair[0]])[0]) < run.data.max_length)
        pairs = list(islice(fitting, DEV_SENTENCES))
        if len(pairs) < FEW:
            return None
        sources, references = [source for source, _ in pairs], [target for _, target in pairs]
        ngram = own_no_repeat_ngram(Path(run.start)) if run.start else 0

        def metric(model: Any) -> dict[str, float]:
            training = model.training
            translator = Translator(model, data.tokenizer, device, ngram)
            translations = translator.translate(sources, beam=1, max_length=self.longest)
            model.train(training)
            return self.quick_score(translations, references, run)

        return metric

    def quick_score(self, texts: list[str], references: list[str], run: "Run") -> dict[str, float]:
        from regard.metrics.bleu import quick

        return quick(texts, references, "none" if run.data.split == "spaces" else "13a")

    def example(self, run: "Run") -> Any:
        from regard.data.batch import collate

        length = min(LENGTH, run.tokens)
        ids = [[0] * (length - 1)] * (run.tokens // length)
        return collate(ids, ids, eos=0, pad=run.model.vocab - 1)

    def about(self, run: "Run", data: "PreparedPairs") -> dict[str, Any]:
        return {"name": run.data.name, "inputs": data.manifest["inputs"]}

    def generation(self, run: "Run", data: "PreparedPairs") -> dict[str, Any]:
        bpe, start = data.tokenizer, getattr(run.model, "start", data.tokenizer.pad)
        own: dict[str, Any] = {"forced_bos_token_id": bpe.bos} if hasattr(bpe, "bos") else {}
        if run.start and (ngram := own_no_repeat_ngram(Path(run.start))):
            own["no_repeat_ngram_size"] = ngram
        return {"num_beams": 5, "eos_token_id": bpe.eos, "pad_token_id": bpe.pad, "decoder_start_token_id": start,
                "bad_words_ids": [[bpe.pad]], "max_length": run.data.max_length, **own}  # fmt: skip

    def write_files(self, folder: Path, run: "Run", data: "PreparedPairs") -> None:
        if run.start:
            for path in files_of(Path(run.data.tokenizer)):
                shutil.copyfile(path, folder / path.name)
        else:
            data.tokenizer.save(folder, max_length=run.data.max_length)

    def named(self, data: PairsConfig) -> str:
        return data.name or f"{Path(data.source).name} → {Path(data.target).name}"

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.data.tokenizers import load
        from regard.predictors import Translator

        return Translator(model, load(folder, writes=True), device, own_no_repeat_ngram(folder))

    def to_json(self, answer: Any) -> Any:
        fields = ("text", "score", "log_probability")
        return {"text": answer.text, "candidates": [{k: getattr(h, k) for k in fields} for h in answer.candidates]}

    def explain(self, predictor: Any, one: Any, answer: Any) -> Any:
        """The attention of each word of the translation over the source words: `regard translate --alignment`."""
        from regard.explain.alignment import align_pieces, choose

        look = predictor.attention(one[0], answer.text)
        return align_pieces(choose(look.weights), look.source, look.target, predictor.tokenizer).to_dict()

    def read_inputs(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Inputs:
        """Lines of text, or the texts of a table."""
        return text_inputs(file, options.text, console.say, self.unit)

    def has_test_set(self, data: dict[str, Any]) -> bool:
        return bool(data.get("name") or data.get("valid_source"))

    def test_set(self, predictor: Any, folder: Path, options: Options, console: Console) -> TestSet:
        """The files of the options, or the test (otherwise validation) set of the run's own data."""
        from regard.data.pairs import clean, read_pairs
        from regard.metrics.bleu import check_equal, empty_references

        name, source, target = options.source, options.source, options.target
        if bool(source) != bool(target):
            raise ConfigError("--source and --target go together: line n of one translates line n of the other")
        if not source:
            name, source, target = self.own_test_set(folder)
        pairs = list(read_pairs(Path(source), Path(target)))
        sources, references = [s for s, _ in pairs], [t for _, t in pairs]
        check_equal(sources, references)
        if empty := empty_references(references):
            console.say(f"{empty:,} of {len(references):,} references are empty; every translation of those scores 0")
        contents, tokenizer = [clean(source) for source in sources], bleu_tokenizer(folder, options.tokenize)
        return TestSet(on=name, inputs=sources, targets=references, extra=tokenizer, contents=contents)

    def own_test_set(self, folder: Path) -> tuple[str, str, str]:
        data = group(read_json_if_any(folder / "run.json"), "data")
        if data.get("name"):
            from regard.data.fetch import get_pairs

            files = get_pairs(data["name"])
            if files.test_source:
                return f"{data['name']} (test)", str(files.test_source), str(files.test_target)
            if files.valid_source:
                return f"{data['name']} (validation)", str(files.valid_source), str(files.valid_target)
        if data.get("valid_source"):
            return f"{data['valid_source']} (validation)", data["valid_source"], data["valid_target"]
        raise ConfigError(f"{folder} has no test set of its own; type: regard evaluate {folder} {self.test_files}")

    def outcomes(self, predictor: Any, test: TestSet, options: Options, console: Console) -> list[str]:
        """The translations."""
        console.say(f"reading {len(test.inputs):,} {self.unit} of {test.on}")
        with console.progress(self.unit, len(test.inputs)):
            return [answer.text for answer in predictor.predict(test.inputs, **self.predict_options(options))]

    def evaluate(self, predictor: Any, folder: Path, options: Options, console: Console) -> Verdict:
        test = self.test_set(predictor, folder, options, console)
        texts = self.outcomes(predictor, test, options, console)
        result, search = self.score(texts, test), dict(beam=options.beam, length_penalty=options.length_penalty)
        about: Any = dict(on=test.on, detail=f"beam {options.beam}", contents=test.contents)
        return Verdict(**about, values=search | dataclasses.asdict(result), text=str(result), outputs=texts)

    def score(self, texts: list[str], test: TestSet) -> Any:
        """BLEU and chrF by sacreBLEU, with intervals, and BLEU by source length."""
        from regard.metrics.bleu import score

        return score(texts, test.targets, sources=test.inputs, tokenize=test.extra)

    def training_contents(self, predictor: Any, data: Any) -> "Iterable[str]":
        from regard.data.prepare import training_sources

        return training_sources(data)

    def differences(self, test: TestSet, outcomes: Sequence[Any], options: Options, samples: int) -> list[Any]:
        """BLEU and chrF, by sacreBLEU's paired bootstrap."""
        from regard.metrics.compare import compare

        first, second = outcomes
        return list(compare(first, second, test.targets, tokenize=test.extra, samples=samples))


def with_split(data: PairsConfig) -> PairsConfig:
    """The settings of a named data set, with its split rule."""
    if not data.name:
        return data
    pairs = find(data.name)
    return dataclasses.replace(data, name=pairs.name, split=pairs.split)


def own_no_repeat_ngram(folder: Path) -> int:
    """The `no_repeat_ngram_size` of a model's generation_config.json, or else of its config.json."""
    path = next((p for p in (folder / "generation_config.json", folder / "config.json") if p.is_file()), None)
    size = (read_json_if_any(path).get("no_repeat_ngram_size") or 0) if path else 0
    if type(size) is not int or size < 0:
        raise CheckpointError(f"{path}: no_repeat_ngram_size must be a whole number, 0 for no rule, got {size!r:.80}")
    return size


def bleu_tokenizer(folder: Path, name: str) -> str:
    """auto: none for a run trained on tokenised text (only then are its scores comparable), otherwise 13a."""
    from regard.metrics.bleu import TOKENIZERS

    if name != "auto":
        if name.lower() not in TOKENIZERS:
            raise unknown("BLEU tokeniser", name, ["auto", *TOKENIZERS])
        return name.lower()
    data = group(read_json_if_any(folder / "run.json"), "data")
    return "none" if data.get("split") == "spaces" else "13a"
