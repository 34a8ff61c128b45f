"""What fp8 does not go with is refused, in a sentence."""

from types import SimpleNamespace

import pytest
import torch

from regard.errors import ConfigError
from regard.training.parallel import World
from regard.training.placement import place
from regard.training.precision import PRECISIONS
from regard.training.run import PRECISIONS as NAMES
from regard.training.settings import Parallel


def test_fp8_is_not_for_checkpointed_blocks():
    run = SimpleNamespace(precision="fp8", parallel=Parallel(checkpoint=True))
    with pytest.raises(ConfigError, match=r"parallel\.checkpoint; type: --set precision=bf16"):
        place(SimpleNamespace(run=run, model=torch.nn.Linear(1, 1)), World(), torch.device("cpu"))


def test_every_precision_has_its_context():
    assert tuple(PRECISIONS) == NAMES
    with PRECISIONS["bf16"](torch.device("cpu")):
        assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).dtype == torch.bfloat16
