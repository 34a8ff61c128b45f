"""Who joins a world, and who is refused."""

import socket

import pytest
import torch

from regard.cli.processes import share_between
from regard.errors import ConfigError, WorkFailed
from regard.training.parallel import join


@pytest.fixture
def torchrun(monkeypatch):
    for name, value in dict(RANK=0, WORLD_SIZE=2, LOCAL_RANK=0, LOCAL_WORLD_SIZE=2).items():
        monkeypatch.setenv(name, str(value))


def test_more_processes_than_gpus_are_refused_by_all_of_them(torchrun, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="2 processes on 1 GPU; start one for each: --processes 1"):
        join("cuda")


def test_one_gpu_for_all_processes_is_refused(torchrun):
    with pytest.raises(ConfigError, match="each process uses its own GPU; type --device cuda"):
        join("cuda:1")


def test_a_port_in_use_is_one_sentence(torchrun, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(other.getsockname()[1]))
        with pytest.raises(WorkFailed, match=r"EADDRINUSE.*if another program has this port, start them with torchrun"):
            join()


def test_processes_are_those_that_torchrun_started(torchrun):
    with pytest.raises(ConfigError, match="--processes 3, but torchrun started 2; leave out --processes"):
        share_between(3, None)
