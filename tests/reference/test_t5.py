"""Our T5 is transformers' T5ForConditionalGeneration: same folder, same logits, same gradients, same answers."""

import json

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers.models.t5.modeling_t5 import T5LayerNorm

from regard.models import build
from regard.models.published import from_published, load_model, published_weights, to_published, weights_bytes
from regard.models.t5 import T5Config
from regard.nn.init import skip_init
from regard.nn.positions import RelativeBias
from regard.tasks.load import open_model

VOCAB = 61
base = dict(vocab=VOCAB, width=24, encoder_layers=3, decoder_layers=2, heads=3, head_width=16, ffn=40)
base |= dict(buckets=8, furthest=20)
CONFIGS = {
    "t5": T5Config(**base),
    "flan": T5Config(**base, forward="gated-gelu", tied=False, dropout=0.0, eps=1e-4),
}
LENGTHS = torch.tensor([30, 6, 13])
REAL = torch.arange(30) < LENGTHS[:, None]


@pytest.fixture(params=CONFIGS, ids=list(CONFIGS))
def ours(request, shake):
    model = shake(build(CONFIGS[request.param]), 8.0).eval()
    with torch.no_grad():
        model.token.weight.mul_(200.0)  # what is written depends on the last word most
    return model


@pytest.fixture
def folder(ours, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(to_published(ours.config)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(ours))
    return tmp_path


@pytest.fixture
def theirs(folder, monkeypatch):
    """Their norm is torch's, but always in float32: here in float64."""
    exact = lambda norm, x: F.rms_norm(x, (x.size(-1),), norm.weight, norm.variance_epsilon)  # noqa: E731
    monkeypatch.setattr(T5LayerNorm, "forward", exact)
    model, info = transformers.T5ForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.double().eval()


@pytest.fixture
def texts():
    source = torch.randint(2, VOCAB, (3, 30)).masked_fill(~REAL, 0)
    return source, F.pad(torch.randint(2, VOCAB, (3, 8)), (1, 0))  # 0 is padding, and the start symbol


def test_logits_and_gradients_are_equal(ours, theirs, texts):
    ours, (source, inputs) = ours.double(), texts
    mine = ours.logits(ours(source, LENGTHS, inputs))
    other = theirs(source, attention_mask=REAL.long(), decoder_input_ids=inputs).logits
    torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)
    mine.square().sum().backward()
    other.square().sum().backward()
    gradients = dict(theirs.named_parameters(remove_duplicate=False))
    scale = ours.config.head_width**0.5  # of our queries, in whose direction the gradient is that much smaller
    for p in ours.parameters():
        p.data = p.grad
    for name, grad in published_weights(ours).items():
        grad = grad * scale**2 if name.endswith("Attention.q.weight") else grad
        torch.testing.assert_close(grad, gradients[name].grad.float(), rtol=1e-5, atol=1e-5, msg=name)


def test_our_export_is_imported_unchanged(ours, folder, texts):
    again = load_model(folder)
    assert again.config == ours.config and (again.output is None) == again.config.tied
    source, inputs = texts
    assert torch.equal(again(source, LENGTHS, inputs), ours(source, LENGTHS, inputs))


def test_a_folder_that_transformers_wrote_is_read(theirs, ours, tmp_path, texts):
    theirs.float().save_pretrained(tmp_path / "theirs", max_shard_size="8KB")
    if not ours.config.tied:  # whose settings newer versions write as tied
        path = tmp_path / "theirs/config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": False}))
    again, (source, inputs) = load_model(tmp_path / "theirs"), texts
    torch.testing.assert_close(again(source, None, inputs), ours(source, None, inputs), rtol=1e-5, atol=1e-6)


def test_copies_in_old_files_are_left_out(ours, folder):
    state = load_file(folder / "model.safetensors")
    state |= {f"{side}.embed_tokens.weight": state["shared.weight"].clone() for side in ("encoder", "decoder")}
    state["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.ones(8, 3)
    save_file(state, folder / "model.safetensors")
    assert load_model(folder).config == ours.config


@pytest.mark.parametrize("both_ways", [True, False])
def test_distances_fall_into_their_buckets(both_ways):
    from transformers.models.t5.modeling_t5 import T5Attention

    ahead = torch.arange(-300, 300)
    expected = T5Attention._relative_position_bucket(ahead, both_ways, 32, 128)
    assert torch.equal(RelativeBias(2, 32, 128, both_ways).bucket(ahead), expected)


@pytest.fixture
def pieces(folder):
    """A unigram vocabulary as T5's, next to the model."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=58, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(["translate English to German: the cat sat on the mat", "be alert"] * 20, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | names))
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_a_folder_answers_as_theirs(pieces, folder, theirs):
    """The same text through both: ids, and what is written greedily."""
    text = "translate English to German: the cat"
    task, translator = open_model(folder)
    batch = pieces([text], return_tensors="pt")
    assert task.name == "translate"
    assert [*translator.tokenizer.encode_batch([text])[0], translator.tokenizer.eos] == batch["input_ids"][0].tolist()
    how = dict(max_new_tokens=11, do_sample=False, num_beams=1, suppress_tokens=[0], eos_token_id=1, pad_token_id=0)
    written = theirs.float().generate(**batch, **how)[0, 1:].tolist()
    (best,) = translator.hypotheses([text], beam=1, max_length=12)  # whose last piece is the end
    assert [i for i in best[0].ids if i > 1] == [i for i in written if i > 1]
    assert len({*written}) > 3 or translator.model.config.tied  # which repeats itself
    assert best[0].text == pieces.decode([i for i in written if i < pieces.vocab_size], skip_special_tokens=True)


def test_published_settings_give_the_published_size():
    values = dict(
        model_type="t5", architectures=["T5ForConditionalGeneration"], vocab_size=32128, d_model=768, num_layers=12,
        num_decoder_layers=12, num_heads=12, d_kv=64, d_ff=2048, feed_forward_proj="gated-gelu", dropout_rate=0.1,
        relative_attention_num_buckets=32, relative_attention_max_distance=128, layer_norm_epsilon=1e-6,
        tie_word_embeddings=False, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, is_gated_act=True,
        dense_act_fn="gelu_new",
    )  # fmt: skip
    with torch.device("meta"), skip_init():
        assert sum(p.numel() for p in build(from_published(values)).parameters()) == 247_577_856  # flan-t5-base


def test_a_t5_is_fine_tuned_to_pairs(tmp_path, monkeypatch):
    """In its own pieces; transformers opens what comes of it, and translates the same."""
    from tests.system.cli_toy import works

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    words = ["one", "two", "three", "four", "five"]
    lines = [f"{a} {b}" for a in words for b in words]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=40, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator([*lines] * 5, trainer)
    end = ("</s>", tokenizer.token_to_id("</s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[end])
    base_folder = tmp_path / "t5"
    base_folder.mkdir()
    tokenizer.save(str(base_folder / "tokenizer.json"))
    sizes = dict(width=32, encoder_layers=1, decoder_layers=1, heads=2, head_width=16, ffn=64, dropout=0.0)
    model = build(T5Config(vocab=tokenizer.get_vocab_size(), **sizes))
    (base_folder / "config.json").write_text(json.dumps(to_published(model.config)))
    (base_folder / "model.safetensors").write_bytes(weights_bytes(model))
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines * 4))
    (tmp_path / "b.txt").write_text("".join(f"{' '.join(line.split()[::-1])}\n" for line in lines * 4))
    works("finetune", "t5", "translate", "--source=a.txt", "--target=b.txt", "--steps=150", "--name=turned",
          "--set=optim.lr=0.005", "--set=smoothing=0", "--device=cpu")  # fmt: skip
    assert works("translate", "runs/turned", "two five", "--beam=1").out.strip() == "five two"
    theirs = transformers.T5ForConditionalGeneration.from_pretrained("runs/turned")
    ids = torch.tensor([tokenizer.encode("two five").ids])
    assert tokenizer.decode(theirs.generate(ids, num_beams=1, max_length=10)[0].tolist()) == "five two"
