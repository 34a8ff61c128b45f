"""When memory runs out, the sentence names the work that requested it."""

from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.cli.memory import WORK, memory_message
from regard.data.tokenizers.chars import Characters
from regard.models.gpt import GPT, GPTConfig


def raised(work) -> BaseException:
    with pytest.raises((MemoryError, RuntimeError)) as e:
        work()
    return e.value


def test_the_reader_of_data_is_named_with_what_it_asked_for(monkeypatch):
    full = np.full
    monkeypatch.setattr(np, "full", lambda size, *rest: full((1 << 44,), *rest))
    message = memory_message(raised(lambda: Characters("abc")))
    assert message.startswith("there is not enough memory for reading the data (it requested 128. TiB more); ")


def test_a_model_is_named():
    message = memory_message(raised(lambda: GPT(GPTConfig(vocab=1 << 30, width=1 << 14, heads=1))))
    assert "for loading the model (it requested 70368744177664 bytes more)" in message
    assert "--set tokens" not in message


def test_a_gpu_is_named():
    message = memory_message(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has …"))
    assert message.startswith(
        "the GPU has not enough memory for this (it requested 20.00 MiB more); make batches smaller"
    )


def test_other_errors_are_not_about_memory():
    assert memory_message(RuntimeError("shapes differ")) == ""


def test_every_part_it_names_exists():
    package = Path(regard.__file__).parent
    assert all((package / part / "__init__.py").is_file() for part in WORK)
