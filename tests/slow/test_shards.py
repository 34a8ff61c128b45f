"""FSDP and HSDP are one process, for every model; a sharded run resumes on any number of processes."""

import json

import pytest
from tests.system.rank_cases import CASES, SHARDED
from tests.system.ranks import CHAIN
from tests.system.test_processes import codes, losses, same_run, scenarios

from regard.run_folder import WEIGHTS


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return scenarios(tmp_path_factory.mktemp("shards"), "slow")


@pytest.fixture(scope="module")
def ranks(place):
    return json.loads((place / "ranks.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_three_processes_train_what_one_does(place, ranks, case):
    assert codes(ranks["models/3"]) == [0, 0, 0], ranks["models/3"]
    same_run(place / "models/1" / case, place / "models/3" / case)


@pytest.mark.parametrize("case", SHARDED)
@pytest.mark.parametrize("layout", ["fsdp/3", "hsdp/4"])
def test_shards_train_what_one_process_does(place, ranks, case, layout):
    assert set(codes(ranks[layout])) == {0}, ranks[layout]
    same_run(place / "models/1" / case, place / layout / case)


def test_as_many_processes_resume_shards_bit_for_bit(place, ranks):
    assert codes(ranks["stopped-sharded"]) == [143] * 4 and codes(ranks["resumed-4"]) == [0] * 4, ranks
    assert (place / "resumed-4" / WEIGHTS).read_bytes() == (place / "whole-sharded" / WEIGHTS).read_bytes()
    assert losses(place / "resumed-4").equal(losses(place / "whole-sharded"))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_sharded_run_resumes_on_any_number(place, ranks, size):
    assert codes(ranks["chain-4"]) == [143] * 4 and codes(ranks[f"resumed-{size}"]) == [0] * size, ranks
    same_run(place / "models/1/transformer-muon", place / f"resumed-{size}")


def test_four_two_one_and_three_processes_are_one_run(place, ranks):
    ended = [codes(ranks[f"chain-{size}"]) for size, _ in CHAIN]
    assert ended == [[143] * 4, [143] * 2, [143], [0] * 3], ranks
    same_run(place / "models/1/transformer-muon", place / "chain")
