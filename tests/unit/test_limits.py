"""The memory budget: what is free, as the machine, its control groups and the process's own limit leave it."""

import gzip
import io

import pytest
import torch

from regard import limits
from regard.errors import ConfigError, LimitError

GB = 1 << 30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of files; `write` puts a text at a path below its root."""
    monkeypatch.delenv("REGARD_MEMORY", raising=False)
    monkeypatch.setattr(limits, "PROC", tmp_path / "proc")
    monkeypatch.setattr(limits, "CGROUP", tmp_path / "cgroup")

    def write(path: str, text: object) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")

    write("proc/meminfo", f"MemTotal: 99999999 kB\nMemAvailable:   {24 * GB // 1024} kB")
    return write


def test_free_memory_is_what_the_machine_has_available(machine):
    assert limits.free() == 24 * GB
    assert GB < limits.budget() < 24 * GB  # something is left for others


def test_free_memory_respects_every_group_above_ours(machine):
    machine("proc/self/cgroup", "0::/user/job")
    machine("cgroup/user/job/memory.max", "max")
    machine("cgroup/user/memory.max", 6 * GB)
    machine("cgroup/user/memory.current", 5 * GB)
    machine("cgroup/user/memory.stat", f"anon 1\ninactive_file {2 * GB}\nactive_file 7")
    assert limits.free() == 3 * GB  # the page cache is given back when asked


def test_free_memory_respects_cgroup_v1_inside_a_container(machine):
    machine("proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/docker/not-visible-from-inside\n0::/")
    machine("cgroup/memory/memory.limit_in_bytes", 2 * GB)
    machine("cgroup/memory/memory.usage_in_bytes", 2 * GB)
    machine("cgroup/memory/memory.stat", f"inactive_file 1\ntotal_inactive_file {GB // 2}")
    assert limits.free() == GB // 2


def test_a_system_that_reports_nothing_still_has_a_budget(machine, monkeypatch):
    machine("proc/meminfo", "nothing of that kind")
    monkeypatch.delattr("os.sysconf")
    assert limits.free() == limits.UNKNOWN


@pytest.mark.parametrize(
    ("text", "size"), [("8G", 8 * GB), ("1.5gib", 3 * GB // 2), ("500 MB", 500 << 20), ("123", 123), ("2k", 2048)]
)
def test_the_variable_sets_the_budget(monkeypatch, text, size):
    monkeypatch.setenv("REGARD_MEMORY", text)
    assert limits.budget() == size


@pytest.mark.parametrize("text", ["lots", "-1G", "8X", "1e9", "G", "9" * 400])
def test_a_budget_that_is_not_a_size_is_refused(monkeypatch, text):
    monkeypatch.setenv("REGARD_MEMORY", text)
    with pytest.raises(ConfigError, match=r"such as 8G"):
        limits.budget()


def test_a_refusal_names_what_needs_how_much_and_the_setting(monkeypatch):
    monkeypatch.setenv("REGARD_MEMORY", "1G")
    limits.require(GB, "exactly as much as there is")
    with pytest.raises(LimitError) as refused:
        limits.require(23 * GB, "model.gguf: 9 positions", hint="cut it")
    text = "model.gguf: 9 positions would need 23.0 GB of memory, and the limit is 1.0 GB; cut it, or raise it with "
    assert str(refused.value) == text + "REGARD_MEMORY=23G"
    with pytest.raises(LimitError):
        limits.require(float("nan"), "what is no number")


def test_reading_stops_at_the_limit():
    packed = gzip.compress(bytes(50_000_000))
    with gzip.open(io.BytesIO(packed)) as stream, pytest.raises(LimitError, match=r"bomb holds more than 3\.0 MB"):
        limits.read_limited(stream, 3 << 20, "bomb")
    with gzip.open(io.BytesIO(packed)) as stream:
        assert limits.read_limited(stream, 50_000_000, "all of it") == bytes(50_000_000)


@pytest.mark.parametrize("size", [1, 999, 1000, 1536, 999 << 20, 5 * GB, 10 << 40, 2 << 60])
def test_a_size_shown_for_typing_is_read_back_as_at_least_that(size):
    assert size <= limits.parse_size(limits.show_size(size, "")) <= max(2 * size, size + 1)


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (MemoryError(), "machine"),
        (torch.OutOfMemoryError("of any text"), "GPU"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."), "machine"),
        (RuntimeError("CUDA error: out of memory"), "GPU"),
        (RuntimeError("shapes differ"), ""),
        (ValueError("DefaultCPUAllocator: can't allocate memory"), ""),
    ],
)
def test_exhausted_memory_names_whose_it_is(error, whose):
    assert limits.exhausted_memory(error) == whose
