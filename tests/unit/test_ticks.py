"""Long work is told of while it lasts, and short work is not."""

import io
import time

import pytest

from regard.data.folders import to_stderr
from regard.ticks import MOMENT, PATIENT, Console, tick


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def work(*steps: tuple[float, int]) -> None:
        for seconds, done in steps:
            now[0] += seconds
            tick(done)

    return work


def test_a_moment_is_not_worth_a_line(clock, capsys):
    with Console().progress("texts", 100):
        clock((MOMENT / 2, 60), (MOMENT / 4, 40))
    assert capsys.readouterr().err == ""


def test_a_log_gets_a_line_now_and_then(clock, capsys):
    with Console().progress("texts", 1000):
        clock((4.0, 80), (1.0, 20), (PATIENT, 100), (0.1, 1))
    assert capsys.readouterr().err.splitlines() == [
        "texts · 80 of 1,000 · 20/s · 0:46 left",
        "texts · 200 of 1,000 · 13/s · 1:00 left",
    ]
    tick(5)  # nobody listens any more
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_one_line_that_goes_away(clock, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Console().progress("passages"):
        clock((4.0, 8), (1.0, 2))
    assert capsys.readouterr().err == "passages · 8 · 2.0/s\r\x1b[Kpassages · 10 · 2.0/s\r\x1b[K"


def test_a_notebook_gets_one_line_without_escape_codes(clock, monkeypatch):
    """Jupyter's stream is not a terminal, and of the codes of terminals its output knows the carriage return."""
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr("sys.stderr", stream)
    with Console().progress("passages"):
        clock((4.0, 8), (1.0, 2))
    wiped = [f"\r{' ' * len(line)}\r" for line in ("passages · 8 · 2.0/s", "passages · 10 · 2.0/s")]
    assert stream.getvalue() == f"passages · 8 · 2.0/s{wiped[0]}passages · 10 · 2.0/s{wiped[1]}"


def test_quiet_is_quiet(clock, capsys):
    with Console(quiet=True).progress("texts", 10):
        clock((60.0, 5))
    assert capsys.readouterr().err == ""


def test_a_remark_does_not_stick_to_the_line(clock, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Console().progress("texts"):
        clock((4.0, 8))
        Console().say("one is empty")
        to_stderr("another too")
    assert capsys.readouterr().err == "\r\x1b[K".join(["texts · 8 · 2.0/s", "one is empty\nanother too\n"])
