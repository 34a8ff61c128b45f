"""Small models of every family that becomes ONNX graphs."""

import torch
from tests.conftest import shake

from regard.models import build
from regard.models.bart import BartConfig
from regard.models.bert import BertConfig
from regard.models.captioner import CaptionerConfig, GPTCaptionerConfig
from regard.models.clip import CLIPConfig
from regard.models.gemma import GemmaConfig
from regard.models.gpt import GPTConfig
from regard.models.llama import LlamaConfig
from regard.models.modernbert import ModernBertConfig
from regard.models.t5 import T5Config
from regard.models.transformer import TransformerConfig
from regard.models.vit import ViTConfig
from regard.models.whisper import WhisperConfig

TEXT = dict(vocab=50, width=32, heads=2, ffn=64)
BERT = dict(**TEXT, layers=2, max_length=32)
BOTH = dict(**TEXT, encoder_layers=1, decoder_layers=2)
IMAGE = dict(image=8, patch=4, width=32, heads=2, ffn=64)
CONFIGS = {
    "gpt2": GPTConfig(**TEXT, layers=2, context=32),
    "alibi": GPTConfig(**TEXT, layers=1, context=32, positions="alibi"),
    "llama": LlamaConfig(vocab=50, width=32, layers=2, heads=4, kv_heads=2, head_width=8, ffn=64, context=32),
    "mistral": LlamaConfig(vocab=50, width=32, layers=1, heads=2, kv_heads=1, head_width=16, ffn=64, window=3),
    "gemma": GemmaConfig(
        vocab=50, width=32, layers=3, heads=2, kv_heads=1, head_width=16, ffn=64, window=3, global_every=2
    ),
    "modernbert": ModernBertConfig(**BERT, head="masked", window=3),
    "embed": BertConfig(**BERT, head="none"),
    "fill": BertConfig(**BERT, head="masked", types=0, family="distilbert"),
    "pretraining": BertConfig(**BERT, head="pretraining"),
    "classify": BertConfig(**BERT, head="sequence", labels=("a", "b", "c")),
    "mean": BertConfig(**BERT, head="sequence", labels=("a", "b"), pooling="mean"),
    "tag": BertConfig(**BERT, head="token", labels=("a", "b", "c")),
    "marian": TransformerConfig(**BOTH, max_length=32),
    "bart": BartConfig(**BOTH, max_length=32),
    "t5": T5Config(**BOTH, head_width=8, forward="gated-gelu", tied=False),
    "whisper": WhisperConfig(**BOTH, mels=8, places=6, max_length=16),
    "captioner": CaptionerConfig(**IMAGE, vocab=50, encoder_layers=1, decoder_layers=1, max_length=16),
    "gpt-captioner": GPTCaptionerConfig(**IMAGE, vocab=50, start=48, encoder_layers=1, decoder_layers=1, max_length=16),
    "vit": ViTConfig(**IMAGE, layers=2),
    "dinov2": ViTConfig(**IMAGE, layers=2, pool="both", layer_scale=0.7, labels=("a", "b")),
    "clip": CLIPConfig(
        **IMAGE, vocab=50, context=16, text_width=32, text_layers=1, text_heads=2, text_ffn=64, layers=1, shared=16
    ),
}


def built(name):
    torch.manual_seed(0)
    return shake(build(CONFIGS[name]), 4.0).eval()
