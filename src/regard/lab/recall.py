"""What architectures remember, and at what cost: recall and parameters against distance, time against length."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.lab.gradients import tiny_model
from regard.lab.plain_text import PlainText
from regard.models.base import LanguageModel

SYMBOLS = 8  # to remember; as many others are noise
VOCAB = 2 * SYMBOLS + 1  # and the question
DISTANCES = (5, 10, 30, 100, 300, 1000)
ROWS = 16  # sequences per batch
UPDATES, BUDGET = 200, 1_600_000  # limits per distance, in updates and in tokens
STREAK = 10  # batches in a row without a mistake that end training early
TESTED = 256
RATES = {"gru": 1e-2, "lstm": 1e-2}  # of Adam, tuned by hand; for the others
RATE = 3e-3
FIXED_LENGTH = "mlp"  # reads texts of one length only: it cannot continue with a longer one

LENGTHS = (64, 128, 256, 512, 1024, 2048)
TOKENS = 4096  # in every timed step, however long its sequences
REPEATS = 5  # the fastest counts: other work on the machine only adds time
SPEED_VOCAB = 256


@dataclass(frozen=True)
class Recall:
    """Accuracy (1 / SYMBOLS by guessing) and updates, by distance; after a failure longer distances are not tried."""

    name: str
    short_first: bool  # each distance starts from the weights of the one before, or each from scratch
    accuracy: dict[int, float]
    updates: dict[int, int]

    @property
    def farthest(self) -> int:
        """The longest distance with an accuracy of at least 95 %; 0: none."""
        return max((d for d, share in self.accuracy.items() if share >= 0.95), default=0)


@dataclass(frozen=True)
class Parameters:
    """The parameters of a model that recalls a symbol, by its distance."""

    name: str
    numbers: dict[int, int]

    @property
    def per_token(self) -> float:
        """Parameters per additional token."""
        near, far = min(self.numbers), max(self.numbers)
        return (self.numbers[far] - self.numbers[near]) / (far - near)


@dataclass(frozen=True)
class StepTime:
    """Seconds of a forward and backward pass over TOKENS tokens, by the length of the sequences."""

    name: str
    seconds: dict[int, float]


def questions(distance: int, rows: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """A symbol, noise, and a question `distance` tokens after the symbol; and the answer, which is the symbol."""
    ids = torch.randint(SYMBOLS, 2 * SYMBOLS, (rows, distance + 1), generator=rng)
    ids[:, 0] = torch.randint(SYMBOLS, (rows,), generator=rng)
    ids[:, -1] = VOCAB - 1
    return ids, ids[:, 0].clone()


def teach(model: LanguageModel | PlainText, distance: int, rate: float, rng: torch.Generator) -> int:
    """Train until STREAK batches in a row are right, or the budget is spent; return the number of updates."""
    device = model.token.weight.device
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.99))
    most, streak = min(UPDATES, BUDGET // (ROWS * (distance + 1))), 0
    for update in range(1, most + 1):
        optimiser.param_groups[0]["lr"] = rate * min(1.0, update / 10)
        ids, answers = (t.to(device) for t in questions(distance, ROWS, rng))
        logits = model.logits(model(ids)[:, -1])
        optimiser.zero_grad()
        F.cross_entropy(logits, answers).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        streak = streak + 1 if bool((logits.argmax(-1) == answers).all()) else 0
        if streak == STREAK:
            return update
    return most


@torch.no_grad()
def accuracy(model: LanguageModel | PlainText, distance: int, rng: torch.Generator) -> float:
    device, right = model.token.weight.device, 0
    for _ in range(TESTED // ROWS):
        ids, answers = (t.to(device) for t in questions(distance, ROWS, rng))
        right += int((model.logits(model(ids)[:, -1]).argmax(-1) == answers).sum())
    return right / TESTED


def recall(arch: str, short_first: bool, seed: int, device: str, distances: Sequence[int] = DISTANCES) -> Recall:
    """Train a tiny model on one distance after another, continued or from scratch, and test each."""
    result = Recall(arch, short_first, {}, {})
    rng = torch.Generator().manual_seed(seed)
    model = None
    for distance in distances:
        if model is None or not short_first:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                longest = distance if arch == FIXED_LENGTH else max(distances)
                model = tiny_model(arch, longest + 1, VOCAB, layers=1).to(device)
        result.updates[distance] = teach(model, distance, RATES.get(arch, RATE), rng)
        result.accuracy[distance] = accuracy(model, distance, rng)
        if result.accuracy[distance] < 0.5:
            break
    return result


def parameters(arch: str, distances: Sequence[int] = DISTANCES) -> Parameters:
    with torch.random.fork_rng(devices=[]):
        return Parameters(arch, {d: tiny_model(arch, d + 1, VOCAB, layers=1).size() for d in distances})


def step_time(arch: str, seed: int, device: str, lengths: Sequence[int] = LENGTHS) -> StepTime:
    """Time forward and backward with a loss on every token; the first pass of each length is not counted."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = tiny_model(arch, max(lengths), SPEED_VOCAB, layers=1).to(device)
    rng = torch.Generator().manual_seed(seed)
    seconds = {}
    for length in lengths:
        ids = torch.randint(SPEED_VOCAB, (TOKENS // length, length), generator=rng).to(device)
        seconds[length] = min([seconds_of(model, ids) for _ in range(1 + REPEATS)][1:])
    return StepTime(arch, seconds)


def seconds_of(model: LanguageModel | PlainText, ids: Tensor) -> float:
    wait = torch.cuda.synchronize if ids.is_cuda else (lambda: None)
    wait()
    start = time.perf_counter()
    F.cross_entropy(model.logits(model(ids)).flatten(0, 1), ids.flatten()).backward()
    wait()
    model.zero_grad()
    return time.perf_counter() - start
