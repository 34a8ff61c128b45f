"""What the repository may hold: short modules, small files, and nothing that belongs to one machine or one index."""

import re
import subprocess
from pathlib import Path

import pytest

LONGEST = 500  # lines of a module; more than that hides a seam
LARGEST = 400_000  # bytes of a file; data and the weights of others are never committed

# A letter in brackets here, an underscore in the examples below: so this file does not find itself.
PATHS = re.compile(r"(^|[^A-Za-z0-9_./-])/(wor[k]|far[m]|roo[t]|op[t]/wheels|op[t]/pypi)(/|\b)")
HOSTS = re.compile(r"(pyp[i]|pythonhos[t]ed|npm[j]s|de[b]\.debian)\.[a-z]{2,4}", re.IGNORECASE)
WORDS = re.compile(r"\b(sub[a]gent|th[i]s session|m[y] session|th[e] CEO|work[p]lace)\b", re.IGNORECASE)
BESIDE = re.compile(r"\.\./share[d]")


@pytest.fixture(scope="module")
def files(root) -> list[Path]:
    """All that git tracks or would track."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listing, cwd=root, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout, so nothing is tracked")
    actual = [root / name for name in done.stdout.split("\0") if name]
    return [f for f in actual if f.is_file()]


@pytest.fixture(scope="module")
def lines(files, root) -> list[tuple[str, str]]:
    """(file:number, text) of every line of every text file."""
    texts = []
    for file in files:
        data = file.read_bytes()
        if b"\0" not in data[:8000]:
            name = file.relative_to(root).as_posix()
            texts += [(f"{name}:{n}", x) for n, x in enumerate(data.decode("utf-8", "replace").splitlines(), 1)]
    assert any(where.startswith("pyproject.toml:") for where, _ in texts)
    return texts


@pytest.mark.parametrize(
    ("pattern", "examples"),
    [
        (PATHS, ["see /ro_ot/x", "cd /wo_rk", "--find-links=/op_t/wheels/a"]),
        (HOSTS, ["https://py_pi.org/simple", "registry.np_mjs.org"]),
        (WORDS, ["in this ses_sion we", "The sub_agent"]),
        (BESIDE, ["open('../sha_red/data')"]),
    ],
    ids=["paths of one machine", "package-index hosts", "words of a chat", "a folder beside the checkout"],
)
def test_nothing_private_is_written_down(lines, pattern, examples):
    assert all(pattern.search(e.replace("_", "")) for e in examples), "the pattern itself is broken"
    actual = [f"{where}: {text.strip()[:100]}" for where, text in lines if pattern.search(text)]
    assert not actual, "\n".join(actual)


def test_modules_are_short(files, root):
    long = {}
    for file in files:
        if file.suffix == ".py" and (n := len(file.read_text("utf-8").splitlines())) > LONGEST:
            long[file.relative_to(root).as_posix()] = n
    assert not long, f"over {LONGEST} lines; where is the seam? {long}"


def test_files_are_small(files, root):
    large = {f.relative_to(root).as_posix(): f.stat().st_size for f in files if f.stat().st_size > LARGEST}
    assert not large, large


def test_the_lock_names_versions_only(root):
    pins = (root / "constraints.txt").read_text("utf-8").splitlines()
    odd = [p for p in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", p)]
    assert not odd, f"not of the form name==version: {odd}"
    assert any(p.startswith("torch==2.") for p in pins)
