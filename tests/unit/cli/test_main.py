"""The command line before its first line of work."""

import runpy
import sys

import pytest

from regard.cli import main
from regard.cli.common import older_spellings


def test_older_spellings_are_read_up_to_the_text():
    typed = ["generate", "--int8", "runs/x", "--int8=1", "--", "--int8"]
    assert older_spellings(typed) == ["generate", "--weights=int8", "runs/x", "--int8=1", "--", "--int8"]


class CtrlC:
    """An importer that is interrupted while the command line loads."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "regard.cli.main":
            raise KeyboardInterrupt


def test_ctrl_c_while_modules_load_exits_130(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "regard.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [CtrlC, *sys.meta_path])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("regard", run_name="__main__")
    assert stop.value.code == 130


def test_ctrl_c_while_options_are_read_exits_130(monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "app", interrupted)
    with pytest.raises(SystemExit) as stop:
        main.main(["info", "x"])
    assert stop.value.code == 130
