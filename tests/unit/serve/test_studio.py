"""Who waits for what, what is told without asking, and how the server starts."""

import asyncio
import json
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from regard.cli.main import main
from regard.errors import ConfigError, LimitError, WorkFailed
from regard.serve import run
from regard.serve.news import events_of
from regard.serve.shelf import Shelf
from regard.serve.studio import Studio, Superseded, shelf
from regard.ticks import Console


async def never() -> bool:
    return False


def patient(ticket, started: threading.Event):
    """Work that goes on until somebody stops it; for ten seconds, if nobody does."""

    def job():
        started.set()
        for _ in range(1000):
            time.sleep(0.01)
            ticket.check()

    return job


def test_newer_question_of_a_tab_stops_its_older_one(studio):
    async def scene():
        first, started = studio.ticket("a", 1), threading.Event()
        other = studio.ticket("b", 1)
        waiting = asyncio.create_task(studio.work(first, patient(first, started), never))
        await asyncio.to_thread(started.wait)
        second = studio.ticket("a", 2)
        with pytest.raises(Superseded):
            await waiting
        assert await studio.work(second, lambda: "answer", never) == "answer"
        assert await studio.work(other, lambda: "of the other tab", never) == "of the other tab"
        late = studio.ticket("a", 1)
        with pytest.raises(Superseded):
            await studio.work(late, lambda: "never run", never)

    asyncio.run(scene())


def test_work_that_waits_its_turn_is_dropped_before_it_begins(studio):
    async def scene():
        first, started, ran = studio.ticket("a", 1), threading.Event(), []
        busy = asyncio.create_task(studio.work(first, patient(first, started), never))
        await asyncio.to_thread(started.wait)
        queued = studio.ticket("b", 1)
        task = asyncio.create_task(studio.work(queued, lambda: ran.append(1), never))
        await asyncio.sleep(0)
        studio.ticket("b", 2)
        studio.ticket("a", 2)
        for waiting in (busy, task):
            with pytest.raises(Superseded):
                await waiting
        assert not ran

    asyncio.run(scene())


def test_a_closed_tab_stops_its_work(studio):
    async def scene():
        ticket, started = studio.ticket("a", 1), threading.Event()

        async def closed() -> bool:
            return started.is_set()

        with pytest.raises(Superseded):
            await studio.work(ticket, patient(ticket, started), closed)

    asyncio.run(scene())


def test_a_job_that_is_stuck_is_given_up_and_the_others_go_on(studio, monkeypatch):
    monkeypatch.setattr("regard.serve.worker.PATIENCE", 0.5)
    started, stuck = threading.Event(), threading.Event()

    def hang() -> bool:
        started.set()
        return stuck.wait(60)  # as a library that never comes back

    async def tabs():
        bad = asyncio.create_task(studio.work(studio.ticket("a", 1), hang, never))
        await asyncio.to_thread(started.wait)
        others = [asyncio.create_task(studio.work(studio.ticket(tab, 1), lambda tab=tab: tab, never)) for tab in "bcd"]
        with pytest.raises(LimitError, match="abandoned"):
            await bad
        assert await asyncio.gather(*others) == ["b", "c", "d"], "they waited for the worker that was abandoned"
        assert await studio.work(studio.ticket("a", 2), lambda: "again", never) == "again"

    began = time.monotonic()
    asyncio.run(tabs())
    assert time.monotonic() - began < 20
    stuck.set()


def test_signs_of_life_keep_a_long_job_going(studio, monkeypatch):
    monkeypatch.setattr("regard.serve.worker.PATIENCE", 0.5)
    ticket = studio.ticket("a", 1)

    def long() -> str:
        for _ in range(15):
            time.sleep(0.1)
            ticket.check()
        return "done"

    assert asyncio.run(studio.work(ticket, long, never)) == "done"


def test_a_model_that_is_stuck_does_not_come_back(studio, monkeypatch):
    """Loading it ends at last, when nobody waits any more: the worker that has taken over must not be disturbed."""
    monkeypatch.setattr("regard.serve.worker.PATIENCE", 0.3)
    monkeypatch.setattr("regard.serve.studio.RATE", 1e12)
    ends, ended = threading.Event(), threading.Event()

    def load(folder):
        ends.wait(60)
        ended.set()

    monkeypatch.setattr("regard.tasks.load.load", load)
    with pytest.raises(LimitError):
        asyncio.run(studio.work(studio.ticket("a", 1), lambda: studio.predictor("runs/gpt"), never))
    ends.set()
    ended.wait(60)
    time.sleep(0.1)
    assert not studio.models


def test_a_panic_of_a_library_is_an_error_of_the_job(studio):
    class PanicException(BaseException):
        pass

    def panic() -> None:
        raise PanicException("index out of bounds")

    with pytest.raises(WorkFailed, match="PanicException"):
        asyncio.run(studio.work(studio.ticket("a", 1), panic, never))
    assert asyncio.run(studio.work(studio.ticket("a", 2), lambda: 1, never)) == 1


def test_a_superseded_look_answers_nothing_and_is_no_error(client, ask, studio, monkeypatch):
    def overtaken(*_):
        raise Superseded

    monkeypatch.setattr("regard.inside.look.look", overtaken)
    answer = ask("/api/look", model="runs/gpt", text="a")
    assert answer.status_code == 204 and not answer.content


def test_a_tab_hears_of_its_progress_new_models_and_new_lines(studio, client, runs, monkeypatch):
    monkeypatch.setattr("regard.serve.news.SCAN", 0.0)

    def news() -> dict:
        return client.get("/api/news?tab=a").json()

    first = news()
    assert (first["seq"], first["stage"]) == (0, "")
    studio.ticket("a", 7).stage("reading the text")
    studio.ticket("b", 1).stage("of another tab")
    assert news() == first | {"seq": 7, "stage": "reading the text"}
    (runs / "gpt" / "run.json").write_text('{"task": "lm", "model": {}}')
    (runs / "gpt" / "metrics.jsonl").write_text('{"step": 1}\n')
    second = news()
    assert second["metrics"] != first["metrics"] and second["models"] == first["models"]
    (runs / "lstm" / "model.safetensors").unlink()
    third = news()
    assert third["metrics"] == second["metrics"] and third["models"] != second["models"]


def test_curves_are_read_on_from_where_one_was(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n{"ste')
    actual = events_of(path, 0)
    assert actual == {"events": [{"step": 1}, {"step": 2}], "next": 24, "restart": False}
    with path.open("ab") as file:
        file.write(b'p": 3}\nnonsense\n{"step": 4}\n')
    actual = events_of(path, 24)
    assert actual["events"] == [{"step": 3}, {"step": 4}] and actual["next"] == path.stat().st_size
    path.write_bytes(b'{"step": 1}\n')
    assert events_of(path, 24) == {"events": [{"step": 1}], "next": 12, "restart": True}


def test_runs_are_listed_before_they_have_a_model(client, runs):
    (runs / "new").mkdir()
    (runs / "new" / "run.json").write_text('{"task": "lm", "seed": 3, "steps": 10, "model": {"cell": "gru"}}')
    (runs / "new" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    (actual,) = client.get("/api/runs").json()["runs"]
    assert (actual["id"], actual["arch"], actual["seed"], actual["steps"]) == ("runs/new", "gru", 3, 10)
    assert client.get("/api/metrics?run=runs/new").json()["events"] == [{"step": 1, "loss": 2.0}]
    assert "runs/new" not in [m["id"] for m in client.get("/api/models").json()["models"]]


# -- starting -----------------------------------------------------------------------------------------------------


def test_a_model_by_name_is_a_run_a_folder_or_of_the_cache(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    assert shelf(runs)[1] == ""
    assert shelf(runs, "gpt")[1] == "runs/gpt" == shelf(runs, str(runs / "gpt"))[1]
    known, id = shelf(tmp_path / "elsewhere", str(runs / "gpt"))
    assert id == "model/gpt" and [m["id"] for m in known.models()["models"]] == ["model/gpt"]
    shutil.copytree(runs / "gpt", runs / "many" / "of" / "them")  # deeper than runs are looked for
    for path in (runs / "many" / "of" / "them", runs / "gpt" / ".." / "lstm"):
        known, id = shelf(runs, str(path))
        assert known.folder(id).samefile(path)
    with pytest.raises(Exception, match="no run or model folder"):
        shelf(runs, "nothing-of-the-kind")


def test_a_port_that_is_taken_is_said(monkeypatch):
    taken = run.bind_local(0)
    port = taken.getsockname()[1]
    with pytest.raises(ConfigError, match="choose another"):
        run.bind_local(port)
    other = run.bind_local(0)
    assert other.getsockname()[1] != port and run.address(other).startswith("http://127.0.0.1:")
    taken.close()
    other.close()


def test_beside_training_it_answers_from_a_thread(runs, tmp_path):
    made = Studio(Shelf({"runs": runs}, {}))
    with run.serve_in_thread(made) as address:
        models = json.loads(urllib.request.urlopen(f"{address}api/models", timeout=60).read())["models"]
        assert len(models) == 6
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address}api/models", timeout=60)
    assert not made.worker.thread.is_alive() or made.closing.is_set()


def test_the_server_is_ready_before_torch_is_imported(tmp_path):
    code = """
import sys
from pathlib import Path
from regard.serve.run import studio_server
from regard.serve.studio import Studio, shelf
studio_server(Studio(shelf(Path("runs"))[0]))
print([name for name in ("torch", "numpy", "tokenizers") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_a_missing_extra_is_named(missing, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SystemExit) as stop:
        main(["studio"])
    assert stop.value.code == 3
    assert "pip install 'regard[serve]'" in capsys.readouterr().err


def test_studio_starts_prints_its_address_and_ends_on_ctrl_c(runs):
    words = [sys.executable, "-m", "regard", "studio", "--runs", str(runs), "--model", "gpt"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().strip().removeprefix("studio: ")
        assert address.startswith("http://127.0.0.1:") and address.endswith("/#model=runs/gpt")
        base = address.split("#")[0]
        assert "models" in json.loads(urllib.request.urlopen(f"{base}api/news?tab=x", timeout=60).read())
        process.send_signal(2)
        assert process.wait(30) in (0, 130)
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()


def test_training_prints_where_its_own_curves_are(runs, capsys):
    from regard.cli import studio as verbs

    with verbs.live(runs / "some run", Console()):
        line = capsys.readouterr().err.splitlines()[-1]
        assert line.startswith("studio: http://127.0.0.1:") and line.endswith("/#view=training&runs=runs/some%20run")
        address = line.split()[1].split("#")[0]
        assert urllib.request.urlopen(f"{address}api/runs", timeout=60).status == 200
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address}api/runs", timeout=60)
