"""A folder that we wrote, read by those who serve such folders: CTranslate2 and transformers translate as we do."""

import random
from dataclasses import replace
from pathlib import Path

import ctranslate2
import pytest
import torch
import transformers
from ctranslate2.converters import TransformersConverter

from regard import load, predictors
from regard.data.prepare import PairsConfig
from regard.models.transformer import TransformerConfig
from regard.tasks import default_run, train_run
from regard.training.settings import Optim, Schedule

LONGEST = 24  # pieces of a translation, its end included


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model trained so briefly that its beams disagree with one another: the harder case for a comparison."""
    home = tmp_path_factory.mktemp("served")
    rng = random.Random(1)
    numbers = [[rng.randrange(6) for _ in range(rng.randint(1, 6))] for _ in range(200)]
    files = {}
    for side, words in (("source", "one two three four five six"), ("target", "un deux trois quatre cinq six")):
        lines = [" ".join(words.split()[n] for n in line) + " ." for line in numbers]
        (home / side).write_text("\n".join(lines) + "\n")
        files |= {side: str(home / side), f"valid_{side}": str(home / side)}
    run = default_run(data=PairsConfig(**files, vocab=340))
    run = replace(
        run,
        model=TransformerConfig(vocab=340, width=32, heads=2, ffn=48, encoder_layers=2, decoder_layers=2),
        optim=Optim(name="adamw", lr=5e-3),
        schedule=Schedule(kind="constant", warmup=5),
        steps=40,
        minutes=0,
        tokens=512,
        eval_every=40,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(home / "cache"))
        train_run(run, home / "run", quiet=True)
    return home / "run"


@pytest.fixture(scope="module")
def ours(folder) -> predictors.Translator:
    return load(folder)


@pytest.fixture(scope="module")
def served(folder) -> ctranslate2.Translator:
    converted = TransformersConverter(str(folder)).convert(str(folder.parent / "ct2"))
    return ctranslate2.Translator(converted, device="cpu", compute_type="float32", intra_threads=1)


TEXTS = ["one two three .", "six .", "five five four one two six .", "an unseen word: ✂", "two"]


@torch.no_grad()
def log_probability(ours: predictors.Translator, text: str, ids: list[int]) -> float:
    """Of words alone: to CTranslate2, as to Marian, padding is no word and takes no part of the probability."""
    source = torch.tensor([[*ours.tokenizer.encode(text), ours.tokenizer.eos]])
    inputs = torch.tensor([[ours.tokenizer.pad, *ids[:-1]]])
    words = ours.model.logits(ours.model(source, None, inputs))[0, :, : ours.tokenizer.pad].log_softmax(-1)
    return float(words.gather(1, torch.tensor(ids)[:, None]).sum())


@pytest.mark.parametrize("beam", [1, 4])
def test_ctranslate2_gives_our_tokens_and_scores(ours, served, beam):
    pieces = [[ours.tokenizer.piece(i) for i in [*ours.tokenizer.encode(t), ours.tokenizer.eos]] for t in TEXTS]
    theirs = served.translate_batch(
        pieces,
        beam_size=beam,
        length_penalty=0,
        min_decoding_length=0,
        max_decoding_length=LONGEST - 1,
        return_scores=True,
    )
    mine = ours.hypotheses(TEXTS, beam=beam, length_penalty=0, max_length=LONGEST)
    for text, other, (best, *_) in zip(TEXTS, theirs, mine, strict=True):
        assert other.hypotheses[0] == [ours.tokenizer.piece(i) for i in best.ids[:-1]], text
        scored = best.ids[: LONGEST - 1]  # of a translation cut short, they score what is there and no end
        assert other.scores[0] == pytest.approx(log_probability(ours, text, scored), abs=1e-3), text
    assert len({h[0].text for h in mine}) > 1, "all sentences are translated alike: nothing is compared"


def test_the_start_symbol_is_marians_zero_vector(ours):
    """Marian has no start symbol: its decoder begins with nothing. Who reads our folder counts on it."""
    assert ours.model.token.weight[ours.tokenizer.pad].count_nonzero() == 0


@pytest.fixture(scope="module")
def marian(folder):
    return transformers.AutoTokenizer.from_pretrained(folder), transformers.MarianMTModel.from_pretrained(folder).eval()


@pytest.mark.parametrize("beam", [1, 4])
@torch.no_grad()
def test_transformers_translates_as_we_do(ours, marian, beam):
    """With a length penalty of 0 both rank by log-probability alone; otherwise theirs and ours differ by design."""
    tokenizer, model = marian
    mine = ours.translate(TEXTS, beam=beam, length_penalty=0, max_length=LONGEST)
    for text, best in zip(TEXTS, mine, strict=True):  # one by one, as transformers' beams mind their neighbours
        made = model.generate(
            **tokenizer(text, return_tensors="pt"), num_beams=beam, length_penalty=0.0, do_sample=False,
            max_length=LONGEST + 1, forced_eos_token_id=0, early_stopping=True,
        )  # fmt: skip
        assert tokenizer.decode(made[0], skip_special_tokens=True) == best, text


def test_the_tokenizer_they_load_is_ours(ours, marian):
    tokenizer, _ = marian
    for text in TEXTS:
        assert tokenizer(text).input_ids == [*ours.tokenizer.encode(text), ours.tokenizer.eos]
