"""`regard generate`, `next`, `chat`, `summarise`: use a language model."""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from regard.cli.common import SEED, Device, Json, Weights, argument, flag, open_for, option, show, show_line, visible
from regard.cli.remote import Server
from regard.cli.translate import OwnNoRepeat, read_stdin, typed_lines
from regard.errors import ConfigError
from regard.ticks import Console
from regard.words import table

Model = Annotated[str, argument("MODEL", "A run or model folder, a .gguf file, or a name (regard model list).")]
Most = Annotated[int, option("N", "Write at most that many tokens.", "--max-tokens", default=True, min=1)]
Temperature = Annotated[
    float, option("X", "Below 1 is tamer, above 1 wilder; 0 always takes the likeliest.", default=True, min=0.0)
]
TopK = Annotated[int, option("N", "Only the N likeliest tokens; 0: all.", default=True, min=0)]
TopP = Annotated[
    float, option("P", "Only the likeliest tokens that together have probability P.", default=True, min=0.0, max=1.0)
]
MinP = Annotated[
    float, option("P", "Only tokens at least P times as likely as the likeliest.", default=True, min=0.0, max=1.0)
]
Penalty = Annotated[
    float, option("X", "Above 1 discourages repetition.", "--repetition-penalty", default=True, min=0.01)
]
NoRepeat = Annotated[
    int, option("N", "Never repeat a sequence of N tokens; 0: off.", "--no-repeat-ngram", default=True, min=0)
]
Seed = Annotated[int, typer.Option(**SEED, help="The same seed gives the same text.")]
Stop = Annotated[list[str] | None, option("TEXT", r"End before this text; may be repeated; \n is a line break.")]


def generate(
    ctx: typer.Context,
    model: Model,
    prompt: Annotated[
        list[str] | None, argument("PROMPT", "How the text begins; without any, all of stdin is one prompt.")
    ] = None,
    max_tokens: Most = 200,
    temperature: Temperature = 0.8,
    top_k: TopK = 0,
    top_p: TopP = 0.95,
    min_p: MinP = 0.0,
    repetition_penalty: Penalty = 1.0,
    no_repeat_ngram: NoRepeat = 0,
    stop: Stop = None,
    seed: Seed = 0,
    n: Annotated[int, option("N", "Write that many continuations.", "--n", default=True, min=1)] = 1,
    beam: Annotated[
        int, option("N", "Search with N beams for the likeliest text instead; 0: sample.", default=True, min=0)
    ] = 0,
    logprobs: Annotated[bool, flag("--logprobs", "With --json: the log-probability of each token.")] = False,
    stream: Annotated[bool, flag("--stream", "Show the text while it is written.")] = False,
    weights: Weights = "fp32",
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Continue a text.

    \b
    Examples:
      regard generate runs/x "ROMEO:" --temperature 0.8 --top-p 0.95 --stop "\\n\\n" --seed 1 --stream
      regard generate smollm2-135m "The capital of France is" --temperature 0 --max-tokens 20
      regard generate runs/x "Once upon a time" --n 3 --json
      cat story.txt | regard generate runs/x
    """
    prompts = list(prompt or ["\n".join(read_stdin())])
    if stream and (n > 1 or len(prompts) > 1 or json or beam):
        raise ConfigError("--stream shows one text while it is written; leave out --n, --beam, --json, more prompts")
    if beam and (stop or logprobs or repetition_penalty != 1):
        others = "--stop, --logprobs and --repetition-penalty"
        raise ConfigError(f"--beam searches for the likeliest whole text; leave out {others}")
    if logprobs and not json:
        raise ConfigError("--logprobs are shown as JSON; add --json")
    how: dict[str, Any] = dict(
        max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
        repetition_penalty=repetition_penalty, no_repeat_ngram=no_repeat_ngram, seed=seed, stop=stops(stop),
    )  # fmt: skip
    _, writer = open_for("generate", model, device, weights)
    writer.report_cuts(prompts, max_tokens, ctx.obj.say)
    if stream:
        print(prompts[0], end="", flush=True)
        for piece in writer.stream(prompts[0], **how):
            print(piece, end="", flush=True)
        print()
        return
    completions = (
        writer.beam(prompts, beam, n, max_tokens, no_repeat_ngram)
        if beam
        else writer.generate(prompts, n=n, logprobs=int(logprobs), **how)
    )
    for text, answers in zip(prompts, completions, strict=True):
        if json:
            show_line({"prompt": text, "completions": [dataclasses.asdict(a) for a in answers]})
            continue
        for number, answer in enumerate(answers):
            print("" if number == 0 else "\n---", end="" if number == 0 else "\n")
            print(text + answer.text)


def next_(
    ctx: typer.Context,
    model: Model,
    text: Annotated[str, argument("TEXT", "What the next token follows.")],
    top: Annotated[int, option("N", "Rows of the table.", default=True, min=1)] = 10,
    temperature: Temperature = 1.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    word: Annotated[list[str] | None, option("TEXT", "Also show the rank of this continuation's first token.")] = None,
    surprisal: Annotated[bool, flag("--surprisal", "Instead: how likely each token of the text itself was.")] = False,
    lens: Annotated[
        bool, flag("--lens", "Instead: what the head would predict after each layer (the logit lens).")
    ] = False,
    weights: Weights = "fp32",
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Show the probabilities of the next token.

    Probabilities are over the whole vocabulary. With a temperature, top-k, top-p or min-p a second column shows what
    is left to sample from.

    \b
    Examples:
      regard next smollm2-135m "To date, the cleverest thinker of all time was" --top 13
      regard next smollm2-135m "I love to drink" --word " coffee" --word " tea"
      regard next runs/x "ROMEO" --temperature 0.7 --top-p 0.9
      regard next smollm2-135m "The cat sat on the mat." --surprisal
      regard next smollm2-135m "I grew up in France, I speak fluent" --lens
    """
    if surprisal and lens:
        raise ConfigError("--surprisal or --lens, not both")
    if temperature == 0:
        raise ConfigError("a temperature of 0 leaves one token, the first of the table; type a number above 0")
    _, writer = open_for("next", model, device, weights)
    if surprisal:
        show_surprisal(writer.surprisal(text), json)
        return
    if cut := len(ids := writer.encode(text)) - len(writer.seen(ids)):
        ctx.obj.say(f"the text has {len(ids):,} tokens; this model sees the last {len(ids) - cut:,} of them")
    if lens:
        show_lens(writer.lens(text, top), top, json)
        return
    changed = temperature != 1.0 or top_k or top_p < 1.0 or min_p
    candidates = writer.next(
        text, top=top, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, words=word or []
    )
    if json:
        show([vars(c) for c in candidates])
        return
    head = ("RANK", "TOKEN", "ID", "PROBABILITY", "CUMULATIVE", *(["AFTER"] if changed else []))
    rows = [
        (
            f"{c.rank:,}",
            visible(c.piece),
            str(c.id),
            f"{c.probability:.2%}",
            f"{c.cumulative:.2%}",
            *([f"{c.kept:.2%}"] if changed else []),
        )
        for c in candidates
    ]
    print(table([head, *rows], right=[0, 2, 3, 4, 5]))


def show_surprisal(tokens: Sequence[Any], json: bool) -> None:
    if json:
        show([vars(s) for s in tokens])
        return
    rows = [
        (str(i), visible(s.piece), f"{s.probability:.2%}", f"{s.bits:.2f}", f"{s.rank:,}")
        for i, s in enumerate(tokens, 1)
    ]
    total = sum(s.bits for s in tokens)
    print(table([("TOKEN", "PIECE", "PROBABILITY", "BITS", "RANK"), *rows], right=[0, 2, 3, 4]))
    print(f"\n{total:.1f} bits in all, {total / max(1, len(tokens)):.2f} a token")


def show_lens(layers: Sequence[Sequence[Any]], top: int, json: bool) -> None:
    if json:
        show([[vars(c) for c in layer] for layer in layers])
        return
    rows = [
        (str(i), "  ".join(f"{visible(c.piece)} {c.probability:.1%}" for c in best)) for i, best in enumerate(layers, 1)
    ]
    print(table([("AFTER LAYER", f"LIKELIEST {top}"), *rows], right=[0]))


def chat(
    ctx: typer.Context,
    model: Model,
    message: Annotated[list[str] | None, argument("MESSAGE", "Ask this and exit; else you are prompted.")] = None,
    system: Annotated[str, option("TEXT", "The system prompt: the role of the model.", default=True)] = "",
    max_tokens: Most = 400,
    temperature: Temperature = 0.7,
    top_k: TopK = 0,
    top_p: TopP = 0.9,
    min_p: MinP = 0.0,
    repetition_penalty: Penalty = 1.0,
    no_repeat_ngram: NoRepeat = 0,
    stop: Stop = None,
    seed: Seed = 0,
    server: Server = "",
    weights: Weights = "fp32",
    device: Device = "auto",
) -> None:
    """Talk with a model that was trained on dialogues.

    \b
    Examples:
      regard chat smollm2-135m
      regard chat smollm2-135m "Name three rivers in France." --temperature 0
      regard chat smollm2-135m --server http://127.0.0.1:8000
    """
    from regard.data.records import render

    writer = chat_partner(model, device, weights, server)
    if not server and not writer.tokenizer.chat_template and not writer.template:
        ctx.obj.say(
            f"warning: {model} was not trained on dialogues: it continues text, and may not answer; to teach it, type: "
            f"regard finetune {model} lm --data dialogues.jsonl"
        )
    how: dict[str, Any] = dict(
        max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
        repetition_penalty=repetition_penalty, no_repeat_ngram=no_repeat_ngram, seed=seed, stop=stops(stop),
    )  # fmt: skip
    talk = [{"role": "system", "content": system}] if system else []
    for question in message or questions(ctx.obj):
        talk.append({"role": "user", "content": question})
        if not server:
            writer.report_cuts([render(talk, writer.tokenizer, True)], max_tokens, ctx.obj.say, special=True)
        answer = ""
        for piece in writer.chat(talk, **how):
            print(piece, end="", flush=True)
            answer += piece
        print()
        talk.append({"role": "assistant", "content": answer})


def chat_partner(model: str, device: str, weights: str, server: str) -> Any:
    """The model that answers `chat`: a local one, or one on a server."""
    if not server:
        return open_for("chat", model, device, weights)[1]
    from regard.serve.api.client import RemoteModel

    return RemoteModel(server, model)


def summarise(
    ctx: typer.Context,
    model: Model,
    text: Annotated[list[str] | None, argument("TEXT", "Texts; without any, all of stdin is one.")] = None,
    max_tokens: Most = 80,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    no_repeat_ngram: OwnNoRepeat = None,
    seed: Seed = 0,
    weights: Weights = "fp32",
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Summarise texts, with a model that was trained on texts and their summaries.

    \b
    Examples:
      regard finetune smollm2-135m summarise --data pairs.jsonl --name s
      regard summarise runs/s < article.txt
      regard summarise hf:facebook/bart-large-cnn < article.txt
    """
    _, writer = open_for("summarise", model, device, weights)
    texts = list(text or ["\n".join(read_stdin())])
    how: dict[str, Any] = dict(max_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    how |= {} if no_repeat_ngram is None else {"no_repeat_ngram": no_repeat_ngram}
    for source, short in zip(texts, writer.summarise(texts, ctx.obj.say, **how), strict=True):
        show_line({"text": source, "summary": short}) if json else print(short)


def stops(typed: list[str] | None) -> tuple[str, ...]:
    r"""Stop strings as typed, with `\n` and `\t` unescaped."""
    return tuple(s.replace("\\n", "\n").replace("\\t", "\t") for s in typed or [] if s)


def questions(console: Console) -> Iterator[str]:
    if sys.stdin.isatty():
        return typed_lines(console, "Say something; an empty line ends.")
    return (line for line in read_stdin() if line.strip())
