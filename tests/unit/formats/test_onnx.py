"""ONNX files out: what happens before a graph is traced, which takes seconds; tests/slow/test_onnx.py does."""

import sys

import pytest

from regard.errors import MissingExtra
from regard.formats import FORMATS


def test_the_packages_may_be_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingExtra, match=r"pip install 'regard\[export\]'"):
        FORMATS["onnx"].write(tmp_path, tmp_path / "out", "")
    assert not (tmp_path / "out").exists()
