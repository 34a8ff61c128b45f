"""Muon for the hidden matrices of a network (Jordan 2024): momentum that moves every direction equally far. Batched."""

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoint import fill
from regard.nn.products import fast_products
from regard.training.parallel import World

# matrices whose rows are words, positions or classes
OUTER = ("embedding", "token", "place", "table", "head", "output", "W_hy", "next", "classifier")
GATES: dict[Any, int] = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}


def hidden_matrices(model: nn.Module) -> dict[str, list[int]]:
    """The names of the hidden matrices, with the row counts of the maps that each one stacks."""
    matrices = {}
    for path, module in model.named_modules():
        for own, p in module.named_parameters(recurse=False):
            name = f"{path}.{own}" if path else own
            last = (path if own == "weight" else name).split(".")[-1]
            if p.ndim == 2 and p.requires_grad and not isinstance(module, nn.Embedding) and not last.endswith(OUTER):
                matrices[name] = _parts(module, p)
    unique = {name for name, _ in model.named_parameters()}  # a tied matrix has one name
    return {name: parts for name, parts in matrices.items() if name in unique}


def _parts(module: nn.Module, p: nn.Parameter) -> list[int]:
    gates = getattr(module, "gates", GATES.get(type(module), 1))
    parts = getattr(module, "parts", [p.size(0) // gates] * gates)  # fused maps have `parts`, cells `gates`
    return list(parts) if sum(parts) == p.size(0) else [p.size(0)]


class Muon:
    """Nesterov momentum, orthogonalised.

    Fused maps are split first, since their parts are separate matrices. Pieces of one shape (or its transpose) are
    stacked and multiplied together. The processes of `world` share the products.
    """

    def __init__(
        self, model: nn.Module, lr: float, momentum: float, decay: float, iterations: int, block: int, world: World
    ):
        self.momentum, self.decay, self.iterations = momentum, decay, iterations
        hidden = hidden_matrices(model)
        self.named = {name: model.get_parameter(name) for name in hidden}
        device = next((p.device for p in self.named.values()), None)
        self.lr = torch.tensor(lr, device=device)  # a tensor, so that a recorded step sees changes
        stacks: dict[tuple[int, int], list[Piece]] = {}
        for name, p in self.named.items():
            for piece in pieces(p, hidden[name], block):
                stacks.setdefault(piece.shape, []).append(piece)
        stack: Any = Stack
        self.world = world
        if any(hasattr(p, "placements") for p in self.named.values()):
            from regard.training.shard import ShardedStack as stack

            self.world = World()  # sharded stacks share the work already
        self.stacks: list[Stack] = [stack(shape, members) for shape, members in stacks.items()]

    @torch.no_grad()
    def step(self, bad: Tensor | None) -> None:
        moves: Tensor | float = 1.0 if bad is None else 1.0 - bad  # on a GPU a bad step moves by 0: no wait
        if self.decay:
            shrink: Any = 1.0 - moves * (self.lr * self.decay)
            torch._foreach_mul_([local(p.detach()) for p in self.named.values()], shrink)
        for stack in self.stacks:
            grad, momentum = stack.grad().float(), local(stack.momentum)
            if bad is not None:
                grad.masked_fill_(bad.bool(), 0.0)
            momentum.lerp_(grad, (1 - self.momentum) * moves)
            update = grad.lerp_(momentum, self.momentum)  # Nesterov: look one step ahead
            with fast_products(update.numel() * update.size(-2)):
                update = self.world.in_parts(lambda maps: orthogonal(maps, self.iterations), update)
            stack.add(update * (stack.scale * moves * -self.lr))

    def state_dict(self) -> dict[str, Tensor]:
        return {f"muon.{'x'.join(map(str, stack.shape))}": stack.momentum for stack in self.stacks}

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        for name, momentum in self.state_dict().items():
            fill(momentum, saved[name])


def local(x: Any) -> Tensor:
    """This process's rows of a sharded tensor; all of any other."""
    return x.to_local() if hasattr(x, "to_local") else x


@dataclass(frozen=True)
class Piece:
    """Some rows of a matrix: `count` maps of one size, stacked; tall ones are transposed."""

    p: nn.Parameter
    start: int
    stop: int
    count: int

    @property
    def rows(self) -> int:
        return (self.stop - self.start) // self.count

    @property
    def shape(self) -> tuple[int, int]:
        return min(self.rows, self.p.size(1)), max(self.rows, self.p.size(1))

    @property
    def scale(self) -> float:
        """The factor by which a tall map's outputs move as far as a square one's."""
        return max(1.0, self.rows / self.p.size(1)) ** 0.5

    def grad(self) -> Any:
        return torch.zeros_like(self.p) if self.p.grad is None else self.p.grad

    def lay(self, x: Tensor) -> Tensor:
        x = x[self.start : self.stop].unflatten(0, (self.count, self.rows))  # N R C
        return x.mT if self.rows > self.p.size(1) else x


def pieces(p: nn.Parameter, parts: list[int], block: int) -> list[Piece]:
    """The maps stacked in `p`, each cut into blocks of `block` rows (0: not cut); neighbours of one size together."""
    sizes = [min(block or size, size - low) for size in parts for low in range(0, size, block or size)]
    cut, start = [], 0
    for size, same in groupby(sizes):
        count = len(list(same))
        cut.append(Piece(p, start, start + size * count, count))
        start += size * count
    return cut


class Stack:
    """Pieces of one shape, and their momentum: N R C."""

    def __init__(self, shape: tuple[int, int], pieces: list[Piece]):
        self.shape, self.pieces = shape, pieces
        self.counts = [piece.count for piece in pieces]
        self.maps = [piece.lay(piece.p.detach()) for piece in pieces]  # views: adding to them moves the parameters
        self.momentum = torch.zeros(sum(self.counts), *shape, device=pieces[0].p.device)
        self.scale = self.scales()

    def scales(self) -> Tensor:
        scales = [piece.scale for piece in self.pieces for _ in range(piece.count)]
        return self.momentum.new_tensor(scales)[:, None, None]

    def grad(self) -> Tensor:
        return torch.cat([piece.lay(piece.grad()) for piece in self.pieces])

    def add(self, update: Tensor) -> None:
        torch._foreach_add_(self.maps, list(update.split(self.counts)))


# Odd quintics a·s + b·s³ + c·s⁵, applied one after another, bring the singular values s of a matrix of norm 1 near 1.
# Five are Jordan's: between 0.68 and 1.21 for s ≥ 0.002. Four and three are the best there are (Amsel et al. 2025):
# between 0.80 and 1.20 for s ≥ 0.003, and between 0.73 and 1.27 for s ≥ 0.01, at four and three fifths of the cost.
QUINTICS: dict[int, list[tuple[float, float, float]]] = {
    5: [(3.4445, -4.7750, 2.0315)] * 5,
    4: [(8.3837, -24.7659, 18.3571), (4.0433, -3.0112, 0.5694), (3.5100, -2.6315, 0.5268), (2.4940, -1.8375, 0.4371)],
    3: [(8.0934, -23.6204, 17.4462), (3.6364, -2.7215, 0.5364), (2.6615, -1.9774, 0.4527)],
}


def orthogonal(x: Tensor, iterations: int = 5) -> Tensor:
    """The nearest semi-orthogonal matrices, roughly, by Newton-Schulz: x ← a·x + b·(xxᵀ)x + c·(xxᵀ)²x. N R C, R ≤ C.

    bf16 on a GPU, where it is fast; fp32 on a CPU, where long matrices use only their R x R products.
    """
    x = x.to(torch.bfloat16) if x.is_cuda else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    if x.dtype == torch.float32 and x.size(-1) >= 3 * x.size(-2):
        return by_products(x, iterations)
    for a, b, c in QUINTICS[iterations]:
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.float()


def by_products(x: Tensor, iterations: int) -> Tensor:
    """The same polynomial. Its factors are polynomials of xxᵀ and commute, so x is needed only at both ends."""
    square = x @ x.mT
    total = factor = None
    for a, b, c in QUINTICS[iterations]:
        if factor is not None:
            square = factor @ (square @ factor)
        factor = torch.baddbmm(square, square, square, beta=b, alpha=c)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        total = factor if total is None else factor @ total
    assert total is not None
    return total @ x
