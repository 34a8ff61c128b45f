"""A recurrent classifier: read the text token by token and predict its class from the states; or tag every token."""

from dataclasses import dataclass

from torch import Tensor, nn

from regard.models.bert import LABELLED
from regard.models.checks import check_model
from regard.nn.blocks import compute_dtype, dropout
from regard.nn.init import recurrent_
from regard.nn.masks import pooled
from regard.nn.recurrent import GATES, run_stack, stack
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
    pooling: str = "mean"  # of all states, or the "last", as in the lecture
    head: str = "sequence"  # or "token"
    labels: tuple[str, ...] = ("0", "1")

    def __post_init__(self):
        check_model(self, full=("labels",), cell=GATES, pooling=POOLINGS, head=LABELLED)


class RecurrentClassifier(nn.Module):
    """Many to one, or many to many: one cell reads the tokens in order and carries the state."""

    def __init__(self, c: RecurrentClassifierConfig):
        super().__init__()
        self.config = c
        self.token = nn.Embedding(c.vocab, c.embedding)
        self.cells = stack(c.cell, c.embedding, c.width, c.layers)
        self.drop = dropout(c.dropout)
        self.classifier = nn.Linear(c.width, len(c.labels))
        recurrent_(self)
        nn.init.normal_(self.token.weight, std=0.1)  # small: labelled data is scarce, rare words should count little

    def forward(self, ids: Tensor, lengths: Tensor | None = None, sentences: Tensor | None = None) -> Tensor:
        """B T ids -> B T D. `lengths` are not needed: padding comes last and changes nothing. Nor are `sentences`: a
        second text begins after a [SEP]."""
        check(ids, "B T")
        x = self.drop(compute_dtype(self.token(ids)))  # B T E
        return run_stack(self.cells, x, drop=self.config.dropout if self.training else 0.0)[0]  # B T D

    def summary(self, hidden: Tensor, lengths: Tensor | None = None) -> Tensor:
        """One vector per text: B T D -> B D. Padding is ignored."""
        if self.config.pooling == "mean":
            return pooled(hidden, lengths, "mean")
        return hidden[:, -1] if lengths is None else hidden.take_along_dim((lengths - 1)[:, None, None], 1)[:, 0]

    def scores(self, hidden: Tensor) -> Tensor:
        """Class logits: … D -> … labels."""
        return self.classifier(self.drop(hidden))
