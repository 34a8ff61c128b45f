"""500 model folders and GGUF files that are damaged or hostile: every verb that opens a model ends in time, in little
memory, and in words."""

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tests.mutants import FIXTURES, mutate
from tests.unit.inside import tiny
from tests.unit.models.tiny_gguf import tiny_llama, write_gguf

import regard
from regard.cli.main import main
from regard.errors import RegardError
from regard.serve.shelf import Shelf
from regard.tasks import load as _load  # noqa: F401 - imported before the forks, which then share it

COUNT = 500
SECONDS, MEMORY = 5, 500 << 20  # of the processor's time, and above what the model itself takes
TEXT = "The cat drank the milk because it was hungry."


def sources(folder: Path) -> list[Path]:
    """A folder of every task, some published layouts, and GGUF files."""
    folders = [path for path in sorted(FIXTURES.iterdir()) if path.is_dir()]
    folders += [tiny.write(folder / name, name) for name in ("llama", "encoder", "gru", "gpt-sines")]
    files = [write_gguf(folder / f"{pre}.gguf", tiny_llama(), pre=pre) for pre in ("gpt-2", "llama-bpe")]
    return folders + files * 3


def opened(target: Path) -> list[str]:
    """What is wrong with how each verb ends, and with how the library and the studio open it."""
    wrong = []
    for words in (["info", str(target)], ["info", str(target), "--json"], ["tokens", str(target), TEXT]):
        out, err = StringIO(), StringIO()
        try:
            with redirect_stdout(out), redirect_stderr(err):
                main(words)
            code: Any = 0
        except SystemExit as e:
            code = e.code
        except BaseException:
            wrong.append(f"{words[0]}: {traceback.format_exc()}")
            continue
        if code not in (None, 0, 2, 3) or "Traceback" in err.getvalue() or "should not happen" in err.getvalue():
            wrong.append(f"{words[0]} ended with {code}: {err.getvalue()[-600:]}")
    try:
        regard.load(target)
    except RegardError:
        pass
    except BaseException:
        wrong.append(f"load: {traceback.format_exc()}")
    try:
        Shelf({"runs": target.parent}, {}).models()
    except BaseException:
        wrong.append(f"studio: {traceback.format_exc()}")
    return wrong


def in_a_child(target: Path) -> tuple[list[str], float, int]:
    """`opened` in a fork of this process: what is wrong, seconds of the processor, bytes of memory at most."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            signal.alarm(120)
            os.close(read)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            wrong = opened(target)
            own, helpers = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
            spent = own.ru_utime + own.ru_stime + helpers.ru_utime + helpers.ru_stime
            memory = 1024 * max(own.ru_maxrss, helpers.ru_maxrss)
            os.write(write, json.dumps([wrong, spent, memory]).encode()[:60_000])
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if not answer:
        return [f"ended with signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "no answer"], 0.0, 0
    return json.loads(answer)


@pytest.mark.timeout(7200)
def test_damaged_and_hostile_models_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    origins = sources(tmp_path)
    usual = {origin: in_a_child(origin) for origin in dict.fromkeys(origins)}
    assert not [wrong for wrong, _, _ in usual.values() if wrong], [(str(o), u) for o, u in usual.items() if u[0]]
    failures, most, longest = [], 0, 0.0
    for seed in range(COUNT):
        origin = origins[seed % len(origins)]
        place = Path(tempfile.mkdtemp(dir=tmp_path))
        target = place / ("mutant" + origin.suffix)
        said = mutate(origin, target, seed)
        began = time.monotonic()
        wrong, seconds, memory = in_a_child(target)
        above = memory - usual[origin][2]
        wrong += [f"{seconds:.1f} s"] * (seconds > SECONDS) + [f"{above >> 20} MB more"] * (above > MEMORY)
        failures += [f"seed {seed}, {origin.name}, {said}: {one}" for one in wrong]
        most, longest = max(most, above), max(longest, seconds)
        print(
            seed,
            origin.name,
            said[:100],
            f"{seconds:.1f} s, {time.monotonic() - began:.1f} s, {above >> 20} MB",
            file=sys.stderr,
        )
        shutil.rmtree(place, ignore_errors=True)
    print(f"at most {longest:.1f} s and {most >> 20} MB above the model's own", file=sys.stderr)
    assert not failures, "\n".join(failures)
