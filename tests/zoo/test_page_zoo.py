"""The same for the page of the studio: a bug in its pure functions turns its own tests red."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

STUDIO = Path(__file__).resolve().parents[2] / "studio"
BUGS = [  # name, file below studio/src/lib, the text that occurs once there, what is planted for it
    ("data starts in the header", "safetensors.ts", "this.start = 8 + length", "this.start = length"),
    ("bytes not scaled back", "safetensors.ts", "(this.scales[name] ?? 1) / 255", "1 / 255"),
    ("small halves are lost", "safetensors.ts", "sign * 2 ** -24 * fraction", "0"),
    ("temperature upside down", "sampling.ts", "(logits[id] - top) / temperature", "(logits[id] - top) * temperature"),
    ("top-p of what top-k cut", "sampling.ts", "const enough = topP * total", "const enough = topP"),
    ("top-p keeps none", "sampling.ts", "kept = Math.max(1, n)", "kept = n - 1"),
    ("masked cells are painted", "colour.ts", "if (Number.isNaN(data[i])) continue", ""),
    ("ink of the paper's colour", "colour.ts", "> 0.179 ? '#000000'", "< 0.179 ? '#000000'"),
    ("a layer that is 0 is not kept", "url.ts", "if (place[key] !== START[key])", "if (place[key])"),
    ("quotes break the sheet", "format.ts", """.replaceAll('"', '""')""", ""),
    ("text is a formula to a spreadsheet", "format.ts", "`'${x}` : String(x)", "x : String(x)"),
    ("a beam goes on from what has ended", "beam.ts", "c.kept && !c.ends", "c.kept"),
    ("text ends its script", "save.ts", ".replaceAll('<', '\\\\u003c')", ""),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new"), [b[1:] for b in BUGS], ids=[b[0] for b in BUGS])
def test_a_bug_of_the_page_is_noticed(tmp_path, file, old, new):
    if not (STUDIO / "node_modules" / "vitest").is_dir():
        pytest.skip("the tools of the page are not installed: make page, which needs Node")
    copy = tmp_path / "studio"
    shutil.copytree(STUDIO, copy, ignore=shutil.ignore_patterns("node_modules"))
    (copy / "node_modules").symlink_to(STUDIO / "node_modules")
    path = copy / "src" / "lib" / file
    text = path.read_text("utf-8")
    assert text.count(old) == 1, f"{file} has changed: {old!r} occurs {text.count(old)} times; plant this bug anew"
    path.write_text(text.replace(old, new), "utf-8")
    env = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(["npx", "vitest", "run"], cwd=copy, env=env, capture_output=True, text=True, timeout=300)
    assert re.search(r"Tests +\d+ failed", done.stdout), done.stdout[-2000:] + done.stderr[-500:]
