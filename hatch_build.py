"""What is built from a source tree carries the studio's page: `make page`, where npm is."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = "src/regard/serve/page/figure.html"


class Page(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable install makes its page when the studio starts; a wheel from an sdist has the sdist's."""
        there = self.target_name == "wheel" and Path(self.root, PAGE).is_file()
        if version != "editable" and not there and shutil.which("npm") and shutil.which("make"):
            subprocess.run(["make", "-s", "page"], cwd=self.root, check=True)
