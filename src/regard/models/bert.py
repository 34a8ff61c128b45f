"""BERT: a bidirectional encoder, pre-trained by filling in masked tokens (Devlin et al. 2019).

RoBERTa and XLM-R are the same network, trained longer and on more languages; DistilBERT has no segment ids.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.models.base import padded
from regard.models.checks import check_model
from regard.nn.blocks import ACTIVATIONS, Norm, PostNormEncoderLayer, compute_dtype, dropout
from regard.nn.init import bert_
from regard.nn.linear import linear
from regard.nn.masks import Everything, Lengths, Mask, Packed, owners, pooled
from regard.nn.positions import Learned
from regard.shapes import check

# What sits on top of the encoder. "pooler" is the layer on [CLS] that the published BertModel includes.
HEADS = ("none", "pooler", "masked", "pretraining", "sequence", "token")
POOLED = ("pooler", "pretraining", "sequence")
MASKED = ("masked", "pretraining")
LABELLED = ("sequence", "token")
POOLINGS = ("mean", "cls", "max")
FAMILIES: dict[str, Callable[[Tensor], Tensor]] = {  # layouts of folders, and the activation after their pooler
    "bert": torch.tanh,
    "roberta": torch.tanh,
    "xlm-roberta": torch.tanh,
    "distilbert": torch.relu,
    "modernbert": nn.Identity(),  # it is part of the pooler
}
Part = TypeVar("Part", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    vocab: int
    width: int = 768
    layers: int = 12
    heads: int = 12
    ffn: int = 3072
    max_length: int = 512
    types: int = 2  # segment ids; with 0 or 1, pairs are not marked
    dropout: float = 0.1
    attention_dropout: float = 0.1  # packed texts on a GPU are fast only without it
    activation: str = "gelu"
    eps: float = 1e-12
    head: str = "pooler"
    labels: tuple[str, ...] = ()  # class names, of sequences or tokens
    pooling: str = "cls"  # of a sequence classifier: [CLS] through the pooler, or the mean of all tokens
    family: str = "bert"

    def __post_init__(self):
        check_model(self, {"types": 0}, activation=ACTIVATIONS, head=HEADS, pooling=POOLINGS, family=FAMILIES)
        if self.pooling != "cls" and self.head != "sequence":
            raise ConfigError(f"pooling {self.pooling!r} with head {self.head!r}; only head sequence has a pooling")
        if bool(self.labels) != (self.head in LABELLED):
            raise ConfigError(f"head {self.head!r} with {len(self.labels)} labels; labels go with sequence and token")


class MaskedWordHead(nn.Module):
    """Appendix A.1: one more layer, then the embedding table itself, with its own bias."""

    def __init__(self, c: BertConfig):
        super().__init__()
        self.dense, self.act, self.norm = nn.Linear(c.width, c.width), ACTIVATIONS[c.activation](), Norm(c.width, c.eps)
        self.bias = nn.Parameter(torch.zeros(padded(c.vocab)))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.act(self.dense(x)))


class Bert(nn.Module):
    """Token, position and segment embeddings, then post-norm layers. `forward` returns hidden states.

    The heads are methods, for a task to call on the positions it needs: `logits` (masked tokens), `follows` (is the
    second sentence the next one?), `scores` (classes). As in `LanguageModel`, the embedding table is padded.
    """

    def __init__(self, c: BertConfig):
        super().__init__()
        self.config = c
        self.token = nn.Embedding(padded(c.vocab), c.width)
        self.place = Learned(c.max_length, c.width)
        self.sentence = nn.Embedding(c.types, c.width) if c.types else None
        self.norm, self.drop = Norm(c.width, c.eps), dropout(c.dropout)
        self.layers = cast("list[PostNormEncoderLayer]", nn.ModuleList(self.layer(c) for _ in range(c.layers)))
        self.pooler = nn.Linear(c.width, c.width) if c.head in POOLED and c.pooling == "cls" else None
        self.masked = MaskedWordHead(c) if c.head in MASKED else None
        self.next = nn.Linear(c.width, 2) if c.head == "pretraining" else None
        self.classifier = nn.Linear(c.width, len(c.labels)) if c.labels else None
        bert_(self)
        with torch.no_grad():
            self.token.weight[c.vocab :] = 0.0

    @staticmethod
    def layer(c: BertConfig) -> PostNormEncoderLayer:
        return PostNormEncoderLayer(c.width, c.heads, c.ffn, c.dropout, c.activation, c.eps, c.attention_dropout)

    def forward(
        self,
        ids: Tensor,
        lengths: Tensor | None = None,
        sentences: Tensor | None = None,
        starts: Tensor | None = None,
        kept: list[Tensor] | None = None,
    ) -> Tensor:
        """B T ids -> B T D.

        Either rows are padded, real up to their `lengths`, B; or one row packs several texts, which begin at `starts`,
        R+1, do not see each other, and restart positions (padding is one more text). `sentences`, B T, default to 0.
        A list `kept` receives the embeddings and the output of every layer, L + 1 in all.
        """
        check(ids, "B T")
        where, mask = self.places(ids, lengths, starts)
        x = self.token(ids) + self.place(where)  # B T D
        if self.sentence is not None:
            numbered = sentences is not None and self.config.types > 1
            x = x + (self.sentence(sentences) if numbered else self.sentence.weight[0])
        x = self.drop(self.norm(compute_dtype(x)))
        for layer in self.layers:
            if kept is not None:
                kept.append(x)
            x = layer(x, mask)  # B T D
        if kept is not None:
            kept.append(x)
        return x

    def places(self, ids: Tensor, lengths: Tensor | None, starts: Tensor | None) -> tuple[Tensor, Mask]:
        """The position of each token, T, and the mask."""
        size = ids.size(1)
        where = torch.arange(size, device=ids.device)
        if starts is not None:
            if lengths is not None:
                raise ConfigError("rows are padded or packed: give lengths or starts, not both")
            check(ids, "B T", B=1)
            if ids.device.type == "cpu" and not torch.compiler.is_compiling():  # on a GPU this would synchronise
                self.check_length(int(starts.diff().max()))
            return where - starts[owners(starts, size)], Packed(starts, size, self.config.max_length)
        self.check_length(size)
        return where, Everything() if lengths is None else Lengths(lengths, size)

    def check_length(self, tokens: int) -> None:
        if tokens > self.config.max_length:
            raise ConfigError(
                f"a text of {tokens} tokens, but this model has {self.config.max_length} positions; "
                f"cut the text, or train with --set model.max_length={tokens}"
            )

    # -- heads ----------------------------------------------------------------------------------------------------

    def pooled(self, first: Tensor) -> Tensor:
        """The pooled vector of a text: … D of [CLS] -> … D."""
        return FAMILIES[self.config.family](self.needed(self.pooler, "pooler")(first))

    @property
    def head(self) -> Tensor:
        return self.token.weight  # padded(V) D

    @property
    def bias(self) -> Tensor:
        """The bias of the masked-word head: padded(V)."""
        return self.needed(self.masked, "masked-word head").bias

    def words(self, hidden: Tensor) -> Tensor:
        """The input of the embedding table, … D -> … D; a fused loss takes this, `head` and `bias`."""
        return self.needed(self.masked, "masked-word head")(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """Token logits at masked positions: … D -> … V."""
        return linear(self.words(hidden), self.head, self.bias)[..., : self.config.vocab]

    def follows(self, first: Tensor) -> Tensor:
        """Next-sentence logits from [CLS], … D -> … 2: the second sentence came next (0), or from elsewhere (1)."""
        return self.needed(self.next, "next-sentence head")(self.pooled(first))

    def summary(self, hidden: Tensor, lengths: Tensor | None = None) -> Tensor:
        """One vector per text, of which the first `lengths`, B, tokens are real: B T D -> B D."""
        return pooled(hidden, lengths, self.config.pooling)

    def scores(self, hidden: Tensor) -> Tensor:
        """Class logits: … D of [CLS] for a sequence, of any tokens for a tagger -> … labels."""
        classifier = self.needed(self.classifier, "classifier")
        x = self.pooled(hidden) if self.pooler is not None else hidden
        return classifier(self.drop(x))

    def needed(self, part: Part | None, name: str) -> Part:
        if part is None:
            raise ConfigError(f"this BERT has no {name}: its head is {self.config.head!r}")
        return part

    def size(self) -> int:
        """The number of parameters, without the padding of the embedding table."""
        spare = padded(self.config.vocab) - self.config.vocab
        return sum(p.numel() for p in self.parameters()) - spare * (self.config.width + (self.masked is not None))
