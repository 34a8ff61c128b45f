"""A small world for command lines: a home with somebody's files, data, trained models, and a record of all of it.

After each command line the world is compared with how it was: what changed, and may not, is a finding. Then it is put
back, so that every command line meets the same world and can be tried again alone.
"""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz import files
from tests.fuzz.models import MODELS
from tests.unit.models.tiny_gguf import tiny_llama, write_gguf

ROOT = Path(__file__).parents[2]
OUTPUTS = ("--out", "--picture", "--plot", "--attention")  # each names one file that may be written
FOLDERS = ("--name", "--resume")  # each names a folder that may be written into
LEAVES = ("scores.jsonl",)  # what `evaluate` adds to the run it scores


@dataclass(frozen=True)
class Case:
    """A command line, what is typed into it, and files of its own, by their names in the working folder."""

    args: tuple[str, ...]
    typed: bytes = b""
    files: dict[str, bytes] = field(default_factory=dict)
    interrupt: float | None = None  # seconds until Ctrl-C, for what may take as long as it was asked to

    def __str__(self) -> str:
        made = f" with {', '.join(self.files)}" if self.files else ""
        return f"{list(self.args)}{f' < {self.typed[:40]!r}' if self.typed else ''}{made}"


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    code: int
    out: str
    err: str
    seconds: float
    late: bool


class World:
    """`with World(folder) as world: world.run(case)`"""

    def __init__(self, folder: Path):
        self.root, self.kept = folder / "world", folder / "kept"
        self.home, self.work = self.root / "home", self.root / "work"
        self.pipes = folder / "pipes"
        for path in (self.pipes, self.root / "cache", self.root / "tmp", self.work, folder / "none"):
            path.mkdir(parents=True)
        files.write_home(self.home)
        files.write_files(self.work / "data")
        own = {"HOME": self.home, "REGARD_CACHE": self.root / "cache", "TMPDIR": self.root / "tmp",
               "MPLCONFIGDIR": folder / "fonts", "PATH": folder / "none", "XDG_CACHE_HOME": self.home / ".cache",
               "XDG_CONFIG_HOME": self.home / ".config", "XDG_DATA_HOME": self.home / ".local/share",
               "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), *sys.path]), "CUDA_VISIBLE_DEVICES": "",
               "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
               "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1",
               "LC_ALL": "C.UTF-8", "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
               "PIP_CONFIG_FILE": os.devnull}  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.server", str(self.pipes)], cwd=self.work, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={k: str(v) for k, v in own.items()},
        )  # fmt: skip
        files.write_whisper(self.work / "runs" / "whisper")  # meanwhile
        write_gguf(self.work / "data" / "llama.gguf", tiny_llama())
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"

    def __enter__(self) -> "World":
        for args in MODELS:
            outcome = self._ask(Case(tuple(args)))
            assert outcome.code == 0, f"{args}: {outcome.err}"
        shutil.copytree(self.root, self.kept, symlinks=True)
        self.seen = self._look()
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)

    def run(self, case: Case) -> tuple[Outcome, list[str]]:
        """What came of it, and which files changed that should not have."""
        for name, data in case.files.items():
            (self.work / name).parent.mkdir(parents=True, exist_ok=True)
            (self.work / name).write_bytes(data)
        before = self.seen | (self._look() if case.files else {})
        outcome = self._ask(case)
        now = self._look()
        changed = sorted(p for p in before.keys() | now.keys() if before.get(p) != now.get(p))
        wrong = [p for p in changed if not self._allowed(p, case, before)]
        self._put_back(changed + [p for p in before if p not in self.seen])
        return outcome, wrong

    def _ask(self, case: Case) -> Outcome:
        assert self.process.stdin is not None and self.process.stdout is not None
        asked = {"args": case.args, "typed": case.typed.decode("latin-1"), "interrupt": case.interrupt}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return Outcome(**json.loads(self.process.stdout.readline()))

    def _look(self, folder: Path | None = None) -> dict[str, tuple]:
        """Every file of the world by its path: its kind, size and time of change; of the home also a hash."""
        files_now: dict[str, tuple] = {}
        for place, folders, names in os.walk(folder or self.root):
            for name in (*folders, *names):
                path = f"{place}/{name}"
                status = os.lstat(path)
                if stat.S_ISDIR(status.st_mode):
                    files_now[path] = (status.st_mode,)
                    continue
                files_now[path] = (status.st_mode, status.st_size, status.st_ctime_ns)
                if path.startswith(str(self.home)) and stat.S_ISREG(status.st_mode):
                    with open(path, "rb") as file:
                        files_now[path] += (hashlib.file_digest(file, "sha256").digest(),)
        return files_now

    def _allowed(self, path: str, case: Case, before: dict[str, tuple]) -> bool:
        """Whether a command line may change this: the cache, new runs, and what it names as its output."""
        if path.startswith(str(self.root / "cache")):
            return True
        for arg, after in zip(case.args, (*case.args[1:], ""), strict=True):
            option, equals, value = arg.partition("=") if arg.startswith("--") else ("", "", "")
            value = value if equals else after
            place = str(self.work / value)
            if option in OUTPUTS and os.path.realpath(place) == os.path.realpath(path):
                return True
            folder = value.endswith("/") or "export" in case.args[:3]
            if option == "--out" and folder and self._inside(path, place, before):
                return True
            run = place if "/" in value else f"{self.work}/runs/{value}"
            if option in FOLDERS and value and self._inside(path, run, before, of_regard=True):
                return True
            if Path(path).name in LEAVES and str(Path(path).parent) == os.path.realpath(self.work / arg):
                return True
            if "export" in case.args[:3]:
                named = [f"{self.work / arg}-{end}" for end in ("hf", "onnx", "f16.gguf", "q8_0.gguf", "f32.gguf")]
                if any(self._inside(path, place, before) for place in named):
                    return True
        return path not in before and self._fresh(path, before)

    def _inside(self, path: str, place: str, before: dict[str, tuple], of_regard: bool = False) -> bool:
        """In a folder that was not there, was empty, or (asked for) holds a run."""
        place = os.path.realpath(place)
        if path != place and not path.startswith(place + "/"):
            return place.startswith(path + "/") and path not in before  # a parent that had to be made
        there = [p for p in before if p.startswith(place + "/")]
        return not there or (of_regard and (f"{place}/run.json" in there or f"{place}/plan.json" in there))

    def _fresh(self, path: str, before: dict[str, tuple]) -> bool:
        """Below a folder of runs/, or beside a model (`export`), that was not there."""
        runs = f"{self.work}/runs/"
        inside = path.removeprefix(runs).split("/")[0]
        return path.startswith(runs) and runs + inside not in before

    def _put_back(self, changed: list[str]) -> None:
        for path in map(Path, sorted(changed, reverse=True)):  # what is inside a folder before the folder
            if not path.is_dir() or path.is_symlink():
                path.unlink(missing_ok=True)
            elif str(path) not in self.seen:
                shutil.rmtree(path)
        for path in map(Path, sorted(changed)):
            kept = self.kept / path.relative_to(self.root)
            if str(path) in self.seen and not os.path.lexists(path):
                if kept.is_dir() and not kept.is_symlink():
                    path.mkdir()
                else:
                    shutil.copy2(kept, path, follow_symlinks=False)
                self.seen |= {str(path): self._look(path.parent)[str(path)]}
