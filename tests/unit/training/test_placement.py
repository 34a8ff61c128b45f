"""Which layout a model gets."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from regard.errors import ConfigError
from regard.training.parallel import World
from regard.training.placement import mesh_shape
from regard.training.settings import Parallel


def shape(size: int, device: str = "cpu", **parallel) -> tuple[int, ...]:
    run = SimpleNamespace(parallel=Parallel(**parallel))
    return mesh_shape(run, World(size=size), nn.Linear(10, 10, bias=False), torch.device(device))


@pytest.mark.parametrize(("size", "shard"), [(3, 2), (4, 3), (4, 4), (2, 4), (4, 1)])
def test_a_mesh_that_does_not_fit_is_refused(size, shard):
    with pytest.raises(ConfigError, match=f"hsdp: {size} processes cannot hold copies of {shard} shards each; type"):
        shape(size, kind="hsdp", shard=shard)


def test_layouts_of_processes(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert shape(8, kind="ddp") == shape(8) == ()
    assert shape(8, kind="fsdp") == (8,)
    assert shape(8, kind="hsdp") == (2, 4) and shape(8, kind="hsdp", shard=2) == (4, 2)


@pytest.mark.parametrize(("memory", "expected"), [(2858, ()), (2857, (2, 4)), (715, (2, 4)), (714, (8,))])
def test_gpus_get_the_first_layout_that_fits(monkeypatch, memory, expected):
    """100 parameters take 2,000 bytes, in 70 % of the memory: of one GPU, of the four of a machine, of all."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=memory))
    assert shape(8, "cuda") == expected
