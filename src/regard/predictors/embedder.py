"""Turn texts into vectors, close together for texts that mean the same; and fill in masked words."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.checkpoint import FORMAT_VERSION, write_new_folder
from regard.data.batch import packed as packed_texts
from regard.data.tokenizers.encoder import MASK, EncoderTokenizer
from regard.errors import ConfigError, DataError
from regard.jsonfile import write_json
from regard.models.bert import POOLINGS, Bert
from regard.models.published import save_weights, to_published
from regard.models.published.sentence import Sentences
from regard.nn.attention import packs
from regard.nn.linear import takes
from regard.nn.masks import owners, pooled
from regard.nn.packed import packed
from regard.nn.stored import is_stored
from regard.predictors.base import Predictor, chunks
from regard.predictors.nearest import Nearest
from regard.ticks import tick

LAST4 = "last4"  # the last four layers concatenated, the best features in Devlin et al. 2019, table 7
CHUNK = 2048  # texts embedded at a time: enough to batch by length
ENOUGH = 256  # tokens that keep a core busy
CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, feature-extraction, regard]
---

# {name}

Texts to vectors of {width} numbers: {pooling} pooling over at most {longest} tokens.

    regard embed {name} sentences.txt --out vectors.npy
    SentenceTransformer("{name}").encode(["some text"])
"""


@dataclass(frozen=True)
class Features:
    """A vector for each text, and counts of texts cut to fit, tokens read, and padding."""

    vectors: np.ndarray  # N D, or N 4·D
    cut: int
    tokens: int
    padding: int


@dataclass(frozen=True)
class Similar:
    """A text and its cosine similarity to the query; `index` is its position among the inputs."""

    index: int
    text: str
    score: float


@dataclass(frozen=True)
class MaskCandidate:
    """A candidate for a [MASK]."""

    piece: str
    id: int
    probability: float


@dataclass(frozen=True)
class Embedding:
    """The vector of a text, D."""

    vector: np.ndarray


@dataclass(frozen=True)
class Filled:
    """The likeliest words for each [MASK] of a text, likeliest first."""

    masks: list[list[MaskCandidate]]


class Embedder(Predictor):
    """An encoder, its tokenizer, and how hidden states become a text's vector.

    On a CPU, texts of similar length are padded and batched; on a GPU, they are packed and read in bf16.
    """

    family = "encoder"

    def __init__(
        self,
        model: Bert,
        tokenizer: EncoderTokenizer,
        device: str = "cpu",
        settings: Sentences = Sentences(),  # noqa: B008 - frozen
    ):
        self.model = model.to(device).eval()
        self.tokenizer, self.device = tokenizer, torch.device(device)
        longest = model.config.max_length
        self.settings = replace(settings, max_length=min(settings.max_length or longest, longest))
        self.packs = packs(self.device)

    @cached_property
    def reader(self) -> Bert:
        """The model for inference: on a CPU, a copy with packed weights."""
        return packed(self.model) if takes(self.model.token.weight) else self.model

    # -- vectors --------------------------------------------------------------------------------------------------

    def predict(self, inputs: Iterable[str], **options: Any) -> Iterator[Any]:
        """An `Embedding` for each text; options as for `features`."""
        for some in chunks(inputs, CHUNK):
            yield from map(Embedding, self.embed(some, **options))

    def embed(self, texts: Sequence[str], **settings) -> np.ndarray:
        """A vector for each text, N D in float32; settings as for `features`."""
        return self.features(texts, **settings).vectors

    @torch.inference_mode()
    def features(
        self,
        texts: Sequence[str],
        *,
        pooling: str | None = None,
        layer: int | str = -1,
        normalise: bool | None = None,
        batch: int = 32,
    ) -> Features:
        """Vectors by the "mean" or "max" of a text's tokens or by its first, "cls"; None: the folder's setting.

        `layer` counts from 0, the embeddings, or back from -1, the last; "last4" concatenates the last four. `batch`
        texts of similar length are read together; it changes speed, not results.
        """
        pooling = self.settings.pooling if pooling is None else pooling
        normalise = self.settings.normalise if normalise is None else normalise
        if isinstance(texts, str):
            raise ConfigError("expected a list of texts, got one text; write [text], in brackets")
        if pooling not in POOLINGS:
            raise ConfigError(f"no pooling {pooling!r}; there are: {', '.join(POOLINGS)}")
        if batch < 1:
            raise ConfigError(f"a batch has at least 1 text, got {batch}")
        choose = self.chosen(layer)
        ids, cut = self.encode(texts)
        width = self.model.config.width * (4 if layer == LAST4 else 1)
        vectors, padding = np.zeros((len(ids), width), np.float32), 0
        for rows, source, lengths in self.batches(ids, batch):
            kept: list[Tensor] = []
            how: dict[str, Any] = {
                "starts" if self.packs else "lengths": lengths,
                "kept": None if layer == -1 else kept,
            }
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda" and self.packs):
                hidden = self.reader(source, **how)
            hidden = (choose(kept) if kept else hidden).float()
            part = packed_pooled(hidden, how["starts"], pooling) if self.packs else pooled(hidden, lengths, pooling)
            part = F.normalize(part, dim=-1) if normalise else part
            vectors[rows] = part.float().cpu().numpy()
            padding += source.numel() - sum(len(ids[r]) for r in rows)
            tick(len(rows))
        return Features(vectors, cut, sum(map(len, ids)), padding)

    def similar(
        self, query: str, texts: Sequence[str], top: int = 5, batch: int = 32, vectors: np.ndarray | None = None
    ) -> list[Similar]:
        """The texts closest to `query` by cosine, closest first, ties in input order. `vectors` are the texts' unit
        vectors, if already computed."""
        if not texts:
            raise DataError("no texts to compare with")
        if vectors is None:
            near, *others = self.embed([query, *texts], normalise=True, batch=batch)
            vectors = np.stack(others)
        else:
            (near,) = self.embed([query], normalise=True)
        rows, scores = Nearest(vectors).search(near, top)
        return [Similar(int(row), texts[row], float(score)) for row, score in zip(rows, scores, strict=True)]

    @property
    def max_length(self) -> int:
        """The most tokens of a text."""
        return self.settings.max_length

    @property
    def lower(self) -> bool:
        return self.settings.lower

    def chosen(self, layer: int | str) -> Callable[[list[Tensor]], Tensor]:
        """A function that picks `layer` from the embeddings and all layers, L + 1."""
        layers = self.model.config.layers
        if layer == LAST4:
            if layers < 4:
                raise ConfigError(f"last4 needs four layers, this model has {layers}; name one: --layer -1")
            return lambda kept: torch.cat(kept[-4:], -1)
        if isinstance(layer, str) or not -layers - 1 <= layer <= layers:
            raise ConfigError(
                f"no layer {layer!r}; there are 0 (the embeddings) to {layers}, -1 (the last) and {LAST4}"
            )
        return lambda kept: kept[layer]

    def encode(self, texts: Sequence[str], longest: int = 0) -> tuple[list[list[int]], int]:
        """Ids with [CLS] and [SEP], cut to the length limit, and how many texts were cut."""
        texts = [text.lower() for text in texts] if self.settings.lower else texts
        return self.tokenizer.encode_ids(texts, longest or self.settings.max_length)

    def batches(self, ids: list[list[int]], batch: int) -> Iterator[tuple[list[int], Tensor, Tensor | None]]:
        """Texts of similar length together, the longest first: their rows, B T ids, and lengths (None: all equal).

        On a CPU a batch ends where the length changes, once it is large enough to be efficient. Packed texts: 1 T ids,
        and the start of each text.
        """
        enough = ENOUGH if self.device.type == "cpu" else sys.maxsize
        groups: list[list[int]] = []
        for row in sorted(range(len(ids)), key=lambda r: (-len(ids[r]), r)):
            open_ = groups and len(groups[-1]) < batch
            longest = len(ids[groups[-1][0]]) if groups else 0
            if open_ and (len(ids[row]) == longest or len(groups[-1]) * longest < enough):
                groups[-1].append(row)
            else:
                groups.append([row])
        for rows in groups:
            if self.packs:
                source, starts = packed_texts([ids[r] for r in rows])
                yield rows, source.to(self.device), starts.to(self.device)
                continue
            sizes = [len(ids[r]) for r in rows]
            source = torch.tensor([ids[r] + [self.tokenizer.pad] * (sizes[0] - len(ids[r])) for r in rows])
            lengths = None if sizes[0] == sizes[-1] else torch.tensor(sizes, device=self.device)
            yield rows, source.to(self.device), lengths

    # -- files ----------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write a folder that transformers' AutoModel and sentence-transformers load; it must be new or empty."""
        if is_stored(self.model):
            raise ConfigError("a model with fp16 or int8 weights cannot be saved; load it again with weights fp32")
        folder, settings, width = Path(folder), self.settings, self.model.config.width
        about = {"format_version": FORMAT_VERSION, "task": "embed"}
        card = CARD.format(name=folder.name, width=width, pooling=settings.pooling, longest=settings.max_length)

        def write(draft: Path) -> None:
            save_weights(self.model, draft)
            write_json(draft / "config.json", to_published(self.model.config))
            write_json(draft / "regard.json", about)
            (draft / "README.md").write_text(card, "utf-8")
            self.tokenizer.save(draft, self.model.config.max_length)
            settings.save(draft, width)

        write_new_folder(folder, write)


class Filler(Embedder):
    """An encoder with its masked-word head."""

    family = "masked"

    @property
    def max_length(self) -> int:
        return self.model.config.max_length

    def predict(self, inputs: Iterable[str], **options: Any) -> Iterator[Filled]:
        """The candidates for each text's masks; options as for `fill`."""
        yield from (Filled(self.fill(text, **options)) for some in chunks(inputs, 1) for text in some)

    @torch.inference_mode()
    def fill(self, text: str, top: int = 5) -> list[list[MaskCandidate]]:
        """The likeliest words for each [MASK] of a text, independently of the other masks."""
        (ids,), cut = self.encode([text], self.model.config.max_length)
        gaps = [place for place, id in enumerate(ids) if id == self.tokenizer.mask]
        if not gaps:
            where = "in the part that fits; shorten the text" if cut else f"in the text; put one in: … {MASK} …"
            raise DataError(f"no {MASK} {where}")
        hidden = self.states(torch.tensor([ids], device=self.device))[0, gaps]  # M D: the head sees only the masks
        likely, order = self.model.logits(hidden).double().softmax(-1).topk(min(top, self.tokenizer.size), dim=-1)
        return [
            [MaskCandidate(self.tokenizer.piece(id).strip(" "), id, p) for id, p in zip(row, ps, strict=True)]
            for row, ps in zip(order.tolist(), likely.tolist(), strict=True)
        ]

    def states(self, ids: Tensor) -> Tensor:
        """The input of the head: B T -> B T D."""
        return self.model(ids)


class Infiller(Filler):
    """BART, whose decoder reads the masked text shifted by one: what it predicts at a mask fills it."""

    def states(self, ids: Tensor) -> Tensor:
        model: Any = self.model
        start = torch.full_like(ids[:, :1], model.config.start)
        return model(ids, None, torch.cat((start, ids[:, :-1]), 1))


def packed_pooled(hidden: Tensor, starts: Tensor, pooling: str) -> Tensor:
    """`pooled` for packed texts, 1 T D, with offsets `starts`, R+1: R D."""
    if pooling == "cls":
        return hidden[0, starts[:-1]]
    own, shape = owners(starts, hidden.size(1)), (len(starts) - 1, hidden.size(2))
    if pooling == "mean":
        return hidden.new_zeros(shape).index_add_(0, own, hidden[0]) / starts.diff()[:, None]
    return hidden.new_full(shape, -torch.inf).scatter_reduce_(0, own[:, None].expand(-1, shape[1]), hidden[0], "amax")
