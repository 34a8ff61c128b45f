"""Read GGUF files: llama.cpp's one-file models become Hugging Face folders, weights unpacked to float32.

Supports the architectures of `gguf_layouts` with a byte-level BPE tokenizer, in every tensor type the package `gguf`
can unpack. Anything the folder cannot express exactly (experts, rotary frequencies scaled otherwise than Llama 3's) is
refused, not dropped.
"""

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from regard.data.tokenizers import opened
from regard.errors import CheckpointError, MissingExtra, reason
from regard.jsonfile import write_json
from regard.models.gguf_layouts import ARCHITECTURES, Architecture
from regard.models.published import from_published, published_shapes
from regard.models.published.llama import STRETCH
from regard.nn.positions import Rotary, Stretch, StretchedRotary

if TYPE_CHECKING:
    from gguf import ReaderTensor

MAGIC = b"GGUF"
ROPE_FACTORS = "rope_freqs.weight"
CONTROL, USER_DEFINED = 3, 4  # token types: never written by a user, and text that is always one token

# Pre-tokenizers by `tokenizer.ggml.pre`: the file holds only their name.
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)  # the regular expression of Radford et al. 2019, built in
DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2])  # each digit alone


def split_by(pattern: str) -> pre_tokenizers.PreTokenizer:
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior="isolated"), bytes_])


LLAMA3 = split_by(opened.LLAMA3)
QWEN2 = split_by(opened.LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"))  # each digit alone
CUTS = {
    "gpt-2": GPT2,
    "smollm": DIGITS,
    "starcoder": DIGITS,
    "refact": DIGITS,
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "qwen2": QWEN2,
}


Plan = dict[str, tuple[str, tuple[int, ...]]]  # published name: name in the file, shape


@dataclass(frozen=True)
class Gguf:
    """An open file: its settings as plain values, its tensors still packed and on disk."""

    path: Path
    settings: dict[str, Any]
    tensors: "dict[str, ReaderTensor]"

    def get(self, key: str, default: Any = None) -> Any:
        """The setting `key`, or the default; `CheckpointError` if there is neither."""
        value = self.settings.get(key, default)
        if value is None:
            raise CheckpointError(f"{self.path}: the setting {key} is missing; a complete GGUF model has it")
        return value


def convert(path: Path, folder: Path) -> None:
    """Write the model of a GGUF file into `folder`: settings, weights in float32, tokenizer.

    Unpacks one tensor at a time, so it needs memory for the largest only.
    """
    model = open_gguf(path)
    config = read_config(model)
    tokenizer = read_tokenizer(model)
    weights = plan(model, config)  # refuses what it can before the first large file is written
    ids = {name: _special(model, name) for name in ("bos", "pad")} | {"eos": end_ids(model)}
    special = {f"{name}_token_id": i for name, i in ids.items() if i is not None}
    write_json(folder / "config.json", config | special)
    write_json(folder / "generation_config.json", special)
    write_json(folder / "tokenizer_config.json", tokenizer_config(model))
    tokenizer.save(str(folder / "tokenizer.json"))
    write_weights(folder / "model.safetensors", model, config, weights)


def need_gguf() -> Any:
    """The package `gguf`; `MissingExtra` if it is not installed."""
    try:
        import gguf
    except ImportError:
        raise MissingExtra("reading GGUF files", "gguf") from None
    return gguf


def check_magic(path: Path) -> None:
    """Raise `CheckpointError` unless the file begins like a GGUF file."""
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path} is not a file that can be read")
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as e:
        raise CheckpointError(f"cannot read {path} ({e.strerror})") from None
    if magic != MAGIC:
        raise CheckpointError(
            f"{path} is not a GGUF file: it begins with {magic!r}, expected {MAGIC!r}; "
            "a model is a folder, a GGUF file or a name from: regard model list"
        )


def open_gguf(path: Path) -> Gguf:
    """The settings and packed tensors of a file; `CheckpointError` unless it is a complete GGUF file."""
    gguf = need_gguf()

    class Reader(gguf.GGUFReader):
        """The package's reader, stopping at the end of the file: a damaged count must not loop forever."""

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            if offset + np.dtype(dtype).itemsize * int(count) > self.data.size:
                raise ValueError(f"it ends at byte {self.data.size:,}")
            return super()._get(offset, dtype, count, override_order)

    check_magic(path)
    try:
        reader = Reader(path)
        settings = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, IndexError, KeyError, OverflowError, OSError) as e:
        raise CheckpointError(f"{path} is cut short or damaged ({reason(e)}); fetch it again") from None
    return Gguf(path, settings, {t.name: t for t in reader.tensors})


def architecture_of(model: Gguf) -> Architecture:
    name = model.get("general.architecture")
    if name not in ARCHITECTURES:
        names = ", ".join(map(repr, ARCHITECTURES))
        raise CheckpointError(f"{model.path}: its architecture is {name!r}; we read only {names}")
    return ARCHITECTURES[name]


def read_config(model: Gguf) -> dict[str, Any]:
    """config.json of the corresponding class of transformers."""
    architecture = architecture_of(model)
    if "token_embd.weight" not in model.tensors:
        raise CheckpointError(f"{model.path}: it has no tensor token_embd.weight")
    rotary = "rope.freq_base" in architecture.settings
    defaults = rotary_settings(model, architecture.name) if rotary else {}
    tied = {"tie_word_embeddings": "output.weight" not in model.tensors}
    config: dict[str, Any] = {
        "model_type": architecture.model_types[0],
        "architectures": [architecture.published],
        "vocab_size": int(model.tensors["token_embd.weight"].shape[-1]),
        **tied,
        **architecture.fixed,
        "dtype": "float32",
    }
    for theirs, published in architecture.settings.items():
        value = model.get(f"{architecture.name}.{theirs}", defaults.get(theirs))
        config[published] = _short(value) if isinstance(value, float) else value
    if rotary:
        config["rope_parameters"] = {"rope_theta": config["rope_theta"], **rope_type(model, config)}
    return config


def rope_type(model: Gguf, config: dict[str, Any]) -> dict[str, Any]:
    """The rope_scaling that matches the file's frequency factors: Llama 3's or none; otherwise `CheckpointError`."""
    if ROPE_FACTORS not in model.tensors:
        return {"rope_type": "default"}
    factors = model.tensors[ROPE_FACTORS].data
    stretch = Stretch(factor=_short(factors.max()))
    expected = rope_factors(config["head_dim"], config["rope_theta"], stretch)
    if factors.shape != expected.shape or not np.allclose(factors, expected, rtol=1e-4):
        raise CheckpointError(f"{model.path}: it scales its rotary frequencies in a way that is not Llama 3's")
    return {"rope_type": "llama3", **{theirs: getattr(stretch, ours) for ours, theirs in STRETCH.items()}}


def rope_factors(head_width: int, theta: float, stretch: Stretch) -> np.ndarray:
    """The divisor of each frequency: K/2."""
    plain, slowed = Rotary(1, head_width, theta), StretchedRotary(1, head_width, theta, stretch)
    return (plain.rates() / slowed.rates()).float().numpy()


def rotary_settings(model: Gguf, name: str) -> dict[str, Any]:
    """Head and rotary settings with their defaults; `CheckpointError` for what we do not compute."""
    scaling = model.get(f"{name}.rope.scaling.type", "none")
    if scaling != "none":
        raise CheckpointError(f"{model.path}: it scales its rotary frequencies ({scaling}), which we do not read")
    heads, width = model.get(f"{name}.attention.head_count"), model.get(f"{name}.embedding_length")
    kv_heads = model.get(f"{name}.attention.head_count_kv", heads)
    if not isinstance(heads, int) or not isinstance(kv_heads, int) or not heads or not kv_heads or heads % kv_heads:
        raise CheckpointError(f"{model.path}: {heads} heads cannot share {kv_heads} keys and values")
    head_width = model.get(f"{name}.attention.key_length", width // heads)
    turned = model.get(f"{name}.rope.dimension_count", head_width)
    values = model.get(f"{name}.attention.value_length", head_width)
    if turned != head_width or head_width % 2 or values != head_width:
        raise CheckpointError(
            f"{model.path}: {turned} of {head_width} columns of a head are rotated; we read only fully rotated heads"
        )
    lengths = dict.fromkeys(("attention.key_length", "attention.value_length"), head_width)
    return {"attention.head_count_kv": kv_heads, "rope.freq_base": 10000.0, **lengths}


def _short(value: float) -> float:
    """A float32 in its shortest form: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


# Weights


def plan(model: Gguf, config: dict[str, Any]) -> Plan:
    """Each published tensor's name and shape in the file. Raises unless all are there, unpackable, and no others."""
    architecture = architecture_of(model)
    layers = model.get(f"{architecture.name}.block_count")
    if layers > len(model.tensors):
        raise CheckpointError(f"{model.path}: {layers:,} layers, but only {len(model.tensors)} tensors")
    shapes = published_shapes(from_published(config, str(model.path)))
    names = {ours: theirs for theirs, ours in architecture.names(layers).items()}
    expected = {published: (names[published], shape) for published, shape in shapes.items()}
    if unexpected := sorted(model.tensors.keys() - {name for name, _ in expected.values()} - {ROPE_FACTORS}):
        raise CheckpointError(f"{model.path}: it has the tensor {unexpected[0]}, which a {architecture.name} does not")
    for name, shape in expected.values():
        if name not in model.tensors:
            raise CheckpointError(f"{model.path}: the tensor {name} is missing")
        got = tuple(model.tensors[name].shape.tolist()[::-1])
        if got != (implied := architecture.shape(name, shape)):
            raise CheckpointError(f"{model.path}: the tensor {name} has the shape {got}, its settings imply {implied}")
    for kind, name in {t.tensor_type: t.name for t in model.tensors.values()}.items():
        try:
            need_gguf().dequantize(model.tensors[name].data[:1], kind)
        except NotImplementedError:
            raise CheckpointError(f"{model.path}: {name} is packed as {kind.name}, which gguf cannot unpack") from None
    return expected


def unpack(model: Gguf, config: dict[str, Any], name: str) -> np.ndarray:
    """One tensor in float32, as published files hold it."""
    tensor = model.tensors[name]
    values = need_gguf().dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
    return architecture_of(model).to_published(name, values, config)


def write_weights(path: Path, model: Gguf, config: dict[str, Any], expected: Plan) -> None:
    """Write model.safetensors while unpacking: an 8-byte length, a table in JSON, the tensors one by one."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for published, (_, shape) in expected.items():
        begin, end = end, end + 4 * math.prod(shape)
        table[published] = {"dtype": "F32", "shape": shape, "data_offsets": (begin, end)}
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)  # the values start aligned
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for name, _ in expected.values():
            file.write(np.ascontiguousarray(unpack(model, config, name), "<f4").data)


# Tokenizer


def read_tokenizer(model: Gguf) -> Tokenizer:
    """The byte-level BPE a file describes."""
    if (kind := model.get("tokenizer.ggml.model")) != "gpt2":
        raise CheckpointError(f"{model.path}: its tokenizer is {kind!r}; we read only byte-level BPE ('gpt2')")
    cut = model.get("tokenizer.ggml.pre", "default")
    if cut not in CUTS:
        raise CheckpointError(f"{model.path}: its pre-tokenizer is {cut!r}; we read only {', '.join(CUTS)}")
    tokens: list[str] = model.get("tokenizer.ggml.tokens")
    if len(tokens) > (rows := int(model.tensors["token_embd.weight"].shape[-1])):
        raise CheckpointError(f"{model.path}: {len(tokens):,} tokens but only {rows:,} rows in token_embd.weight")
    merges = [(left, right) for left, _, right in (m.partition(" ") for m in model.get("tokenizer.ggml.merges"))]
    vocab = {token: i for i, token in enumerate(tokens)}
    try:
        # Llama 3 keeps a word of the vocabulary whole, even if no merges lead to it.
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=CUTS[cut] is LLAMA3))
    except Exception as e:  # the library raises a plain Exception for a merge of unknown pieces
        raise CheckpointError(f"{model.path}: its tokens and merges do not fit together ({e})") from None
    tokenizer.pre_tokenizer = CUTS[cut]
    if CUTS[cut] is QWEN2:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    types = model.get("tokenizer.ggml.token_type", [])
    for kind, add in ((CONTROL, tokenizer.add_special_tokens), (USER_DEFINED, tokenizer.add_tokens)):
        chosen = [token for token, type_ in zip(tokens, types, strict=False) if type_ == kind]
        add([AddedToken(token, special=kind == CONTROL, normalized=False) for token in chosen])
    bos = _special(model, "bos")
    if bos is not None and model.get("tokenizer.ggml.add_bos_token", CUTS[cut] is LLAMA3):
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[tokens[bos], "$A"], pair=[tokens[bos], "$A", "$B:1"], special_tokens=[(tokens[bos], bos)]
        )
    return tokenizer


def tokenizer_config(model: Gguf) -> dict[str, Any]:
    """tokenizer_config.json: the special tokens and the chat template."""
    tokens = model.get("tokenizer.ggml.tokens")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.get(f"{architecture_of(model).name}.context_length"),
        "clean_up_tokenization_spaces": False,
    }
    for name in ("bos", "eos", "pad", "unk"):
        if (i := _special(model, name)) is not None:
            config[f"{name}_token"] = tokens[i]
    if template := model.settings.get("tokenizer.chat_template"):
        config["chat_template"] = template
    return config


def end_ids(model: Gguf) -> int | list[int] | None:
    """The ids that end a text: of the document, then of a turn of a conversation if that differs."""
    ends = [i for name in ("eos", "eot") if (i := _special(model, name)) is not None]
    return ends or None if len(set(ends)) != 1 else ends[0]


def _special(model: Gguf, name: str) -> int | None:
    long = {"unk": "unknown", "pad": "padding"}.get(name, name)
    number = model.settings.get(f"tokenizer.ggml.{long}_token_id")
    if number is not None and not 0 <= number < len(model.get("tokenizer.ggml.tokens")):
        raise CheckpointError(f"{model.path}: its {long} token has the id {number}, beyond its vocabulary")
    return number
