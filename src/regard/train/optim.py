"""Optimisers behind one small interface. Adam is torch's, fused; Muon is our own."""

from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.train.muon import Muon
from regard.train.settings import Optim


class Optimiser:
    """One or two optimisers that step together. A bad step is known on the device only, so it is skipped there."""

    def __init__(self, model: nn.Module, optim: Optim):
        self.optim = optim
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        muon = (optim.lr, optim.momentum, optim.weight_decay, optim.iterations, optim.block)
        self.muon = Muon(model, *muon) if optim.name == "muon" else None
        hidden = self.muon.named if self.muon else {}
        self.adam = Adam({name: p for name, p in named.items() if name not in hidden}, optim)
        self.parameters = list(named.values())

    def set_lr(self, lr: float) -> None:
        """`lr` of the main optimiser; with Muon, Adam's follows in proportion."""
        if self.muon:
            self.muon.lr = lr
            lr *= self.optim.adam_lr / self.optim.lr
        self.adam.set_lr(lr)

    def clip(self) -> Tensor:
        """The gradients' norm, before it is brought down to `clip`."""
        grads = [p.grad for p in self.parameters if p.grad is not None]
        norm = nn.utils.get_total_norm(grads)
        if self.optim.clip:
            nn.utils.clip_grads_with_norm_(self.parameters, self.optim.clip, norm)
        return norm

    def step(self, bad: Tensor | None = None) -> None:
        """Move the parameters, unless `bad` (a scalar, 0 or 1): then nothing changes at all."""
        if bad is not None and bad.device.type == "cpu":
            if bad:
                return
            bad = None
        self.adam.step(bad)
        if self.muon:
            self.muon.step(bad)

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None

    def state_dict(self) -> dict[str, Tensor]:
        return self.adam.state_dict() | (self.muon.state_dict() if self.muon else {})

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        own, given = ({(name, tuple(t.shape)) for name, t in state.items()} for state in (self.state_dict(), saved))
        if differing := sorted(own ^ given):
            raise CheckpointError(f"the saved optimiser is another one, it differs in {differing[0][0]!r}")
        self.adam.load_state_dict(saved)
        if self.muon:
            self.muon.load_state_dict(saved)


def build(model: nn.Module, optim: Optim) -> Optimiser:
    return Optimiser(model, optim)


class Adam:
    """torch's Adam or AdamW, its state under the parameters' names and made at once, so that it can always be saved."""

    def __init__(self, named: dict[str, nn.Parameter], optim: Optim):
        self.named = named
        matrices = [p for p in named.values() if p.ndim >= 2]
        vectors = [p for p in named.values() if p.ndim < 2]
        groups = [dict(params=matrices, weight_decay=optim.weight_decay), dict(params=vectors, weight_decay=0.0)]
        kind: Any = torch.optim.Adam if optim.name == "adam" else torch.optim.AdamW
        devices = {p.device.type for p in named.values()}
        self.inner = kind(
            groups,  # one, or with LoRA and muon both, may be empty
            lr=optim.lr,
            betas=optim.betas,
            eps=optim.eps,
            fused=devices <= {"cpu", "cuda"},
        )
        for p in named.values():
            self.inner.state[p] = dict(
                step=torch.zeros((), device=p.device), exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p)
            )

    def set_lr(self, lr: float) -> None:
        for group in self.inner.param_groups:
            group["lr"] = lr

    def step(self, bad: Tensor | None) -> None:
        self.inner.found_inf = bad  # the fused kernel leaves weights, moments and step count alone where this is 1
        self.inner.step()

    def state_dict(self) -> dict[str, Tensor]:
        return {f"adam.{key}.{name}": t for name, p in self.named.items() for key, t in self.inner.state[p].items()}

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        for name, tensor in self.state_dict().items():
            tensor.copy_(saved[name])
