"""The command line against a server, compared with the same command without one."""

import json

import pytest
from tests.unit.serve.api.conftest import KEY
from typer.testing import CliRunner

import regard
from regard.cli.main import app
from regard.errors import ConfigError, DataError
from regard.serve.api.client import RemoteModel


@pytest.fixture
def command(address, monkeypatch):
    monkeypatch.setenv("REGARD_API_KEY", KEY)

    def run(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--server", address])
        if result.exception:
            raise result.exception
        return result.stdout

    return run


def test_chat_is_the_same_over_http(command, folders):
    words = ("hi", "--max-tokens", "12", "--temperature", "0.8", "--seed", "3")
    here = CliRunner().invoke(app, ["chat", str(folders / "gpt"), *words, "--device", "cpu"])
    assert here.exit_code == 0 and command("chat", "gpt", *words) == here.stdout


def test_predict_answers_every_line_of_a_file(command, folders, tmp_path):
    (tmp_path / "in.txt").write_text("The cat\n\nServer, can I have the check?\n")
    outputs = [json.loads(line) for line in command("predict", "classifier", str(tmp_path / "in.txt")).splitlines()]
    expected = regard.load(folders / "classifier").classify(["The cat", "Server, can I have the check?"])
    assert outputs[1] is None and [outputs[i]["label"] for i in (0, 2)] == [one.label for one in expected]
    (tmp_path / "pairs.csv").write_text("a,b\nThe cat,it was\nThe,cat\n")
    words = ("--text", "a", "--second", "b", "--out", str(tmp_path / "out.jsonl"))
    command("predict", "pair", str(tmp_path / "pairs.csv"), *words)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    expected = regard.load(folders / "pair").predict([("The cat", "it was"), ("The", "cat")])
    assert [line["label"] for line in lines] == [one.label for one in expected]


def test_what_the_server_refuses_is_said(command, address, monkeypatch):
    with pytest.raises(DataError, match="the server refused the request: no model 'gtp'; did you mean 'gpt'"):
        command("chat", "gtp", "hi")
    with pytest.raises(DataError, match="the prompt has"):
        command("chat", "gpt", "hi " * 60)
    monkeypatch.setenv("REGARD_API_KEY", "wrong")
    with pytest.raises(DataError, match=r"valid API key.*set REGARD_API_KEY"):
        RemoteModel(address, "gpt")
    with pytest.raises(DataError, match="does not answer"):
        RemoteModel("http://127.0.0.1:9", "gpt")
    with pytest.raises(ConfigError, match="expected an address, such as http"):
        RemoteModel("127.0.0.1:8000", "gpt")
