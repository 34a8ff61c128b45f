"""The server's side of a process that runs models, with one that only pretends to."""

import asyncio

import httpx2
import pytest

from regard.serve.api import engine as engine_module
from regard.serve.api.app import make_server_app
from regard.serve.api.engine import EngineClient, ServedModel
from regard.serve.api.errors import APIError
from regard.serve.api.guard import Access
from regard.serve.api.lanes import LaneSettings
from regard.serve.api.limits import RequestLimits


def served(work):
    """What `work` returns, given an engine whose models are loaded."""

    async def run():
        engine = EngineClient([ServedModel("m", ""), ServedModel("b", "broken")], LaneSettings())
        starts = []
        engine.on_start = lambda: starts.append(1)
        running = asyncio.create_task(engine.run())
        while not engine.ready:
            await asyncio.sleep(0.01)
        result = await work(engine)
        await engine.close()
        await running
        return result, len(starts)

    return asyncio.run(run())


async def texts(engine, prompt: str) -> list[str]:
    model = engine.find("m", "completions")
    return [report["text"] async for report in engine.ask(model, "completions", prompts=[prompt])]


def test_a_dead_engine_is_started_again(fake_engine):
    """Who waits is told; those who come later are served."""

    async def work(engine):
        waiting = [asyncio.create_task(texts(engine, "hang")) for _ in range(3)]
        await asyncio.sleep(0.05)
        results = await asyncio.gather(texts(engine, "die"), *waiting, return_exceptions=True)
        while engine.models["m"].about is None:
            await asyncio.sleep(0.01)
        return results, await texts(engine, "hello"), engine.waiting

    (results, after, waiting), starts = served(work)
    assert all(isinstance(e, APIError) and (e.status, e.code) == (503, "engine_restarted") for e in results)
    assert after == ["hello"] and waiting == {} and starts == 2


def test_an_open_stream_ends_with_the_error_and_without_done(fake_engine):
    async def work(engine):
        app = make_server_app(engine, Access(), RequestLimits(), quiet=True)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            body = {"model": "m", "prompt": "begin and die", "stream": True}
            return (await client.post("/v1/completions", json=body)).text

    text, _ = served(work)
    events = [event for event in text.split("\n\n") if event]
    assert '"begun"' in events[0] and '"engine_restarted"' in events[-1] and "[DONE]" not in text


def test_the_engine_hears_of_clients_that_leave(fake_engine):
    async def work(engine):
        asking = asyncio.create_task(texts(engine, "hang"))
        await asyncio.sleep(0.1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return await texts(engine, "who left?")

    assert served(work)[0] == ["[1]"]


def test_a_model_that_fails_to_load_leaves_the_others(fake_engine):
    async def work(engine):
        with pytest.raises(APIError, match="'b' could not be loaded: no such folder") as caught:
            engine.find("b", "completions")
        with pytest.raises(APIError, match="use /v1/completions, /v1/predict/m"):
            engine.find("m", "embeddings")
        return caught.value.status, await texts(engine, "hello")

    assert served(work)[0] == (503, ["hello"])


def test_a_followed_run_is_loaded_again_when_it_is_better(fake_engine, monkeypatch, tmp_path):
    monkeypatch.setattr(engine_module, "LOOK_EVERY", 0.01)

    async def run():
        model = ServedModel("m", str(tmp_path), follow=True)
        engine, states, loads = EngineClient([model], LaneSettings()), [], []
        plain = engine.send_load
        monkeypatch.setattr(engine, "send_load", lambda *words: loads.append(words) or plain(*words))
        running = asyncio.create_task(engine.run())
        for text in ("", "first", "second", ""):
            if text:
                (tmp_path / "model.safetensors").write_text(text)
            await asyncio.sleep(0.2)
            states.append((model.state, len(loads)))
        await engine.close()
        await running
        return states

    waiting = ("waiting for the first model of its run", 0)
    assert asyncio.run(run()) == [waiting, ("ready", 1), ("ready", 2), ("ready", 2)]


def test_models_are_loaded_replaced_and_unloaded(fake_engine):
    async def work(engine):
        app = make_server_app(engine, Access(manage=True), RequestLimits(), quiet=True)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            new = await client.post("/v1/models", json={"name": "new", "path": "smollm2-135m"})
            assert new.status_code == 200 and new.json()["id"] == "new", new.text
            missing = await client.post("/v1/models", json={"name": "x", "path": "runs/nothing"})
            assert (missing.status_code, missing.json()["error"]["param"]) == (400, "path")
            body = {"model": "new", "prompt": "hello"}
            assert (await client.post("/v1/completions", json=body)).status_code == 200
            assert (await client.delete("/v1/models/new")).json()["deleted"]
            assert (await client.post("/v1/completions", json=body)).status_code == 404
            assert (await client.delete("/v1/models/new")).status_code == 404
        return [*engine.models]

    assert served(work)[0] == ["m", "b"]


def test_models_are_not_managed_unless_allowed(fake_engine):
    async def work(engine):
        transport = httpx2.ASGITransport(make_server_app(engine, Access(), RequestLimits(), quiet=True))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [
                (await client.post("/v1/models", json={})).status_code,
                (await client.delete("/v1/models/m")).status_code,
            ]

    assert served(work)[0] == [405, 405]
