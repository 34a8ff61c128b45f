"""Write and read Hugging Face folders: config.json and model.safetensors with the published names.

Where transformers has the same model, we use its names, and both read each other's folders. Models without a
published counterpart keep our own names under `model_type: regard-…`; transformers cannot open those.
"""

import difflib
import math
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from regard import limits
from regard.config import check_types, from_dict, no_run, to_dict
from regard.errors import CheckpointError, ConfigError
from regard.jsonfile import read_json
from regard.models import MODELS, Model, ModelConfig, build, depth, model_type
from regard.models.base import LanguageModel, padded
from regard.models.bert import Bert
from regard.models.published import adapter
from regard.models.published.bart import BartLayout
from regard.models.published.bert import BertLayout, DistilBertLayout, RobertaLayout, XLMRobertaLayout
from regard.models.published.captioner import CaptionerLayout, GPTCaptionerLayout
from regard.models.published.clip import CLIPLayout
from regard.models.published.gemma import Gemma3Layout
from regard.models.published.gpt2 import GPT2Layout
from regard.models.published.layout import Layout, Misfit, joined
from regard.models.published.llama import LlamaLayout, MistralLayout, Qwen2Layout, Qwen3Layout
from regard.models.published.marian import MarianLayout
from regard.models.published.modernbert import ModernBertLayout
from regard.models.published.t5 import T5Layout
from regard.models.published.vit import DeiTLayout, DINOv2Layout, ViTLayout
from regard.models.published.weights import FILE, Shapes, read_shapes, read_weights, write_weights
from regard.models.published.whisper import WhisperLayout
from regard.models.registry import outline
from regard.nn.init import skip_init
from regard.nn.lora import merged_state
from regard.words import count

OURS = "regard-"  # prefix of model_type for layouts nobody else reads
PUBLISHED = (
    MarianLayout(),
    T5Layout(),
    BartLayout(),
    GPT2Layout(),
    LlamaLayout(),
    MistralLayout(),
    Qwen2Layout(),
    Qwen3Layout(),
    Gemma3Layout(),
    BertLayout(),
    RobertaLayout(),
    XLMRobertaLayout(),
    DistilBertLayout(),
    ModernBertLayout(),
    ViTLayout(),
    DeiTLayout(),
    DINOv2Layout(),
    GPTCaptionerLayout(),  # shares its model_type with the next, which reads both
    CaptionerLayout(),
    WhisperLayout(),
    CLIPLayout(),
)
LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in PUBLISHED}
HEAD = re.compile(r"For[A-Z]\w+$")  # the head in the name of a class
WORDS = ("token.weight", "output", "W_hy", "b_y", "masked.bias")  # tables whose last rows are padding


def layout_of(config: ModelConfig) -> Layout | None:
    """The published layout of a model; None: our own."""
    return next((layout for layout in PUBLISHED if layout.fits(config)), None)


def to_published(config: ModelConfig, eos: int | None = None) -> dict[str, Any]:
    """config.json; `eos` is the id that ends a text, where the layout has a place for it."""
    layout = layout_of(config)
    if layout is None:
        return {"model_type": OURS + model_type(config), **to_dict(config)}
    return layout.to_config(config, eos)


def from_published(values: dict[str, Any], where: str = "config.json") -> ModelConfig:
    """Our config; `CheckpointError` for settings that are malformed or of a model we do not read."""
    name = str(values.get("model_type", ""))
    ours = name.removeprefix(OURS)
    if name not in LAYOUTS and (ours == name or ours not in MODELS):
        near, names = nearest_layout(values), ", ".join(LAYOUTS)
        raise CheckpointError(f"{where}: model_type {name!r:.80} is not one we read; {near}there are: {names}")
    if isinstance(packed := values.get("quantization_config"), dict):
        how = f"{packed.get('quant_method', 'quantization_config')!r:.80}"
        raise CheckpointError(
            f"{where}: weights quantised by {how} are not read; use the original weights, or a GGUF file"
        )
    try:
        if name in LAYOUTS:
            check_head(values, LAYOUTS[name], where)
            config = LAYOUTS[name].from_config(values, where)
        else:
            config = from_dict(MODELS[ours][0], {k: v for k, v in values.items() if k != "model_type"})
        check_types(config)
    except ConfigError as e:
        raise CheckpointError(f"{where}: {e}") from None
    except KeyError as e:
        raise CheckpointError(f"{where}: there is no {e}; a complete config.json has it") from None
    except (AttributeError, TypeError, ValueError, ArithmeticError, IndexError) as e:
        raise CheckpointError(f"{where}: not the settings of a model ({type(e).__name__}: {e})") from None
    return config


def check_head(values: dict[str, Any], layout: Layout, where: str) -> None:
    """Raise `CheckpointError` for a class with a head that the layout does not have; old class names are read."""
    architecture = str(next(iter(values.get("architectures") or []), ""))
    classes = dict.fromkeys(layout.classes())
    if HEAD.search(architecture) and architecture.lower() not in map(str.lower, classes):
        raise CheckpointError(f"{where}: {architecture:.80} is not one we read; there are: {', '.join(classes)}")


def nearest_layout(values: dict[str, Any]) -> str:
    """A hint at the layout closest to one that we do not read, and its file; "" if none is close."""
    close = difflib.get_close_matches(str(values.get("model_type", "")), LAYOUTS, n=1, cutoff=0.55)
    task = HEAD.search(str(next(iter(values.get("architectures") or []), "")))
    same_head = [n for n, layout in LAYOUTS.items() if task and any(c.endswith(task[0]) for c in layout.classes())]
    if not (close or same_head):
        return ""
    name = (close or same_head)[0]
    module = type(LAYOUTS[name]).__module__.removeprefix("regard.").replace(".", "/")
    return f"the nearest is {name} ({module}.py); "


def rows_of(model: nn.Module, name: str) -> int | None:
    """How many rows of a padded embedding table are published; None: all of this parameter."""
    return model.config.vocab if isinstance(model, LanguageModel | Bert) and name in WORDS else None


def published_weights(model: Model) -> dict[str, Tensor]:
    """The parameters by their published names, in float32 on the CPU, LoRA merged, without padding rows."""
    state = {name: tensor.detach().float().cpu().contiguous() for name, tensor in merged_state(model).items()}
    state = {name: tensor[: rows_of(model, name)] if tensor.ndim else tensor for name, tensor in state.items()}
    layout = layout_of(model.config)
    return state if layout is None else layout.to_weights(state, model.config)


def published_shapes(config: ModelConfig) -> Shapes:
    """The shape of every parameter by its published name, without allocating any."""
    model = outline(config)
    state = {
        name: tensor[: rows_of(model, name)] if tensor.ndim else tensor for name, tensor in model.state_dict().items()
    }
    layout = layout_of(config)
    published = state if layout is None else layout.to_weights(state, config)
    return {name: tuple(tensor.shape) for name, tensor in published.items()}


def weights_bytes(model: Model) -> bytes:
    """The bytes of a model's model.safetensors."""
    return save(published_weights(model), metadata={"format": "pt"})


def save_weights(model: Model, folder: Path) -> None:
    """Write a model's model.safetensors, or its shards and their index."""
    write_weights(folder, published_weights(model))


def read_config(folder: Path) -> ModelConfig:
    path = folder / "config.json"
    if not path.is_file():
        raise no_run(folder)
    return from_published(read_json(path), str(path))


def load_model(folder: Path) -> Model:
    """The model of a folder, in evaluation mode, on the CPU."""
    config = read_config(folder)
    if adapter.is_adapter(folder) and not (folder / FILE).exists():
        return load_adapted(folder, config)
    check_fit(config, read_shapes(folder), str(folder))
    return fill(config, read_weights(folder), str(folder))


def load_adapted(folder: Path, config: ModelConfig) -> Model:
    """A model whose folder holds only a LoRA adapter; the rest are the base's weights, under the same names."""
    from regard.models.fetched import resolve

    base = resolve(adapter.base_of(folder))
    if not (base / "config.json").is_file():
        raise CheckpointError(
            f"{folder} holds a LoRA adapter for {base}, which is missing; put it back, or name another in "
            f"{folder / adapter.CONFIG}"
        )
    started = load_model(base)
    with skip_init():
        model = build(config)
    own = model.state_dict()
    model.load_state_dict(own | shared(own, started.state_dict()))
    return fill(config, adapter.with_adapter(published_weights(model), folder), str(folder))


def shared(own: dict[str, Tensor], theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the same name and shape."""
    return {name: t for name, t in theirs.items() if name in own and own[name].shape == t.shape}


def write_adapter(folder: Path, model: Model, start: Path) -> None:
    """Write the LoRA adapter of a model fine-tuned from the folder `start`, which the files name."""
    from regard.models.fetched import reference_of

    base = check_fit(read_config(start), read_shapes(start), str(start))
    have = set(shared(model.state_dict(), base.state_dict()))
    adapter.write_adapter(folder, model, layout_of(model.config), reference_of(start), have)


def check_fit(config: ModelConfig, shapes: Shapes, where: str) -> Model:
    """The model on the meta device, after checking its settings against the weights' table of contents.

    Nothing is allocated until both agree and memory has room.
    """
    if depth(config) > len(shapes):
        raise CheckpointError(
            f"{where}: config.json has {count(depth(config), 'layer')}, the weights {count(len(shapes), 'tensor')}"
        )
    limits.require(4 * sum(map(math.prod, shapes.values())), f"the weights of {where}", "choose a smaller model")
    with torch.device("meta"):
        try:
            state = {name: torch.empty(shape) for name, shape in shapes.items()}
        except (RuntimeError, OverflowError):  # too large to count
            raise CheckpointError(f"{where}: the table of contents of the weights is damaged") from None
        return fill(config, state, where)


def fill(config: ModelConfig, state: dict[str, Tensor], where: str) -> Model:
    """A model with these weights, given by their published names."""
    layout = layout_of(config)
    config = config if layout is None else layout.complete(config, state)
    try:
        with skip_init():
            model = build(config)
        if layout is not None:
            state = layout.from_weights(state, list(model.state_dict()), config)
        if isinstance(model, LanguageModel | Bert):
            state = {name: pad_rows(t, model.config.vocab) if name in WORDS else t for name, t in state.items()}
        check_shapes(model, state)
        model.load_state_dict(state, assign=isinstance(model, LanguageModel | Bert))  # a large model is not copied
    except (RuntimeError, IndexError, ValueError, TypeError, OverflowError) as e:
        raise CheckpointError(f"{where}: model.safetensors does not fit config.json: {e}") from None
    return model.eval()


def check_shapes(model: Model, state: dict[str, Tensor]) -> None:
    """Raise `Misfit` for the first tensor that is missing, unexpected or of the wrong shape."""
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    got = {name: tuple(t.shape) for name, t in state.items()}
    wrong = [name for name in expected | got if expected.get(name) != got.get(name)]
    if wrong:
        more = f" (and {len(wrong) - 1:,} more)" if len(wrong) > 1 else ""
        first = wrong[0]
        if first not in got or first not in expected:
            raise Misfit(f"{first} is {'missing' if first not in got else 'unexpected'}{more}")
        raise Misfit(f"{first} has the shape {got[first]}, expected {expected[first]}{more}")


def pad_rows(table: Tensor, vocab: int) -> Tensor:
    spare = padded(vocab) - vocab
    return joined([table, table.new_zeros((spare, *table.shape[1:]))]) if spare else table
