"""One seed is one run: the same again, another one for another seed, and another view of the data in each epoch."""

import dataclasses
import shutil
from itertools import islice

import numpy as np
import pytest
import torch
from tests.system.test_old_runs import FIXTURES
from tests.unit.training.toy import Model, toy_parts, toy_run
from torch import Tensor

from regard.config import override
from regard.tasks import assemble
from regard.tasks.plan import read_run
from regard.training.loop import train

# The runs kept for other tests; what changes examples by chance is turned on where it is not.
RUNS = {
    "translate-transformer": ["data.bpe_dropout=0.3"],
    "translate-lstm": [],
    "lm-gpt": [],
    "lm-lstm-chars": [],
    "lora": [],
    "mlm": [],
    "classify": [],
    "classify-stopped": [],
    "pair": [],
    "tag": [],
    "image-vit": [],
    "image-conv": ["data.augment.mixup=0.4"],
    "table": [],
    "caption": ["data.augment.crop=0.3"],
    "series": ["data.jitter=1", "data.thin=0.5"],
    "fill-series": [],
    "forecast": [],
    "audio": [],
}
CHANGING = ("translate-transformer", "mlm", "image-vit", "image-conv", "caption", "series", "fill-series", "audio")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    for name in ("data", "runs"):
        shutil.copytree(FIXTURES / name, folder / name)
    return folder


@pytest.fixture(autouse=True)
def _here(place, monkeypatch):
    monkeypatch.chdir(place)


def parts(name: str, seed: int):
    """All that a run is made of, whatever was drawn before."""
    torch.manual_seed(torch.seed() % 1000)
    np.random.seed(seed + 5)  # noqa: NPY002 - nobody may draw from it
    run = override(read_run(f"runs/{name}"), RUNS[name])
    return assemble(dataclasses.replace(run, seed=seed), say=lambda _: None)


def weights(made) -> list[Tensor]:
    """What was drawn: matrices that learn; those that were loaded are the same for all seeds."""
    return [p.detach() for p in made.model.parameters() if p.ndim > 1]


def contents(batch) -> list[Tensor]:
    """Every tensor of a batch."""
    results = []
    for value in vars(batch).values():
        results += [x for x in (value if isinstance(value, tuple) else (value,)) if isinstance(x, Tensor)]
    return results


def equal(some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(
        a.shape == b.shape and a.equal(b) for a, b in zip(some, others, strict=True)
    )


@pytest.mark.parametrize("name", RUNS)
def test_a_seed_decides_weights_and_batches(name):
    one, again, other = parts(name, 3), parts(name, 3), parts(name, 4)
    assert equal(weights(one), weights(again)) and not equal(weights(one), weights(other))
    batches = [[contents(batch) for batch in islice(made.loader, 6)] for made in (one, again, other)]
    assert all(equal(a, b) for a, b in zip(batches[0], batches[1], strict=True))
    assert not all(equal(a, b) for a, b in zip(batches[0], batches[2], strict=True))
    held = [[contents(batch) for batch in made.valid_batches()] for made in (one, other)]
    assert len(held[0]) == len(held[1]) > 0, "what is validated on is the same for all"
    assert all(equal(a, b) for a, b in zip(*held, strict=True))


def epochs(made, count: int = 2) -> list[list]:
    """The batches of whole epochs."""
    results: list[list] = []
    for number in range(count):
        batches = []
        while not batches or made.loader.position < made.loader.batches_per_epoch:
            batches.append(next(made.loader))
            assert made.loader.epoch == number
        results.append(batches)
    return results


@pytest.mark.parametrize("name", [name for name in RUNS if not name.startswith(("lm-", "mlm"))])  # rows made anew
def test_an_epoch_visits_the_same_examples_in_another_order(name):
    orders = [[row for batch in batches for row in batch.rows.tolist()] for batches in epochs(parts(name, 0))]
    assert sorted(orders[0]) == sorted(orders[1]) and orders[0] != orders[1]


@pytest.mark.parametrize("name", CHANGING)
def test_an_example_is_another_one_in_the_next_epoch(name):
    """Drawn by seed, epoch and place: with the epoch forgotten, a model sees the same few pictures for ever."""
    views = []
    for batches in epochs(parts(name, 0)):
        seen = {}
        for batch in batches:
            inputs = batch.inputs if isinstance(getattr(batch, "inputs", None), tuple) else contents(batch)
            for i, row in enumerate(batch.rows.tolist()):
                seen[row] = [x[i].flatten().tolist() for x in inputs if x is not None and len(x) == len(batch.rows)]
        views.append(seen)
    shared = views[0].keys() & views[1].keys()
    changed = [row for row in shared if views[0][row] != views[1][row]]
    assert shared and len(changed) > len(shared) / 4


@pytest.mark.parametrize("seed", [0, 1])
def test_a_seed_decides_dropout(tmp_path, seed):
    """The same weights, the same batches: only what is dropped is left to differ."""

    def trained(name: str, seed: int) -> Model:
        torch.manual_seed(0)
        model = Model()
        model.drop.p = 0.5
        torch.manual_seed(torch.seed() % 1000)
        train(toy_parts(toy_run(steps=3, average=False, seed=seed), model=model), tmp_path / name, quiet=True)
        return model

    one, again, other = (list(trained(n, s).parameters()) for n, s in (("a", seed), ("b", seed), ("c", seed + 1)))
    assert equal(one, again) and not equal(one, other)
