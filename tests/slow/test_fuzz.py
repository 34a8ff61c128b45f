"""Ten thousand command lines at random over every verb, format and option, each in a process with limits."""

import pytest
from tests.fuzz.findings import failures
from tests.fuzz.world import World

EACH = 1000


@pytest.mark.parametrize("seed", range(100, 110))
def test_no_command_line_fails_in_an_unforeseen_way(tmp_path, seed):
    with World(tmp_path) as world:
        assert not failures(world, seed, range(EACH))
