"""Masked language modelling: BERT's pre-training on raw text, with masked words and next sentences."""

import dataclasses
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.folders import silent
from regard.data.settings import MaskedConfig
from regard.errors import ConfigError
from regard.tasks.base import Arch, Card, Fit, Say, Task
from regard.tasks.embed import no_answers
from regard.tasks.presets import presets_of
from regard.tasks.served import INTEGER, NUMBER, STRING, Setting, array, record
from regard.tasks.use import Inputs, Options, Verdict
from regard.ticks import Console
from regard.words import count, some, table

if TYPE_CHECKING:
    from regard.data.contents import Contents
    from regard.data.masked import PreparedMasked, SentenceIds
    from regard.data.masking import Rules
    from regard.data.tokenizers.encoder import EncoderTokenizer
    from regard.training.run import Run

TOKENS = 4096  # per batch when scoring
SHORT = 6  # tokens; a shorter sentence may repeat by coincidence


class MaskedLanguageModelling(Task):
    name = "mlm"
    summary = "the masked words of a text, as BERT learns them"
    settings = MaskedConfig
    options = ("valid",)
    data_help = "A text, a folder of texts, a .jsonl, or a name."
    examples = ("regard train mlm --data corpus/ --size small    # or a text, a .jsonl, a name",)
    archs = {"bert": Arch("bert")}
    uses = ("modernbert",)
    presets = presets_of("mlm")
    card = Card(pipeline="fill-mask", title="BERT", use='fill {} "… [MASK] …"')
    family, views = "masked", ("fill", "similar")
    example_texts = ("The cat drank the [MASK] because it was hungry.",)
    purpose = "fill in masked words"
    verbs = ("fill", "embed", "similar")
    request_settings = {"top": Setting(default=5, least=1, most=1_000, help="Candidates for each [MASK].")}
    request_example = "The cat drank the [MASK]."
    answer_schema = array(array(record(piece=STRING, id=INTEGER, probability=NUMBER)))
    table_ending = ".jsonl"

    def fits(self, contents: "Contents") -> Fit | None:
        return self.fit_for(contents, "text to pre-train BERT on") if contents.prose else None

    def model_settings(self, data: Any, arch: str, device: str, settings: dict[str, Any]) -> dict[str, Any]:
        return {"vocab": data.vocab, "max_length": data.max_length, "head": head(data)}

    def check(self, run: "Run", device: str) -> None:
        """A compiled run packs its rows; the kernel for those has no dropout, and on a GPU needs 16 bits."""
        if not hasattr(run.model, "head"):
            raise ConfigError(f"mlm trains a BERT; got {type(run.model).__name__}")
        if not run.compile:
            return
        config = run.model
        if config.attention_dropout:
            raise ConfigError(
                f"model.attention_dropout is {config.attention_dropout}, but compiled runs pack rows, which allows "
                "none; type: --set model.attention_dropout=0, or --set compile=false"
            )
        if device.startswith("cuda") and run.precision == "fp32":
            raise ConfigError(
                f"precision is {run.precision}, but compiled runs pack their rows, which a GPU reads in bf16; "
                "type: --set precision=bf16, or --set compile=false"
            )

    def read(self, run: "Run", say: Say) -> "PreparedMasked":
        from regard.data.masked import prepare_masked

        return prepare_masked(run.data, say)

    def fit(self, run: "Run", data: "PreparedMasked") -> "Run":
        own = dict(vocab=data.tokenizer.size, head=head(run.data), labels=())
        return run.with_model(**own)

    def objective(self, run: "Run", data: Any = None) -> Any:
        from regard.objectives.masked_token import MaskedToken

        return MaskedToken(run.smoothing) if data is None else MaskedToken(run.smoothing, data.entropy)

    def source(self, run: "Run", data: "PreparedMasked", part: str, device: str) -> Any:
        from regard.data.masking import MaskedRows

        rules = make_rules(run.data, data.tokenizer)
        return MaskedRows(getattr(data, part), rules, run.tokens, packed=run.compile and part == "train")

    def show(self, run: "Run", data: "PreparedMasked", batch: Any, row: int) -> str:
        length, targets = int(batch.host_lengths[row]), batch.host_targets[row]
        pieces = some(map(data.tokenizer.piece, batch.ids[row, :length].tolist()))
        follows = (
            "" if batch.follows is None else ("; B follows A", "; B does not follow A", "")[int(batch.follows[row])]
        )
        return f"{pieces} → {some(map(data.tokenizer.piece, targets[targets >= 0].tolist()))}{follows}"

    def plan(self, run: "Run", data: "PreparedMasked", part: str, source: Any) -> Any:
        return source.plan

    def remarks(self, run: "Run", data: "PreparedMasked", loader: Any) -> Iterable[str]:
        size = f"{run.tokens:,}" if run.compile else f"at most {run.tokens:,}"
        yield (
            f"an epoch is {count(loader.batches_per_epoch, 'batch')} of {size} tokens, "
            f"{loader.padding:.1%} padding; {run.data.masked:.0%} of the words are masked"
        )

    def flops_per_target(self, model: Any, run: "Run") -> float:
        """Forward and backward: 6 per weight, attention, and the head for masked tokens."""
        c = model.config
        layers = sum(p.numel() for layer in model.layers for p in layer.parameters())
        head = run.data.masked * c.width * (c.width + c.vocab)
        return 6.0 * (layers + head) + 12.0 * c.layers * c.width * run.data.max_length

    def example(self, run: "Run") -> Any:
        import numpy as np
        import torch

        from regard.data.masking import MaskedBatch

        width = min(run.data.max_length, run.tokens)
        size = max(1, run.tokens // width)
        count = max(1, round(run.data.masked * size * width))
        ids = torch.zeros(size, width, dtype=torch.long)
        return MaskedBatch(
            ids=ids,
            sentences=torch.zeros_like(ids),
            lengths=torch.full((size,), width),
            starts=None,
            chosen=torch.zeros(count, dtype=torch.long),
            targets=torch.zeros(count, dtype=torch.long),
            follows=torch.zeros(size, dtype=torch.long) if run.data.next_sentence else None,
            rows=np.arange(size),
            host_targets=np.zeros((0, 0), np.int64),
            host_lengths=np.full(size, width),
            count=count,
            weight=count / size,
        )

    def about(self, run: "Run", data: "PreparedMasked") -> dict[str, Any]:
        return {"name": run.data.name, "inputs": data.manifest["inputs"]}

    def write_files(self, folder: Path, run: "Run", data: "PreparedMasked") -> None:
        data.tokenizer.save(folder, max_length=run.model.max_length)

    def serves(self, config: Any) -> bool:
        from regard.models.bert import MASKED

        return super().serves(config) and config.head in MASKED

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.data.tokenizers import load
        from regard.models.published.sentence import Sentences
        from regard.predictors import Filler

        return Filler(model, load(folder), device, Sentences.load(folder))

    def text(self, answer: Any) -> str:
        tables = []
        for number, words in enumerate(answer.masks, 1):
            rows = [(str(rank), w.piece, f"{w.probability:.2%}") for rank, w in enumerate(words, 1)]
            title = f"gap {number}\n" if len(answer.masks) > 1 else ""
            tables.append(title + table([("RANK", "WORD", "PROBABILITY"), *rows], right=[0, 2]))
        return "\n\n".join(tables)

    def to_json(self, answer: Any) -> Any:
        return dataclasses.asdict(answer)["masks"]

    def read_inputs(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Inputs:
        raise no_answers(folder, file)

    def evaluate(self, predictor: Any, folder: Path, options: Options, console: Console) -> Verdict:
        """Loss and accuracy on masked words and next sentences, always with the same masks."""
        from regard.data.loader import in_order
        from regard.data.masked import prepare_masked, read_sentences
        from regard.data.masking import MaskedRows
        from regard.objectives.masked_token import MaskedToken

        data, bert, entropy = options.data, predictor.model, 0.0
        config = MaskedConfig() if data and not (folder / "run.json").is_file() else self.own_data(folder)
        longest = min(config.max_length, bert.config.max_length)
        pairs = config.next_sentence and bert.config.head == "pretraining"
        config = dataclasses.replace(config, max_length=longest, next_sentence=pairs)
        if data:
            on, text = data, read_sentences(data, predictor.tokenizer, config)
        else:
            prepared = prepare_masked(config, silent)
            on, text, entropy = "its own validation text", prepared.valid, prepared.entropy
        console.say(f"reading {len(text.ids):,} tokens of {on}")
        source = MaskedRows(text, make_rules(config, predictor.tokenizer), max(TOKENS, longest))
        batches = (batch.to(predictor.device) for batch in in_order(source, source.plan))
        scores = MaskedToken(entropy=entropy).held_out(bert, batches)
        rows = [(name.replace("_", " "), f"{value:.4f}") for name, value in scores.items()]
        detail, contents = f"{config.masked:.0%} of the tokens masked", sentence_contents(text) if data else ()
        report = table(rows, right=[1])
        return Verdict(on=on, detail=detail, values=scores, text=report, contents=contents, unit="sentences")

    def training_contents(self, predictor: Any, data: MaskedConfig) -> Iterable[bytes]:
        from regard.data.masked import prepare_masked

        return sentence_contents(prepare_masked(data, silent).train)


class Infill(MaskedLanguageModelling):
    """BART, which fills in one token per mask, as BERT does."""

    name = "infill"
    summary = "the masked words of a text, by an encoder-decoder"
    settings = type(None)
    options = ()
    examples = ()
    archs = {}
    uses = ("bart",)
    presets = {}
    verbs = ("fill",)
    views = ()

    def serves(self, config: Any) -> bool:
        return Task.serves(self, config)

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.data.tokenizers import load
        from regard.predictors import Infiller

        return Infiller(model, load(folder), device)


def sentence_contents(text: "SentenceIds") -> list[bytes]:
    """The sentences of a text, except short ones, which may repeat by coincidence."""
    import numpy as np

    ids, ends = np.asarray(text.ids[:], np.int64), text.sentences.tolist()
    return [ids[a:b].tobytes() for a, b in itertools.pairwise(ends) if b - a >= SHORT]


def head(data: MaskedConfig) -> str:
    return "pretraining" if data.next_sentence else "masked"


def make_rules(data: MaskedConfig, tokenizer: "EncoderTokenizer") -> "Rules":
    """The rules that turn this data into masked examples, for this tokenizer."""
    from regard.data.masked import inside_ids, special_ids
    from regard.data.masking import Rules

    return Rules(
        length=data.max_length,
        special=special_ids(tokenizer),
        inside=inside_ids(tokenizer),
        pad=tokenizer.pad,
        cls=tokenizer.cls,
        sep=tokenizer.sep,
        mask=tokenizer.mask,
        next_sentence=data.next_sentence,
        negatives=data.negatives,
        masked=data.masked,
        whole_words=data.whole_words,
    )
