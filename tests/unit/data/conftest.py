"""Small parallel text, made by a seeded grammar, and files of it; tokenizers as published folders have them."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from regard.data.tokenizers.bytelevel import EOS, ByteLevel

NOUNS = [("man", "homme"), ("friend", "ami"), ("house", "maison"), ("child", "enfant"), ("tree", "arbre")]
VERBS = [("sees", "voit"), ("likes", "aime"), ("isn't", "n'est pas"), ("has", "a"), ("draws", "dessine")]
TIMES = [("today", "aujourd'hui"), ("at 10 o'clock", "à 10 heures"), ("in 2024", "en 2024"), ("often", "souvent")]


def sentences(count: int, seed: int = 0) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    out = []
    for _ in range(count):
        a, b, v, t = rng.choice(NOUNS), rng.choice(NOUNS), rng.choice(VERBS), rng.choice(TIMES)
        n = rng.randint(1, 999)
        out.append((f"The {a[0]} {v[0]} {n} {b[0]} {t[0]}.", f"L'{a[1]} {v[1]} {n} {b[1]} {t[1]} !"))
    return out


@pytest.fixture
def corpus() -> Callable[..., list[tuple[str, str]]]:
    return sentences


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """Write pairs as two files; gives their paths."""

    def write(pairs: list[tuple[str, str]], name: str = "train") -> tuple[str, str]:
        paths = tmp_path / f"{name}.en", tmp_path / f"{name}.fr"
        for side, path in enumerate(paths):
            path.write_text("".join(pair[side] + "\n" for pair in pairs), "utf-8")
        return str(paths[0]), str(paths[1])

    return write


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for this test alone."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


PROSE = "Muchos años después, frente al pelotón de fusilamiento,\nel coronel Aureliano Buendía; 1967 (naïve)\n" * 20
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_published(style: str, folder: Path) -> Path:
    """A folder as published models have it, written by transformers: pieces of ours, everything else in their style."""
    from transformers import PreTrainedTokenizerFast

    model = json.loads(ByteLevel.train([PROSE], 320).tokenizer.to_str())["model"]
    tokenizer = Tokenizer(models.BPE(model["vocab"], [tuple(m) for m in model["merges"]]))
    tokenizer.decoder = decoders.ByteLevel()
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    before = {
        "gpt2": [words],
        "smollm2": [pre_tokenizers.Digits(individual_digits=True), words],
        "llama3": [pre_tokenizers.Split(Regex(LLAMA_3), "isolated"), whole],
    }
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(before[style])
    marks = {"gpt2": [EOS], "smollm2": [EOS, "<|im_start|>", "<|im_end|>"], "llama3": ["<|begin|>", "<|end|>"]}[style]
    tokenizer.add_special_tokens([AddedToken(m, special=True, normalized=False) for m in marks])
    names = {"eos_token": marks[-1]} | ({"bos_token": marks[0]} if style == "llama3" else {})
    if style == "llama3":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", special_tokens=[("<|begin|>", tokenizer.token_to_id("<|begin|>"))]
        )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **names)
    fast.chat_template = CHAT if style == "smollm2" else None
    fast.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return folder


@pytest.fixture
def peak() -> Callable[..., int]:
    """Megabytes that a fresh interpreter needs, at most, to run a script with these arguments."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("asks Linux for the peak; the usual getrusage tells that of the parent where that is larger")

    def peak(script: str, *arguments: object) -> int:
        script += f"\nprint(*[x for x in open({str(status)!r}) if x.startswith('VmHWM')])"
        words = [sys.executable, "-c", script, *map(str, arguments)]
        env = os.environ | {"MALLOC_ARENA_MAX": "1"}  # which thread allocates must not matter
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=env)
        return int(done.stdout.split()[-2]) // 1024

    return peak


@pytest.fixture(name="published")
def _published() -> Callable[[str, Path], Path]:
    return write_published
