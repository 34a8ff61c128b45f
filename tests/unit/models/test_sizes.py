"""Sizes that a file or a setting claims are held against what there is, before anything of that size is made."""

import json
import os
import resource
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.unit.models.tiny_gguf import tiny_llama, write_gguf

import regard
from regard.errors import CheckpointError, ConfigError, LimitError
from regard.models.gpt import GPTConfig
from regard.models.published import check_fit, load_model, read_config
from regard.models.published.weights import read_shapes
from regard.models.registry import check_memory, outline
from regard.tasks import config_for

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
HUGE = 2**31 - 1


@pytest.fixture(autouse=True)
def bounded():
    """Every test here is over at once, and takes next to no memory."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.monotonic() - began < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


def copy(name: str, folder: Path, **settings) -> Path:
    """A run of the fixtures with some of its config.json replaced."""
    shutil.copytree(RUNS / name, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return folder


@pytest.mark.parametrize(
    ("run", "settings"),
    [
        ("lm-gpt", {"n_layer": 10**9}),
        ("lm-gpt", {"n_embd": HUGE * 4}),
        ("lm-gpt", {"vocab_size": HUGE}),
        ("lm-gpt", {"n_positions": HUGE}),
        ("lm-gpt", {"n_inner": 10**30}),
        ("classify", {"num_hidden_layers": 10**9}),
        ("classify", {"id2label": None, "num_labels": 10**9}),
        ("translate-transformer", {"encoder_layers": 10**9}),
        ("translate-transformer", {"d_model": HUGE - 3}),
        ("image-vit", {"image_size": 10**9}),
        ("series", {"layers": 10**8}),
        ("table", {"layers": 10**8}),
    ],
)
def test_settings_that_the_weights_do_not_bear_out_are_refused(tmp_path, run, settings):
    folder = copy(run, tmp_path / "m", **settings)
    with pytest.raises(CheckpointError, match="m"):
        load_model(folder)
    with pytest.raises(CheckpointError):
        check_fit(read_config(folder), read_shapes(folder), "m")


@pytest.mark.parametrize("places", ["max_position_embeddings", "frames"])
def test_a_claimed_length_costs_nothing(tmp_path, places):
    run = {"max_position_embeddings": "translate-transformer", "frames": "audio"}[places]
    whole, claimed = load_model(RUNS / run), load_model(copy(run, tmp_path / "m", **{places: HUGE}))
    assert whole.state_dict().keys() == claimed.state_dict().keys()


def test_a_claimed_context_of_a_gguf_file_costs_nothing(tmp_path):
    model = tiny_llama()
    expected = model(torch.arange(5)[None]).logits
    model.config.max_position_embeddings = HUGE
    writer = regard.load(write_gguf(tmp_path / "m.gguf", model))
    assert writer.model.config.context == HUGE
    torch.testing.assert_close(writer.model.logits(writer.model(torch.arange(5)[None])), expected, rtol=1e-3, atol=1e-3)


def test_weights_larger_than_memory_are_refused(monkeypatch):
    monkeypatch.setenv("REGARD_MEMORY", "10K")
    with pytest.raises(
        LimitError, match=r"weights of .*lm-gpt would need .*the limit is 10\.0 KB; .*REGARD_MEMORY=\d+K"
    ):
        load_model(RUNS / "lm-gpt")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xff" * 8,
        (10).to_bytes(8, "little") + b"{",
        (2).to_bytes(8, "little") + b"[]",
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
        (33).to_bytes(8, "little") + b'{"a": {"dtype": "F32", "shape": 1}}'[:33],
        (26).to_bytes(8, "little") + b'{"a": {"shape": [1.5, -2]}}'[:26],
    ],
)
def test_a_damaged_table_of_contents_is_refused(tmp_path, header):
    folder = copy("lm-gpt", tmp_path / "m")
    (folder / "model.safetensors").write_bytes(header)
    with pytest.raises(CheckpointError, match="cut short or not a safetensors file"):
        load_model(folder)


def test_a_shape_that_the_file_has_no_room_for_is_refused(tmp_path):
    folder = copy("lm-gpt", tmp_path / "m")
    path = folder / "model.safetensors"
    state = load_file(path)
    name = next(name for name in state if name.endswith("wte.weight"))
    width = state[name].shape[1]
    save_file(state, path)
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + size])
    table[name]["shape"] = [10**7, width]
    text = json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 10**7}))
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_model(folder)


def test_a_model_too_large_to_train_is_refused_before_it_is_built():
    with pytest.raises(ConfigError, match="100,000,000 layers"):
        check_memory(config_for("gpt", "tiny", 300, task="lm", layers=10**8))
    with pytest.raises(LimitError, match=r"parameters would need .* TB .*--set model"):
        check_memory(config_for("gpt", "tiny", 300, task="lm", width=10**6, heads=4, ffn=10**6))
    with pytest.raises(LimitError, match="too many parameters to count"):
        check_memory(GPTConfig(vocab=10**18, width=10**18, heads=1))
    check_memory(config_for("gpt", "gpt2", 50_257, task="lm"))


def test_a_model_too_large_for_memory_can_still_be_counted():
    count = sum(p.numel() for p in outline(config_for("llama", "llama2-7b", 32_000, task="lm")).parameters())
    assert count == 6_738_415_616  # Touvron et al. 2023


VALUES = [None, [], {}, "x", -1, 0, 1.5, float("nan"), [[]], 10**400]


@pytest.mark.parametrize("value", VALUES, ids=[f"{value!r:.8}" for value in VALUES])
def test_a_setting_of_another_type_is_refused_in_a_sentence(tmp_path, value):
    for run, name in (
        ("lm-gpt", "n_layer"),
        ("series", "layers"),
        ("classify", "vocab_size"),
        ("lm-gpt", "model_type"),
    ):
        folder = copy(run, tmp_path / run / name, **{name: value})
        with pytest.raises(CheckpointError) as refused:
            load_model(folder)
        assert str(folder) in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "regard.json"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path, name):
    folder = copy("lm-gpt", tmp_path / "m")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    if name == "regard.json":
        regard.load(folder)  # which does not need it
    else:
        with pytest.raises(CheckpointError):
            regard.load(folder)


@pytest.mark.timeout(60)
def test_a_pipe_is_not_a_gguf_file(tmp_path):
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(CheckpointError, match="not a file"):
        regard.load(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("run", "about"),
    [
        ("series", {"data": []}),
        ("series", {"data": {"max_length": "x"}}),
        ("forecast", {"data": 7}),
        ("lm-gpt", {"template": {}}),
        ("classify", {"task": []}),
    ],
)
def test_a_damaged_regard_json_is_read_as_far_as_it_goes_or_refused(tmp_path, run, about):
    folder = copy(run, tmp_path / "m")
    path = folder / "regard.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | about))
    with suppress(CheckpointError):
        assert regard.load(folder).model is not None
