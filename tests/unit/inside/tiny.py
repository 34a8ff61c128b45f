"""A folder of every text family, as training would leave it: tiny, untrained, and speaking up (`shake`)."""

import json
from dataclasses import replace
from pathlib import Path

import torch
from tests.conftest import shake

from regard.data.tokenizers.bpe import BPE
from regard.data.tokenizers.bytelevel import ByteLevel
from regard.data.tokenizers.wordpiece import WordPiece
from regard.models import build
from regard.models.bert import BertConfig
from regard.models.gpt import GPTConfig
from regard.models.llama import LlamaConfig
from regard.models.published import to_published, weights_bytes
from regard.models.rnn_classifier import RecurrentClassifierConfig
from regard.models.rnn_lm import RecurrentLMConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.transformer import TransformerConfig

LINES = [
    "The cat drank the milk because it was hungry.",
    "The cat drank the milk because it was sweet.",
    "Server, can I have the check?",
    "Looks like I just crashed the server.",
    "Ein Mann liest ein rotes Buch.",
] * 8
BERT = dict(vocab=0, width=16, heads=2, layers=2, ffn=32, max_length=48, dropout=0.0)
TRANSFORMER = dict(vocab=1, width=16, heads=2, ffn=32, encoder_layers=2, decoder_layers=2, max_length=64)
CONFIGS = {
    "transformer": ("translate", TransformerConfig(**TRANSFORMER)),
    "prenorm": ("translate", TransformerConfig(**TRANSFORMER, norm="pre", positions="interleaved")),
    "lstm-translator": ("translate", Seq2SeqConfig(vocab=1, embedding=12, width=16)),
    "two-readers": ("translate", Seq2SeqConfig(vocab=1, embedding=12, width=16, encoder_layers=2)),
    "gru-bottleneck": ("translate", Seq2SeqConfig(vocab=1, cell="gru", embedding=12, width=16, attention=False)),
    "gpt": ("lm", GPTConfig(vocab=1, width=16, layers=2, heads=4, ffn=32, context=64)),
    "gpt-sines": ("lm", GPTConfig(vocab=1, width=16, layers=2, heads=4, ffn=32, context=64, positions="sinusoidal")),
    "gpt-alibi": ("lm", GPTConfig(vocab=1, width=16, layers=2, heads=4, ffn=32, context=64, positions="alibi")),
    "gpt-none": ("lm", GPTConfig(vocab=1, width=16, layers=2, heads=4, ffn=32, context=64, positions="none")),
    "llama": ("lm", LlamaConfig(vocab=1, width=16, layers=2, heads=4, kv_heads=2, head_width=4, ffn=32, context=64)),
    "lstm": ("lm", RecurrentLMConfig(vocab=1, embedding=12, width=16, layers=2)),
    "gru": ("lm", RecurrentLMConfig(vocab=1, cell="gru", embedding=12, width=16)),
    "rnn": ("lm", RecurrentLMConfig(vocab=1, cell="rnn", embedding=12, width=16)),
    "encoder": ("embed", BertConfig(**{**BERT, "vocab": 1}, head="none")),
    "masked": ("mlm", BertConfig(**{**BERT, "vocab": 1}, head="masked")),
    "classifier": ("classify", BertConfig(**{**BERT, "vocab": 1}, head="sequence", labels=("bad", "good"))),
    "pair": ("pair", BertConfig(**{**BERT, "vocab": 1}, head="sequence", labels=("no", "yes"))),
    "tagger": ("tag", BertConfig(**{**BERT, "vocab": 1}, head="token", labels=("O", "B-x", "I-x"))),
    "lstm-classifier": ("classify", RecurrentClassifierConfig(vocab=1, embedding=12, width=16)),
}


def write(folder: Path, name: str) -> Path:
    """The model `name` of `CONFIGS` in a folder that `regard.load` opens."""
    task, config = CONFIGS[name]
    folder.mkdir(parents=True)
    if task == "translate":
        tokenizer = BPE.train(LINES, 360)
    elif task == "lm":
        tokenizer = ByteLevel.train(LINES, 300)
    else:
        tokenizer = WordPiece.train(LINES, 120)
    torch.manual_seed(sum(name.encode()))
    model = shake(
        build(replace(config, vocab=tokenizer.size)), 2.0 if task == "translate" or hasattr(config, "cell") else 8.0
    ).eval()
    tokenizer.save(folder, 48)
    (folder / "config.json").write_text(json.dumps(to_published(model.config)))
    (folder / "regard.json").write_text(json.dumps({"format_version": 1, "task": task}))
    (folder / "model.safetensors").write_bytes(weights_bytes(model))
    return folder
