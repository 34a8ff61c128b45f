"""Names that are not UTF-8, users that do not exist, seeds out of range: an error in words on streams that survive."""

import os
import subprocess
import sys

import pytest
from tests.system.cli_toy import regard

from regard.data.folders import user_path

LATIN = os.fsdecode(b"caf\xe9")


def typed(*words: str, cwd, **more) -> subprocess.CompletedProcess:
    """The command line as a shell starts it, with its own streams."""
    env = {**os.environ, **more}
    return subprocess.run([sys.executable, "-m", "regard", *words], cwd=cwd, env=env, capture_output=True)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_missing_folder_whose_name_is_not_utf8_is_named_in_the_error(tmp_path, locale):
    said = typed("info", LATIN, cwd=tmp_path, LC_ALL=locale)
    assert said.returncode == 2
    assert said.stderr.decode().startswith("regard: no run or model folder 'caf\\udce9'")


def test_a_file_whose_name_is_not_utf8_is_read_and_printed_as_it_is(tmp_path):
    (tmp_path / LATIN).write_text("")
    said = typed("train", "lm", "--data", LATIN, "--steps", "1", "--json", cwd=tmp_path)
    assert said.returncode == 2 and said.stderr.decode().endswith("caf\\udce9: empty; wanted text\n")
    (tmp_path / f"{LATIN}.csv").write_text("date,close\n2024-01-01,1\n")
    said = typed("train", "forecast", "--data", f"{LATIN}.csv", "--dry-run", "--json", "--steps=1", cwd=tmp_path)
    assert said.returncode == 0 and b"caf\xe9.csv" in said.stdout


@pytest.mark.parametrize("words", [["generate", "x", LATIN], ["fill", "x", LATIN], ["classify", "x", LATIN]])
def test_words_that_are_not_utf8_are_refused(words):
    said = regard(*words)
    assert said.code == 2 and "is not UTF-8" in said.err


def test_a_home_of_no_user_is_a_name_like_any_other(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/x") == tmp_path / "x"
    assert str(user_path("~nobody-of-that-name/x")) == "~nobody-of-that-name/x"
    said = regard("train", "lm", "--data=~nobody-of-that-name/x", "--steps=1")
    assert said.code == 2 and "no such file" in said.err


@pytest.mark.parametrize("seed", ["-1", str(2**32), str(10**30)])
def test_a_seed_out_of_range_is_refused(seed, tmp_path):
    (tmp_path / "my.txt").write_text("the cat sat\n" * 50)
    data = [f"--data={tmp_path}/my.txt", "--dry-run"]
    for words in (["train", "lm", *data], ["generate", "x", "y"], ["translate", "x", "y", "--sample"], ["gradients"]):
        said = regard(*words, f"--seed={seed}")
        assert said.code == 2 and "--seed" in said.err
    said = regard("train", "lm", *data, "--steps=1", f"--set=seed={seed}")
    assert said.code == 2 and "seed is" in said.err


def test_the_last_seed_of_several_is_in_range_too(tmp_path):
    (tmp_path / "my.txt").write_text("the cat sat\n" * 50)
    said = regard("train", "lm", f"--data={tmp_path}/my.txt", "--steps=1", f"--seed={2**32 - 1}", "--seeds=2",
                  f"--name={tmp_path}/run")  # fmt: skip
    assert said.code == 2 and "seed is" in said.err and not (tmp_path / "run").exists()
