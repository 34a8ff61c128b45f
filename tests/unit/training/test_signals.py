"""The first signal is a flag, the second ends the process; torchrun's echo of the first is not a second one."""

import os
import signal

import pytest

from regard.training import signals
from regard.training.signals import Interrupts


def test_a_second_signal_ends_the_process_at_once():
    with Interrupts() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal == signal.SIGTERM
        with pytest.raises(SystemExit) as end:
            os.kill(os.getpid(), signal.SIGTERM)
    assert end.value.code == 143


def test_the_echo_of_torchrun_is_not_a_second_signal(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    with Interrupts() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.exit().code == 130
        monkeypatch.setattr(signals, "ECHO", 0.0)
        with pytest.raises(SystemExit):
            os.kill(os.getpid(), signal.SIGINT)
