"""The encoder-decoder of "Attention Is All You Need" (Vaswani et al. 2017, figure 1)."""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from regard.errors import ConfigError
from regard.models.base import EncoderDecoder, new_cache
from regard.models.checks import check_model
from regard.nn.blocks import ACTIVATIONS, DECODER_LAYERS, ENCODER_LAYERS, DecoderLayer, Norm, compute_dtype
from regard.nn.cache import Cache
from regard.nn.dropout import Dropout
from regard.nn.init import glorot_
from regard.nn.masks import Causal, Everything, Lengths, Mask, TableMask
from regard.nn.positions import POSITIONS, Learned, reach_
from regard.shapes import check


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    vocab: int
    width: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    heads: int = 8
    ffn: int = 2048
    dropout: float = 0.1
    norm: str = "post"
    positions: str = "sinusoidal"
    activation: str = "relu"
    max_length: int = 512
    output_bias: bool = False  # OPUS models have one

    def __post_init__(self):
        check_model(self, norm=ENCODER_LAYERS, positions=POSITIONS, activation=ACTIVATIONS)


class Transformer(EncoderDecoder):
    """One embedding for source, target and output (section 3.4); every decoder layer sees the last encoder layer."""

    def __init__(self, c: TransformerConfig):
        super().__init__()
        self.config = c
        self.scale = math.sqrt(c.width)
        self.token = nn.Embedding(c.vocab, c.width, padding_idx=c.vocab - 1)  # padding is zero, and the start token
        self.encoder_place = POSITIONS[c.positions](c.max_length, c.width)
        self.decoder_place = POSITIONS[c.positions](c.max_length, c.width)
        parts = (c.width, c.heads, c.ffn, c.dropout, c.activation)
        self.encoder = nn.ModuleList(ENCODER_LAYERS[c.norm](*parts) for _ in range(c.encoder_layers))
        layers = nn.ModuleList(DECODER_LAYERS[c.norm](*parts) for _ in range(c.decoder_layers))
        self.decoder = cast("list[DecoderLayer]", layers)
        last = Norm if c.norm == "pre" else nn.Identity  # a pre-norm stream is not normed by its last layer
        self.encoder_norm: nn.Module = last(c.width)
        self.decoder_norm: nn.Module = last(c.width)
        self.drop = Dropout(c.dropout)
        self.bias = nn.Parameter(torch.zeros(c.vocab)) if c.output_bias else None
        glorot_(self)
        for place in (self.encoder_place, self.decoder_place):
            if isinstance(place, Learned):
                place.start_as_waves()
        self.token.weight.register_hook(without_last)  # so that the tied head's gradient does not change that zero

    def forward(self, source: Tensor, lengths: Tensor | None, inputs: Tensor) -> Tensor:
        """Figure 1 up to its last Add & Norm; `inputs` are the outputs shifted right, `logits` is the Linear on top.

        The softmax is left to the loss or the search.
        """
        memory, memory_mask = self.encode(source, lengths)
        x = self.embed(inputs, self.decoder_place)  # B T D
        mask = Causal(inputs.size(1), inputs.device)
        for layer in self.decoder:
            x = layer(x, mask, layer.cross.keys_values(memory), memory_mask, None)  # B T D
        return self.decoder_norm(x)

    def encode(self, source: Tensor, lengths: Tensor | None) -> tuple[Tensor, Mask]:
        check(source, "B S")
        mask = Everything() if lengths is None else Lengths(lengths, source.size(1))
        x = self.embed(source, self.encoder_place)  # B S D
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x), mask

    def embed(self, ids: Tensor, place: nn.Module) -> Tensor:
        self.check_length(ids.size(1))
        reach_(self, ids.size(1))
        where = torch.arange(ids.size(1), device=ids.device)
        return self.drop(compute_dtype(self.placed(ids, place, where)))

    def placed(self, ids: Tensor, place: nn.Module, where: Tensor) -> Tensor:
        """Scaled token embeddings plus positions."""
        return self.token(ids) * self.scale + place(where)

    def check_length(self, length: int) -> None:
        if length > self.config.max_length:
            raise ConfigError(
                f"a sequence of {length} tokens, but this model has {self.config.max_length} positions; "
                f"split the text, or train with --set model.max_length={length}"
            )

    def begin(self, source: Tensor, lengths: Tensor | None, beams: int, capacity: int) -> "TransformerState":
        self.check_length(capacity)
        memory, mask = self.encode(source, lengths)
        pairs = (layer.cross.keys_values(memory) for layer in self.decoder)
        cross = [(k.contiguous(), v.contiguous()) for k, v in pairs]  # once, instead of in every step
        c = self.config
        cache = new_cache(c.decoder_layers, source.size(0), c.heads, capacity * beams, c.width // c.heads, memory)
        reach_(self, capacity)
        return TransformerState(cache, cross, mask)

    def step(self, ids: Tensor, state: "TransformerState") -> Tensor:
        slots, mask = state.grow()
        x = self.drop(self.placed(ids, self.decoder_place, state.time))  # B N D
        for i, layer in enumerate(self.decoder):
            x = layer(x, mask, state.cross[i], state.mask, state.cache.layer(i, slots, state.stop))
        state.time += 1
        return self.decoder_norm(x)


def without_last(grad: Tensor) -> Tensor:
    return torch.cat((grad[:-1], torch.zeros_like(grad[-1:])))


class TransformerState:
    """The N hypotheses of a sentence share one cache, and a table records their ancestry.

    Each step appends a key per hypothesis, in place, and never moves the old ones. Re-ordering hypotheses changes only
    the table: row n marks which of the S keys so far are ancestors of hypothesis n. All hypotheses share the encoder's
    keys and values too, as N queries of one sentence.
    """

    def __init__(self, cache: Cache, cross: list[tuple[Tensor, Tensor]], mask: Mask):
        self.cache, self.cross, self.mask = cache, cross, mask
        keys = cache.keys[0]  # B H C K
        self.time = torch.zeros(1, dtype=torch.long, device=keys.device)  # positions decoded so far
        self.written = torch.zeros(1, dtype=torch.long, device=keys.device)  # keys so far
        self.fixed = keys.is_cuda  # a GPU attends to the whole cache, so that every step is the same graph
        self.stop = keys.size(2) if self.fixed else 0  # keys to attend to: on a CPU, the host's copy of `written`
        self.ancestors = torch.zeros(keys.size(0), 1, keys.size(2), dtype=torch.bool, device=keys.device)  # B N S
        self.own = torch.eye(1, dtype=torch.bool, device=keys.device)  # N N

    def grow(self) -> tuple[Tensor | slice, Mask]:
        """Advance by one key per hypothesis: its slots, and the mask with each hypothesis's ancestors."""
        N = self.ancestors.size(1)
        if self.fixed:
            slots = self.written + torch.arange(N, device=self.written.device)
            self.ancestors.index_copy_(2, slots, self.own.expand(self.ancestors.size(0), -1, -1))
            self.written += N
        else:
            slots = slice(self.stop, self.stop + N)
            self.ancestors[:, :, slots] = self.own
            self.stop += N
        return slots, TableMask(self.ancestors[:, None, :, : self.stop])

    def reorder(self, parents: Tensor) -> None:
        N = parents.size(1)
        if self.own.size(0) != N:
            self.own = torch.eye(N, dtype=torch.bool, device=parents.device)
        self.ancestors = self.ancestors.gather(1, parents[:, :, None].expand(-1, -1, self.ancestors.size(2)))

    def select(self, rows: Tensor) -> None:
        self.cache.select(rows, self.stop)
        self.cross = [(k[rows], v[rows]) for k, v in self.cross]
        self.mask = self.mask.select(rows)
        self.ancestors = self.ancestors[rows]
