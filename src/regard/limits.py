"""How much memory an operation may take, and the error for what needs more.

Sizes read from a file are not trusted. Check them before allocating:

    limits.require(rows * columns * 4, f"{path}: {rows:,} x {columns:,} numbers", hint="forecast fewer columns")
    text = limits.read_limited(stream, limits.budget(), str(path))
"""

import os
import re
import sys
from pathlib import Path
from typing import BinaryIO

from regard.errors import ConfigError, LimitError

VARIABLE = "REGARD_MEMORY"
FRACTION = 0.5  # of the free memory; the rest is for copies, activations and libraries
UNKNOWN = 4 << 30  # if the system does not report what is free
CHUNK = 1 << 20  # bytes per read: nothing larger is allocated before its data has arrived
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")
# folder below CGROUP, limit, usage, and the field of memory.stat that the kernel can reclaim
CGROUPS = {
    "": ("", "memory.max", "memory.current", "inactive_file"),  # version 2
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),  # version 1
}


def budget() -> int:
    """Bytes one operation may take: $REGARD_MEMORY (such as 8G), or half of what is free."""
    setting = os.environ.get(VARIABLE, "").strip()
    return parse_size(setting) if setting else int(FRACTION * free())


def require(size: float, what: str, hint: str = "") -> None:
    """Raise `LimitError` unless `size` bytes fit the budget. `hint` is what to type other than the variable."""
    if not size <= (allowed := budget()):
        remedy = raise_hint(allowed, hint, size)
        raise LimitError(f"{what} would need {show_size(size)} of memory, and the limit is {remedy}")


def read_limited(stream: BinaryIO, limit: int, what: str, hint: str = "") -> bytes:
    """All of `stream`, which may be a decompressor; `LimitError` as soon as it exceeds `limit` bytes."""
    chunks, size = [], 0
    while chunk := stream.read(min(CHUNK, limit + 1 - size)):
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise LimitError(f"{what} holds more than {raise_hint(limit, hint)}")
    return b"".join(chunks)


def exhausted_memory(e: BaseException) -> str:
    """Whose memory ran out: "machine", "GPU", or "" if `e` is another error."""
    torch = sys.modules.get("torch")  # if it is not imported, it did not raise `e`
    if isinstance(e, MemoryError):
        return "machine"
    if torch is not None and isinstance(e, torch.OutOfMemoryError):
        return "GPU"
    # torch's CPU allocator, and CUDA outside torch's allocator, raise RuntimeErrors that differ only in their text
    signs = {"DefaultCPUAllocator: can't allocate memory": "machine", "CUDA error: out of memory": "GPU"}
    return next((whose for sign, whose in signs.items() if isinstance(e, RuntimeError) and sign in str(e)), "")


def raise_hint(limit: float, hint: str = "", enough: float = 0) -> str:
    """The end of an error: the limit, then how to stay within it or raise it to `enough` (else to twice as much)."""
    raised = show_size(enough or 2 * limit, "")
    return f"{show_size(limit)}; {hint + ', or ' if hint else ''}raise it with {VARIABLE}={raised}"


def parse_size(text: str) -> int:
    """`8G`, `500 MB`, `1.5GiB` or a number of bytes."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ConfigError(f"{VARIABLE} is {text!r}; expected a size such as 8G or 500M")
    return int(float(match[1]) * UNITS[match[2].upper()])


def show_size(size: float, suffix: str = "B") -> str:
    """1536 as `1.5 KB`; with an empty suffix as `2K`, rounded up, which `parse_size` reads."""
    unit = next((u for u in ("", "K", "M", "G") if size < 1000 * UNITS[u]), "T")
    amount = size / UNITS[unit]
    if not suffix:
        return f"{-(-amount // 1):.0f}{unit}"
    return f"{amount:,.0f} {unit}{suffix}" if not unit or amount >= 100 else f"{amount:.1f} {unit}{suffix}"


def free() -> int:
    """Bytes this process can still take: the least left by the machine, its control groups and its own limit."""
    left = [value for value in (machine_free(), *cgroups_free(), process_free()) if value is not None]
    return max(0, min(left, default=UNKNOWN))


def machine_free() -> int | None:
    try:
        return 1024 * int(fields(PROC / "meminfo")["MemAvailable:"])
    except (OSError, KeyError, ValueError):
        pass
    try:  # macOS reports the total, not what is free
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):
        return None


def cgroups_free() -> list[int]:
    """Bytes left in each control group with a limit, from the process's own up to the root."""
    try:
        memberships = [line.split(":", 2) for line in (PROC / "self/cgroup").read_text().splitlines()]
    except OSError:
        return []
    left = []
    for _, controllers, path in (m for m in memberships if len(m) == 3):
        for controller in set(controllers.split(",")) & set(CGROUPS):
            below, limit, usage, spare = CGROUPS[controller]
            group = Path(path.lstrip("/"))
            for folder in (CGROUP / below / g for g in (group, *group.parents)):
                left += cgroup_free(folder, limit, usage, spare)
    return left


def cgroup_free(folder: Path, limit: str, usage: str, spare: str) -> list[int]:
    try:
        allowed, used = int((folder / limit).read_text()), int((folder / usage).read_text())
        return [allowed - used + int(fields(folder / "memory.stat").get(spare, 0))]
    except (OSError, ValueError):  # a group invisible from inside its container; "max"
        return []


def process_free() -> int | None:
    """Bytes left under `ulimit -v`."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft == resource.RLIM_INFINITY:
            return None
        return soft - int((PROC / "self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return None


def fields(path: Path) -> dict[str, str]:
    """The first two words of each line."""
    return {words[0]: words[1] for line in path.read_text().splitlines() if len(words := line.split()) > 1}
