"""Rows that join and leave a running batch, against each request alone."""

import random

import pytest
import torch

from regard.errors import ConfigError, PromptTooLong
from regard.generate import scheduler as module
from regard.generate.engine import Completion, Engine, Sampling
from regard.generate.scheduler import FairQueue, Scheduler

REQUESTS = [
    ([3, 1, 4], Sampling(temperature=0, max_tokens=12)),
    ([1], Sampling(temperature=0.9, top_k=5, top_p=0.95, min_p=0.02, seed=4, max_tokens=12)),
    (
        [5, 2, 2, 0, 4, 1, 3],
        Sampling(temperature=0.7, repetition_penalty=1.3, no_repeat_ngram=2, seed=1, max_tokens=9, logprobs=3),
    ),
    ([3, 1, 4], Sampling(temperature=1.0, seed=9, max_tokens=1)),
    ([2, 4] * 5, Sampling(temperature=0, max_tokens=7, logprobs=1)),
    ([2, 4] * 5, Sampling(temperature=0, max_tokens=9, no_repeat_ngram=3)),
    ([6, 6], Sampling(temperature=1.3, top_p=0.8, max_tokens=11, seed=2)),
    ([8, 7, 1, 2, 3, 4, 5, 6, 9], Sampling(temperature=0, repetition_penalty=2.0, max_tokens=10, stop_ids=(3,))),
]


def served(scheduler: Scheduler, requests, rng: random.Random | None = None) -> list[Completion]:
    """All requests, which arrive together or at random moments."""
    waiting, keys, completions = list(requests), [], {}
    while waiting or scheduler.active:
        while waiting and (rng is None or rng.random() < 0.4):
            prompt, settings = waiting.pop(0)
            keys.append(scheduler.add(prompt, settings))
            completions[keys[-1]] = Completion()
        for event in scheduler.step():
            assert not completions[event.row].finish, "nothing comes after the end"
            completions[event.row].add(event)
    return [completions[key] for key in keys]


@pytest.fixture
def alone(real_lm) -> list[Completion]:
    """What the engine writes for each of `REQUESTS` when nothing else is there."""
    return [Engine(real_lm, ends=[0]).generate([prompt], settings)[0][0] for prompt, settings in REQUESTS]


def assert_same(completions, expected):
    for got, one in zip(completions, expected, strict=True):
        assert (got.ids, got.finish) == (one.ids, one.finish)
        assert got.logprobs == pytest.approx(one.logprobs, abs=1e-5)
        assert [[id for id, _ in place] for place in got.top] == [[id for id, _ in place] for place in one.top]


@pytest.mark.parametrize("slots", [1, 3, 16])
def test_each_request_gets_what_it_gets_alone(real_lm, alone, slots):
    assert_same(served(Scheduler(real_lm, [0], slots=slots), REQUESTS), alone)


def test_each_request_gets_the_same_in_single_precision(real_lm, alone):
    real_lm.float()
    single = [Engine(real_lm, ends=[0]).generate([prompt], settings)[0][0] for prompt, settings in REQUESTS]
    assert_same(served(Scheduler(real_lm, [0], slots=3), REQUESTS), single)


@pytest.mark.parametrize(("budget", "together"), [(1, 1), (5, 2), (128, 3)])
def test_arrivals_and_departures_at_any_step_change_nothing(real_lm, alone, budget, together):
    """Prompts are read a few ids at a time while others decode; rows move as others leave."""
    scheduler = Scheduler(real_lm, [0], slots=4)
    scheduler.budget, scheduler.together = budget, together
    assert_same(served(scheduler, REQUESTS * 2, random.Random(budget)), alone * 2)


@pytest.fixture
def replayed(real_lm, one_place, monkeypatch):
    """Makes schedulers that work as on a GPU: idle rows take part in every step, several ids come at a look, which is
    one step late, and settings live on the device."""
    if not real_lm.config.context:
        pytest.skip("recurrent models are not captured")
    monkeypatch.setattr(module, "Replay", one_place)

    def make(steps):
        scheduler = Scheduler(real_lm, [0], slots=4)
        scheduler.static, scheduler.steps, scheduler.together, scheduler.budget = True, steps, 3, 5
        with torch.inference_mode():
            scheduler.slots = module.Slots(real_lm, 4, scheduler.capacity, steps, 20)
            scheduler.slots.state.reserve(scheduler.capacity)
            scheduler.slots.state.fixed = True
        return scheduler

    return make


@pytest.mark.parametrize("steps", [1, 3, 8, 20])
def test_replayed_steps_over_all_rows_give_the_same(alone, replayed, steps):
    assert_same(served(replayed(steps), REQUESTS, random.Random(steps)), alone)


def test_rows_known_to_end_make_room_before_they_are_read(replayed):
    """A request ends by its length while its last ids are on their way: the next one has its row at once."""
    scheduler = replayed(4)
    scheduler.together, scheduler.budget = 4, 100
    keys = [scheduler.add([k, 2], Sampling(temperature=0, max_tokens=3 + 9 * (k > 4))) for k in range(1, 6)]
    assert scheduler.step() == []  # four rows, whose ids nobody has seen
    events = scheduler.step()
    assert {event.row for event in events} <= set(keys[:4]) and len(events) == 4
    assert [row.request.row for row in scheduler.rows] == keys[4:]


def test_what_begins_alike_is_shared_with_rows_on_their_way(real_lm, replayed, monkeypatch):
    monkeypatch.setattr(module, "SHARED", 2)
    requests = [([7, 3, 9, 1, 4, n], Sampling(temperature=0.8, seed=n, max_tokens=1 + 3 * n)) for n in range(1, 6)] * 2
    alone = [Engine(real_lm, ends=[0]).generate([prompt], settings)[0][0] for prompt, settings in requests]
    assert_same(served(replayed(3), requests, random.Random(1)), alone)


def test_a_request_cancelled_on_its_way_gets_nothing(replayed):
    scheduler = replayed(8)
    key = scheduler.add([3, 1], Sampling(temperature=0, max_tokens=3))
    assert scheduler.step() == [] and scheduler.active
    scheduler.cancel(key)
    assert scheduler.step() == [] and not scheduler.active


def test_prompts_that_begin_alike_are_read_once(real_lm, monkeypatch):
    """What another row has read is taken from there: from rows at work, and from those that have left."""
    if not real_lm.config.context:
        pytest.skip("the state of a recurrent model cannot be shared")
    monkeypatch.setattr(module, "SHARED", 2)
    system, read = [7, 3, 9, 1, 4, 4, 2, 8], []
    endings = [[5], [5, 6], [1, 2, 3], [5], [], [6]]
    requests = [(system + e, Sampling(temperature=0.8, seed=n, max_tokens=6)) for n, e in enumerate(endings)]
    requests += [([1, 2, 3], requests[0][1]), ([*system[:4], 10], requests[0][1])]
    alone = [Engine(real_lm, ends=[0]).generate([prompt], settings)[0][0] for prompt, settings in requests]
    plain = real_lm.read
    monkeypatch.setattr(
        real_lm, "read", lambda ids, state, lengths=None: read.append(ids) or plain(ids, state, lengths)
    )
    for slots, together in ((2, 1), (16, 1), (4, 3)):
        scheduler = Scheduler(real_lm, [0], slots=slots)
        scheduler.together = together
        read.clear()
        assert_same(served(scheduler, requests, random.Random(slots)), alone)
        if together == 1:
            prompts = sum(ids.size(1) for ids in read if ids.size(0) == 1)
            whole = sum(len(prompt) for prompt, _ in requests)
            assert prompts < whole, "and steps of a lone row are counted too"


def test_nothing_is_left_after_a_reset(real_lm):
    scheduler = Scheduler(real_lm, [0], slots=3)
    for prompt, settings in REQUESTS:
        scheduler.add(prompt, settings)
    scheduler.step()
    scheduler.reset()
    assert not scheduler.active
    expected = Engine(real_lm, ends=[0]).generate([REQUESTS[0][0]], REQUESTS[0][1])[0][0]
    assert_same(served(scheduler, REQUESTS[:1]), [expected])


def test_cancelled_requests_leave_at_the_next_step(real_lm):
    scheduler = Scheduler(real_lm, slots=2)
    keys = [scheduler.add([1, 2, k], Sampling(temperature=0, max_tokens=15)) for k in range(4)]
    scheduler.step()
    scheduler.step()
    scheduler.cancel(keys[0])  # it decodes
    scheduler.cancel(keys[3])  # it waits
    rows = {event.row for _ in range(40) for event in (scheduler.step() if scheduler.active else [])}
    assert rows == {keys[1], keys[2]}
    assert not scheduler.active and scheduler.rows == []


def test_what_does_not_fit_is_refused_with_both_numbers(real_lm):
    if not real_lm.config.context:
        pytest.skip("recurrent models read any length")
    scheduler = Scheduler(real_lm, slots=2)
    with pytest.raises(PromptTooLong, match=r"30 tokens, this model reads at most 23"):
        scheduler.add([1] * 30, Sampling(max_tokens=1))
    with pytest.raises(PromptTooLong, match=r"20 tokens and max_tokens is 10, together 30; this model has room for 24"):
        scheduler.add([1] * 20, Sampling(max_tokens=10))
    assert scheduler.fit(20) == 4 and scheduler.fit(20, 3) == 3
    with pytest.raises(ConfigError, match="has 0 to 10"):
        scheduler.add([11], Sampling(max_tokens=1))
    assert not scheduler.active


def test_a_full_context_is_used_to_its_last_place(real_lm):
    request = [([1] * 20, Sampling(temperature=0, max_tokens=4))]
    model = real_lm
    assert_same(served(Scheduler(model, slots=2), request), [Engine(model).generate([[1] * 20], request[0][1])[0][0]])


def test_owners_take_turns_in_the_queue():
    queue = FairQueue()
    for owner, name in ((1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (2, "b2")):
        queue.push(owner, name)
    assert [queue.pop() for _ in range(len(queue))] == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_prompts_come_first_until_half_of_the_rows_decode(real_lm):
    scheduler = Scheduler(real_lm, slots=4)
    scheduler.budget, scheduler.burst = 2, 8
    for first in range(4):
        scheduler.add(range(first, first + 8), Sampling(max_tokens=12, temperature=0.0))
    decoding = []
    while scheduler.decoding < 4:
        scheduler.step()
        decoding.append(scheduler.decoding)
    assert decoding == [1, 2, 2, 2, 2, 3, 3, 3, 3, 4]
