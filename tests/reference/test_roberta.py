"""RoBERTa, XLM-R and DistilBERT are our BERT: same folders as transformers', same outputs, same gradients."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from regard.models import build
from regard.models.bert import BertConfig
from regard.models.published import LAYOUTS, from_published, load_model, published_weights, to_published, weights_bytes
from regard.nn.init import skip_init

VOCAB = 83
SHAPES = {
    "roberta": dict(types=1, eps=1e-5),
    "xlm-roberta": dict(types=1, eps=1e-5),
    "distilbert": dict(types=0, activation="relu"),
}
CASES = [(family, head) for family in SHAPES for head in LAYOUTS[family].architectures]
LENGTHS = torch.tensor([20, 6, 13])
REAL = torch.arange(20) < LENGTHS[:, None]


@pytest.fixture(params=CASES, ids="-".join)
def ours(request, shake):
    family, head = request.param
    labels = ("PER", "OTHER", "LOC") if head in ("sequence", "token") else ()
    size = dict(vocab=VOCAB, width=24, layers=2, heads=4, ffn=40, max_length=32)
    return shake(build(BertConfig(**size, **SHAPES[family], family=family, head=head, labels=labels)), 6.0).eval()


@pytest.fixture
def folder(ours, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(to_published(ours.config)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(ours))
    return tmp_path


@pytest.fixture
def theirs(folder, ours):
    cls = getattr(transformers, LAYOUTS[ours.config.family].architectures[ours.config.head])
    how = {"add_pooling_layer": False} if ours.config.head == "none" and ours.config.family != "distilbert" else {}
    model, info = cls.from_pretrained(folder, output_loading_info=True, **how)
    assert not any(info.values()), info
    return model.double().eval()


@pytest.fixture
def ids():
    """Of real tokens; 1 is RoBERTa's padding, 0 DistilBERT's."""
    return torch.randint(2, VOCAB, (3, 20))


def answers(model, hidden):
    """All that our heads return for B T D, by transformers' names."""
    head, first = model.config.head, hidden[:, 0]
    if head in ("sequence", "token"):
        return {"logits": model.scores(first if head == "sequence" else hidden)}
    if head == "masked":
        return {"logits": model.logits(hidden)}
    return {"last_hidden_state": hidden} | ({"pooler_output": model.pooled(first)} if head == "pooler" else {})


def test_outputs_and_gradients_are_equal(ours, theirs, ids):
    """Rows padded on the right; two sentences, which none of them tells apart."""
    ours, pad = ours.double(), theirs.config.pad_token_id
    mine = answers(ours, ours(ids, LENGTHS, (torch.arange(20) > 9).long().expand(3, -1)))
    other = theirs(ids.masked_fill(~REAL, pad), attention_mask=REAL.long())
    for name, tensor in mine.items():
        real = REAL if tensor.ndim == 3 else slice(None)
        torch.testing.assert_close(tensor[real], other[name][real], rtol=1e-9, atol=1e-9)
        tensor[real].square().sum().backward(retain_graph=True)
        other[name][real].square().sum().backward(retain_graph=True)
    gradients = dict(theirs.named_parameters(remove_duplicate=False))
    for p in ours.parameters():  # ours take the place of the weights, to be published by their names
        p.data = torch.zeros_like(p) if p.grad is None else p.grad
    for name, grad in published_weights(ours).items():
        expected = gradients[name].grad
        expected = torch.zeros_like(grad) if expected is None else expected.float()
        torch.testing.assert_close(grad, expected, rtol=1e-5, atol=1e-6, msg=name)


def test_a_folder_that_transformers_wrote_is_read(theirs, ours, tmp_path, ids):
    theirs.float().save_pretrained(tmp_path / "theirs")
    again = load_model(tmp_path / "theirs")
    assert again.config == ours.config
    for name, tensor in answers(again, again(ids)).items():
        assert torch.equal(tensor, answers(ours, ours(ids))[name])


def test_files_may_hold_more_than_is_read(ours, folder, ids):
    """Copies of what is tied, a buffer of positions, a pooler that nothing reads; names without the prefix."""
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


PUBLISHED = {  # config.json as published, shortened, and the parameters that transformers counts
    "roberta-base": (
        dict(
            architectures=["RobertaForMaskedLM"], model_type="roberta", vocab_size=50265, hidden_size=768,
            num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, max_position_embeddings=514,
            type_vocab_size=1, layer_norm_eps=1e-5, hidden_act="gelu", pad_token_id=1, bos_token_id=0, eos_token_id=2,
        ),
        124_697_433,
    ),
    "xlm-roberta-base": (
        dict(
            architectures=["XLMRobertaForMaskedLM"], model_type="xlm-roberta", vocab_size=250002, hidden_size=768,
            num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, max_position_embeddings=514,
            type_vocab_size=1, layer_norm_eps=1e-5, hidden_act="gelu", pad_token_id=1, output_past=True,
        ),
        278_295_186,
    ),
    "distilbert-base-uncased": (
        dict(
            architectures=["DistilBertForMaskedLM"], model_type="distilbert", vocab_size=30522, dim=768, n_layers=6,
            n_heads=12, hidden_dim=3072, max_position_embeddings=512, activation="gelu", dropout=0.1,
            attention_dropout=0.1, sinusoidal_pos_embds=False, tie_weights_=True, seq_classif_dropout=0.2,
        ),
        66_985_530,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_settings_give_the_published_size(name):
    values, parameters = PUBLISHED[name]
    config = from_published(values)
    with torch.device("meta"), skip_init():
        unused = 0 if config.family == "distilbert" else 2 * config.width  # rows of positions that no token has
        assert build(config).size() + unused == parameters
