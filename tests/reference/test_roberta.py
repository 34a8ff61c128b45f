"""RoBERTa, XLM-R and DistilBERT as older files hold them; test_layouts.py compares the models."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.reference.parity import inputs, save
from tests.reference.test_layouts import BERTS, CASES

from regard.models.published import LAYOUTS, load_model


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(tuple(BERTS))])
def test_files_may_hold_more_than_is_read(name, shake, tmp_path):
    """Copies of what is tied, a buffer of positions, a pooler that nothing reads; names without the prefix."""
    ours, ids = CASES[name].ours(shake), inputs()[0]
    folder = save(ours, tmp_path)
    path, prefix = folder / "model.safetensors", LAYOUTS[ours.config.family].prefix
    state = {name.removeprefix(prefix): tensor for name, tensor in load_file(path).items()}
    state["embeddings.position_ids"] = torch.arange(34)[None]
    if ours.config.head == "masked":
        copy = "vocab_projector.weight" if ours.config.family == "distilbert" else "lm_head.decoder.weight"
        state[copy] = state["embeddings.word_embeddings.weight"].clone()
    if ours.config.head in ("masked", "sequence", "token") and ours.config.family != "distilbert":
        state["pooler.dense.weight"], state["pooler.dense.bias"] = torch.ones(24, 24), torch.ones(24)
    save_file(state, path)
    again = load_model(folder)
    assert again.config == ours.config and torch.equal(again(ids), ours(ids))
