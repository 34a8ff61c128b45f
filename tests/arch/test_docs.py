"""The files that the documents for contributors name exist. (Links and commands: system/test_readme.py.)"""

import re

import pytest

NAMED = re.compile(r"`([\w-]+(?:/[\w.-]+)*(?:/|\.py|\.toml))`")  # a folder that ends in a slash, a module or a table


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_that_are_named_exist(root, name):
    paths = set(NAMED.findall((root / name).read_text("utf-8"))) - {"runs/"}
    assert len(paths) > 10, "the pattern finds no paths any more"
    homes = (root, root / "src/regard", root / "tests")
    missing = sorted(path for path in paths if not any((home / path).exists() for home in homes))
    assert not missing, missing
