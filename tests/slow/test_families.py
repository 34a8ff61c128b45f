"""The same prompt through transformers and through regard: every family, small and random; and the weights here."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from tests.reference.parity import Case, save
from tests.reference.test_layouts import CASES
from tests.reference.test_subwords import SPECIAL, roberta
from tokenizers import AddedToken

import regard
from regard.data.catalog import MODELS_CATALOG
from regard.data.waveform import RATE
from regard.models.fetched import resolve
from regard.tasks.load import open_model

PROMPT = "The cat drank the milk because it was"
NAMES = dict(cls="<s>", bos="<s>", pad="<pad>", sep="</s>", eos="</s>", unk="<unk>", mask="<mask>")


def here(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not MODELS_CATALOG[name].here, reason=f"no weights; type: regard model get {name}")


@pytest.fixture
def folder(request, shake, tmp_path) -> Path:
    """A model of the case, with a byte-level tokenizer."""
    case: Case = CASES[request.param]
    tokenizer = roberta()
    masked = not case.architecture.endswith("CausalLM")
    if masked:
        tokenizer.add_special_tokens([*SPECIAL, AddedToken("<mask>", lstrip=True, special=True)])
    else:
        tokenizer.post_processor = None
    case = replace(case, config=replace(case.config, vocab=tokenizer.get_vocab_size()))
    model = case.ours(shake)
    with torch.no_grad():
        model.token.weight.mul_(10.0)
    tokenizer.save(str(save(model, tmp_path) / "tokenizer.json"))
    names = {f"{role}_token": name for role, name in NAMES.items() if masked or role in ("eos", "pad")}
    config = {"tokenizer_class": "PreTrainedTokenizerFast"} | names
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def open_theirs(folder: Path) -> tuple:
    values = json.loads((folder / "config.json").read_text())
    model = getattr(transformers, values["architectures"][0]).from_pretrained(folder).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("folder", [name for name, c in CASES.items() if "CausalLM" in c.architecture], indirect=True)
def test_language_models_go_on_as_theirs(folder):
    model, tokenizer = open_theirs(folder)
    batch = tokenizer(PROMPT, return_tensors="pt", add_special_tokens=False)
    how = dict(max_new_tokens=9, do_sample=False, eos_token_id=2, pad_token_id=1)
    written = model.generate(**batch, **how)[0, batch["input_ids"].size(1) :].tolist()
    ((ours,),) = open_model(folder)[1].generate([PROMPT], max_tokens=9, temperature=0.0)
    assert list(ours.ids) == [i for i in written if i != 2]


@pytest.mark.parametrize("folder", [name for name in CASES if name.endswith("-masked")], indirect=True)
def test_gaps_are_filled_as_by_theirs(folder):
    model, tokenizer = open_theirs(folder)
    ids = tokenizer(PROMPT + " <mask>.", return_tensors="pt")["input_ids"]
    (answer,) = open_model(folder, verb="fill")[1].predict([PROMPT + " [MASK]."], top=5)
    gap = ids[0].tolist().index(tokenizer.mask_token_id)
    assert [word.id for word in answer.masks[0]] == model(ids).logits[0, gap].topk(5).indices.tolist()


@pytest.mark.parametrize("folder", ["modernbert-none", "roberta-none", "distilbert-none"], indirect=True)
def test_vectors_are_theirs(folder):
    model, tokenizer = open_theirs(folder)
    hidden = model(**tokenizer(PROMPT, return_tensors="pt")).last_hidden_state[0].mean(0)
    ours = open_model(folder, verb="embed")[1].embed([PROMPT], pooling="mean", normalise=False)[0]
    torch.testing.assert_close(torch.from_numpy(ours), hidden.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("folder", ["bart"], indirect=True)
def test_bart_writes_what_theirs_writes(folder):
    model, tokenizer = open_theirs(folder)
    how = dict(max_new_tokens=12, num_beams=1, do_sample=False, forced_bos_token_id=0, forced_eos_token_id=None)
    written = model.generate(**tokenizer(PROMPT, return_tensors="pt"), **how, suppress_tokens=[1])[0, 1:].tolist()
    (best,) = open_model(folder, verb="translate")[1].hypotheses([PROMPT], beam=1, max_length=13)
    assert best[0].ids[:-1] == [i for i in written if i != 2][: len(best[0].ids) - 1]


@here("smollm2-135m")
def test_smollm2_writes_what_transformers_writes():
    folder = resolve("smollm2-135m")
    model, tokenizer = open_theirs(folder)
    batch = tokenizer(PROMPT, return_tensors="pt")
    written = model.generate(**batch, max_new_tokens=30, do_sample=False)[0, batch["input_ids"].size(1) :]
    ((ours,),) = regard.load(folder).generate([PROMPT], max_tokens=30, temperature=0.0)
    assert ours.text == tokenizer.decode(written, skip_special_tokens=True)


@here("minilm")
@torch.inference_mode()
def test_minilm_gives_the_vectors_of_transformers():
    folder = resolve("minilm")
    tokenizer, model = (
        transformers.AutoTokenizer.from_pretrained(folder),
        transformers.AutoModel.from_pretrained(folder),
    )
    hidden = model.eval()(**tokenizer(PROMPT, return_tensors="pt")).last_hidden_state[0].mean(0)
    ours = torch.from_numpy(regard.load(folder).embed([PROMPT], normalise=False)[0])
    torch.testing.assert_close(ours, hidden, rtol=1e-4, atol=1e-5)


@here("whisper-tiny")
def test_whisper_tiny_writes_the_times_of_transformers():
    folder = resolve("whisper-tiny")
    ours, theirs = regard.load(folder), transformers.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    t = torch.arange(6 * RATE) / RATE
    sound = 0.3 * torch.sin(2 * torch.pi * 220 * t) * (1 + torch.sin(2 * torch.pi * 3 * t))
    (mine,) = ours.ids([sound], 1, [ours.prompt("en", timestamps=True)], timestamps=True)
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(folder)
    picture = extractor(sound.numpy(), sampling_rate=RATE, return_tensors="pt").input_features
    rules = transformers.generation.WhisperTimeStampLogitsProcessor(theirs.generation_config, begin_index=1)
    ids = torch.tensor([[ours.start, *ours.prompt("en", timestamps=True)]])
    rules.set_begin_index(ids.size(1))
    begin = ids.size(1)
    with torch.inference_mode():
        encoded = theirs.model.encoder(picture)
        for expected in mine[:20]:
            logits = theirs(encoder_outputs=encoded, decoder_input_ids=ids).logits[:, -1]
            logits[:, list(ours.never)] = -torch.inf
            if ids.size(1) == begin:
                logits[:, list(ours.not_first)] = -torch.inf
            assert int(rules(ids, logits).argmax()) == expected
            ids = torch.cat((ids, torch.tensor([[expected]])), 1)
