"""A recurrent classifier: read the text word by word, then tell its class from the states; or tag as you read."""

from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from regard.config import at_least, fraction
from regard.errors import ConfigError
from regard.models.bert import LABELLED, pooled
from regard.nn.blocks import compute_dtype, dropout
from regard.nn.init import recurrent_
from regard.nn.recurrent import GATES, SlideCell, State, run_stack
from regard.shapes import check

POOLINGS = ("mean", "last")


@dataclass(frozen=True, kw_only=True)
class RecurrentClassifierConfig:
    vocab: int
    cell: str = "lstm"
    embedding: int = 128
    width: int = 128
    layers: int = 1
    dropout: float = 0.0
    pooling: str = "mean"  # what stands for a whole text: the mean of all states, or the "last", as in the lecture
    head: str = "sequence"  # or "token"
    labels: tuple[str, ...] = ("0", "1")

    def __post_init__(self):
        at_least(self, "model.", vocab=1, embedding=1, width=1, layers=1)
        fraction(self, "dropout", "model.")
        for name, table in (("cell", GATES), ("pooling", POOLINGS), ("head", LABELLED)):
            if getattr(self, name) not in table:
                raise ConfigError(f"no {name} {getattr(self, name)!r}; there are: {', '.join(table)}")
        if not self.labels:
            raise ConfigError("model.labels is empty; a classifier wants the names of its classes")


class RecurrentClassifier(nn.Module):
    """Many to one, or many to many: the words go in one by one, and the same cell carries the state along."""

    def __init__(self, c: RecurrentClassifierConfig):
        super().__init__()
        self.config = c
        self.token = nn.Embedding(c.vocab, c.embedding)
        widths = [c.embedding] + [c.width] * (c.layers - 1)
        self.cells = cast("list[SlideCell]", nn.ModuleList(SlideCell(c.cell, w, c.width) for w in widths))
        self.drop = dropout(c.dropout)
        self.classifier = nn.Linear(c.width, len(c.labels))
        recurrent_(self)
        nn.init.normal_(self.token.weight, std=0.1)  # labelled text is little: a rare word should weigh little

    def forward(self, ids: Tensor, lengths: Tensor | None = None, sentences: Tensor | None = None) -> Tensor:
        """B T ids -> B T D. Padding comes after all that counts, so nobody hears of it and `lengths` are not needed;
        nor are `sentences`: second texts are told by the [SEP] before them."""
        check(ids, "B T")
        x = self.drop(compute_dtype(self.token(ids)))  # B T E
        drop = self.config.dropout if self.training and len(self.cells) > 1 else 0.0
        return run_stack(self.cells, x, self.blank(x), drop)[0]  # B T D

    def blank(self, x: Tensor) -> State:
        c = self.config
        return tuple(x.new_zeros(c.layers, x.size(0), c.width) for _ in range(2 if c.cell == "lstm" else 1))

    def summary(self, hidden: Tensor, lengths: Tensor | None = None) -> Tensor:
        """What stands for a whole text: B T D -> B D. Padding is passed over."""
        if self.config.pooling == "mean":
            return pooled(hidden, lengths, "mean")
        return hidden[:, -1] if lengths is None else hidden.take_along_dim((lengths - 1)[:, None, None], 1)[:, 0]

    def scores(self, hidden: Tensor) -> Tensor:
        """Of the classes: … D -> … labels."""
        return self.classifier(self.drop(hidden))
