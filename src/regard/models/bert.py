"""BERT: an encoder that looks both ways, taught by filling in hidden words (Devlin et al. 2019).

RoBERTa and XLM-R are the same network, trained longer and on more languages; DistilBERT has no sentence numbers.
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

# What stands on top of the encoder. "pooler" is the map of [CLS] that the published BertModel carries along.
HEADS = ("none", "pooler", "masked", "pretraining", "sequence", "token")
POOLED = ("pooler", "pretraining", "sequence")
MASKED = ("masked", "pretraining")
LABELLED = ("sequence", "token")
POOLINGS = ("mean", "cls", "max")
FAMILIES: dict[str, Callable[[Tensor], Tensor]] = {  # the layouts a folder may have, and what follows their pooler
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
    types: int = 2  # sentence numbers; with one or none all texts are alike
    dropout: float = 0.1
    attention_dropout: float = 0.1  # of the weights of attention; packed texts on a GPU are quick without it alone
    activation: str = "gelu"
    eps: float = 1e-12
    head: str = "pooler"
    labels: tuple[str, ...] = ()  # names of the classes, of a sequence or a token
    pooling: str = "cls"  # what a sequence is classified by: [CLS], through the pooler; or all tokens alike
    family: str = "bert"

    def __post_init__(self):
        check_model(self, {"types": 0}, activation=ACTIVATIONS, head=HEADS, pooling=POOLINGS, family=FAMILIES)
        if self.pooling != "cls" and self.head != "sequence":
            raise ConfigError(f"pooling {self.pooling!r} with head {self.head!r}; it belongs to: sequence")
        if bool(self.labels) != (self.head in LABELLED):
            raise ConfigError(f"head {self.head!r} with {len(self.labels)} labels; labels belong to: sequence, token")


class MaskedWordHead(nn.Module):
    """Appendix A.1: one more layer, then the table of words itself, with a bias of its own."""

    def __init__(self, c: BertConfig):
        super().__init__()
        self.dense, self.act, self.norm = nn.Linear(c.width, c.width), ACTIVATIONS[c.activation](), Norm(c.width, c.eps)
        self.bias = nn.Parameter(torch.zeros(padded(c.vocab)))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.act(self.dense(x)))


class Bert(nn.Module):
    """Words, places and sentence numbers added up, then post-norm layers. `forward` returns hidden states.

    The heads are methods, for a task to call on the positions it needs: `logits` (masked words), `follows` (is the
    second sentence the next one?), `scores` (classes). As in `LanguageModel`, the table of words has spare rows.
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

        Rows are padded, real up to their `lengths`, B; or there is one of several texts, packed: those between two of
        `starts`, R+1, know nothing of the others, and places restart with each (padding is one more text). `sentences`,
        B T, are 0 where not given. A list `kept` receives the embeddings and the output of every layer, L + 1 in all.
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
        """Where each token stands, T, and whom it may look at."""
        size = ids.size(1)
        where = torch.arange(size, device=ids.device)
        if starts is not None:
            if lengths is not None:
                raise ConfigError("rows are padded or packed: give lengths or starts, not both")
            check(ids, "B T", B=1)
            if ids.device.type == "cpu" and not torch.compiler.is_compiling():  # a GPU would have to be waited for
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
        """What stands for the whole text: … D of [CLS] -> … D."""
        return FAMILIES[self.config.family](self.needed(self.pooler, "pooler")(first))

    @property
    def head(self) -> Tensor:
        return self.token.weight  # padded(V) D

    @property
    def bias(self) -> Tensor:
        """Of the masked-word head: padded(V)."""
        return self.needed(self.masked, "masked-word head").bias

    def words(self, hidden: Tensor) -> Tensor:
        """What meets the table of words, … D -> … D; a fused loss takes this, `head` and `bias`."""
        return self.needed(self.masked, "masked-word head")(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """Of the words hidden at some positions: … D -> … V."""
        return linear(self.words(hidden), self.head, self.bias)[..., : self.config.vocab]

    def follows(self, first: Tensor) -> Tensor:
        """Of [CLS], … D -> … 2: the second sentence came next (0), or from elsewhere (1)."""
        return self.needed(self.next, "next-sentence head")(self.pooled(first))

    def summary(self, hidden: Tensor, lengths: Tensor | None = None) -> Tensor:
        """What stands for a whole text, of which the first `lengths`, B, are real: B T D -> B D."""
        return pooled(hidden, lengths, self.config.pooling)

    def scores(self, hidden: Tensor) -> Tensor:
        """Of the classes: … D of [CLS] for a sequence, of any tokens for a tagger -> … labels."""
        classifier = self.needed(self.classifier, "classifier")
        x = self.pooled(hidden) if self.pooler is not None else hidden
        return classifier(self.drop(x))

    def needed(self, part: Part | None, name: str) -> Part:
        if part is None:
            raise ConfigError(f"this BERT has no {name}: its head is {self.config.head!r}")
        return part

    def size(self) -> int:
        """Parameters, without the rows that only fill the table of words up."""
        spare = padded(self.config.vocab) - self.config.vocab
        return sum(p.numel() for p in self.parameters()) - spare * (self.config.width + (self.masked is not None))
