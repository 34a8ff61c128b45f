"""Build the studio's page in a source tree, where it is not kept."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def make_page() -> None:
    """Build the page if its source is there and has changed; an installed package contains it."""
    if (ROOT / "studio" / "package.json").is_file() and shutil.which("make"):
        done = subprocess.run(["make", "-s", "page"], cwd=ROOT, capture_output=True, text=True)
        print(done.stdout + done.stderr, end="", file=sys.stderr)
