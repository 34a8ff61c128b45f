"""Names that are not UTF-8, users that do not exist, seeds out of range: an error in words on streams that survive."""

import io
import os
import sys

import pytest
from tests.system.cli_toy import regard

from regard.cli.main import main
from regard.data.folders import user_path

LATIN = os.fsdecode(b"caf\xe9")


@pytest.fixture
def typed(monkeypatch, tmp_path):
    """The command line with streams as a shell gives them, in a locale that knows ASCII alone."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, bytes, bytes]:
        streams = [io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True) for _ in range(2)]
        for name, stream in zip(("stdout", "stderr"), streams, strict=True):
            monkeypatch.setattr(sys, name, stream)
        try:
            main(words)
        except SystemExit as stop:
            return int(stop.code or 0), *(stream.buffer.getvalue() for stream in streams)
        raise AssertionError("a command line ends with an exit code")

    return run


def test_error_names_a_missing_folder_that_is_not_utf8(typed):
    code, _, err = typed("info", LATIN)
    assert code == 2 and err.startswith(b"regard: no run or model folder 'caf\\udce9'")


def test_run_names_are_utf8_for_data_whose_name_is_not(typed, tmp_path):
    (tmp_path / f"{LATIN}.csv").write_text("hours,passed\n" + "".join(f"{i},{'yn'[i % 2]}\n" for i in range(30)))
    code, out, err = typed("train", "table", f"--data={LATIN}.csv", "--steps=1", "--device=cpu")
    assert code == 0, err
    assert "caf\\udce9.csv" in (tmp_path / "runs" / "caf_-mlp" / "README.md").read_text("utf-8")
    code, out, err = typed("info", "runs/caf_-mlp", "--json")
    assert code == 0 and b"caf\xe9.csv" in out
    code, _, err = typed("train", "table", f"--data={LATIN}.csv", "--steps=1", f"--name={LATIN}")
    assert code == 2 and b"--name is not UTF-8: caf\\udce9" in err


@pytest.mark.parametrize("words", [["generate", "x", LATIN], ["fill", "x", LATIN], ["classify", "x", LATIN]])
def test_words_that_are_not_utf8_are_refused(words):
    result = regard(*words)
    assert result.code == 2 and "is not UTF-8" in result.err


def test_a_home_of_no_user_is_a_name_like_any_other(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/x") == tmp_path / "x"
    assert str(user_path("~nobody-of-that-name/x")) == "~nobody-of-that-name/x"
    result = regard("train", "lm", "--data=~nobody-of-that-name/x", "--steps=1")
    assert result.code == 2 and "no such file" in result.err


@pytest.mark.parametrize("seed", ["-1", str(2**32), str(10**30)])
def test_a_seed_out_of_range_is_refused(seed, tmp_path):
    (tmp_path / "my.txt").write_text("the cat sat\n" * 50)
    data = [f"--data={tmp_path}/my.txt", "--dry-run"]
    for words in (["train", "lm", *data], ["generate", "x", "y"], ["translate", "x", "y", "--sample"], ["gradients"]):
        result = regard(*words, f"--seed={seed}")
        assert result.code == 2 and "--seed" in result.err
    result = regard("train", "lm", *data, "--steps=1", f"--set=seed={seed}")
    assert result.code == 2 and "seed is" in result.err


def test_the_last_seed_of_several_is_in_range_too(tmp_path):
    (tmp_path / "my.txt").write_text("the cat sat\n" * 50)
    result = regard("train", "lm", f"--data={tmp_path}/my.txt", "--steps=1", f"--seed={2**32 - 1}", "--seeds=2",
                  f"--name={tmp_path}/run")  # fmt: skip
    assert result.code == 2 and "seed is" in result.err and not (tmp_path / "run").exists()
