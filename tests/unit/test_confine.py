"""A child process under limits: its answers come back, and its end is an error here."""

import os
import subprocess
import sys

import pytest

from regard.confine import Confined
from regard.errors import CheckpointError, LimitError


def test_arguments_and_results_travel():
    same = Confined("builtins:dict")
    try:
        assert same(text="é\ud800\n", numbers=[1, 2.5, None]) == {"text": "é\ud800\n", "numbers": [1, 2.5, None]}
        first = same.child
        assert same(a=1) == {"a": 1} and same.child is first, "one child answers many questions"
    finally:
        same.stop()


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [("os:abort", LimitError, "crashes the process"), ("operator:truediv", CheckpointError, "TypeError")],
)
def test_an_end_of_the_child_is_an_error_of_the_parent(function, error, words):
    child = Confined(function)
    for _ in range(2):  # and the next question gets a new one
        with pytest.raises(error, match=words):
            child()
    child.stop()


def test_the_child_ends_with_its_parent():
    code = "from regard.confine import Confined; c = Confined('builtins:dict'); c(a=1); print(c.child.pid)"
    pid = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
