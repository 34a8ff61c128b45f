"""Every published layout: the same folder as transformers', the same outputs, the same gradients."""

import json

import pytest
import torch
import transformers
from tests.reference.parity import VOCAB, Case, compare_gradients, outputs, real, save, their_outputs

from regard.models import build
from regard.models.bart import BartConfig
from regard.models.bert import LABELLED, BertConfig
from regard.models.gemma import GemmaConfig
from regard.models.llama import LlamaConfig
from regard.models.modernbert import ModernBertConfig
from regard.models.published import LAYOUTS, from_published, load_model, rows_of
from regard.models.t5 import T5Config
from regard.nn.init import skip_init
from regard.nn.positions import Stretch

decoder = dict(vocab=VOCAB, width=24, layers=2, heads=6, head_width=8, ffn=40, context=32)
pairs = dict(vocab=VOCAB, width=24, encoder_layers=3, decoder_layers=2, ffn=40)
t5 = dict(heads=3, head_width=16, buckets=8, furthest=20)
encoder = dict(vocab=VOCAB, width=24, layers=2, heads=4, ffn=40, max_length=32)
BERTS = {
    "roberta": dict(types=1, eps=1e-5),
    "xlm-roberta": dict(types=1, eps=1e-5),
    "distilbert": dict(types=0, activation="relu"),
}


def language_model(architecture: str, config=LlamaConfig, **settings) -> Case:
    return Case(config=config(**decoder | settings), architecture=architecture, tolerance=1e-5)


def bert(family: str, head: str) -> Case:
    labels = ("PER", "OTHER", "LOC") if head in LABELLED else ()
    how = {"add_pooling_layer": False} if head == "none" and family != "distilbert" else {}
    config = BertConfig(**encoder, **BERTS[family], family=family, head=head, labels=labels)
    return Case(config=config, architecture=LAYOUTS[family].architectures[head], how=how)


def louder(model: torch.nn.Module) -> None:
    model.token.weight.mul_(50.0)


def of_queries(name: str, config: T5Config) -> float:
    """Theirs are not divided by √K: our queries are that much larger, and their gradient that much smaller."""
    return float(config.head_width) if name.endswith("Attention.q.weight") else 1.0


def text_to_text(**settings) -> Case:
    config = T5Config(**pairs, **t5, **settings)
    return Case(config=config, architecture="T5ForConditionalGeneration", slopes=of_queries, prepare=louder)


def bart(**settings) -> Case:
    config = BartConfig(**pairs, heads=4, max_length=32, **settings)
    return Case(config=config, architecture="BartForConditionalGeneration")


def modernbert(head: str) -> Case:
    """A token sees the next two; of four layers, the first and the last see all. A text is read by all its tokens."""
    labels = ("PER", "OTHER", "LOC") if head in LABELLED else ()
    own = dict(layers=4, window=5, pooling="mean" if head == "sequence" else "cls")
    config = ModernBertConfig(**encoder | own, head=head, labels=labels)
    return Case(config=config, architecture=LAYOUTS["modernbert"].architectures[head], tolerance=1e-5)


CASES = {
    "llama": language_model("LlamaForCausalLM", kv_heads=2),
    "llama-each-its-own": language_model("LlamaForCausalLM", kv_heads=6, tied=False, theta=500.0, eps=1e-3),
    "llama-one-for-all": language_model("LlamaForCausalLM", kv_heads=1, tied=False, dropout=0.1),
    "llama-3": language_model("LlamaForCausalLM", kv_heads=2, stretch=Stretch(factor=8.0, context=16)),
    "mistral": language_model("MistralForCausalLM", kv_heads=2, tied=False, window=5),
    "qwen2": language_model("Qwen2ForCausalLM", kv_heads=2, qkv_bias=True),
    "qwen3": language_model("Qwen3ForCausalLM", kv_heads=2, qk_norm=True),
    "gemma3": language_model("Gemma3ForCausalLM", GemmaConfig, layers=4, kv_heads=2, window=5, global_every=3),
    **{f"modernbert-{head}": modernbert(head) for head in LAYOUTS["modernbert"].architectures},
    **{f"{family}-{head}": bert(family, head) for family in BERTS for head in LAYOUTS[family].architectures},
    "t5": text_to_text(),
    "bart": bart(),
    "bart-scaled": bart(scaled=True, activation="relu", output_bias=True),
    "flan-t5": text_to_text(forward="gated-gelu", tied=False, dropout=0.0, eps=1e-4),
}


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


def test_outputs_and_gradients_are_equal(case, shake, tmp_path, monkeypatch):
    """Texts of three lengths; and transformers opens our folder with nothing missing or unexpected."""
    ours = case.ours(shake)
    theirs = case.theirs(save(ours, tmp_path), monkeypatch)
    mine, other = outputs(ours.double()), their_outputs(theirs, ours)
    for name, tensor in mine.items():
        torch.testing.assert_close(real(tensor), real(other[name]), rtol=case.tolerance, atol=case.tolerance)
        real(tensor).square().sum().backward(retain_graph=True)
        real(other[name]).square().sum().backward(retain_graph=True)
    compare_gradients(ours, theirs, case.slopes)


def test_our_folder_is_read_unchanged(case, shake, tmp_path):
    ours = case.ours(shake)
    again = load_model(save(ours, tmp_path))
    assert again.config == ours.config
    for name, tensor in outputs(again).items():
        assert torch.equal(tensor, outputs(ours)[name])


def test_their_folder_is_read(case, shake, tmp_path):
    ours = case.ours(shake)
    cls = getattr(transformers, case.architecture)
    theirs = cls.from_pretrained(save(ours, tmp_path / "ours"), **case.how)
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="8KB")
    assert (tmp_path / "theirs/model.safetensors.index.json").exists()
    if not getattr(ours.config, "tied", True):  # which newer versions write as tied for T5
        path = tmp_path / "theirs/config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": False}))
    for name, tensor in outputs(load_model(tmp_path / "theirs")).items():
        torch.testing.assert_close(tensor, outputs(ours)[name], rtol=1e-5, atol=1e-6)


PUBLISHED = {  # config.json as published, shortened
    "Llama-3.2-1B": dict(
            model_type="llama", vocab_size=128256, hidden_size=2048, num_hidden_layers=16, num_attention_heads=32,
            num_key_value_heads=8, head_dim=64, intermediate_size=8192, max_position_embeddings=131072,
            rms_norm_eps=1e-5, rope_theta=500000.0, tie_word_embeddings=True, attention_bias=False, mlp_bias=False,
            rope_scaling=dict(
                factor=32.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192,
                rope_type="llama3",
            ),
        ),
    "Mistral-7B-v0.1": dict(
            model_type="mistral", vocab_size=32000, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
            num_key_value_heads=8, intermediate_size=14336, max_position_embeddings=32768, rms_norm_eps=1e-5,
            rope_theta=10000.0, sliding_window=4096, tie_word_embeddings=False, hidden_act="silu",
        ),
    "Qwen2.5-0.5B": dict(
            model_type="qwen2", vocab_size=151936, hidden_size=896, num_hidden_layers=24, num_attention_heads=14,
            num_key_value_heads=2, intermediate_size=4864, max_position_embeddings=32768, max_window_layers=24,
            rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=32768, use_sliding_window=False,
            tie_word_embeddings=True, hidden_act="silu", use_mrope=False,
        ),
    "Qwen3-0.6B": dict(
            model_type="qwen3", vocab_size=151936, hidden_size=1024, num_hidden_layers=28, num_attention_heads=16,
            num_key_value_heads=8, head_dim=128, intermediate_size=3072, max_position_embeddings=40960,
            max_window_layers=28, rms_norm_eps=1e-6, rope_theta=1000000, rope_scaling=None, sliding_window=None,
            use_sliding_window=False, tie_word_embeddings=True, hidden_act="silu", attention_bias=False,
        ),
    "roberta-base": dict(
            architectures=["RobertaForMaskedLM"], model_type="roberta", vocab_size=50265, hidden_size=768,
            num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, max_position_embeddings=514,
            type_vocab_size=1, layer_norm_eps=1e-5, hidden_act="gelu", pad_token_id=1, bos_token_id=0, eos_token_id=2,
        ),
    "xlm-roberta-base": dict(
            architectures=["XLMRobertaForMaskedLM"], model_type="xlm-roberta", vocab_size=250002, hidden_size=768,
            num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, max_position_embeddings=514,
            type_vocab_size=1, layer_norm_eps=1e-5, hidden_act="gelu", pad_token_id=1, output_past=True,
        ),
    "distilbert-base-uncased": dict(
            architectures=["DistilBertForMaskedLM"], model_type="distilbert", vocab_size=30522, dim=768, n_layers=6,
            n_heads=12, hidden_dim=3072, max_position_embeddings=512, activation="gelu", dropout=0.1,
            attention_dropout=0.1, sinusoidal_pos_embds=False, tie_weights_=True, seq_classif_dropout=0.2,
        ),
    "flan-t5-base": dict(
        model_type="t5", architectures=["T5ForConditionalGeneration"], vocab_size=32128, d_model=768, num_layers=12,
        num_decoder_layers=12, num_heads=12, d_kv=64, d_ff=2048, feed_forward_proj="gated-gelu", dropout_rate=0.1,
        relative_attention_num_buckets=32, relative_attention_max_distance=128, layer_norm_epsilon=1e-6,
        tie_word_embeddings=False, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, is_gated_act=True,
        dense_act_fn="gelu_new",
    ),
    "bart-base": dict(
        model_type="bart", architectures=["BartForConditionalGeneration"], vocab_size=50265, d_model=768,
        encoder_layers=6, decoder_layers=6, encoder_attention_heads=12, decoder_attention_heads=12,
        encoder_ffn_dim=3072, decoder_ffn_dim=3072, dropout=0.1, activation_function="gelu",
        max_position_embeddings=1024, scale_embedding=False, add_final_layer_norm=False, normalize_before=False,
        normalize_embedding=True, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2,
        forced_eos_token_id=2, add_bias_logits=False,
    ),
    "ModernBERT-base": dict(
        model_type="modernbert", architectures=["ModernBertForMaskedLM"], vocab_size=50368, hidden_size=768,
        num_hidden_layers=22, num_attention_heads=12, intermediate_size=1152, max_position_embeddings=8192,
        global_attn_every_n_layers=3, local_attention=128, global_rope_theta=160000.0, local_rope_theta=10000.0,
        hidden_activation="gelu", classifier_activation="gelu", classifier_pooling="mean", decoder_bias=True,
        attention_bias=False, mlp_bias=False, norm_bias=False, classifier_bias=False, norm_eps=1e-5,
        layer_norm_eps=1e-5, embedding_dropout=0.0, mlp_dropout=0.0, attention_dropout=0.0, pad_token_id=50283,
        position_embedding_type="absolute", sparse_prediction=False,
    ),
    "gemma-3-270m": dict(
        model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], vocab_size=262144, hidden_size=640,
        num_hidden_layers=18, num_attention_heads=4, num_key_value_heads=1, head_dim=256, intermediate_size=2048,
        max_position_embeddings=32768, sliding_window=512, _sliding_window_pattern=6, rms_norm_eps=1e-6,
        rope_theta=1000000.0, rope_local_base_freq=10000.0, rope_scaling=None, query_pre_attn_scalar=256,
        hidden_activation="gelu_pytorch_tanh", attention_bias=False, attn_logit_softcapping=None,
        final_logit_softcapping=None, use_bidirectional_attention=False, pad_token_id=0,
    ),
    "whisper-large-v3": dict(
        model_type="whisper", architectures=["WhisperForConditionalGeneration"], vocab_size=51866, num_mel_bins=128,
        d_model=1280, encoder_layers=32, decoder_layers=32, encoder_attention_heads=20, decoder_attention_heads=20,
        encoder_ffn_dim=5120, decoder_ffn_dim=5120, max_source_positions=1500, max_target_positions=448,
        activation_function="gelu", scale_embedding=False, dropout=0.0, pad_token_id=50256, bos_token_id=50257,
        eos_token_id=50257, decoder_start_token_id=50258,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_settings_give_the_published_tensors(name):
    """Names and shapes of all tensors, by transformers, without their numbers."""
    values = PUBLISHED[name]
    config = from_published(values)
    layout = LAYOUTS[values["model_type"]]
    with torch.device("meta"), skip_init():
        model = build(config)
        their_config = transformers.AutoConfig.for_model(**values)
        theirs = getattr(transformers, (values.get("architectures") or [layout.architecture])[0])(their_config)
        state = {name: tensor[: rows_of(model, name)] for name, tensor in model.state_dict().items()}
        published = {name: tuple(tensor.shape) for name, tensor in layout.to_weights(state, config).items()}
    expected = {name: tuple(tensor.shape) for name, tensor in theirs.state_dict().items()}
    assert published.items() <= expected.items()
    assert all(layout.ignored(layout.current(name), config) for name in expected.keys() - published)
