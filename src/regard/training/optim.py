"""Optimisers behind one small interface. Adam is torch's fused kernel; Muon is ours."""

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoint import fill
from regard.errors import CheckpointError
from regard.training.muon import Muon, local
from regard.training.parallel import World
from regard.training.settings import Optim

KEYS = ("step", "exp_avg", "exp_avg_sq")  # of Adam's state, as torch names them


class Optimiser:
    """One or two optimisers that step together. They skip a bad step on the device, without waiting for it."""

    def __init__(self, model: nn.Module, optim: Optim, world: World | None = None):
        self.optim = optim
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        muon = (optim.lr, optim.momentum, optim.weight_decay, optim.iterations, optim.block)
        self.muon = Muon(model, *muon, world or World()) if optim.name == "muon" else None
        hidden = self.muon.named if self.muon else {}
        self.adam = Adam({name: p for name, p in named.items() if name not in hidden}, optim)
        self.parameters = list(named.values())

    def set_lr(self, lr: float, done: float = 1.0) -> None:
        """Set the main optimiser's rate; with Muon, Adam's is in proportion. `done` is the fraction of steps taken."""
        if self.muon:
            self.muon.lr.fill_(lr)
            lr *= self.optim.adam_lr / self.optim.lr
        self.adam.set_lr(lr, done)

    def clip(self) -> Tensor:
        """Clip the gradients; return their norm before that."""
        grads = [p.grad for p in self.parameters if p.grad is not None]
        norm: Any = nn.utils.get_total_norm(grads)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # of shards, over all processes
        if self.optim.clip:
            nn.utils.clip_grads_with_norm_(self.parameters, self.optim.clip, norm)
        return norm

    def step(self, bad: Tensor | None = None) -> None:
        """Update the parameters, unless `bad` (a scalar, 0 or 1): then nothing changes."""
        if bad is not None and bad.device.type == "cpu":
            if bad:
                return
            bad = None
        self.adam.step(bad)
        if self.muon:
            self.muon.step(bad)

    def update(self, loss: Tensor) -> tuple[Tensor, Tensor]:
        """Clip, step and zero the gradients. Returns their norm, and 1 if it or the loss is not finite (then nothing
        changed)."""
        norm = self.clip()
        bad = 1 - torch.isfinite(norm + loss).float()  # stays on the device: no synchronisation
        self.step(bad)
        self.zero_grad()
        return norm, bad

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None

    def state_dict(self) -> dict[str, Tensor]:
        return self.adam.state_dict() | (self.muon.state_dict() if self.muon else {})

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        own, stored = ({(name, tuple(t.shape)) for name, t in state.items()} for state in (self.state_dict(), saved))
        if differing := sorted(own ^ stored):
            raise CheckpointError(
                f"the saved optimiser differs in {differing[0][0]!r}; resume with the settings and "
                "the version of regard that the run was started with, or train a new one"
            )
        self.adam.load_state_dict(saved)
        if self.muon:
            self.muon.load_state_dict(saved)


class Adam:
    """Adam (Kingma and Ba 2015) or AdamW by torch's fused kernels, which also skip a bad step.

    Its state is keyed by the parameters' names and allocated at once, so that it can always be saved. The rates, one
    per layer, are tensors on a GPU, so that a recorded step sees changes. `torch.optim` is not used, because its first
    optimiser loads torch's compiler: seconds before the first step.
    """

    def __init__(self, named: dict[str, nn.Parameter], optim: Optim):
        self.named, self.optim = named, optim
        self.kernel: Any = torch._fused_adam_ if optim.name == "adam" else torch._fused_adamw_
        self.state = {
            name: dict(
                step=torch.zeros((), device=p.device), exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p)
            )
            for name, p in named.items()
        }
        gpu = next((p.device for p in named.values() if p.is_cuda), None)
        apart = optim.layer_decay != 1 or optim.unfreeze > 0
        self.depths = depths(named) if apart else dict.fromkeys(named, 0)
        self.deepest = max(self.depths.values(), default=0)
        kind = torch.float64 if gpu is None else torch.float32
        self.rates = {d: torch.tensor(optim.lr, dtype=kind, device=gpu) for d in self.depths.values()}

    def set_lr(self, lr: float, done: float = 1.0) -> None:
        """Howard and Ruder 2018, sections 3.2 and 3.3: lower layers have lower rates and may be unfrozen later."""
        o = self.optim
        opened = self.deepest * done / o.unfreeze if o.unfreeze else self.deepest
        for depth, rate in self.rates.items():
            rate.fill_(lr * o.layer_decay**depth if depth <= opened else 0.0)

    @torch.no_grad()
    def step(self, bad: Tensor | None) -> None:
        groups: dict[Any, list[str]] = {}
        for name, p in self.named.items():
            if p.grad is not None:
                groups.setdefault((p.ndim >= 2, p.dtype, self.depths[name]), []).append(name)
        o = self.optim
        for (matrices, _, depth), names in groups.items():
            rate = self.rates[depth] if self.rates[depth].is_cuda else self.rates[depth].item()
            steps, means, squares = ([local(self.state[name][key]) for name in names] for key in KEYS)
            torch._foreach_add_(steps, 1)
            parameters = [self.named[name] for name in names]
            weights, grads = [local(p) for p in parameters], [local(p.grad) for p in parameters]
            self.kernel(
                weights, grads, means, squares, [], steps, lr=rate, beta1=o.betas[0], beta2=o.betas[1], eps=o.eps,
                amsgrad=False, maximize=False, weight_decay=o.weight_decay if matrices else 0.0, grad_scale=None,
                found_inf=bad,
            )  # fmt: skip
            if bad is not None:
                torch._foreach_sub_(steps, [bad] * len(steps))

    def state_dict(self) -> dict[str, Tensor]:
        return {f"adam.{key}.{name}": t for name, state in self.state.items() for key, t in state.items()}

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        for name, tensor in self.state_dict().items():
            fill(tensor, saved[name])


def depths(names: Iterable[str]) -> dict[str, int]:
    """The number of layers between each parameter and the output: 0 for the head, 1 for the last layer, and so on.

    `names` are in the order of the model. A name without a layer number belongs to the layers after it.
    """
    layers: list[str] = []
    after = {}
    for name in names:
        layer = re.match(r".*?\.\d+(?=\.)", name)
        if layer and layer[0] not in layers:
            layers.append(layer[0])
        after[name] = len(layers) if layer or not layers else len(layers) + 1
    top = len(layers) + 1
    return {name: top - at for name, at in after.items()}
