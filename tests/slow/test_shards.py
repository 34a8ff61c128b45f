"""FSDP and HSDP are one process, for every model; a sharded run resumes on any number of processes."""

import json

import pytest
import torch
from tests.system.ranks import CASES, CHAIN, SHARDED
from tests.system.test_processes import codes, losses, same_run, scenarios

from regard.run_folder import WEIGHTS


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return scenarios(tmp_path_factory.mktemp("shards"), "slow")


@pytest.fixture(scope="module")
def ranks(place):
    return json.loads((place / "ranks.json").read_text())["ranks"]


@pytest.mark.parametrize("case", CASES)
def test_three_processes_train_what_one_does(place, ranks, case):
    assert codes(ranks["models/3"]) == [0, 0, 0], ranks["models/3"]
    same_run(place / "models/1" / case, place / "models/3" / case)


@pytest.mark.parametrize("case", SHARDED)
@pytest.mark.parametrize("layout", ["fsdp/3", "hsdp/4"])
def test_shards_train_what_one_process_does(place, ranks, case, layout):
    assert set(codes(ranks[layout])) == {0}, ranks[layout]
    same_run(place / "models/1" / case, place / layout / case)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_sharded_run_resumes_on_any_number(place, ranks, size):
    whole, resumed = place / "whole-sharded", place / f"resumed-{size}"
    assert codes(ranks["stopped-sharded"]) == [143] * 4 and codes(ranks[resumed.name]) == [0] * size, ranks
    if size == 4:
        assert (resumed / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    torch.testing.assert_close(losses(resumed), losses(whole), rtol=0.05, atol=0)


def test_four_two_one_and_three_processes_are_one_run(place, ranks):
    ended = [codes(ranks[f"chain-{size}"]) for size, _ in CHAIN]
    assert ended == [[143] * 4, [143] * 2, [143], [0] * 3], ranks
    torch.testing.assert_close(losses(place / "chain"), losses(place / "chain-whole"), rtol=1e-4, atol=0)
