"""LoRA's maps alone are PEFT's: it opens what we write with equal logits, and we open what it writes."""

import json

import peft
import pytest
import torch
import transformers

from regard.errors import CheckpointError
from regard.models import BertConfig, GPTConfig, LlamaConfig, build
from regard.models.fetched import resolve
from regard.models.published import load_model, to_published, weights_bytes, write_adapter
from regard.nn.lora import adapters, add_lora_

SMALL = dict(vocab=64, width=16, heads=2, ffn=24, layers=2)
CASES = {
    "gpt2": (GPTConfig(**SMALL, context=8), "GPT2LMHeadModel", ("*",)),
    "llama": (LlamaConfig(**SMALL, kv_heads=1, head_width=8, context=8, tied=True), "LlamaForCausalLM", ("*",)),
    "bert": (BertConfig(**SMALL, max_length=8, head="sequence", labels=("a", "b")),
             "BertForSequenceClassification", ("layers.*",)),
}  # fmt: skip
IDS = torch.randint(0, 64, (2, 6), generator=torch.Generator().manual_seed(0))


def logits(model):
    with torch.no_grad():
        if isinstance(model, torch.nn.Module) and hasattr(model, "logits"):
            hidden = model(IDS)
            return model.scores(hidden[:, 0]) if hasattr(model, "follows") else model.logits(hidden)
        return model(input_ids=IDS).logits


@pytest.fixture(params=CASES)
def case(request, shake, tmp_path):
    """A base folder, our model with maps that are not zero, the class of transformers, and a folder for the adapter."""
    config, name, targets = CASES[request.param]
    model = shake(build(config), 3.0).eval()
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text(json.dumps(to_published(config)))
    (base / "model.safetensors").write_bytes(weights_bytes(model))
    add_lora_(model, 2, alpha=4.0, targets=targets)
    with torch.no_grad():
        for lora in adapters(model).values():
            lora.B.normal_(std=0.3)
        if hasattr(model, "follows"):
            model.classifier.weight.normal_().requires_grad_(True)
    (tmp_path / "adapter").mkdir()
    return base, model, getattr(transformers, name), tmp_path / "adapter"


def test_peft_opens_what_we_write(case):
    base, model, cls, folder = case
    write_adapter(folder, model, base)
    theirs = peft.PeftModel.from_pretrained(cls.from_pretrained(base), folder).eval()
    torch.testing.assert_close(logits(model), logits(theirs), rtol=1e-5, atol=1e-5)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert (folder / "adapter_model.safetensors").stat().st_size < 20 * trained + 20_000


def test_our_folder_is_the_base_with_its_adapter(case):
    base, model, _, folder = case
    write_adapter(folder, model, base)
    (folder / "config.json").write_bytes((base / "config.json").read_bytes())
    torch.testing.assert_close(logits(load_model(folder)), logits(model), rtol=1e-5, atol=1e-5)
    (base / "config.json").unlink()
    with pytest.raises(CheckpointError, match="which is missing"):
        load_model(folder)


def test_we_open_what_peft_writes(case, tmp_path, monkeypatch):
    """Only some maps, as its users choose them, of another rank, scaled by its root."""
    base, _, cls, folder = case
    targets = {"GPT2LMHeadModel": ["c_attn"], "LlamaForCausalLM": ["q_proj", "v_proj"]}.get(cls.__name__, ["query"])
    how = dict(r=3, lora_alpha=5, target_modules=targets, use_rslora=True, init_lora_weights=False)
    theirs = peft.get_peft_model(cls.from_pretrained(base), peft.LoraConfig(**how)).eval()
    theirs.save_pretrained(folder)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    merged = resolve(folder)
    torch.testing.assert_close(logits(load_model(merged)), logits(theirs), rtol=1e-5, atol=1e-5)
    assert resolve(folder) == merged
    (base / "config.json").unlink()
    with pytest.raises(CheckpointError, match="which is missing"):
        resolve(folder)


def test_what_is_not_lora_is_refused(case):
    base, model, _, folder = case
    write_adapter(folder, model, base)
    (folder / "config.json").write_bytes((base / "config.json").read_bytes())
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"use_dora": True}))
    with pytest.raises(CheckpointError, match="DoRA adapter; we read only LoRA"):
        load_model(folder)
