"""Every family as ONNX: onnxruntime's outputs are ours, for other sizes than were traced."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import shake
from tests.unit.formats.graph_cases import CONFIGS, built

from regard.data.tokenizers.bytelevel import ByteLevel
from regard.formats import FORMATS
from regard.formats.graphs import graphs_of
from regard.formats.onnx import check_graph, open_session, write_graph
from regard.models import build
from regard.models.gpt import GPTConfig
from regard.models.published import load_model, to_published, weights_bytes


@pytest.mark.parametrize("name", CONFIGS)
def test_onnxruntime_computes_what_we_compute(name, tmp_path):
    for graph in graphs_of(built(name), Path("no such folder")):
        write_graph(graph, tmp_path / graph.file)
        assert check_graph(graph, tmp_path / graph.file) < 1e-4, graph.file


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    config = GPTConfig(vocab=257, width=16, layers=1, heads=2, ffn=32, context=16)
    source = tmp_path / "model"
    ByteLevel.train([], 257).save(source, 16)
    (source / "config.json").write_text(json.dumps(to_published(config)))
    (source / "model.safetensors").write_bytes(weights_bytes(shake(build(config))))
    (source / "state.safetensors").write_bytes(b"left behind")
    return source


def test_onnxruntime_writes_the_text_that_we_write(folder, tmp_path):
    """Greedily, with the keys and values of the past: to 1e-4 the same logits at each step."""
    result = FORMATS["onnx"].write(folder, tmp_path / "out", "")
    assert set(result.files) == {"model.onnx", "config.json", "tokenizer.json", "tokenizer_config.json"}
    assert result.values["max_difference"]["model.onnx"] < 1e-4
    model = load_model(folder)
    session, ids, new = open_session(tmp_path / "out" / "model.onnx"), [72, 101, 108], 3
    past = {f"past_key_values.0.{x}": np.zeros((1, 2, 0, 8), np.float32) for x in ("key", "value")}
    for _ in range(6):
        feed = {"input_ids": np.array([ids[-new:]]), "attention_mask": np.ones((1, len(ids)), np.int64), **past}
        logits, key, value = session.run(None, feed)
        with torch.no_grad():
            expected = model.logits(model(torch.tensor([ids])))[0, -1]
        np.testing.assert_allclose(logits[0, -1], expected.numpy(), atol=1e-4)
        past, new = {"past_key_values.0.key": key, "past_key_values.0.value": value}, 1
        ids.append(int(expected.argmax()))
