"""Our models as graphs for ONNX, with the input and output names of transformers and Optimum."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.models.base import Decoder
from regard.models.bert import Bert
from regard.models.captioner import Captioner
from regard.models.clip import CLIP
from regard.models.published.sentence import Sentences
from regard.models.t5 import T5
from regard.models.transformer import Transformer
from regard.models.vit import ViT
from regard.models.whisper import Whisper
from regard.nn.cache import LayerCache, Step
from regard.nn.masks import Everything, Lengths, Mask, TableMask, pooled

Shape = tuple[int | str, ...]  # a name is an axis of any size
Inputs = dict[str, tuple[Shape, int]]  # by name: the shape, and what it holds
IDS: Shape = ("batch", "length")
SOURCE: Shape = ("batch", "source")
MASK, FLOATS = 2, 0  # what an input holds: 0 and 1, or floats; any other number is a vocabulary of ids


class Graph(nn.Module):
    """The graph of a file: its inputs, in the order of `compute`'s arguments, and its outputs."""

    file = "model.onnx"
    inputs: Inputs
    outputs: list[str]

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model: Any = model

    def forward(self, *inputs: Tensor) -> Any:
        """Calls the subclass's `compute`: inputs in order -> an output, or a tuple of several."""
        run: Any = getattr(self, "compute")  # noqa: B009 - each has its own parameters
        return run(*inputs)

    def read_settings(self, folder: Path) -> None:
        """Read settings from files other than config.json; most graphs need none."""

    def example(self, sizes: dict[str, int]) -> dict[str, Tensor]:
        """Random inputs with axes of these sizes; the first text is one token shorter than the others."""
        rng = torch.Generator().manual_seed(0)
        example = {}
        for name, (shape, below) in self.inputs.items():
            size = [sizes[axis] if isinstance(axis, str) else axis for axis in shape]
            if below == FLOATS:
                example[name] = torch.randn(size, generator=rng)
            elif below == MASK:
                example[name] = torch.ones(size, dtype=torch.long)
                example[name][0, -1] = 0
            else:
                example[name] = torch.randint(below, size, generator=rng)
        return example


class EncoderGraph(Graph):
    """BERT and its relatives with their head; without one, the vectors of the words and of the text."""

    def __init__(self, model: Bert):
        super().__init__(model)
        c = model.config
        self.inputs = {"input_ids": (IDS, c.vocab), "attention_mask": (IDS, MASK)}
        self.inputs |= {"token_type_ids": (IDS, c.types)} if c.types > 1 else {}
        outputs = {"pretraining": ["prediction_logits", "seq_relationship_logits"]}
        vectors = ["last_hidden_state", "sentence_embedding"]
        self.outputs = outputs.get(c.head, vectors if c.head in ("none", "pooler") else ["logits"])
        self.sentences = Sentences()

    def read_settings(self, folder: Path) -> None:
        self.sentences = Sentences.load(folder)

    def compute(self, ids: Tensor, mask: Tensor, sentences: Tensor | None = None) -> Any:
        lengths = mask.sum(1)
        hidden = self.model(ids, lengths, sentences)
        head = self.model.config.head
        if head == "sequence":
            return self.model.scores(self.model.summary(hidden, lengths))
        if head == "token":
            return self.model.scores(hidden)
        if head in ("none", "pooler"):
            vector = pooled(hidden, lengths, self.sentences.pooling)
            return hidden, F.normalize(vector, dim=-1) if self.sentences.normalise else vector
        words = self.model.logits(hidden)
        return (words, self.model.follows(hidden[:, 0])) if head == "pretraining" else words


class Joined(LayerCache):
    """A layer's cache that takes the past as an input and returns past and present, without writing in place."""

    def __init__(self, keys: Tensor, values: Tensor):
        super().__init__(keys, values, slice(0), 0)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.keys, self.values = torch.cat((self.keys, k), 2), torch.cat((self.values, v), 2)
        return self.keys, self.values


class DecoderGraph(Graph):
    """GPT and Llama: logits of new tokens after a past, which may be empty. Texts may be padded on either side."""

    def __init__(self, model: Any):
        super().__init__(model)
        attention, c = model.blocks[0].attention, model.config
        past = ("batch", attention.kv_heads, "past", attention.widths[1] // attention.kv_heads)
        names = [f"{i}.{what}" for i in range(c.layers) for what in ("key", "value")]
        self.inputs = {"input_ids": (IDS, c.vocab), "attention_mask": (("batch", "past + length"), MASK)}
        self.inputs |= {f"past_key_values.{name}": (past, FLOATS) for name in names}
        self.outputs = ["logits", *(f"present.{name}" for name in names)]

    def compute(self, ids: Tensor, mask: Tensor, *past: Tensor) -> Any:
        T, P = ids.size(1), past[0].size(2)
        slots = torch.arange(P + T)
        places = (mask.cumsum(1) - 1).clamp(min=0)  # B S: padding does not count
        own = slots[P:, None] == slots  # T S: padding sees itself, because a softmax over nothing is NaN
        table = (slots <= slots[P:, None]) & mask.bool()[:, None, :] | own  # B T S
        caches = [Joined(k, v) for k, v in zip(past[0::2], past[1::2], strict=True)]
        step = Placed(places[:, P:], TableMask(table[:, None]), caches, P + T, places)
        logits = self.model.logits(self.model(ids, step=step))
        return logits, *(x for cache in caches for x in (cache.keys, cache.values))


class Placed(Step):
    """A step whose keys have given positions, which skip padding."""

    def __init__(self, where: Tensor, mask: Mask, caches: list[Joined], stop: int, keys: Tensor):
        super().__init__(where, mask, caches, stop)
        self.places = keys

    @property
    def keys(self) -> Tensor:
        return self.places


# -- encoder-decoders -------------------------------------------------------------------------------------------------


class SourceGraph(Graph):
    """The encoder of text, audio or an image."""

    file = "encoder_model.onnx"

    def __init__(self, model: Any, inputs: Inputs):
        super().__init__(model)
        self.inputs, self.outputs = inputs, ["last_hidden_state"]

    def compute(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.model.encode(source, None if mask is None else mask.sum(1))[0]


class TargetGraph(Graph):
    """The decoder's first pass: logits, and the keys and values for later tokens."""

    file, past = "decoder_model.onnx", False

    def __init__(self, model: Any, padded: bool):
        super().__init__(model)
        c, attention = model.config, model.decoder[0].attention
        self.padded = padded  # whether sources may be padded
        self.width = attention.widths[1] // attention.kv_heads
        layers, sides = range(c.decoder_layers), ("decoder", "encoder")
        self.outputs = ["logits"]
        self.outputs += [f"present.{i}.{side}.{x}" for side in sides for i in layers for x in ("key", "value")]
        self.inputs = {"input_ids": (IDS, c.vocab), **self.source(c.width)}
        self.inputs |= {"encoder_attention_mask": (SOURCE, MASK)} if self.padded else {}

    def source(self, width: int) -> Inputs:
        return {"encoder_hidden_states": ((*SOURCE, width), FLOATS)}

    def compute(self, ids: Tensor, *rest: Tensor) -> Any:
        memory, mask = rest[0], rest[1] if self.padded else None
        cross = [layer.cross.keys_values(memory) for layer in self.model.decoder]
        k = cross[0][0]
        empty = k.new_zeros(k.size(0), k.size(1), 0, self.width)
        return self.decode(ids, mask, [Joined(empty, empty) for _ in cross], cross)

    def decode(self, ids: Tensor, mask: Tensor | None, own: list[Joined], cross: list[Any]) -> Any:
        source = Everything() if mask is None else Lengths(mask.sum(1), mask.size(1))
        state = Decoding(own, cross, source, ids.size(1))
        logits = self.model.logits(self.model.step(ids, state))
        sides = (own,) if self.past else (own, [Joined(*kv) for kv in cross])
        return logits, *(x for side in sides for one in side for x in (one.keys, one.values))


class NextGraph(TargetGraph):
    """The decoder's next tokens, after a past."""

    file, past = "decoder_with_past_model.onnx", True

    def __init__(self, model: Any, padded: bool):
        super().__init__(model, padded)
        heads = model.decoder[0].attention.kv_heads
        shapes: dict[str, Shape] = {side: ("batch", heads, axis, self.width)
                                    for side, axis in (("decoder", "past"), ("encoder", "source"))}  # fmt: skip
        names = [name.removeprefix("present.") for name in self.outputs[1:]]
        self.inputs |= {f"past_key_values.{name}": (shapes[name.split(".")[1]], FLOATS) for name in names}
        self.outputs = [name for name in self.outputs if ".encoder." not in name]

    def source(self, width: int) -> Inputs:
        return {}

    def compute(self, ids: Tensor, *rest: Tensor) -> Any:
        mask, kv = (rest[0], rest[1:]) if self.padded else (None, rest)
        pairs = list(zip(kv[0::2], kv[1::2], strict=True))
        half = len(pairs) // 2
        return self.decode(ids, mask, [Joined(*pair) for pair in pairs[:half]], pairs[half:])


class Decoding:
    """The state for `step` of an encoder-decoder, with T tokens at once instead of one of each of N hypotheses."""

    def __init__(self, own: list[Joined], cross: list[Any], mask: Mask, new: int):
        self.own, self.cross, self.mask, self.cache = own, cross, mask, self
        self.stop = own[0].keys.size(2) + new
        self.places = torch.arange(self.stop)
        self.time = torch.arange(self.stop - new, self.stop)

    def grow(self) -> tuple[slice, Mask]:
        return slice(0), TableMask(self.places <= self.time[:, None])  # T S

    def layer(self, index: int, slots: slice, stop: int) -> Joined:
        return self.own[index]


# -- images -----------------------------------------------------------------------------------------------------------


class ImageGraph(Graph):
    """The scores of the classes, or the patch states of an encoder without a head. Pixels are normalised already."""

    def __init__(self, model: ViT):
        super().__init__(model)
        self.inputs = {"pixel_values": (("batch", *model.config.shape), FLOATS)}
        self.outputs = ["logits"] if model.config.labels else ["last_hidden_state"]

    def compute(self, pixels: Tensor) -> Tensor:
        hidden = self.model(pixels)
        return self.model.scores(hidden) if self.model.config.labels else hidden


class PairGraph(Graph):
    """CLIP: how well each image fits each text, and the vectors of both."""

    def __init__(self, model: CLIP):
        super().__init__(model)
        self.outputs = ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"]
        texts: Shape = ("texts", "length")
        self.inputs = {"input_ids": (texts, model.config.vocab), "attention_mask": (texts, MASK)}
        self.inputs |= {"pixel_values": (("batch", *model.config.shape), FLOATS)}

    def compute(self, ids: Tensor, mask: Tensor, pixels: Tensor) -> Any:
        images, texts = self.model.images(pixels), self.model.texts(ids, mask.sum(1))
        scores = self.model.compare(images, texts)
        return scores, scores.T, texts, images


def encoder_decoder(model: Any, source: Inputs) -> list[Graph]:
    padded = "attention_mask" in source
    return [SourceGraph(model, source), TargetGraph(model, padded), NextGraph(model, padded)]


def from_text(model: Any) -> list[Graph]:
    return encoder_decoder(model, {"input_ids": (SOURCE, model.config.vocab), "attention_mask": (SOURCE, MASK)})


def from_sound(model: Any) -> list[Graph]:
    shape: Shape = ("batch", model.config.mels, model.config.frames)
    return encoder_decoder(model, {"input_features": (shape, FLOATS)})


def from_image(model: Any) -> list[Graph]:
    return encoder_decoder(model, {"pixel_values": (("batch", *model.config.shape), FLOATS)})


GRAPHS: dict[type[nn.Module], Callable[[Any], list[Graph]]] = {  # of a class and its subclasses
    Bert: lambda model: [EncoderGraph(model)],
    Decoder: lambda model: [DecoderGraph(model)],
    Transformer: from_text,
    T5: from_text,
    Whisper: from_sound,
    Captioner: from_image,
    ViT: lambda model: [ImageGraph(model)],
    CLIP: lambda model: [PairGraph(model)],
}


def graphs_of(model: nn.Module, folder: Path) -> list[Graph]:
    """The graphs of a folder's model; `ConfigError` if it has none."""
    cls = next((cls for cls in type(model).__mro__ if cls in GRAPHS), None)
    if cls is None:
        names = ", ".join(cls.__name__ for cls in GRAPHS)
        raise ConfigError(f"{type(model).__name__} has no ONNX graph yet; there are graphs for: {names}")
    graphs = GRAPHS[cls](model)
    for graph in graphs:
        graph.read_settings(folder)
    return graphs
