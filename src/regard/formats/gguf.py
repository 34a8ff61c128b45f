"""GGUF: llama.cpp's format, one file with weights, settings and tokenizer."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from regard.data.folders import building_file
from regard.data.tokenizers.opened import open_tokenizer
from regard.errors import ConfigError, WorkFailed
from regard.formats.base import Exported, Format
from regard.jsonfile import read_json_if_any
from regard.models.base import LanguageModel
from regard.models.gguf import (
    CUTS,
    ROPE_FACTORS,
    need_gguf,
    open_gguf,
    plan,
    read_config,
    read_tokenizer,
    rope_factors,
    unpack,
)
from regard.models.gguf_layouts import ARCHITECTURES, Architecture
from regard.models.published import fill, from_published, layout_of, load_model, published_weights, to_published
from regard.nn.positions import Stretch
from regard.output import check_output

TYPES = ("f16", "q8_0", "f32")
TOLERANCE = {"f32": 1e-4, "f16": 0.02, "q8_0": 0.2}  # of the largest logit
FLOAT32 = ("position_embd.weight",)  # matrices that llama.cpp keeps in float32, like vectors
BLOCK = 32  # numbers that share a scale in q8_0
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # types of tokens
PROBE = "It's 2024: don't  panic, 12345 naïve cats!\n\n\tdef f(x): return x"


@dataclass(frozen=True)
class Pieces:
    """A tokenizer as llama.cpp lists it."""

    tokenizer: Tokenizer
    pre: str  # llama.cpp's name for how text is split
    tokens: list[str]
    types: list[int]
    add_bos: bool


class GgufFile(Format):
    """Matrices in 16 or 8 bits, vectors in 32."""

    name, types = "gguf", TYPES

    def target(self, model: str, dtype: str) -> str:
        return f"{model}-{dtype}.gguf"

    def write(self, source: Path, target: Path, dtype: str) -> Exported:
        need_gguf()
        if target.exists():
            raise ConfigError(f"{target} already exists; choose another name with --out, or remove it first")
        check_output(target)
        model: Any = load_model(source)
        architecture = architecture_for(model)
        pieces = list_pieces(source, model.config.vocab)
        with building_file(target) as draft:
            write_gguf(draft, architecture, model, pieces, source, dtype)
            difference = compare(draft, model, pieces, dtype)
        notes = [
            f"{target.stat().st_size / 1e6:,.1f} MB; read back, its logits differ from ours by at most {difference:.1e}"
        ]
        if window := getattr(model.config, "window", 0):
            notes.append(
                f"llama.cpp has no sliding window for this architecture: its context is the window, {window} tokens"
            )
        return Exported(target, [target.name], notes, {"type": dtype, "max_difference": difference})


def architecture_for(model: Any) -> Architecture:
    """The GGUF architecture of a model; `ConfigError` if there is none."""
    layout = layout_of(model.config)
    name = layout.name if layout else ""
    for architecture in ARCHITECTURES.values():
        if name in architecture.model_types:
            return architecture
    names = ", ".join(name for each in ARCHITECTURES.values() for name in each.model_types)
    raise ConfigError(f"a {type(model).__name__} cannot be written as GGUF; there are: {names}")


def list_pieces(folder: Path, vocab: int) -> Pieces:
    """The tokenizer as llama.cpp's lists; `ConfigError` for one that they cannot express."""
    tokenizer = open_tokenizer(folder / "tokenizer.json")
    parts = json.loads(tokenizer.to_str())
    if parts["model"]["type"] != "BPE" or parts["model"].get("byte_fallback") or parts["model"].get("unk_token"):
        raise ConfigError("the tokenizer is not byte-level BPE, which is what is written to GGUF; see docs/models.md")
    if not parts["model"]["merges"]:
        raise ConfigError("the tokenizer has only bytes, and llama.cpp expects merges; train with --tokens bpe")
    cut = next((name for name, each in CUTS.items() if cut_of(each) == without_offsets(parts["pre_tokenizer"])), None)
    if cut is None:
        raise ConfigError(f"llama.cpp has no name for how this tokenizer splits text; there are: {', '.join(CUTS)}")
    added = {token["id"]: token for token in parts["added_tokens"]}
    tokens = [tokenizer.id_to_token(i) for i in range(vocab)]
    types = [
        UNUSED if token is None else NORMAL if i not in added else CONTROL if added[i]["special"] else USER_DEFINED
        for i, token in enumerate(tokens)
    ]
    tokens = [f"[PAD{i}]" if token is None else token for i, token in enumerate(tokens)]
    begins = tokenizer.encode(PROBE).ids[:1] != tokenizer.encode(PROBE, add_special_tokens=False).ids[:1]
    return Pieces(tokenizer, cut, tokens, types, begins)


def cut_of(pre_tokenizer: Any) -> Any:
    return without_offsets(json.loads(pre_tokenizer.__getstate__()))


def without_offsets(part: Any) -> Any:
    """A pre-tokenizer without its `trim_offsets`, which do not change how text is split."""
    if isinstance(part, list):
        return [without_offsets(one) for one in part]
    if not isinstance(part, dict):
        return part
    return {name: without_offsets(value) for name, value in part.items() if name != "trim_offsets"}


def write_gguf(path: Path, architecture: Architecture, model: Any, pieces: Pieces, source: Path, dtype: str) -> None:
    gguf = need_gguf()
    config = to_published(model.config)
    if window := getattr(model.config, "window", 0):  # which llama.cpp's Llama does not have
        config["max_position_embeddings"] = min(window, config["max_position_embeddings"])
    writer = gguf.GGUFWriter(path, architecture.name)
    writer.add_name(source.resolve().name)
    writer.add_file_type(getattr(gguf.LlamaFileType, {"f32": "ALL_F32", "f16": "MOSTLY_F16"}.get(dtype, "MOSTLY_Q8_0")))
    writer.add_vocab_size(config["vocab_size"])
    for key, published in architecture.settings.items():
        add = writer.add_float32 if isinstance(config[published], float) else writer.add_uint32
        add(f"{architecture.name}.{key}", config[published])
    if "head_dim" in config:
        writer.add_rope_dimension_count(config["head_dim"])
    add_tokenizer(writer, pieces, source)
    if (stretch := getattr(model.config, "stretch", Stretch())).factor > 1:
        writer.add_tensor(ROPE_FACTORS, rope_factors(config["head_dim"], config["rope_theta"], stretch))
    weights = published_weights(model)
    for name, published in architecture.names(model.config.layers).items():
        if published in weights:  # a tied head is not
            values = architecture.from_published(name, weights[published].numpy(), config)
            kind = gguf.GGMLQuantizationType[kind_of(name, values, dtype).upper()]
            writer.add_tensor(name, gguf.quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def kind_of(name: str, values: np.ndarray, dtype: str) -> str:
    """The type a tensor is stored in: vectors in 32 bits, and in 16 rows that q8_0's blocks do not divide."""
    if values.ndim == 1 or name in FLOAT32:
        return "f32"
    return "f16" if dtype == "q8_0" and values.shape[-1] % BLOCK else dtype


def add_tokenizer(writer: Any, pieces: Pieces, source: Path) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pieces.pre)
    writer.add_token_list(pieces.tokens)
    writer.add_token_types(pieces.types)
    special = need_gguf().SpecialVocab(source, load_merges=True, n_vocab=len(pieces.tokens))
    special.add_special_token = {"bos": pieces.add_bos}
    special.add_to_gguf(writer, quiet=True)
    ends = read_json_if_any(source / "generation_config.json").get("eos_token_id")
    if isinstance(ends, list) and len(ends) > 1:
        writer.add_eot_token_id(ends[1])


def compare(path: Path, model: LanguageModel, pieces: Pieces, dtype: str) -> float:
    """The largest difference between the logits of a model and of its file; `WorkFailed` if it is too large."""
    packed = open_gguf(path)
    config = read_config(packed)
    state = {
        name: torch.from_numpy(np.array(unpack(packed, config, theirs)))
        for name, (theirs, _) in plan(packed, config).items()
    }
    again: Any = fill(from_published(config), state, str(path))
    ids = pieces.tokenizer.encode(PROBE).ids
    if read_tokenizer(packed).encode(PROBE).ids != ids:
        raise WorkFailed(f"{path.name}: its tokenizer, read back, splits text differently; please report this")
    with torch.no_grad():
        batch = torch.tensor([ids[: again.config.context]])
        expected = model.logits(model(batch))
        difference = float((again.logits(again(batch)) - expected).abs().max())
    if not difference <= TOLERANCE[dtype] * float(expected.abs().max()):
        raise WorkFailed(f"{path.name}: its logits differ from ours by {difference:.1e}; please report this")
    return difference
