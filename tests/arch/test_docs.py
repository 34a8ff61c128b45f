"""The files that the documents for contributors name exist, and links between documents lead somewhere."""

import re
from pathlib import Path

import pytest

NAMED = re.compile(r"`([\w-]+(?:/[\w.-]+)*(?:/|\.py|\.toml))`")  # a folder that ends in a slash, a module or a table
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")  # to a file, not to a page on the web
OF_A_RUN = {"runs/", "tensorboard/", "shards/"}  # folders that appear when the product is used


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_that_are_named_exist(root, name):
    paths = set(NAMED.findall((root / name).read_text("utf-8"))) - OF_A_RUN
    assert len(paths) > 10, "the pattern finds no paths any more"
    homes = (root, root / "src/regard", root / "tests")
    missing = sorted(path for path in paths if not any((home / path).exists() for home in homes))
    assert not missing, missing


def test_links_between_documents_lead_somewhere(root):
    files: list[Path] = [*root.glob("*.md"), *root.glob("docs/*.md")]
    links = [(file, link) for file in files for link in LINK.findall(file.read_text("utf-8"))]
    assert len(links) > 10
    broken = [f"{file.name}: {link}" for file, link in links if not (file.parent / link).exists()]
    assert not broken, broken
