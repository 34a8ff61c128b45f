"""Recurrent language models: Elman's network, the LSTM and the GRU, in the letters of the lecture."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.models.base import LanguageModel, clear_padding_, padded
from regard.models.checks import check_model
from regard.nn.blocks import compute_dtype, dropout
from regard.nn.init import recurrent_
from regard.nn.recurrent import GATES, State, blank_state, run_stack, stack
from regard.nn.taps import Tap
from regard.shapes import check


@dataclass(frozen=True, kw_only=True)
class RecurrentLMConfig:
    vocab: int
    cell: str = "lstm"
    embedding: int = 256
    width: int = 512
    layers: int = 1
    dropout: float = 0.0

    def __post_init__(self):
        check_model(self, cell=GATES)

    @property
    def context(self) -> int:
        return 0  # no limit: the state has a fixed size


class RecurrentLM(LanguageModel):
    """Mikolov et al. 2010: h_t = f(W_xh x_t + W_hh h_{t-1} + b_h), y_t = W_hy h_t + b_y.

    Each layer reads the hidden states of the one below. Dropout is not applied to the recurrence (Zaremba et
    al. 2014).
    """

    def __init__(self, c: RecurrentLMConfig):
        super().__init__()
        self.config = c
        self.token = nn.Embedding(padded(c.vocab), c.embedding)
        self.cells = stack(c.cell, c.embedding, c.width, c.layers)
        self.W_hy = nn.Parameter(torch.empty(padded(c.vocab), c.width))
        self.b_y = nn.Parameter(torch.empty(padded(c.vocab)))
        self.drop, self.out = dropout(c.dropout), Tap()
        recurrent_(self)
        clear_padding_(self)

    def forward(self, ids: Tensor, documents: Tensor | None = None) -> Tensor:
        check(ids, "B T")
        x = self.embed(ids)  # B T E
        if documents is None:
            return self.top(self.run(x)[0])
        # every document becomes its own row, and is put back afterwards
        new = torch.ones_like(documents, dtype=torch.bool)
        new[:, 1:] = documents[:, 1:] != documents[:, :-1]
        starts = new.flatten().nonzero().squeeze(1)
        sizes = torch.diff(starts, append=starts.new_tensor([ids.numel()]))
        rows = pad_sequence(list(x.flatten(0, 1).split(sizes.tolist())), batch_first=True)
        hidden = self.run(rows)[0]
        real = torch.arange(rows.size(1), device=ids.device) < sizes[:, None]
        return self.top(hidden[real].view(*ids.shape, -1))

    def embed(self, ids: Tensor) -> Tensor:
        return self.drop(compute_dtype(self.token(ids)))

    def run(self, x: Tensor, state: State | None = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        return run_stack(self.cells, x, state, self.config.dropout if self.training else 0.0, lengths)

    def top(self, hidden: Tensor) -> Tensor:
        self.out.see(hidden)
        return self.drop(hidden)  # B T D

    @property
    def head(self) -> Tensor:
        return self.W_hy

    @property
    def bias(self) -> Tensor:
        return self.b_y

    def lens(self, stream: Tensor) -> Tensor:
        return self.logits(stream)

    def begin(self, rows: int, capacity: int) -> "RecurrentState":
        return RecurrentState(blank_state(self.cells, rows, compute_dtype(self.token.weight[:0].detach())))

    def read(self, ids: Tensor, state: "RecurrentState", lengths: Tensor | None = None) -> Tensor:
        check(ids, "B T", B=state.places.size(0))
        x = self.embed(ids)
        if ids.size(1) == 1 and lengths is None:
            hidden, new = self.one(x[:, 0], state.cells)
        else:
            hidden, new = self.run(x, state.cells, None if lengths is None else lengths.clamp(min=1))
        state.move(new, ids.size(1), lengths)
        return self.top(hidden)

    def one(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One step of all layers, written out: B E -> B 1 D."""
        after = []
        for i, cell in enumerate(self.cells):
            after.append(cell(x, tuple(part[i] for part in state)))
            x = after[-1][0] if i == len(self.cells) - 1 else self.drop(after[-1][0])
        return x[:, None], tuple(torch.stack(parts) for parts in zip(*after, strict=True))


class RecurrentState:
    def __init__(self, cells: State):
        self.cells = cells  # each L B D
        self.places = torch.zeros(cells[0].size(1), dtype=torch.long, device=cells[0].device)

    def move(self, new: State, tokens: int, lengths: Tensor | None) -> None:
        if lengths is not None:  # rows that read nothing keep their state
            new = tuple(torch.where(lengths[:, None] > 0, b, a) for a, b in zip(self.cells, new, strict=True))
        for old, part in zip(self.cells, new, strict=True):
            old.copy_(part)
        self.places += tokens if lengths is None else lengths

    def restart(self) -> None:
        for tensor in (*self.cells, self.places):
            tensor.zero_()

    shares = False  # the state of a prefix is not kept

    def part(self, rows: slice, reach: int = 0, fresh: bool = False) -> "RecurrentState":
        part = RecurrentState(tuple(cell[:, rows] for cell in self.cells))
        part.places = self.places[rows]
        return part

    def reserve(self, stop: int) -> None:
        """Nothing to do: the state has a fixed size."""

    def copy(self, source: Tensor, target: Tensor, stop: int) -> None:
        for cell in self.cells:
            cell[:, target] = cell[:, source]
        self.places[target] = self.places[source]

    def rewind(self, rows: slice) -> None:
        for cell in self.cells:
            cell[:, rows] = 0.0
        self.places[rows] = 0

    def select(self, rows: Tensor) -> None:
        cells, places = tuple(part[:, rows] for part in self.cells), self.places[rows]
        if len(rows) == len(self.places):  # in place, as a captured graph needs
            cells = tuple(old.copy_(new) for old, new in zip(self.cells, cells, strict=True))
            places = self.places.copy_(places)
        self.cells, self.places = cells, places
