"""`regard plan`: numbers as people write them, and lines that can be typed."""

import json
from dataclasses import replace

import pytest
from tests.system.cli_toy import regard, works

from regard.cli.plan import bytes_per_second, quantity
from regard.errors import ConfigError
from regard.explain import ceilings
from regard.explain.fleet import DEVICES


def test_a_plan_names_the_best_layout_and_how_to_start_it():
    out = works("plan", "--size=gpt2-xl", "--tokens=30B", "--gpus=8").out
    assert "1.56 B parameters, 30.0 B tokens" in out and "\n->" in out
    line = next(line for line in out.splitlines() if "torchrun" in line)
    assert "--nproc-per-node 8" in line and "-m regard train lm --arch gpt --size xl" in line


@pytest.mark.parametrize("size", ["--size=xl", "--params=7B"])
def test_what_a_plan_says_can_be_typed(tmp_path, size):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "text.txt").write_text("the cat sat on the mat. " * 500)
    out = works("plan", size, "--tokens=300B", "--gpus=16", "--context=4096", "--batch=4M").out
    line = out.partition("-m regard ")[2].replace("corpus/", f"{tmp_path}/corpus")
    words = [*line.split(), "--set=data.context=4096", "--device=cpu", "--dry-run", "--json"]
    run = json.loads(works(*words).out)[0]["settings"]
    assert run["model"]["context"] == run["data"]["context"] == 4096
    assert run["steps"] * run["accumulate"] * run["tokens"] == pytest.approx(300e9, rel=1e-3)


def test_a_plan_for_several_machines_is_a_slurm_script():
    out = works("plan", "--params=30B", "--gpus=32", "--gpu=h100", "--context=2048", "--batch=2M").out
    assert "#SBATCH --nodes=4" in out and "too large" in out and "--rdzv-id $SLURM_JOB_ID" in out


def test_a_plan_as_json_has_every_layout():
    layouts = json.loads(works("plan", "--params=7B", "--gpus=16", "--json").out)["layouts"]
    assert [way["kind"] for way in layouts] == ["ddp", "ddp", "fsdp", "fsdp", "hsdp", "hsdp"]
    assert sum(way["best"] for way in layouts) == 1


def test_a_plan_draws_speed_against_gpus(tmp_path):
    works("plan", "--size=gpt2", "--gpus=16", f"--out={tmp_path / 'plan.svg'}")
    drawn = (tmp_path / "plan.svg").read_text()
    assert "0.12 B parameters, planned" in drawn or drawn.count("<path") > 20  # letters may be drawn as paths


def test_a_plan_with_measured_rates(monkeypatch):
    slow = replace(DEVICES["h200"], sustained=1e12, memory_rate=1e11)
    monkeypatch.setattr(ceilings, "measure", lambda: slow)
    args = ("plan", "--size=gpt2", "--gpus=1", "--batch=64K")
    assert "measured here: 1.00 TFLOP/s" in works(*args, "--measure").out
    speeds = [
        json.loads(works(*args, *more, "--json").out)["layouts"][0]["tokens_per_second"] for more in ([], ["--measure"])
    ]
    assert 300 < speeds[0] / speeds[1] < 1000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpus=8"], "plan what?"),
        (["--params=7B", "--gpus=12"], "not whole machines of 8"),
        (["--params=seven"], "expected a number"),
        (["--size=huge"], "'huge'"),
        (["--params=7B", "--gpu=abacus"], "'abacus'"),
        (["--params=7B", "--network=fast"], "gigabits"),
        (["--params=7B", "--out=plan.txt"], "must end in .png"),
    ],
)
def test_bad_plans_are_one_line(words, message):
    result = regard("plan", *words)
    assert result.code == 2 and message in result.err and len(result.err.splitlines()) == 1


def test_quantities_are_read_as_people_write_them():
    assert (quantity("n", "1.5T"), quantity("n", "512k"), bytes_per_second("400Gb")) == (1.5e12, 512_000, 50e9)
    with pytest.raises(ConfigError):
        quantity("n", "0.2")


def test_a_batch_of_any_size_is_planned_at_once():
    assert (
        "accumulate=281474976710656"
        in works("plan", "--size=xl", "--tokens=30B", "--gpus=8", f"--batch={2**63 - 1}").out
    )
