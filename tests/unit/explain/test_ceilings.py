"""Measured rates are those of the work that was timed."""

import time

from regard.explain import ceilings
from regard.explain.fleet import BANDWIDTH


def test_rates_are_work_over_the_shortest_time(monkeypatch):
    monkeypatch.setattr(ceilings, "SECONDS", 0.05)
    monkeypatch.setattr(ceilings, "best", lambda work, cuda: 0.5)
    device = ceilings.measure()
    assert device.sustained == ceilings.TRAINING * 2 * 1024**3 / 0.5
    assert device.memory_rate * BANDWIDTH == 2 * (1 << 26) / 0.5  # read and written
    assert device.peak == 2 * 1024**3 / 0.5 and device.memory > 1e9


def test_the_fastest_of_many_counts(monkeypatch):
    monkeypatch.setattr(ceilings, "SECONDS", 0.06)
    waits = iter([0.02, 0.02, 0.004, *[0.02] * 100])
    assert 0.004 <= ceilings.best(lambda: time.sleep(next(waits)), cuda=False) < 0.02
