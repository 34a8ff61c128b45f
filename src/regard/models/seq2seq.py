"""The recurrent encoder-decoder, with a single context vector or Bahdanau's attention over all states."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.models.base import EncoderDecoder
from regard.models.checks import check_model
from regard.nn.attention import AdditiveAttention
from regard.nn.dropout import Dropout
from regard.nn.init import glorot_
from regard.nn.recurrent import FAST_CELLS, LAYERS, State
from regard.shapes import check


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig:
    vocab: int
    cell: str = "lstm"
    attention: bool = True
    embedding: int = 256
    width: int = 512
    encoder_layers: int = 1
    dropout: float = 0.2

    def __post_init__(self):
        check_model(self, cell=FAST_CELLS)


class BothWays(nn.Module):
    """A bidirectional layer. Padding stays on the right in both directions, so it affects neither."""

    def __init__(self, cell: str, inputs: int, width: int):
        super().__init__()
        self.forwards = LAYERS[cell](inputs, width, batch_first=True)
        self.backwards = LAYERS[cell](inputs, width, batch_first=True)

    def forward(self, x: Tensor, mirror: Tensor) -> Tensor:
        forward_states = self.forwards(x)[0]  # B S D
        back = self.backwards(take(x, mirror))[0]
        return torch.cat((forward_states, take(back, mirror)), -1)  # B S 2D


class Seq2Seq(EncoderDecoder):
    """Bahdanau et al. 2015; without attention, the fixed context vector of Cho et al. 2014.

    As in the paper: a bidirectional encoder, a decoder that attends before each token, an output layer over state,
    context and last token. Unlike the paper: the first state comes from both directions' ends, the output layer is a
    tanh instead of a maxout, source, target and output share one embedding, and the default cell is an LSTM.
    """

    def __init__(self, c: Seq2SeqConfig):
        super().__init__()
        self.config = c
        self.token = nn.Embedding(c.vocab, c.embedding)
        widths = [c.embedding] + [2 * c.width] * (c.encoder_layers - 1)
        self.encoder = nn.ModuleList(BothWays(c.cell, w, c.width) for w in widths)
        self.bridge = nn.Linear(2 * c.width, c.width)
        self.attention = AdditiveAttention(c.width, 2 * c.width, c.width) if c.attention else None
        self.cell = FAST_CELLS[c.cell](c.embedding + 2 * c.width, c.width)
        self.readout = nn.Linear(c.width + 2 * c.width + c.embedding, c.embedding)
        self.drop = Dropout(c.dropout)
        self.bias = None
        glorot_(self)

    def forward(self, source: Tensor, lengths: Tensor | None, inputs: Tensor) -> Tensor:
        state = self.begin(source, lengths, 1, inputs.size(1))
        words = self.drop(self.token(inputs))  # B T E
        hidden, contexts = [], []
        for word in words.split(1, 1):
            context = self.advance(word, state)
            hidden.append(state.cell[0])
            contexts.append(context)
        return self.read(torch.cat(hidden, 1), torch.cat(contexts, 1), words)  # B T E

    def advance(self, word: Tensor, state: "Seq2SeqState") -> Tensor:
        """Attend to the memory from the old state, then take one step: returns the context, B N 2D."""
        if self.attention is None:
            context = state.memory.expand(-1, word.size(1), -1)
        else:
            context = self.attention(state.cell[0], state.keys, state.memory, state.mask)
        flat = tuple(part.flatten(0, 1) for part in state.cell)
        new = self.cell(torch.cat((word, context), -1).flatten(0, 1), flat)
        state.cell = tuple(part.view_as(old) for part, old in zip(new, state.cell, strict=True))
        return context

    def read(self, hidden: Tensor, context: Tensor, word: Tensor) -> Tensor:
        return self.drop(torch.tanh(self.readout(torch.cat((hidden, context, word), -1))))

    def encode(self, source: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """The states of both directions B S 2D, their last ones B 1 2D, and the mask B 1 S (None: no padding)."""
        check(source, "B S")
        B, S = source.shape
        where = torch.arange(S, device=source.device).expand(B, S)
        sizes = torch.full((B,), S, device=source.device) if lengths is None else lengths
        # position p of a row of n tokens reads from n-1-p: the tokens reversed, the padding unmoved
        mirror = torch.where(where < sizes[:, None], sizes[:, None] - 1 - where, where)  # B S
        memory = self.drop(self.token(source))
        for layer in self.encoder:
            memory = self.drop(layer(memory, mirror))  # B S 2D
        forward_states, backward_states = memory.chunk(2, -1)
        ends = torch.cat((take(forward_states, sizes[:, None] - 1), backward_states[:, :1]), -1)
        return memory, ends, None if lengths is None else (where < sizes[:, None])[:, None]

    def begin(self, source: Tensor, lengths: Tensor | None, beams: int, capacity: int) -> "Seq2SeqState":
        memory, ends, mask = self.encode(source, lengths)
        first = torch.tanh(self.bridge(ends))  # B 1 D
        cell: State = (first, torch.zeros_like(first)) if self.config.cell == "lstm" else (first,)
        if self.attention is None:
            return Seq2SeqState(cell, ends, ends, None)
        return Seq2SeqState(cell, memory, self.attention.keys_for(memory), mask)

    def step(self, ids: Tensor, state: "Seq2SeqState") -> Tensor:
        word = self.drop(self.token(ids))  # B N E
        context = self.advance(word, state)
        return self.read(state.cell[0], context, word)


@dataclass
class Seq2SeqState:
    cell: State  # each B N D
    memory: Tensor  # B S 2D, or B 1 2D without attention; shared by a sentence's hypotheses
    keys: Tensor  # B S A
    mask: Tensor | None  # B 1 S

    def reorder(self, parents: Tensor) -> None:
        self.cell = tuple(part.gather(1, parents[:, :, None].expand(-1, -1, part.size(2))) for part in self.cell)

    def select(self, rows: Tensor) -> None:
        self.cell = tuple(part[rows] for part in self.cell)
        self.memory, self.keys = self.memory[rows], self.keys[rows]
        self.mask = None if self.mask is None else self.mask[rows]


def take(x: Tensor, places: Tensor) -> Tensor:
    """Row b of the result is x[b] at places[b]: B S D, B P -> B P D."""
    return x.gather(1, places[:, :, None].expand(-1, -1, x.size(-1)))
