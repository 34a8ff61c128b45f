"""Language modelling: a model that continues your text, trained from scratch or fine-tuned."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.config import MAX_SEED
from regard.data.folders import silent
from regard.data.settings import TextConfig
from regard.errors import ConfigError, DataError
from regard.jsonfile import group, read_json_if_any
from regard.tasks.base import Arch, Card, Fit, Say, Task, recurrent
from regard.tasks.presets import fine_tuning, presets_of
from regard.tasks.served import NO_REPEAT, STRING, Setting, record
from regard.tasks.use import Inputs, Options, TestSet, Verdict, text_inputs
from regard.ticks import Console
from regard.training.settings import Optim, Schedule
from regard.words import count, some

if TYPE_CHECKING:
    from torch import nn

    from regard.data.contents import Contents
    from regard.data.text import PreparedText, TokenFile
    from regard.metrics.compare import Sums
    from regard.predictors import Writer
    from regard.training.run import Run

ROUGE = {"rouge_l": "its answers", "rouge_l_first": "baseline, the first sentence of each text"}
BLOCK = 256  # tokens per row for a recurrent model, which has no context limit


class LanguageModelling(Task):
    name, trains_on = "lm", "text"
    summary = "the next token of a text"
    settings = TextConfig
    options = ("tokens", "valid")
    data_help = "A text, a folder of texts, records or dialogues (JSON, Parquet), or a name."
    examples = (
        "regard train lm --data my.txt                  # or a folder, a .jsonl, a name of: regard data list",
        "regard train lm --data my.txt --tokens chars",
        "regard train lm --data my.txt --arch rnn,lstm,gpt --minutes 3",
    )
    archs = {"gpt": Arch("gpt"), "llama": Arch("llama"), **recurrent("rnn_lm")}
    uses = ("gemma",)
    presets = presets_of("lm")
    card = Card(pipeline="text-generation", title="A language model", use='generate {} "…"')
    family, views = "language", ("next",)
    example_texts = ("The cat drank the milk because it was hungry.",)
    purpose = "continue text"
    verbs = ("generate", "next", "chat", "summarise")
    evaluate_takes = ("data", "context", "stride", "strict")
    compare_takes = ("data",)
    unit = "parts"
    writes_lines = True
    table_ending = ".jsonl"
    predict_takes = ("text",)
    answering = "chat {}"
    writes, endpoints = True, ("completions", "chat")
    answer_schema = record(text=STRING, finish={"enum": ["stop", "length"]})
    request_settings = {
        "max_tokens": Setting(default=256, least=1, most=1 << 20, help="The most tokens to write."),
        "temperature": Setting(default=0.0, most=100, help="Below 1 is more predictable, above 1 less; 0: greedy."),
        "top_k": Setting(default=0, most=1 << 20, help="Sample from the k likeliest tokens; 0: all."),
        "top_p": Setting(default=1.0, most=1, help="Sample from the likeliest tokens with this total probability."),
        "min_p": Setting(default=0.0, most=1, help="Sample from tokens at least this likely, relative to the best."),
        "repetition_penalty": Setting(default=1.0, least=0.01, most=100, help="Above 1 avoids repetition."),
        "no_repeat_ngram": NO_REPEAT,
        "seed": Setting(default=0, most=MAX_SEED, help="The same seed gives the same text."),
    }
    starts = ("gpt", "llama", "rnn_lm")
    finetune_length = "5"
    longest = 256  # tokens per row when fine-tuning on a CPU
    prompt = ""  # the default template of records

    def fits(self, contents: "Contents") -> Fit | None:
        from regard.data.records import FORMS, is_records

        pair = next((pair for pair in FORMS if all(contents.named((name,)) for name in pair)), None)
        if is_records(contents.path) and (pair or contents.holding("conversations")):
            what = f"prompts in {pair[0]!r}, answers in {pair[1]!r}" if pair else "conversations"
            return self.fit_for(contents, what, "smollm2-135m")
        return self.fit_for(contents, "text to continue") if contents.prose else None

    def finetune_run(self, start: Path, data: TextConfig, device: str, lora: int) -> "Run":
        from regard.models.published import read_config
        from regard.training.run import Run

        config: Any = read_config(start)
        cpu, where = device == "cpu", str(start.absolute())
        length = min(config.context or BLOCK, self.longest if cpu else 1024)
        template = data.template or self.prompt
        own = dict(tokenizer=where, context=data.context or length, vocab=config.vocab, template=template)
        return Run(
            **fine_tuning(self.name, start, device, lora),
            model=config,
            data=dataclasses.replace(data, **own),
            optim=Optim(name="adamw", lr=1e-3 if lora else 1e-4, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0),
            schedule=Schedule(kind="linear", warmup=20),
            minutes=5.0,
            tokens=512 if cpu else 16384,  # a step of a 135 M model then takes seconds on two cores
            smoothing=0.0,
            log_every=5,
        )

    def read(self, run: "Run", say: Say) -> "PreparedText":
        from regard.data.text import prepare_text

        return prepare_text(cut_records(run), say)

    def fit(self, run: "Run", data: "PreparedText") -> "Run":
        run = shrink_context(dataclasses.replace(run, data=cut_records(run)), data)
        if run.start:
            return run
        return run.with_model(vocab=data.tokenizer.size)

    def build(self, run: "Run", data: "PreparedText", say: Say) -> "nn.Module":
        from regard.models.published import read_config

        config: Any = read_config(Path(run.start)) if run.start else run.model
        if run.model != dataclasses.replace(config, dropout=run.model.dropout):
            raise ConfigError(f"fine-tuning {run.start} keeps its sizes; only model.dropout can be set")
        return super().build(run, data, say)

    def objective(self, run: "Run", data: Any = None) -> Any:
        from regard.objectives.next_token import NextToken

        return NextToken(run.smoothing)

    def source(self, run: "Run", data: "PreparedText", part: str, device: str) -> Any:
        from regard.data.blocks import TextRows

        return TextRows(getattr(data, part), block_length(run), run.tokens)

    def show(self, run: "Run", data: "PreparedText", batch: Any, row: int) -> str:
        """The tokens of a row; of records, the trained ones after an arrow."""
        ids, counts = batch.ids[row].tolist(), None if batch.host_counts is None else batch.host_counts[row]
        if counts is None or counts.all() or not counts.any():
            return some(map(data.tokenizer.piece, ids))
        first = int(counts.argmax()) + 1
        last = first + int((~counts[first - 1 :]).argmax() or len(counts))
        return f"{some(map(data.tokenizer.piece, ids[:first]))} → {some(map(data.tokenizer.piece, ids[first:last]))}"

    def plan(self, run: "Run", data: "PreparedText", part: str, source: Any) -> Any:
        return source.plan

    def remarks(self, run: "Run", data: "PreparedText", loader: Any) -> Iterable[str]:
        batches = count(loader.batches_per_epoch, "batch")
        yield f"an epoch is {batches} of {run.tokens:,} tokens in rows of {block_length(run):,}"
        if not data.train.records and block_length(run) == len(data.train) - 1:
            tokens = count(len(data.train), "token")
            yield f"the text is short: with {tokens} to train on, the context is {block_length(run)}"

    def flops_per_target(self, model: Any, run: "Run") -> float:
        """Forward and backward: 6 per weight, the head once, and attention (Chowdhery et al. 2022, app. B)."""
        looked_up = sum(p.numel() for name, p in model.named_parameters() if name in ("token.weight", "place.table"))
        weights = sum(p.numel() for p in model.parameters()) - looked_up
        if model.head is model.token.weight:
            weights += model.head.numel()
        c = model.config
        return 6.0 * weights + (12.0 * c.layers * c.width * block_length(run) if c.context else 0.0)

    def example(self, run: "Run") -> Any:
        import torch

        from regard.data.batch import Tokens

        length = min(block_length(run), run.tokens)
        ids = torch.zeros(max(1, run.tokens // length), length + 1, dtype=torch.long)
        return Tokens(ids=ids)

    def about(self, run: "Run", data: "PreparedText") -> dict[str, Any]:
        return {"name": run.data.name, "inputs": data.manifest["inputs"]}

    def generation(self, run: "Run", data: "PreparedText") -> dict[str, Any]:
        tokenizer = data.tokenizer
        ends: dict[str, Any] = {}
        if tokenizer.eos is not None:
            ends = {"eos_token_id": tokenizer.eos, "pad_token_id": tokenizer.eos}
        if len(tokenizer.ends) > 1:
            ends["eos_token_id"] = list(tokenizer.ends)
        return {**ends, "do_sample": True}

    def template(self, run: "Run", data: "PreparedText") -> str:
        from regard.data.records import PROMPT

        return run.data.template or (PROMPT if data.train.records else "")

    def write_files(self, folder: Path, run: "Run", data: "PreparedText") -> None:
        data.tokenizer.save(folder, max_length=block_length(run))

    def predictor(self, model: Any, folder: Path, about: dict[str, Any], device: str) -> Any:
        from regard.data.tokenizers import load
        from regard.predictors import Writer

        return Writer(model, load(folder), device, str(about.get("template", "")))

    def to_json(self, answer: Any) -> Any:
        return {"text": answer.text, "finish": answer.finish}

    def row(self, predictor: Any, answer: Any) -> dict[str, Any]:
        return {"text": "" if answer is None else " ".join(answer.text.split())}

    def read_inputs(self, predictor: Any, folder: Path, file: Path, options: Options, console: Console) -> Inputs:
        """Lines of text, or the texts of a table."""
        return text_inputs(file, options.text, console.say)

    def predict_options(self, options: Options) -> dict[str, Any]:
        return {"temperature": 0.0, "stop": ("\n",)}  # greedy, and one line each

    def family_of(self, config: Any) -> str:
        return f"recurrent-{self.family}" if hasattr(config, "cell") else self.family

    def evaluate(self, predictor: Any, folder: Path, options: Options, console: Console) -> Verdict:
        """Perplexity of a text, or of the answers of records; for an instruction-tuned model also ROUGE-L."""
        from regard.data.text import scored_passages
        from regard.metrics.perplexity import perplexity, perplexity_of_answers

        trained = group(read_json_if_any(folder / "run.json"), "data").get("context", 0)
        context = options.context or trained or predictor.model.config.context or BLOCK
        on, text, size, words = scored_text(predictor, self, folder, options, context, console.say)
        console.say(f"reading {len(text):,} tokens of {on}")
        how: dict[str, Any] = dict(device=predictor.device, bytes=size, words=words)
        if text.records:
            if options.stride not in (0, context):
                raise ConfigError("--stride is for running text; records are read one by one, leave it out")
            assert text.answers is not None, "records mark the tokens of their answers"
            with console.progress("tokens of answers", int(text.answers.read(0, len(text)).sum())):
                result = perplexity_of_answers(predictor.model, text, context, **how)
        else:
            ids = text.ids.read(0, len(text))
            with console.progress("tokens", len(text)):
                result = perplexity(predictor.model, ids, context, options.stride or context, **how)
        values: dict[str, Any] = dataclasses.asdict(result)
        lines = [str(result)]
        if predictor.template and options.data and text.records:
            rouge = rouge_of_answers(predictor, options.data, console)
            values |= rouge
            lines += [f"{name}: ROUGE-L {rouge[key]:.1f}" for key, name in ROUGE.items()]
        unit = "records" if text.records else "passages"
        contents: Sequence[str] = ()
        if options.data and (folder / "run.json").is_file():
            contents = scored_passages(Path(options.data), self.own_data(folder).template)
        return Verdict(on=on, values=values, text="\n".join(lines), contents=contents, unit=unit)

    def training_contents(self, predictor: Any, data: Any) -> "Iterable[str]":
        from regard.data.text import training_passages

        return training_passages(data, predictor.tokenizer)

    def compared_set(self, predictor: Any, folder: Path, options: Options, console: Console) -> TestSet:
        """Parts of a text, with their sizes in bytes."""
        from regard.data.documents import read_whole

        if not options.data:
            raise ConfigError("language models are compared on a text; add: --data FILE")
        parts = cut_text(read_whole(Path(options.data)))
        return TestSet(on=options.data, inputs=parts, targets=[len(part.encode()) for part in parts])

    def outcomes(self, predictor: Any, test: TestSet, options: Options, console: Console) -> "Sums":
        """Bits per byte, which do not depend on the tokenizer."""
        from regard.metrics.compare import Sums

        bits = [predictor.bits(part) for part in test.inputs]
        return Sums(metric="bits per byte", above=bits, below=test.targets, scale=1.0, lower_is_better=True)


def block_length(run: "Run") -> int:
    """Tokens per row: the data's setting, or the model's context."""
    return run.data.context or getattr(run.model, "context", 0) or BLOCK


def shrink_context(run: "Run", data: "PreparedText") -> "Run":
    """The run with rows, and for a new model a context, no longer than the text."""
    length = len(data.train) - 1  # targets: all but the first token
    if data.train.records or block_length(run) <= length:
        return run
    model = run.model
    if not run.start and model.context:
        model = dataclasses.replace(model, context=length)
    return dataclasses.replace(run, model=model, data=dataclasses.replace(run.data, context=length))


def cut_records(run: "Run") -> TextConfig:
    """The data settings with the length that records are cut to: cutting them later may lose the answer."""
    from regard.data.records import is_records

    length = block_length(run)
    if run.data.max_length and not is_records(Path(run.data.path)):  # not records: unchanged
        return run.data
    return dataclasses.replace(run.data, max_length=min(run.data.max_length or length, length))


# -- scoring ------------------------------------------------------------------------------------------------------


def scored_text(
    writer: "Writer", task: Task, folder: Path, options: Options, context: int, say: Say
) -> tuple[str, "TokenFile", int, int]:
    """What to score on: its name, its ids, and how many bytes and words are scored: all of the records' answers, or of
    a text all but its first token."""
    from regard.data.documents import read_whole
    from regard.data.records import check_records, is_records
    from regard.data.text import TokenFile, prepare_text

    data = options.data
    if data and not is_records(Path(data)):
        text = read_whole(Path(data))
        if not text.strip():
            raise DataError(f"{data} is empty; expected a text")
        tokens, size, words = TokenFile.of(writer.encode(text)), len(text.encode()), len(text.split())
    else:
        config = TextConfig(path=data, valid=data, max_length=context, template=writer.template)
        if data:
            check_records(Path(data), writer.template, options.strict, say)
        else:
            config = task.own_data(folder)
        if data or config.tokenizer:  # its own copy: the base model may be gone
            config = dataclasses.replace(config, tokenizer=str(folder))
        prepared = prepare_text(config, silent)
        tokens, size, words = prepared.valid, prepared.valid_bytes, prepared.valid_words
    if not tokens.records and len(tokens):
        first = int(tokens.ids.read(0, 1)[0])
        size -= 0 if first == writer.tokenizer.bos else len(writer.tokenizer.token_bytes(first))
    return data or "its own validation text", tokens, size, words


def rouge_of_answers(writer: "Writer", data: str, console: Console) -> dict[str, float]:
    """ROUGE-L of greedy answers to the prompts of a JSONL file and, as the baseline, of their first sentences."""
    from regard.data.records import Record, read_records
    from regard.metrics.rouge import first_sentence, quick

    records = [record for record in read_records(Path(data)) if isinstance(record, Record)]
    prompts, references = [r.messages[-2]["content"] for r in records], [r.references for r in records]
    console.say(f"answering {len(prompts):,} prompts")
    with console.progress("answers", len(prompts)):
        answers = writer.answer(prompts, temperature=0.0, max_tokens=80)
    first = [first_sentence(prompt) for prompt in prompts]
    return {"rouge_l": quick(answers, references)["rougeL"], "rouge_l_first": quick(first, references)["rougeL"]}


def cut_text(text: str, size: int = 400) -> list[str]:
    """Parts of at least `size` characters that end at a line break, for a statistical test."""
    parts, part = [], ""
    for line in text.splitlines(keepends=True):
        part += line
        if len(part) >= size:
            parts.append(part)
            part = ""
    if len(parts) < 20:
        raise ConfigError(f"the text has {len(parts)} parts of {size} characters; a comparison needs at least 20")
    return parts
