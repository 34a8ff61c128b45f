"""SmolLM2-135M from its GGUF file: our reading of it compared with transformers', by weights and by words.

    pip install 'regard[gguf]' transformers accelerate
    python bench/smollm2.py                # 2 cores, a minute; fetches the model (93 MB) the first time

Prints the 13 likeliest words after the slide's prompt from both, and ends with an error if a weight differs, a
probability differs by more than 1e-3, or ids differ in a way not explained below.

The ids of both tokenizers are equal except before numbers. SmolLM2 splits off each digit first, and so do its published
tokenizer and llama.cpp; transformers takes the tokenizer of a GGUF file for GPT-2's, which joins the space before a
number to the number: the "\\n\\n" before the "1." of a list becomes two tokens there, and one here.
"""

import random
import sys
import tempfile
import time
from pathlib import Path

import torch
from tokenizers import Regex, pre_tokenizers

import regard
from regard.data.catalog import find_model
from regard.data.fetch import archive_file, read_bytes
from regard.data.folders import to_stderr
from regard.models.published import read_weights
from regard.predictors import Writer
from regard.words import table

MODEL, PROMPT = "smollm2-135m", "To date, the cleverest thinker of all time was"
PIECES = [
    *(
        "the",
        " of",
        "naïve",
        "ñ",
        "中文",
        "日本語",
        "😀",
        "👩‍👩‍👧",
        "क्ष",
        "\u00a0",
        "\u0301",
        "don't",
        " 'll",
        "_x",
        "()",
        "->",
    ),
    *(" ", "  ", "    ", "\n", "\n\n", "\n    ", "\t", "0", "7", "42", "½", "٣", "1.", "3.14", ".", ",", "!", "\x00"),
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "def f(x):", "return", "https://a.b/c?d=1", "USD", "é"),
]
MESSAGES = [
    {"role": "user", "content": "What is 12 + 30?\n\n1. 41\n2. 42"},
    {"role": "assistant", "content": "It's 42."},
    {"role": "user", "content": "¿Por qué? 中文"},
]


def theirs(folder: Path):
    """transformers' model and tokenizer, read from the GGUF file itself."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    published = find_model(MODEL)
    (folder / "m.gguf").write_bytes(read_bytes(archive_file(published.archive, to_stderr), published.archive))
    start = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file="m.gguf", dtype=torch.float32).eval()
    print(f"transformers reads the GGUF file in {time.perf_counter() - start:.1f} s")
    return model, transformers.AutoTokenizer.from_pretrained(folder, gguf_file="m.gguf")


def texts(tokenizer) -> list[str]:
    """A conversation, this file, and two thousand strings of odd pieces."""
    rng = random.Random(0)
    made = ["".join(rng.choices(PIECES, k=rng.randint(0, 20))) for _ in range(2000)]
    lines = Path(__file__).read_text(encoding="utf-8").splitlines(keepends=True)
    chats = [tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=g) for g in (True, False)]
    return [*chats, *lines, "".join(lines), *made]


def main() -> bool:
    start = time.perf_counter()
    writer = regard.load(MODEL)
    assert isinstance(writer, Writer)
    print(f"regard.load({MODEL!r}): {time.perf_counter() - start:.1f} s")
    with tempfile.TemporaryDirectory() as folder:
        model, tokenizer = theirs(Path(folder))

    state = model.state_dict()
    weights = read_weights(find_model(MODEL).folder / "model.safetensors")
    off = max((state[name] - tensor).abs().max().item() for name, tensor in weights.items())
    more = sorted(state.keys() - weights.keys())
    print(f"weights: {len(weights)} tensors, largest difference {off}; only in transformers: {', '.join(more)}")

    cases = texts(tokenizer)
    ours = [writer.tokenizer.encode(text, special=True) for text in cases]
    plain = [tokenizer(text, add_special_tokens=False).input_ids for text in cases]
    gpt2 = tokenizer.backend_tokenizer.pre_tokenizer
    digit = pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digit, gpt2])
    digits = [tokenizer(text, add_special_tokens=False).input_ids for text in cases]
    tokenizer.backend_tokenizer.pre_tokenizer = gpt2
    same, explained = (sum(a == b for a, b in zip(ours, other, strict=True)) for other in (plain, digits))
    print(f"ids: equal for {same} of {len(cases)} texts; with each digit cut off first, for {explained}")

    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    with torch.inference_mode():
        expected = model(ids).logits[0, -1].double().softmax(-1)
        got = writer.model.logits(writer.hidden(writer.encode(PROMPT))[-1]).double().softmax(-1)
    rows = [("", "regard", "", "transformers", "")]
    best = expected.topk(13)
    for number, row in enumerate(writer.next(PROMPT, top=13)):
        word = repr(tokenizer.decode(int(best.indices[number])))
        ours_, theirs_ = f"{row.probability:.6f}", f"{float(best.values[number]):.6f}"
        rows.append((str(number + 1), repr(row.piece), ours_, word, theirs_))
    print(f"\n{PROMPT} ...\n{table(rows, right=(0, 2, 4))}")
    difference = (got - expected).abs().max().item()
    print(f"\nlargest difference of a probability, all {len(got):,} words: {difference:.1e}")
    return off == 0 and more == ["lm_head.weight"] and explained == len(cases) and difference < 1e-3


if __name__ == "__main__":
    sys.exit(not main())
