"""Published sizes, and small ones for a laptop, as data: by model, then by name."""

from typing import Any

SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "transformer": {
        "tiny": dict(width=128, ffn=256, heads=4, encoder_layers=4, decoder_layers=4),  # Wu et al. 2021
        "small": dict(width=256, ffn=1024, heads=4, encoder_layers=3, decoder_layers=3),
        "base": dict(width=512, ffn=2048, heads=8, encoder_layers=6, decoder_layers=6),  # table 3 of the paper
        "big": dict(width=1024, ffn=4096, heads=16, encoder_layers=6, decoder_layers=6, dropout=0.3),
    },
    "seq2seq": {
        "tiny": dict(embedding=128, width=128),
        "small": dict(embedding=256, width=256),
        "base": dict(embedding=512, width=512),
        "big": dict(embedding=620, width=1000),  # Bahdanau et al. 2015, appendix A
    },
    "gpt": {
        "tiny": dict(width=128, layers=4, heads=4, ffn=512, context=256),
        "small": dict(width=384, layers=6, heads=6, ffn=1536, context=256),
        "gpt2": dict(width=768, layers=12, heads=12, ffn=3072),  # Radford et al. 2019, table 2, as do the next three
        "medium": dict(width=1024, layers=24, heads=16, ffn=4096),
        "large": dict(width=1280, layers=36, heads=20, ffn=5120),
        "xl": dict(width=1600, layers=48, heads=25, ffn=6400),
    },
    "llama": {
        "tiny": dict(width=128, layers=4, heads=4, kv_heads=2, head_width=32, ffn=352, context=256),
        "small": dict(width=384, layers=6, heads=6, kv_heads=2, head_width=64, ffn=1024, context=256),
        "smollm2-135m": dict(theta=100_000.0, context=8192),  # Allal et al. 2025, as does the next
        "smollm2-360m": dict(width=960, layers=32, heads=15, kv_heads=5, ffn=2560, theta=100_000.0, context=8192),
        "tinyllama": dict(width=2048, layers=22, heads=32, kv_heads=4, ffn=5632, tied=False),  # Zhang et al. 2024
        "llama2-7b": dict(
            width=4096, layers=32, heads=32, kv_heads=32, head_width=128, ffn=11008, context=4096, tied=False
        ),
    },
    "rnn_lm": {
        "tiny": dict(embedding=128, width=128),
        "small": dict(embedding=256, width=512),
        "medium": dict(embedding=650, width=650, layers=2, dropout=0.5),  # Zaremba et al. 2014, as does the next
        "large": dict(embedding=1500, width=1500, layers=2, dropout=0.65),
    },
    "bert": {
        "tiny": dict(width=128, layers=2, heads=2, ffn=512),  # Turc et al. 2019, as do the next three
        "mini": dict(width=256, layers=4, heads=4, ffn=1024),
        "small": dict(width=512, layers=4, heads=8, ffn=2048),
        "medium": dict(width=512, layers=8, heads=8, ffn=2048),
        "minilm-l6": dict(width=384, layers=6, heads=12, ffn=1536),  # Wang et al. 2020, every second layer
        "base": dict(width=768, layers=12, heads=12, ffn=3072),  # Devlin et al. 2019, as does the next
        "large": dict(width=1024, layers=24, heads=16, ffn=4096),
    },
    "rnn_classifier": {
        "tiny": dict(embedding=128, width=128),
        "small": dict(embedding=256, width=256),
        "base": dict(embedding=512, width=512, layers=2),
    },
    "vit": {
        "tiny": dict(width=96, layers=4, heads=4, ffn=192),
        "small": dict(width=384, layers=7, heads=6, ffn=1152),
        "ti": dict(width=192, layers=12, heads=3, ffn=768),  # Touvron et al. 2021, as does the next
        "s": dict(width=384, layers=12, heads=6, ffn=1536),
        "b": dict(width=768, layers=12, heads=12, ffn=3072),  # Dosovitskiy et al. 2021, table 1, as does the next
        "l": dict(width=1024, layers=24, heads=16, ffn=4096),
    },
    "captioner": {
        "tiny": dict(width=128, ffn=256, encoder_layers=4, decoder_layers=2),
        "small": dict(width=256, ffn=1024, encoder_layers=6, decoder_layers=3),
        "base": dict(width=512, ffn=2048, heads=8, encoder_layers=8, decoder_layers=6),
    },
    "show_attend_tell": {
        "tiny": dict(regions=128, embedding=128, width=256, ffn=256),
        "small": dict(regions=256, embedding=256, width=512, ffn=1024, encoder_layers=6),
    },
    "sound_classifier": {
        "tiny": dict(width=96, layers=3, heads=4, ffn=192),
        "small": dict(width=192, layers=6, heads=6, ffn=768),
        "base": dict(width=384, layers=4, heads=6, ffn=1536),  # the encoder of Whisper tiny
    },
    "conv": {"tiny": dict(width=16), "small": dict(width=32), "base": dict(width=64, layers=3)},
    "mlp": {"tiny": dict(width=128, layers=1), "small": dict(width=512), "base": dict(width=1024, layers=3)},
    "series": {
        "tiny": dict(width=64, layers=2, heads=4, ffn=128),
        "small": dict(width=128, layers=4, heads=8, ffn=256),
        "base": dict(width=192, layers=8, heads=12, ffn=384),
    },
    "rnn_series": {
        "tiny": dict(width=64, layers=1),
        "small": dict(width=128, layers=2),
        "base": dict(width=256, layers=2),
    },
    "forecaster": {
        "tiny": dict(width=16, layers=2, heads=4, ffn=64),
        "small": dict(width=16, layers=3, heads=4, ffn=128),  # Nie et al. 2023 for ETTh1 and ETTh2
        "base": dict(width=128, layers=3, heads=16, ffn=256),  # and for the larger sets
    },
}
