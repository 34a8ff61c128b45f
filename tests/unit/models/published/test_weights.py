"""Weights in shards, as transformers reads and writes them."""

import json

import pytest
import torch
import transformers
from safetensors import safe_open

from regard.models import build
from regard.models.gpt import GPTConfig
from regard.models.published import load_model, published_weights, save_weights, to_published, weights
from regard.models.published.weights import INDEX

CONFIG = GPTConfig(vocab=30, width=16, layers=2, heads=2, ffn=32, context=8)


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr(weights, "SHARD", 6_000)
    torch.manual_seed(0)
    return build(CONFIG).eval()


def test_shards_are_read_by_transformers_and_by_us(model, tmp_path):
    save_weights(model, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(to_published(CONFIG)))
    shards = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert shards == [f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
    assert len(shards) > 2 and all((tmp_path / name).stat().st_size < 8_000 for name in shards)
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    ids = torch.tensor([[1, 2, 3, 29]])
    again = load_model(tmp_path)
    with torch.no_grad():
        assert torch.equal(again.logits(again(ids)), model.logits(model(ids)))
        torch.testing.assert_close(theirs(ids).logits, model.logits(model(ids)), rtol=0, atol=1e-5)


def test_the_index_names_the_file_of_every_tensor(model, tmp_path):
    save_weights(model, tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    tensors = published_weights(model)
    assert index["weight_map"].keys() == tensors.keys()
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in tensors.values())
    for name, file in index["weight_map"].items():
        with safe_open(tmp_path / file, "pt") as opened:
            assert torch.equal(opened.get_tensor(name), tensors[name])


def test_a_tensor_larger_than_a_shard_has_one_of_its_own(model, tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "SHARD", 1)
    save_weights(model, tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == len(published_weights(model))
