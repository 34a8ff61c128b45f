"""What every test may count on: one thread, one seed, a cache of its own, no downloads, and weights that speak."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; xdist's workers share the cores
os.environ["HF_HUB_OFFLINE"] = "1"  # the oracles are built from tiny configs, never downloaded

import dataclasses
import gc
import random
from collections.abc import Callable
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from torch import nn

torch.set_num_threads(1)
# No test cuts the power, so none waits for the disk. That fsync is called is tested by making it fail.
os.fsync = lambda file: None

# The same examples each time, and no time limit of hypothesis' own: a busy machine is not a bug.
hypothesis.settings.register_profile("regard", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("regard")


FIRST = ("test_processes.py", "test_fuzz.py", "studio")  # what they share takes long to make


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test is slow, or of the zoo, because of the folder it lives in.

    Workers of pytest-xdist take tests from each other's ends: what is at the front is made by one worker alone.
    """
    items.sort(key=lambda item: not {item.path.name, item.path.parent.name} & {*FIRST})
    for item in items:
        for folder in ("slow", "zoo"):
            if Path(__file__).parent / folder in item.path.parents:
                item.add_marker(folder)


def pytest_collection_finish() -> None:
    """All modules are loaded, and stay: no collection of garbage need visit them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seeds() -> None:
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - libraries we compare with still draw from it
    torch.default_generator.manual_seed(0)  # `torch.manual_seed` formats three tracebacks where there is no GPU
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(0)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read from, or left in, the user's own cache."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "regard-cache"))
    monkeypatch.delenv("REGARD_DATA", raising=False)


@pytest.fixture(autouse=True)
def _no_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Public addresses are those of a port that nobody listens on."""
    from regard.data.catalog import CATALOG

    for name, dataset in CATALOG.items():
        if dataset.address:
            monkeypatch.setitem(CATALOG, name, dataclasses.replace(dataset, address="http://127.0.0.1:9/"))


def shake(model: nn.Module, by: float = 8.0) -> nn.Module:
    """Scale the matrices of `model` up and move its vectors off zero and one, in place.

    At an init of 0.02 attention is nearly uniform and a wrong path moves outputs by less than a tolerance;
    a bias at zero hides a bias that was forgotten. Embeddings, and heads tied to them, stay as they are.
    """
    tables = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if id(p) in tables:
                continue
            if p.ndim >= 2:
                p.mul_(by)
            else:
                p.add_(torch.randn(p.shape, generator=noise).to(p), alpha=0.1)
    return model


@pytest.fixture(name="shake")
def _shake() -> Callable[..., nn.Module]:
    return shake
