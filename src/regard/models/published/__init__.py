"""Hugging Face folders, out and in: config.json and model.safetensors with the published names.

Where transformers has the same model, its names are used and both read each other's folders. Models without a
published counterpart keep our own names under `model_type: regard-…`; transformers cannot open those.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from regard.config import from_dict, no_run, to_dict
from regard.errors import CheckpointError
from regard.models import MODELS, Model, ModelConfig, build, model_type
from regard.models.base import LanguageModel, padded
from regard.models.bert import Bert
from regard.models.published.bert import BertLayout
from regard.models.published.captioner import CaptionerLayout
from regard.models.published.gpt2 import GPT2
from regard.models.published.layout import Layout
from regard.models.published.llama import LlamaLayout
from regard.models.published.marian import Marian
from regard.models.published.vit import ViTLayout
from regard.models.published.whisper import WhisperLayout
from regard.nn.init import undrawn
from regard.nn.lora import merged_state

OURS = "regard-"  # prefix of model_type for layouts nobody else reads
PUBLISHED = (Marian(), GPT2(), LlamaLayout(), BertLayout(), ViTLayout(), CaptionerLayout(), WhisperLayout())
LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in PUBLISHED}
WORDS = ("token.weight", "output", "W_hy", "b_y", "masked.bias")  # tables of words, whose last rows only fill them up


def layout_of(config: ModelConfig) -> Layout | None:
    """Whose names this model goes by; None: our own."""
    return next((layout for layout in LAYOUTS.values() if layout.fits(config)), None)


def to_published(config: ModelConfig, eos: int | None = None) -> dict[str, Any]:
    """config.json; `eos` is the id that ends a text, where the layout has a place for it."""
    layout = layout_of(config)
    if layout is None:
        return {"model_type": OURS + model_type(config), **to_dict(config)}
    return layout.to_config(config, eos)


def from_published(values: dict[str, Any], where: str = "config.json") -> ModelConfig:
    kind = values.get("model_type", "")
    if kind in LAYOUTS:
        return LAYOUTS[kind].from_config(values, where)
    if kind.startswith(OURS) and kind.removeprefix(OURS) in MODELS:
        cls = MODELS[kind.removeprefix(OURS)][0]
        return from_dict(cls, {k: v for k, v in values.items() if k != "model_type"})
    known = ", ".join([*LAYOUTS, *(OURS + name for name in MODELS)])
    raise CheckpointError(f"{where}: model_type {kind!r} is not one we read; there are: {known}")


def published_weights(model: Model) -> dict[str, Tensor]:
    """The parameters by their published names, in float32 on the CPU, LoRA merged, without rows that only fill up."""
    state = {name: tensor.detach().float().cpu().contiguous() for name, tensor in merged_state(model).items()}
    if isinstance(model, LanguageModel | Bert):
        state = {name: t[: model.config.vocab] if name in WORDS else t for name, t in state.items()}
    layout = layout_of(model.config)
    return state if layout is None else layout.to_weights(state, model.config)


def weights_bytes(model: Model) -> bytes:
    """model.safetensors of a model."""
    return save(published_weights(model), metadata={"format": "pt"})


def read_config(folder: Path) -> ModelConfig:
    path = folder / "config.json"
    try:
        return from_published(json.loads(path.read_text(encoding="utf-8")), str(path))
    except FileNotFoundError:
        raise no_run(folder) from None
    except ValueError as e:
        raise CheckpointError(f"{path} is not JSON: {e}") from None
    except (KeyError, AttributeError, TypeError) as e:
        raise CheckpointError(f"{path}: not the settings of a model ({type(e).__name__}: {e})") from None


def load_model(folder: Path) -> Model:
    """The model of a folder, in evaluation mode, on the CPU."""
    config = read_config(folder)
    return fill(config, read_weights(folder / "model.safetensors"), str(folder))


def fill(config: ModelConfig, state: dict[str, Tensor], where: str) -> Model:
    """A model with these weights, under their published names."""
    layout = layout_of(config)
    config = config if layout is None else layout.seen(config, state)
    with undrawn():
        model = build(config)
    try:
        if layout is not None:
            state = layout.from_weights(state, list(model.state_dict()), config)
        if isinstance(model, LanguageModel | Bert):
            state = {name: fill_up(t, model.config.vocab) if name in WORDS else t for name, t in state.items()}
        model.load_state_dict(state, assign=isinstance(model, LanguageModel | Bert))  # a large model is not copied
    except (KeyError, RuntimeError) as e:
        why = f"it has no {e.args[0]}" if isinstance(e, KeyError) else e
        raise CheckpointError(f"{where}: model.safetensors does not fit config.json: {why}") from None
    return model.eval()


def fill_up(table: Tensor, vocab: int) -> Tensor:
    spare = padded(vocab) - vocab
    return F.pad(table, (0, 0) * (table.ndim - 1) + (0, spare)) if spare else table


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a file in float32, or of the shards that stand for it; none may hold NaN or infinity."""
    index = path.with_name(path.name + ".index.json")
    if not path.exists() and index.is_file():
        try:
            shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
            odd = [name for name in shards if name in ("", "..") or "\0" in name or Path(name).name != name]
        except (ValueError, KeyError, AttributeError, TypeError) as e:
            raise CheckpointError(f"{index} is not the index of a model ({type(e).__name__}: {e})") from None
        if odd:  # a file beside the index may be a link, as in a cache of downloads
            raise CheckpointError(f"{index}: {odd[0]!r} is not the name of a file beside it; fetch the folder again")
        return {name: tensor for shard in shards for name, tensor in read_file(path.with_name(shard)).items()}
    return read_file(path)


def read_file(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as f:
            state = {name: f.get_tensor(name).float() for name in f.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise missing(path) from None
    except (SafetensorError, OSError) as e:
        raise CheckpointError(f"{path} cannot be read ({e}); it is cut short or not a safetensors file") from None
    for name, tensor in state.items():
        if not math.isfinite(tensor.sum()) and not tensor.isfinite().all():  # the sum is quick, and rarely wrong
            raise CheckpointError(f"{path}: {name} holds NaN or infinity; take an earlier checkpoint of this model")
    return state


def missing(path: Path) -> CheckpointError:
    folder = path.parent
    if (folder / "pytorch_model.bin").exists():
        return CheckpointError(
            f"{folder} has pytorch_model.bin, which may run code when opened; we read model.safetensors, which "
            "transformers writes with save_pretrained"
        )
    if path.name != "model.safetensors":
        return CheckpointError(f"{folder} has no {path.name}, which its index names; fetch the folder again")
    if (folder / "run.json").is_file():
        return no_run(folder)
    return CheckpointError(f"{folder} has no model.safetensors; fetch or export the folder again")
