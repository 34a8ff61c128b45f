"""OpenAI's Whisper files, weights and vocabulary, unpacked into a Hugging Face folder."""

import re
from io import BytesIO
from pathlib import Path

import torch
from torch import Tensor

from regard.data.tokenizers.tiktoken import END, NO_TIMES, PREVIOUS, START, unspoken, whisper_tokenizer
from regard.data.waveform import HOP, RATE, REACH
from regard.errors import CheckpointError
from regard.jsonfile import write_json
from regard.models.published import fill, save_weights, to_published
from regard.models.whisper import WhisperConfig

MULTILINGUAL = 51865  # vocabulary size from which a model is multilingual


def convert(weights: bytes, vocabulary: bytes, folder: Path) -> None:
    """Write config.json, model.safetensors, the tokenizer and transformers' other files."""
    try:
        file = torch.load(BytesIO(weights), map_location="cpu", weights_only=True)  # executes nothing in the file
        config, state = openai_config(file["dims"]), from_openai(file["model_state_dict"])
    except Exception as e:  # the library may raise anything for a malformed file
        raise CheckpointError(f"not a file of Whisper's weights ({type(e).__name__}: {e})") from None
    model = fill(config, state, "Whisper's weights")
    tokenizer = whisper_tokenizer(vocabulary, config.vocab)
    tokenizer.save(folder, config.max_length)
    id_of = tokenizer.tokenizer.token_to_id
    end = id_of(END)
    generation = {
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "decoder_start_token_id": id_of(START),
        "no_timestamps_token_id": id_of(NO_TIMES),
        "prev_sot_token_id": id_of(PREVIOUS),
        "is_multilingual": config.vocab >= MULTILINGUAL,
        "max_length": config.max_length,
        "suppress_tokens": unspoken(tokenizer),
        "begin_suppress_tokens": [*tokenizer.encode(" "), end],
    }
    picture = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": config.mels,
        "sampling_rate": RATE,
        "hop_length": HOP,
        "n_fft": REACH,
        "chunk_length": config.frames * HOP // RATE,
        "padding_value": 0.0,
    }
    for name, value in (
        ("config.json", to_published(config, end)),
        ("generation_config.json", generation),
        ("preprocessor_config.json", picture),
    ):
        write_json(folder / name, value)
    save_weights(model, folder)


OPENAI = (  # from OpenAI's names to transformers', in this order
    (r"^(encoder|decoder)\.", r"model.\1."),
    (r"\.blocks\.", ".layers."),
    (r"\.cross_attn_ln\.", ".encoder_attn_layer_norm."),
    (r"\.attn_ln\.", ".self_attn_layer_norm."),
    (r"\.mlp_ln\.", ".final_layer_norm."),
    (r"\.cross_attn\.", ".encoder_attn."),
    (r"\.attn\.", ".self_attn."),
    (r"\.(query|key|value)\.", lambda match: f".{match[1][0]}_proj."),
    (r"\.out\.", ".out_proj."),
    (r"\.mlp\.0\.", ".fc1."),
    (r"\.mlp\.2\.", ".fc2."),
    (r"\.(ln_post|ln)\.", ".layer_norm."),
    (r"\.token_embedding\.weight", ".embed_tokens.weight"),
    (r"\.positional_embedding", ".embed_positions.weight"),
)


def from_openai(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one of OpenAI's files by transformers' names."""
    renamed = {}
    for name, tensor in state.items():
        for pattern, new in OPENAI:
            name = re.sub(pattern, new, name)
        renamed[name] = tensor.float()
    return renamed


def openai_config(dims: dict[str, int]) -> WhisperConfig:
    """Our config from the sizes in one of OpenAI's files."""
    return WhisperConfig(
        vocab=dims["n_vocab"],
        mels=dims["n_mels"],
        width=dims["n_audio_state"],
        encoder_layers=dims["n_audio_layer"],
        decoder_layers=dims["n_text_layer"],
        heads=dims["n_audio_head"],
        ffn=4 * dims["n_audio_state"],
        places=dims["n_audio_ctx"],
        max_length=dims["n_text_ctx"],
    )
