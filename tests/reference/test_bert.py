"""Our BERT is transformers' with every head: same folders, same outputs, same gradients, padded and packed."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from regard.errors import CheckpointError
from regard.models import SIZES, build, config_for
from regard.models.bert import BertConfig
from regard.models.published import load_model, published_weights, to_published, weights_bytes
from regard.models.published.bert import ARCHITECTURES
from regard.nn.init import skip_init

close = torch.testing.assert_close
VOCAB = 83  # padded to 128 rows
SHAPES = {
    "small": dict(width=32, layers=3, heads=4, ffn=64, max_length=40),
    "odd": dict(width=30, layers=1, heads=5, ffn=17, max_length=20, types=3, activation="gelu-tanh", eps=1e-5),
    "relu": dict(width=16, layers=2, heads=1, ffn=50, max_length=23, types=1, activation="relu", attention_dropout=0.0),
}
LENGTHS = torch.tensor([20, 6, 13])
REAL = torch.arange(20) < LENGTHS[:, None]


@pytest.fixture(params=ARCHITECTURES)
def head(request):
    return request.param


@pytest.fixture(params=SHAPES)
def ours(request, head, shake):
    labels = ("PER", "OTHER", "LOC") if head in ("sequence", "token") else ()
    config = BertConfig(vocab=VOCAB, **{"dropout": 0.1, **SHAPES[request.param]}, head=head, labels=labels)
    return shake(build(config), 6.0).eval()


def write(model, folder):
    (folder / "config.json").write_text(json.dumps(to_published(model.config)))
    (folder / "model.safetensors").write_bytes(weights_bytes(model))
    return folder


@pytest.fixture
def folder(ours, tmp_path):
    return write(ours, tmp_path)


@pytest.fixture
def theirs(folder, head):
    cls = getattr(transformers, ARCHITECTURES[head])
    how = {"add_pooling_layer": False} if head == "none" else {}
    model, info = cls.from_pretrained(folder, output_loading_info=True, **how)
    assert not any(info.values()), info
    return model.double().eval()


@pytest.fixture
def ids():
    return torch.randint(1, VOCAB, (3, 20))  # 0 is padding there, and gets no gradient


@pytest.fixture
def sentences(ours, ids):
    return torch.randint(0, ours.config.types, ids.shape)


def answers(model, hidden):
    """All that our heads say of B T D, named as transformers names it."""
    head, first = model.config.head, hidden[:, 0]
    return {
        "none": lambda: {"last_hidden_state": hidden},
        "pooler": lambda: {"last_hidden_state": hidden, "pooler_output": model.pooled(first)},
        "masked": lambda: {"logits": model.logits(hidden)},
        "pretraining": lambda: {
            "prediction_logits": model.logits(hidden),
            "seq_relationship_logits": model.follows(first),
        },
        "sequence": lambda: {"logits": model.scores(first)},
        "token": lambda: {"logits": model.scores(hidden)},
    }[head]()


def real(tensor):
    return tensor[REAL] if tensor.ndim == 3 else tensor


def encoder(model):
    return getattr(model, "bert", model)


def same_gradients(ours, theirs):
    """All of them, by their published names: ours are written down in the place of the weights."""
    known = dict(theirs.named_parameters())
    for p in ours.parameters():
        p.data = torch.zeros_like(p) if p.grad is None else p.grad
    for name, grad in published_weights(ours).items():
        other = known[name].grad
        close(grad, torch.zeros_like(grad) if other is None else other.float(), rtol=1e-5, atol=1e-6, msg=name)


def test_padded_outputs_and_gradients_are_equal(ours, theirs, ids, sentences):
    ours = ours.double()
    mine = answers(ours, ours(ids, LENGTHS, sentences))
    other = theirs(ids, attention_mask=REAL.long(), token_type_ids=sentences)
    for name, tensor in mine.items():
        close(real(tensor), real(other[name]))
        real(tensor).square().sum().backward(retain_graph=True)
        real(other[name]).square().sum().backward(retain_graph=True)
    same_gradients(ours, theirs)


def test_packed_is_theirs_one_by_one(ours, theirs, ids, sentences):
    """Three texts in one row: each equals theirs alone, and so do the gradients."""
    ours = ours.double()
    pack = lambda x: x[REAL][None]  # noqa: E731
    starts = torch.tensor([0, 20, 26, 39], dtype=torch.int32)
    hidden = ours(pack(ids), sentences=pack(sentences), starts=starts)[0].split(LENGTHS.tolist())
    for b, n in enumerate(LENGTHS):
        mine = answers(ours, hidden[b][None])
        other = theirs(ids[b : b + 1, :n], token_type_ids=sentences[b : b + 1, :n])
        for name, tensor in mine.items():
            close(tensor, other[name])
            tensor.square().sum().backward(retain_graph=True)
            other[name].square().sum().backward(retain_graph=True)
    same_gradients(ours, theirs)


def test_every_layer_is_theirs(ours, theirs, ids, sentences):
    kept = []
    ours.double()(ids, LENGTHS, sentences, kept=kept)
    known = encoder(theirs)(ids, REAL.long(), sentences, output_hidden_states=True).hidden_states
    assert len(kept) == len(known) == ours.config.layers + 1
    for mine, other in zip(kept, known, strict=True):
        close(mine[REAL], other[REAL])


def test_our_export_is_imported_unchanged(ours, folder, ids):
    again = load_model(folder)
    assert again.config == ours.config
    assert torch.equal(again(ids, LENGTHS), ours(ids, LENGTHS))
    assert not again.token.weight[VOCAB:].any()


def test_a_folder_that_transformers_wrote_is_read(theirs, ours, tmp_path, ids):
    theirs.float().save_pretrained(tmp_path / "theirs")
    again = load_model(tmp_path / "theirs")
    assert again.config == ours.config
    for name, tensor in answers(again, again(ids)).items():
        close(tensor, answers(ours, ours(ids))[name])


def test_old_names_are_read(ours, folder, ids):
    """gamma and beta; `bert.` before the encoder or not; a buffer of positions; copies of what is tied."""
    state = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        bare = name.removeprefix("bert.")
        name = "bert." + name if bare == name and not name.startswith(("cls", "classifier")) else bare
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        state[name] = tensor
    state["embeddings.position_ids"] = torch.arange(40)[None]
    if "cls.predictions.bias" in state:
        state["cls.predictions.decoder.bias"] = state["cls.predictions.bias"].clone()
        state["cls.predictions.decoder.weight"] = state["embeddings.word_embeddings.weight"].clone()
    save_file(state, folder / "model.safetensors")
    again = load_model(folder)
    assert again.config == ours.config
    for name, tensor in answers(again, again(ids)).items():
        assert torch.equal(tensor, answers(ours, ours(ids))[name])


# -- files, once ------------------------------------------------------------------------------------------------------


@pytest.fixture
def one(tmp_path):
    """A folder with a masked-word head."""
    model = build(BertConfig(vocab=VOCAB, width=16, layers=1, heads=2, ffn=24, max_length=9, head="masked"))
    return write(model, tmp_path)


def set_config(folder, **settings):
    values = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(values))


def damage(folder, edit):
    state = load_file(folder / "model.safetensors")
    edit(state)
    save_file(state, folder / "model.safetensors")


def test_published_pretraining_checkpoints_keep_both_heads(tmp_path):
    """bert-base-uncased says BertForMaskedLM, and holds the pooler and the next-sentence head too."""
    write(
        build(BertConfig(vocab=VOCAB, width=16, layers=1, heads=2, ffn=24, max_length=9, head="pretraining")), tmp_path
    )
    set_config(tmp_path, architectures=["BertForMaskedLM"])
    assert load_model(tmp_path).config.head == "pretraining"


def test_a_pooler_that_nothing_reads_is_left_out(one):
    damage(one, lambda s: s.update({"bert.pooler.dense.weight": torch.ones(16, 16)}))
    assert load_model(one).config.head == "masked"


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda s: s.pop("bert.encoder.layer.0.output.dense.bias"), r"does not fit.*layer\.0\.output\.dense\.bias"),
        (lambda s: s.pop("cls.predictions.transform.dense.bias"), r"does not fit.*transform\.dense\.bias"),
        (lambda s: s.update(score=torch.ones(2)), r"does not fit.*unexpected tensors: score"),
        (lambda s: s.update({"bert.embeddings.LayerNorm.bias": torch.ones(3)}), r"does not fit"),
        (lambda s: s["cls.predictions.bias"][3].fill_(torch.nan), r"cls\.predictions\.bias.*NaN"),
    ],
    ids=["missing", "head", "unexpected", "shape", "NaN"],
)
def test_damaged_weights_are_named(one, edit, says):
    damage(one, edit)
    with pytest.raises(CheckpointError, match=says):
        load_model(one)


@pytest.mark.parametrize(
    "setting",
    [
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"architectures": ["BertForQuestionAnswering"]},
        {"hidden_act": "mish"},
    ],
    ids=str,
)
def test_what_we_do_not_compute_is_refused(one, setting):
    set_config(one, **setting)
    with pytest.raises(Exception, match=r"relative_key|is_decoder|QuestionAnswering|mish"):
        load_model(one)


def test_labels_are_theirs_in_the_order_of_their_numbers(tmp_path):
    labels = tuple(f"L{i}" for i in range(12, 0, -1))
    shape = dict(vocab=VOCAB, width=16, layers=1, heads=2, ffn=24, max_length=9)
    write(build(BertConfig(**shape, head="token", labels=labels)), tmp_path)
    assert transformers.AutoConfig.from_pretrained(tmp_path).id2label == dict(enumerate(labels))
    assert load_model(tmp_path).config.labels == labels
    set_config(tmp_path, id2label=None, num_labels=12)
    assert load_model(tmp_path).config.labels[11] == "LABEL_11"


# -- sizes ------------------------------------------------------------------------------------------------------------


def formula(V, D, L, F, P=512, types=2):
    """Words, places, sentences and a norm; four maps, two norms and two wide maps a layer; the pooler."""
    layer = 4 * (D * D + D) + 2 * 2 * D + 2 * D * F + F + D
    return (V + P + types) * D + 2 * D + L * layer + D * D + D


def test_published_sizes_match_the_parameter_formula():
    with torch.device("meta"), skip_init():  # to count, no numbers are needed
        configs = {size: config_for("bert", size, 30522, task="mlm") for size in SIZES["bert"]}
        counts = {size: build(c).size() for size, c in configs.items()}
    assert counts == {size: formula(30522, c.width, c.layers, c.ffn) for size, c in configs.items()}
    assert counts["base"] == 109_482_240 and counts["large"] == 335_141_888  # lectures round to 110 and 340 million
    assert counts["minilm-l6"] == 22_713_216 and counts["tiny"] == 4_385_920
    assert all(c.width == 64 * c.heads and c.ffn == 4 * c.width for s, c in configs.items() if s != "minilm-l6")


def test_weights_are_drawn_as_theirs_are():
    torch.manual_seed(1)
    config = BertConfig(vocab=1000, width=128, layers=2, heads=4, ffn=512, max_length=64, head="pretraining")
    ours = build(config)
    for name, p in ours.named_parameters():
        if p.ndim == 2:
            p = p[:1000] if name == "token.weight" else p
            assert p.std().item() == pytest.approx(0.02, rel=0.05 if p.numel() > 5000 else 0.3), name
        else:
            assert (p == (1.0 if "norm" in name and name.endswith("weight") else 0.0)).all(), name
