"""Several processes train what one does: the same losses and weights, one model, one voice, one exit code."""

import csv
import fcntl
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.slow.test_kills import outcome
from tests.system.cli_toy import regard as cli
from tests.system.cli_toy import works
from tests.system.rank_cases import BY_THREE, CASES, SHARDED, STEPS
from tests.system.ranks import ROWS
from tests.system.test_old_runs import FIXTURES

import regard
from regard.checkpoint import load_state
from regard.cli import pieces
from regard.run_folder import WEIGHTS
from regard.tasks.plan import read_run
from regard.training.shard import broken


def scenarios(folder: Path, *words: str) -> Path:
    """The folder, in which groups of processes have done all that tests ask about."""
    for name in ("data", "runs"):
        shutil.copytree(FIXTURES / name, folder / name)
    settings = dict(OMP_NUM_THREADS="1", REGARD_CACHE=str(folder / "cache"), TORCH_CPP_LOG_LEVEL="ERROR")
    command = [sys.executable, "-m", "tests.system.ranks", str(folder), *words]
    environment = os.environ | settings | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, env=environment, check=True, timeout=600)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Made by the first worker of pytest-xdist that comes here; another one waits for it."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    with (shared / "ranks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = (shared / "ranks/ranks.json").exists()
        return shared / "ranks" if made else scenarios(shared / "ranks")


@pytest.fixture(scope="module")
def ranks(place) -> dict[str, list[dict]]:
    return json.loads((place / "ranks.json").read_text())


def codes(ranks: list[dict]) -> list[int]:
    return [rank["code"] for rank in ranks]


def losses(folder: Path) -> torch.Tensor:
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return torch.tensor([event["loss"] for event in events if "lr" in event], dtype=torch.float64)


def same_run(one: Path, several: Path) -> None:
    """Loss of every step, and the weights after the last one."""
    assert len(losses(one)) == STEPS
    torch.testing.assert_close(losses(several), losses(one), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(load_file(several / WEIGHTS), load_file(one / WEIGHTS), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("size", "case"), [*((2, case) for case in CASES), *((3, case) for case in BY_THREE)])
def test_processes_train_what_one_does(place, ranks, case, size):
    assert codes(ranks[f"models/{size}"]) == [0] * size, ranks[f"models/{size}"]
    same_run(place / "models/1" / case, place / f"models/{size}" / case)


@pytest.mark.parametrize("case", SHARDED[:1])
def test_shards_train_what_one_process_does(place, ranks, case):
    assert codes(ranks["fsdp/2"]) == [0, 0], ranks["fsdp/2"]
    same_run(place / "models/1" / case, place / "fsdp/2" / case)


def test_a_damaged_shard_means_the_save_before_it(place, ranks):
    """What that one lacks is done again, and comes out the same."""
    assert codes(ranks["stopped-sharded"]) == [143, 143], ranks["stopped-sharded"]
    assert codes(ranks["damaged-2"]) == codes(ranks["whole-sharded"]) == [0, 0], ranks["damaged-2"]
    assert "__1_0.distcp is damaged; resuming from step 5" in ranks["damaged-2"][0]["text"]
    whole, damaged = place / "whole-sharded", place / "damaged-2"
    assert (damaged / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    assert losses(damaged).equal(losses(whole))


def test_a_signal_to_one_rank_saves_and_stops_all(ranks, place):
    assert codes(ranks["stopped"]) == [143, 143], ranks["stopped"]
    assert 8 <= load_state(place / "stopped" / "state.safetensors")[1]["progress"]["step"] < STEPS


def test_as_many_processes_resume_bit_for_bit(ranks, place):
    assert codes(ranks["resumed-2"]) == codes(ranks["whole"]) == [0, 0], (ranks["resumed-2"], ranks["whole"])
    resumed, whole = (outcome(place / name) for name in ("resumed-2", "whole"))
    names = ("config.json", "metrics.jsonl", WEIGHTS)  # the command line keeps no optimiser of a finished run
    assert {name: resumed[name] for name in names} == {name: whole[name] for name in names}


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_another_number_of_processes_resumes(ranks, place, kind):
    """Two processes, then three, then one are one run, wherever it was stopped."""
    assert [codes(ranks[f"models/{size}"]) for size in (1, 2, 3)] == [[0], [0, 0], [0, 0, 0]], ranks["models/1"]
    same_run(place / "models/1/transformer-muon", place / f"models/chain-{kind}")
    loader = load_state(place / f"models/chain-{kind}" / "state.safetensors")[1]["loader"]
    assert loader == load_state(place / "whole" / "state.safetensors")[1]["loader"]


def test_only_the_first_process_talks_and_its_model_loads(ranks, place):
    first, second = ranks["command"]
    assert first["code"] == second["code"] == 0, ranks["command"]
    assert "regard generate" in first["text"] and not second["text"]
    assert len(losses(place / "command")) == 30
    assert regard.load(place / "command").generate(["the"], max_tokens=3)


def test_minutes_are_those_of_the_first_process(ranks, place):
    assert codes(ranks["minutes"]) == [0, 0], ranks["minutes"]
    final = json.loads((place / "minutes" / "metrics.jsonl").read_text().splitlines()[-1])
    assert final["final"] and read_run(place / "minutes").steps == final["step"] > 0


def test_a_restarted_launch_goes_on_by_itself(ranks, place):
    assert codes(ranks["launched"]) == [1, -9] and codes(ranks["relaunched"]) == [0, 0], ranks["relaunched"]
    assert "step 16/30" in ranks["relaunched"][0]["text"] and "step 12/30" not in ranks["relaunched"][0]["text"]
    assert losses(place / "launched").equal(losses(place / "command"))
    assert (place / "launched" / WEIGHTS).read_bytes() == (place / "command" / WEIGHTS).read_bytes()


def test_pieces_are_the_answers_of_one_process(ranks, place, monkeypatch, tmp_path):
    assert codes(ranks["answers"]) == [0, 0], ranks["answers"]
    monkeypatch.chdir(place)
    monkeypatch.setattr(pieces, "ROWS", ROWS)
    works("predict", "runs/classify", "tables", f"--out={tmp_path}/", "--device=cpu")
    several, one = ({file.name: file.read_bytes() for file in sorted(Path(x).iterdir())} for x in ("answers", tmp_path))
    assert several == one and json.loads(several["manifest.json"])["pieces"] == sorted({*several} - {"manifest.json"})
    for table in ("new.csv", "reviews.csv"):
        read = [csv.DictReader(io.StringIO(several[name].decode())) for name in several if name.startswith(table)]
        rows = [row for reader in read for row in reader]
        whole = works("predict", "runs/classify", f"tables/{table}", "--device=cpu").lines
        for row, expected in zip(rows, csv.DictReader(whole), strict=True):
            (*cells, p, q), (*same, x, y) = row.values(), expected.values()  # probabilities come last
            assert (row.keys(), cells) == (expected.keys(), same)
            assert (float(p or 0), float(q or 0)) == pytest.approx((float(x or 0), float(y or 0)), abs=2e-6)


def test_pieces_that_are_there_are_not_computed_again(ranks, place, monkeypatch, tmp_path):
    monkeypatch.chdir(place)
    monkeypatch.setattr(pieces, "ROWS", ROWS)
    answers = shutil.copytree("answers", tmp_path / "answers")
    lost, *kept = sorted(answers.glob("*.csv"))
    content = lost.read_bytes()
    lost.unlink()
    for path in kept:
        path.write_text("as it was")
    works("predict", "runs/classify", "tables", f"--out={answers}/", "--device=cpu")
    assert lost.read_bytes() == content and {path.read_text() for path in kept} == {"as it was"}
    refused = cli("predict", "runs/classify", "tables/new.csv", f"--out={answers}/", "--device=cpu")
    assert refused.code == 2 and "the answers of another command" in refused.err
    refused = cli("predict", "runs/classify", "tables", f"--out={tmp_path}/new/", "--text=absent", "--device=cpu")
    assert refused.code == 2 and not (tmp_path / "new").exists()


ENDS = {
    "different": (2, "process 1 has different settings and data from process 0"),
    "unfit": (2, "hsdp: 3 processes cannot hold copies of 2 shards each; type --set parallel.shard=N"),
    "full": (1, "no space left on the disk; what was there before is untouched; free some and go on"),
    "changed-2": (2, "a different model or optimiser; it differs in"),
    "missing": (2, "process 1: --data absent.txt: no such file"),
    "broken": (1, "process 1, step 4: OSError: [Errno 5] Input/output error"),
    "killed": (1, "step 4: process 2 died or hung"),
    "hung": (1, "step 4: process 1 died or hung"),
}


@pytest.mark.parametrize("name", ENDS)
def test_one_failure_is_one_line_and_ends_all(ranks, place, name):
    code, message = ENDS[name]
    lines = ranks[name][0]["text"].splitlines()
    assert [line for line in lines if line.startswith("regard: ")] == lines[-1:], lines
    assert message in lines[-1]
    assert ranks[name][0]["code"] == code and all(codes(ranks[name])), ranks[name]
    assert not any("Traceback" in rank["text"] or (n and rank["text"]) for n, rank in enumerate(ranks[name]))
    if name in ("different", "unfit", "missing"):
        assert not (place / name).exists()


def test_a_failed_save_leaves_the_one_before_it(ranks, place):
    meta = load_state(place / "full" / "state.safetensors")[1]
    assert meta["progress"]["step"] == 1 and not broken(place / "full", meta)


def test_another_models_state_is_left_as_it_was(ranks, place):
    before, after = (
        {path.relative_to(place / run): path.read_bytes() for path in (place / run).rglob("*") if path.is_file()}
        for run in ("changed", "changed-2")
    )
    assert after == before


def test_a_slow_process_is_named_once(ranks):
    text = ranks["hung"][0]["text"]
    assert text.count("process 1 is slow: its own work takes") == 1 and "process 0 is slow" not in text


def test_more_processes_than_cores_carry_are_refused(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 50)
    result = cli("train", "lm", f"--data={tmp_path / 'text.txt'}", f"--name={tmp_path / 'run'}", "--processes=1000000")
    assert result.code == 2 and "--processes 1,000,000: expected at most 4 for each of the" in result.err
    assert not (tmp_path / "run").exists()
