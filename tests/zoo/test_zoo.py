"""A suite that stays green over a wrong program is worth nothing: plant a bug in a copy, and see it go red."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.zoo.bug import Bug
from tests.zoo.bugs import BUGS

ROOT = Path(__file__).resolve().parents[2]
RED, GREEN = 1, 0  # pytest's own numbers; an error while collecting is neither


def environment(copy: Path) -> dict[str, str]:
    """Subprocesses import the copy, since PYTHONPATH comes before what is installed; and know of no other pytest."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return outer | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}


def run_tests(copy: Path, nodes: tuple[str, ...]) -> subprocess.CompletedProcess:
    flags = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={copy / 'tmp'}"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *flags, *(f"tests/{node}" for node in nodes)],
        cwd=ROOT, env=environment(copy), capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src/regard", tmp_path / "regard", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_the_suite_notices(copy: Path, bug: Bug):
    package = copy / "regard"
    bug.path(package).write_text(bug.planted(package), "utf-8")
    done = run_tests(copy, bug.noticed_by)
    assert done.returncode == RED, f"nobody noticed: {bug.name}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_without_a_bug_the_same_tests_are_green(copy: Path):
    """Or a test that always fails would seem to notice everything."""
    done = run_tests(copy, tuple(sorted({node for bug in BUGS for node in bug.noticed_by})))
    assert done.returncode == GREEN, done.stdout[-4000:] + done.stderr[-2000:]


def test_it_is_the_copy_that_is_tested(copy: Path):
    asked = [sys.executable, "-c", "import regard; print(regard.__file__)"]
    done = subprocess.run(asked, cwd=ROOT, env=environment(copy), capture_output=True, text=True, timeout=60)
    assert Path(done.stdout.strip()).is_relative_to(copy), done.stdout + done.stderr
