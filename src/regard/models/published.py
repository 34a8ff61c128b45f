"""Hugging Face folders, out and in: config.json and model.safetensors with the published names.

A Transformer with post-norm and sines-then-cosines is exactly transformers' `MarianMTModel`. Models without a
published counterpart keep our own names under `model_type: regard-…`; transformers cannot open those.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from regard.config import from_dict, to_dict
from regard.errors import CheckpointError
from regard.models import MODELS, ModelConfig, build, model_type
from regard.models.base import EncoderDecoder
from regard.models.transformer import Transformer, TransformerConfig

OURS = "regard-"  # prefix of model_type for layouts nobody else reads


def is_marian(config: ModelConfig) -> bool:
    return isinstance(config, TransformerConfig) and config.norm == "post" and config.positions == "sinusoidal"


def to_published(config: ModelConfig) -> dict[str, Any]:
    """config.json"""
    if not is_marian(config):
        return {"model_type": OURS + model_type(config), **to_dict(config)}
    assert isinstance(config, TransformerConfig)
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "vocab_size": config.vocab,
        "decoder_vocab_size": config.vocab,
        "d_model": config.width,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": config.ffn,
        "decoder_ffn_dim": config.ffn,
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "max_position_embeddings": config.max_length,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_embedding": False,
        "normalize_before": False,
        "add_bias_logits": False,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "eos_token_id": 0,
        "forced_eos_token_id": None,
        "pad_token_id": config.vocab - 1,
        "bos_token_id": None,
        "decoder_start_token_id": config.vocab - 1,
        "dtype": "float32",
    }


def from_published(values: dict[str, Any], where: str = "config.json") -> ModelConfig:
    kind = values.get("model_type", "")
    if kind.startswith(OURS) and kind.removeprefix(OURS) in MODELS:
        cls = MODELS[kind.removeprefix(OURS)][0]
        return from_dict(cls, {k: v for k, v in values.items() if k != "model_type"})
    if kind != "marian":
        known = ", ".join(["marian", *(OURS + name for name in MODELS)])
        raise CheckpointError(f"{where}: model_type {kind!r} is not one we read; there are: {known}")
    for name in ("ffn_dim", "attention_heads"):
        if values[f"encoder_{name}"] != values[f"decoder_{name}"]:
            raise CheckpointError(f"{where}: encoder and decoder differ in {name}; we read only equal ones")
    wanted = {"scale_embedding": True, "normalize_embedding": False, "pad_token_id": values["vocab_size"] - 1}
    for name, value in wanted.items():
        if values.get(name, value) != value:
            raise CheckpointError(f"{where}: {name} is {values[name]}, we read only {value}")
    return TransformerConfig(
        vocab=values["vocab_size"],
        width=values["d_model"],
        encoder_layers=values["encoder_layers"],
        decoder_layers=values["decoder_layers"],
        heads=values["encoder_attention_heads"],
        ffn=values["encoder_ffn_dim"],
        dropout=values["dropout"],
        activation={"silu": "swish"}.get(values["activation_function"], values["activation_function"]),
        max_length=values["max_position_embeddings"],
    )


def to_marian(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our names to Marian's; fused maps are cut into theirs."""
    published = {"model.shared.weight": state["token.weight"]}
    published["final_logits_bias"] = state.get("bias", torch.zeros(len(state["token.weight"])))[None]
    for name, tensor in state.items():
        if name in ("token.weight", "bias"):
            continue
        side, index, rest = name.split(".", 2)
        base = f"model.{side}.layers.{index}."
        if rest.rsplit(".", 1)[0] in FUSED:
            part, kind = rest.rsplit(".", 1)
            names = FUSED[part]
            for piece, chunk in zip(names, tensor.chunk(len(names)), strict=True):
                published[f"{base}{piece}.{kind}"] = chunk.contiguous()
        else:
            part, kind = rest.rsplit(".", 1)
            published[f"{base}{(ENCODER if side == 'encoder' else DECODER)[part]}.{kind}"] = tensor
    return published


def from_marian(published: dict[str, Tensor], model: Transformer) -> dict[str, Tensor]:
    """Marian's names to ours, for every parameter of `model`; extra copies of tied weights are ignored."""
    ours = {}
    for name in model.state_dict():
        if name in ("token.weight", "bias"):
            ours[name] = published["model.shared.weight"] if name != "bias" else published["final_logits_bias"][0]
            continue
        side, index, rest = name.split(".", 2)
        part, kind = rest.rsplit(".", 1)
        base = f"model.{side}.layers.{index}."
        names = FUSED.get(part) or [(ENCODER if side == "encoder" else DECODER)[part]]
        ours[name] = torch.cat([published[f"{base}{piece}.{kind}"] for piece in names])
    return ours


FUSED = {
    "attention.qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "cross.kv": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
}
ENCODER = {
    "attention.out": "self_attn.out_proj",
    "norm1": "self_attn_layer_norm",
    "mlp.up": "fc1",
    "mlp.down": "fc2",
    "norm2": "final_layer_norm",
}
DECODER = ENCODER | {
    "norm2": "encoder_attn_layer_norm",
    "cross.query": "encoder_attn.q_proj",
    "cross.out": "encoder_attn.out_proj",
    "norm3": "final_layer_norm",
}


def weights_bytes(model: EncoderDecoder) -> bytes:
    """model.safetensors of a model, in float32 on the CPU."""
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    if is_marian(model.config):
        state = to_marian(state)
    return save(state, metadata={"format": "pt"})


def load_model(folder: Path) -> EncoderDecoder:
    """The model of a folder, in evaluation mode, on the CPU."""
    path = folder / "config.json"
    try:
        config = from_published(json.loads(path.read_text(encoding="utf-8")), str(path))
    except FileNotFoundError:
        raise CheckpointError(f"{folder} is not a model folder: it has no config.json") from None
    except ValueError as e:
        raise CheckpointError(f"{path} is not JSON: {e}") from None
    except (KeyError, AttributeError, TypeError) as e:
        raise CheckpointError(f"{path}: not the settings of a model ({type(e).__name__}: {e})") from None
    state = read_weights(folder / "model.safetensors")
    if isinstance(config, TransformerConfig) and state.get("final_logits_bias", torch.zeros(1)).any():
        config = replace(config, output_bias=True)
    model = build(config)
    try:
        if is_marian(model.config):
            assert isinstance(model, Transformer)
            state = from_marian(state, model)
        model.load_state_dict(state)
    except (KeyError, RuntimeError) as e:
        raise CheckpointError(f"{folder}: model.safetensors does not fit config.json: {e}") from None
    return model.eval()


def read_weights(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as f:
            return {name: f.get_tensor(name).float() for name in f.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path.parent} has no model.safetensors yet; if a training run was stopped early, type: "
            f"regard train --resume {path.parent}"
        ) from None
    except (SafetensorError, OSError) as e:
        raise CheckpointError(f"{path} cannot be read ({e}); it is cut short or not a safetensors file") from None
