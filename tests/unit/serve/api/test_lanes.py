"""Models and the requests to them, without a process or HTTP in between."""

import os
import threading

import pytest

from regard.nn.stored import is_stored
from regard.serve.api import lanes, traffic
from regard.serve.api.lanes import LaneSettings, open_lane


@pytest.fixture
def opened(folders):
    """A lane of a model, and what it has sent."""

    def make(name: str, **settings):
        sent: list[dict] = []
        return open_lane(str(folders / name), LaneSettings(**settings), sent.append), sent

    return make


def answers(sent: list[dict]) -> dict[int, dict]:
    """The last message to each request."""
    return {message["id"]: message for message in sent if "id" in message}


def run_until(lane, sent, ids: set[int]) -> dict[int, dict]:
    """Run the lane until each of these requests has its last answer."""
    done = threading.Event()
    plain = lane.send

    def send(message):
        plain(message)
        if ids <= {id for id, m in answers(sent).items() if "error" in m or m["last"]}:
            done.set()

    lane.send = send
    threading.Thread(target=lane.run, daemon=True).start()
    assert done.wait(30), answers(sent)
    return answers(sent)


def ask(id: int, inputs: list, **options) -> dict:
    return {"do": "predict", "id": id, "inputs": inputs, "options": options}


@pytest.mark.parametrize("name", ["gpt", "classifier"])
def test_weights_are_stored_as_the_settings_say(opened, name):
    assert not is_stored(opened(name)[0].predictor.model)
    assert is_stored(opened(name, weights="fp16")[0].predictor.model)


def test_requests_that_come_together_are_answered_together(opened):
    lane, sent = opened("classifier")
    texts = ["The cat", "Server, can I have the check?", "a film worth seeing", "Looks like"]
    for id, text in enumerate(texts):
        lane.inbox.put(ask(id, [text, "twice"]))
    replies = run_until(lane, sent, {0, 1, 2, 3})
    for id, text in enumerate(texts):
        expected = [lane.task.to_json(answer) for answer in lane.predictor.predict([text, "twice"])]
        for got, one in zip(replies[id]["outputs"], expected, strict=True):
            assert got["probabilities"] == pytest.approx(one["probabilities"], abs=1e-6)
    sizes = [size for message in sent for size in message.get("stats", {}).get("batches", [])] + lane.batches
    assert sizes == [8], "one batch of all eight inputs"


def test_only_the_culprit_is_told(opened):
    lane, sent = opened("masked")
    for id, text in enumerate(["The [MASK] drank", "nothing is missing here", "a [MASK]"]):
        lane.inbox.put(ask(id, [text]))
    lane.inbox.put(ask(3, ["a [MASK]"], top=2))
    lane.inbox.put(ask(4, ["a [MASK]"], top=0))
    replies = run_until(lane, sent, {0, 1, 2, 3, 4})
    assert [len(replies[id]["outputs"][0][0]) for id in (0, 2, 3)] == [5, 5, 2]
    assert "no [MASK] in the text" in replies[1]["error"]["message"]
    assert "top is 0; must be between 1 and 1000" in replies[4]["error"]["message"]


def test_cancelled_requests_are_not_answered(opened, monkeypatch):
    monkeypatch.setattr(lanes, "DEADLINE", 0.2)
    lane, sent = opened("classifier")
    for message in (ask(0, ["x"]), ask(1, ["y"]), {"do": "cancel", "id": 1}, ask(2, ["z"])):
        lane.inbox.put(message)
    assert set(run_until(lane, sent, {0, 2})) == {0, 2}


def writing(id: int, prompt: str, **sampling) -> dict:
    settings = {"max_tokens": 20, "temperature": 0.8, "seed": 1, **sampling}
    return {"do": "completions", "id": id, "prompts": [prompt], "sampling": settings, "stream": True}


def test_a_text_does_not_depend_on_its_company(opened):
    lane, sent = opened("gpt", slots=3)
    prompts = ["The cat", "Server, can I have", "L", "it was sweet.", "The cat"]
    for id, prompt in enumerate(prompts):
        lane.inbox.put(writing(id, prompt, n=1 + id % 2))
    run_until(lane, sent, set(range(5)))
    for id, prompt in enumerate(prompts):
        (group,) = lane.predictor.generate([prompt], max_tokens=20, temperature=0.8, seed=1, n=1 + id % 2)
        for index, one in enumerate(group):
            mine = [m for m in sent if m.get("id") == id and m["index"] == index]
            assert "".join(m["text"] for m in mine) == one.text and mine[-1]["finish"] == one.finish


OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2 GiB",
    "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.",
)


@pytest.mark.parametrize("message", OUT_OF_MEMORY)
def test_out_of_memory_costs_the_requests_that_need_it(opened, monkeypatch, message):
    """A batch that does not fit is answered one request at a time; what does not fit alone gets a 503, even where the
    disk that the log is on is full."""
    lane, sent = opened("classifier")
    plain, full = lane.predictor.predict, os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(traffic, "STDERR", full)

    def predict(inputs, **options):
        if "too long" in inputs:
            raise RuntimeError(message)
        return plain(inputs, **options)

    monkeypatch.setattr(lane.predictor, "predict", predict)
    for id, text in enumerate(["The cat", "too long", "Server"]):
        lane.inbox.put(ask(id, [text]))
    replies = run_until(lane, sent, {0, 1, 2})
    assert (replies[1]["error"]["status"], replies[1]["error"]["code"]) == (503, "out_of_memory")
    assert all("label" in replies[id]["outputs"][0] for id in (0, 2))
    os.close(full)


def test_a_failing_batch_costs_its_requests_and_not_the_lane(opened, monkeypatch):
    lane, sent = opened("gpt")
    step, failed = lane.scheduler.step, []

    def fail_once():
        if not failed:
            failed.append(True)
            raise RuntimeError(OUT_OF_MEMORY[0])
        return step()

    monkeypatch.setattr(lane.scheduler, "step", fail_once)
    lane.inbox.put(writing(0, "The cat"))
    replies = run_until(lane, sent, {0})
    assert (replies[0]["error"]["status"], replies[0]["error"]["code"]) == (503, "out_of_memory")
    lane.inbox.put(writing(1, "The cat"))
    for _ in range(300):
        if answers(sent).get(1, {}).get("last"):
            break
        threading.Event().wait(0.02)
    assert answers(sent)[1]["completion_tokens"] == 20 and not lane.scheduler.active
