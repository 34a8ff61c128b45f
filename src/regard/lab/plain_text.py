"""Plain networks on text, to compare with language models: a dense net, and convolutions.

A dense net has weights for every position, so it grows with the text. A convolution has the same filter everywhere,
and its output depends on as many earlier tokens as its filters reach.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.models.plain import MLP, MLPConfig


class PlainText(nn.Module):
    """Used like a language model: `forward` gives hidden states, the last of which answers; `logits` is the head."""

    token: nn.Embedding

    def logits(self, hidden: Tensor) -> Tensor:
        """… D -> … V."""
        raise NotImplementedError

    def size(self) -> int:
        """The number of parameters."""
        return sum(p.numel() for p in self.parameters())


class DenseText(PlainText):
    """Bengio et al. 2003: one layer over the concatenated vectors of all tokens. It reads texts of one length."""

    def __init__(self, positions: int, vocab: int, width: int):
        super().__init__()
        self.token = nn.Embedding(vocab, width)
        labels = tuple(str(i) for i in range(vocab))
        self.net = MLP(MLPConfig(shape=(positions, width), width=width, layers=1, labels=labels))

    def forward(self, ids: Tensor) -> Tensor:
        """B T -> B 1 D: one state for the whole text."""
        return self.net(self.token(ids))[:, None]

    def logits(self, hidden: Tensor) -> Tensor:
        return self.net.scores(hidden)


class ConvText(PlainText):
    """Layers of causal convolutions over the tokens (Dauphin et al. 2017, without their gates)."""

    def __init__(self, kernel: int, vocab: int, width: int, layers: int = 4):
        super().__init__()
        self.reach = 1 + layers * (kernel - 1)  # tokens that a state depends on: its own, and k - 1 more per layer
        self.token = nn.Embedding(vocab, width)
        self.filters = nn.ModuleList(nn.Conv1d(width, width, kernel) for _ in range(layers))
        self.answer = nn.Linear(width, vocab)
        self.before = kernel - 1

    def forward(self, ids: Tensor) -> Tensor:
        """B T -> B T D."""
        x = self.token(ids).mT  # B D T
        for layer in self.filters:
            x = torch.relu(layer(F.pad(x, (self.before, 0))))
        return x.mT

    def logits(self, hidden: Tensor) -> Tensor:
        return self.answer(hidden)


PLAIN: dict[str, Callable[[int, int, int], PlainText]] = {  # of positions, vocabulary and width
    "mlp": DenseText,
    **{f"conv{k}": lambda _, vocab, width, k=k: ConvText(k, vocab, width) for k in (3, 9)},
}
