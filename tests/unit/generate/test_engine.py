"""Batches, caches, limits and luck, against one row at a time with full passes."""

import json
from collections import Counter
from functools import partial
from itertools import pairwise

import pytest
import torch
import transformers

from regard.errors import ConfigError
from regard.generate import rows as module
from regard.generate.engine import Engine, Sampling
from regard.generate.sampling import draw, narrowed, prompt_uniforms
from regard.models import build
from regard.models.gpt import GPTConfig
from regard.models.published import to_published, weights_bytes

PROMPTS = [[3, 1, 4], [1], [5, 2, 2, 0, 4, 1, 3], [3, 1, 4], [2, 4]]
GREEDY = Sampling(temperature=0, max_tokens=12)
WARM = Sampling(temperature=0.9, top_k=5, top_p=0.95, min_p=0.02, seed=4, max_tokens=12)
PENALISED = Sampling(temperature=0.7, repetition_penalty=1.3, no_repeat_ngram=2, seed=1, max_tokens=12, logprobs=3)


@torch.no_grad()
def plainly(model, prompt, s, ends=(), nth=0):
    """Id after id, everything read again for each: ids, finish, log-probabilities and the likeliest."""
    context, made, messages, top = model.config.context, [], [], []
    if context:
        prompt = prompt[-max(context - s.max_tokens, context // 2) :]
    text = list(prompt)
    rng = prompt_uniforms(list(prompt), nth, s.seed, s.max_tokens)
    while len(made) < s.max_tokens:
        if context and len(text) > context:
            text = text[-(context // 2) :]
        own = model.logits(model(torch.tensor([text])))[0, -1]
        logits = own.clone()
        for id in set(text) if s.repetition_penalty != 1 else ():
            logits[id] = logits[id] / s.repetition_penalty if logits[id] > 0 else logits[id] * s.repetition_penalty
        for first, second in pairwise(text) if s.no_repeat_ngram == 2 else ():
            logits[second] = -torch.inf if first == text[-1] else logits[second]
        if s.top_k:
            logits = torch.where(logits < logits.sort().values[-s.top_k], -torch.inf, logits)
        id = int(draw(narrowed(logits, s.temperature, 0, s.top_p, s.min_p), rng[len(made)]))
        if id in (*ends, *s.stop_ids):
            return made, "stop", messages, top
        made.append(id)
        text.append(id)
        messages.append(own.log_softmax(-1)[id].item())
        top.append(own.log_softmax(-1).topk(s.logprobs).indices.tolist() if s.logprobs else [])
    return made, "length", messages, top


def ids_of(found):
    return [[c.ids for c in group] for group in found]


LONG = [[1, 2, 3] * 4, [2], [4, 1] * 5]


@pytest.mark.parametrize("settings", [GREEDY, PENALISED], ids=["greedy", "penalised"])
def test_a_ragged_batch_is_each_row_alone_with_full_passes(lm, settings):
    completions = Engine(lm, ends=[0]).generate(PROMPTS, settings)
    for prompt, (c,) in zip(PROMPTS, completions, strict=True):
        ids, finish, told, top = plainly(lm, prompt, settings, ends=[0])
        assert (c.ids, c.finish, c.cut) == (ids, finish, 0)
        if settings.logprobs:
            assert c.logprobs == pytest.approx(told, abs=1e-5)
            assert [[id for id, _ in place] for place in c.top] == top
            assert all(dict(place).get(id, p) == p for id, p, place in zip(c.ids, c.logprobs, c.top, strict=True))
        else:
            assert c.logprobs == c.top == []


@pytest.mark.parametrize("batch", [1, 2, 3, 64])
def test_company_order_and_batch_change_nothing(lm, batch):
    """The n-th completion of a prompt is the same, whoever else is there."""
    settings = Sampling(temperature=1.2, top_p=0.9, seed=4, max_tokens=9, n=3)
    alone = [Engine(lm, ends=[0]).generate([prompt], settings)[0] for prompt in PROMPTS]
    together = Engine(lm, ends=[0], batch=batch).generate(PROMPTS[::-1], settings)[::-1]
    assert ids_of(together) == [[c.ids for c in group] for group in alone]
    assert together[0] == together[3]  # the same prompt, the same luck
    assert len({tuple(c.ids) for group in alone for c in group}) > 9, "and yet three different ones"
    fewer = Engine(lm, ends=[0]).generate(PROMPTS[:1], Sampling(temperature=1.2, top_p=0.9, seed=4, max_tokens=9))
    assert fewer[0][0] == alone[0][0]
    other = Engine(lm, ends=[0]).generate(PROMPTS, Sampling(temperature=1.2, top_p=0.9, seed=5, max_tokens=9, n=3))
    assert ids_of(other) != ids_of(together)


@pytest.mark.parametrize(
    "how",
    [
        dict(),
        dict(temperature=0.5),
        dict(top_k=3),
        dict(top_p=0.7),
        dict(min_p=0.2),
        dict(temperature=2.0, top_k=4, top_p=0.8),
        dict(temperature=1.5, top_p=0.9, min_p=0.1),
    ],
    ids=str,
)
def test_completions_come_as_often_as_the_probabilities_say(pairs, how):
    """Chi-square of 4,000 completions of two ids, at a fixed seed: below the 99.99th percentile of its distribution."""
    model, n = pairs(spread=1.0), 4000
    completions = Engine(model, batch=n).generate([[2, 3]], Sampling(max_tokens=2, n=n, seed=8, **how))[0]
    counts = Counter(tuple(c.ids) for c in completions)
    settings = {
        "k" if name == "top_k" else {"top_p": "p", "min_p": "least"}.get(name, name): v for name, v in how.items()
    }
    first = chances(model, [2, 3], settings)
    known = {(a, b): p * q for a, p in first.items() for b, q in chances(model, [2, 3, a], settings).items()}
    assert set(counts) <= set(known) and sum(known.values()) == pytest.approx(1)
    # few are expected of the rarest: they are counted together
    rare = [pair for pair, p in known.items() if p * n < 8]
    groups = [[pair] for pair in known if pair not in rare] + ([rare] if rare else [])
    chi = sum(
        (sum(counts[pair] for pair in group) - n * (p := sum(known[pair] for pair in group))) ** 2 / (n * p)
        for group in groups
    )
    free = len(groups) - 1
    assert chi < free * (1 - 2 / (9 * free) + 3.72 * (2 / (9 * free)) ** 0.5) ** 3  # Wilson and Hilferty 1931


def chances(model, text, how):
    """Worked out from the definitions, one word at a time."""
    logits = model(torch.tensor([text]))[0, -1].double() / how.get("temperature", 1.0)
    words = dict(enumerate(logits.softmax(-1).tolist()))
    ranked = sorted(words, key=lambda w: -words[w])[: how.get("k") or None]
    whole = sum(words[w] for w in ranked)
    words = {w: words[w] / whole for w in ranked}
    kept, mass = {}, 0.0
    for w, p in words.items():
        if mass < how.get("p", 1.0):
            kept[w] = p
        mass += p
    kept = {w: p for w, p in kept.items() if p >= how.get("least", 0.0) * max(kept.values())}
    return {w: p / sum(kept.values()) for w, p in kept.items()}


@pytest.mark.parametrize(("penalty", "ngram"), [(1.0, 0), (1.4, 0), (1.0, 2)])
def test_greedy_is_what_transformers_generates(shake, tmp_path, penalty, ngram):
    ours = shake(build(GPTConfig(vocab=83, width=32, layers=2, heads=4, ffn=64, context=40)), 6.0).eval()
    (tmp_path / "config.json").write_text(json.dumps(to_published(ours.config, eos=0)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(ours))
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path).double().eval()
    prompts = [[7, 3, 60], [5] * 9, [82], [1, 2, 3, 4, 5]]
    settings = Sampling(temperature=0, max_tokens=25, repetition_penalty=penalty, no_repeat_ngram=ngram)
    completions = Engine(ours.double()).generate(prompts, settings)
    how = dict(do_sample=False, max_new_tokens=25, repetition_penalty=penalty, eos_token_id=None, pad_token_id=0)
    how |= dict(no_repeat_ngram_size=ngram)
    for prompt, (c,) in zip(prompts, completions, strict=True):
        expected = theirs.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), **how)
        assert c.ids == expected[0, len(prompt) :].tolist()
    assert any(len(set(c.ids)) > 5 for (c,) in completions), "a loop of few words would prove little"


def test_an_end_and_a_stop_id_end_a_row_and_are_not_part_of_it(pairs):
    model = pairs()
    whole = Engine(model).generate([[1, 2]], GREEDY)[0][0].ids
    assert len(set(whole)) > 2
    second = next(id for id in whole if id != whole[0])
    for engine, settings in (
        (Engine(model, ends=[second]), GREEDY),
        (Engine(model), Sampling(temperature=0, max_tokens=12, stop_ids=(second,))),
    ):
        (c,) = engine.generate([[1, 2]], settings)[0]
        assert (c.ids, c.finish) == (whole[: whole.index(second)], "stop")
    (c,) = Engine(model, ends=[whole[0]]).generate([[1, 2]], GREEDY)[0]
    assert (c.ids, c.finish) == ([], "stop")


def test_a_caller_may_have_enough(pairs):
    """The id with which it was enough still counts, and no later one; other rows go on."""
    model, seen = pairs(), []
    whole = ids_of(Engine(model).generate(PROMPTS, GREEDY))

    def enough(row, id):
        seen.append((row, id))
        return row == 2 and sum(r == 2 for r, _ in seen) == 4

    completions = Engine(model).generate(PROMPTS, GREEDY, enough)
    assert ids_of(completions) == [*whole[:2], [whole[2][0][:4]], *whole[3:]]
    assert [group[0].finish for group in completions] == ["length", "length", "stop", "length", "length"]


def test_a_long_prompt_keeps_its_last_part_and_says_so(lm):
    if not lm.config.context:
        assert Engine(lm).generate([[1, 2] * 50], GREEDY)[0][0].cut == 0
        return
    prompt = [1 + i % 5 for i in range(90)]
    for steps, kept in ((12, 12), (5, 19), (30, 12)):
        settings = Sampling(temperature=0, max_tokens=steps)
        long, short = Engine(lm).generate([prompt, prompt[-kept:]], settings)
        assert (long[0].cut, short[0].cut) == (90 - kept, 0) and long[0].ids == short[0].ids


@pytest.mark.parametrize("settings", [GREEDY, WARM], ids=["greedy", "warm"])
def test_a_text_that_outgrows_the_context_goes_on_from_its_last_half(lm, settings):
    """Rows get there at different times, each by itself; a recurrent net never does."""
    settings = Sampling(**{**vars(settings), "max_tokens": 50})
    prompts = [[3, 1, 4], [1, 2] * 5, [2]]
    completions = Engine(lm).generate(prompts, settings)
    for prompt, (c,) in zip(prompts, completions, strict=True):
        assert (c.ids, c.finish) == plainly(lm, prompt, settings)[:2]


def test_long_prompts_are_read_in_parts(lm, monkeypatch):
    whole = Engine(lm).generate(LONG, PENALISED)
    monkeypatch.setattr(module, "READ_AT_ONCE", 0)
    monkeypatch.setattr(module, "READ_LEAST", 5)
    assert ids_of(Engine(lm).generate(LONG, PENALISED)) == ids_of(whole)


def test_events_put_together_are_the_completions(lm):
    settings = Sampling(temperature=1.0, seed=2, n=2, max_tokens=10, logprobs=2)
    engine = Engine(lm, ends=[0], batch=4)
    rows = {}
    for event in engine.stream(PROMPTS, settings):
        got = rows.setdefault(event.row, [[], [], [], ""])
        assert got[3] == "", "nothing comes after the end"
        got[0] += event.ids
        got[1] += event.logprobs
        got[2] += event.top
        got[3] = event.finish
    completions = [c for group in engine.generate(PROMPTS, settings) for c in group]
    assert [rows[r] for r in range(10)] == [[c.ids, c.logprobs, c.top, c.finish] for c in completions]


def test_a_closed_stream_stops_the_work(pairs, monkeypatch):
    model, reads = pairs(), []
    read = model.read
    monkeypatch.setattr(model, "read", lambda *args: reads.append(1) or read(*args))
    events = Engine(model).stream(PROMPTS, GREEDY)
    for _ in range(6):
        next(events)
    done = len(reads)
    assert done == 2, "a prompt read, a step: what is shown is shown at once"
    events.close()
    assert len(reads) == done and list(events) == []


def test_finished_rows_leave(pairs, monkeypatch):
    """Work is done for those that go on."""
    model, sizes = pairs(), []
    read = model.read
    monkeypatch.setattr(model, "read", lambda ids, *rest: sizes.append(len(ids)) or read(ids, *rest))
    Engine(model).generate([[1, i % 6] for i in range(6)], GREEDY, enough=lambda row, id: row < 4)
    assert sizes == [6] + [2] * 11


def test_equal_prompts_are_read_once(pairs, monkeypatch):
    model, sizes = pairs(), []
    read = model.read
    monkeypatch.setattr(model, "read", lambda ids, *rest: sizes.append(len(ids)) or read(ids, *rest))
    Engine(model).generate([[1, 2], [3, 4]], Sampling(n=4, max_tokens=3))
    assert sizes == [2, 8, 8]


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"top_p": 0.0}, "top_p is 0.0"), ({"top_p": 1.5}, "top_p"), ({"temperature": -1}, "temperature is -1"),
     ({"temperature": float("nan")}, "temperature"), ({"temperature": float("inf")}, "temperature"),
     ({"min_p": 2}, "min_p"), ({"repetition_penalty": 0}, "repetition_penalty"), ({"max_tokens": 0}, "max_tokens is 0"),
     ({"n": 0}, "n is 0"), ({"top_k": -1}, "top_k"), ({"stop": ("",)}, "stop"), ({"stop": "end"}, "stop")],
)  # fmt: skip
def test_settings_are_checked(settings, words):
    with pytest.raises(ConfigError, match=words):
        Sampling(**settings)


def test_prompts_are_checked(pairs):
    with pytest.raises(ConfigError, match="prompt 2 has ids from 1 to 6, but this model has 0 to 5"):
        Engine(pairs()).generate([[1], [1, 6]], GREEDY)
    with pytest.raises(ConfigError, match="prompt 1 is empty"):
        Engine(pairs()).generate([[]], GREEDY)
    engine = Engine(pairs(), ends=[3])
    assert engine.generate([[]], GREEDY) == engine.generate([[3]], GREEDY)
    assert engine.generate([], GREEDY) == []


@pytest.fixture
def static(monkeypatch, one_place):
    """An engine that works as on a GPU: memory that never moves, no decision on the host, few looks."""

    def make(model, **settings):
        begin = model.begin

        def fixed(rows, capacity):
            state = begin(rows, capacity)
            if hasattr(state, "fixed"):
                state.fixed = True
                state.cache.clear(slice(None))
            return state

        monkeypatch.setattr(module, "Replay", one_place)
        monkeypatch.setattr(model, "begin", fixed)
        engine = Engine(model, **settings)
        engine.static = True
        return engine

    return make


@pytest.mark.parametrize("settings", [GREEDY, WARM, PENALISED], ids=["greedy", "warm", "penalised"])
def test_the_way_of_a_gpu_is_the_way_of_a_cpu(lm, static, settings):
    expected = ids_of(Engine(lm, ends=[0]).generate(PROMPTS, settings))
    engine = static(lm, ends=[0])
    for _ in range(4):  # the first calls are eager, later ones are replayed
        assert ids_of(engine.generate(PROMPTS, settings)) == expected
    assert len(engine.shelf) == 1 and next(iter(engine.shelf.values())).replay.calls > 10
    assert ids_of(engine.generate(PROMPTS[:2], settings)) == expected[:2]
    assert len(engine.shelf) == 2


def test_the_way_of_a_gpu_over_the_edge_of_the_context(lm, static):
    """Finished rows run out of room while others go on; rows that go on in another batch use the same memory."""
    settings = Sampling(temperature=0.8, seed=3, max_tokens=70)
    prompts = [[3, 1, 4], [1, 2] * 6, [5, 2, 2, 0, 4, 1, 3], [2]]
    expected = ids_of(Engine(lm, ends=[0]).generate(prompts, settings))
    engine = static(lm, ends=[0])
    for _ in range(2):
        assert ids_of(engine.generate(prompts, settings)) == expected


def test_other_numbers_need_no_other_graph(lm, static):
    settings = [Sampling(temperature=t, top_p=p, seed=2, max_tokens=8) for t, p in ((0.5, 0.9), (1.5, 0.5), (1, 0.7))]
    expected = [ids_of(Engine(lm).generate(PROMPTS, s)) for s in settings]
    engine = static(lm)
    assert [ids_of(engine.generate(PROMPTS, s)) for s in settings] == expected
    assert len(engine.shelf) == 1
    engine.generate(PROMPTS, GREEDY)
    assert len(engine.shelf) == 2


@pytest.mark.parametrize("settings", [GREEDY, WARM, PENALISED], ids=["greedy", "warm", "penalised"])
def test_a_step_is_one_graph_to_the_compiler(real_lm, static, settings, monkeypatch):
    """Traced whole, and the same as before: only what a GPU makes of the graph is not tested here."""
    expected = ids_of(Engine(real_lm).generate(PROMPTS[:2], settings))
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    monkeypatch.setattr(module, "likeliest", lambda logits: logits.argmax(-1))  # as on a GPU
    engine = static(real_lm)
    engine.compile = True
    assert ids_of(engine.generate(PROMPTS[:2], settings)) == expected


def test_two_streams_at_a_time_do_not_meet(lm, static):
    engine = static(lm)
    expected = [e.ids for e in engine.stream(PROMPTS[:2], GREEDY, None, 3)]
    a, b = engine.stream(PROMPTS[:2], GREEDY, None, 3), engine.stream(PROMPTS[:2], GREEDY, None, 3)
    got = [(next(a).ids, next(b).ids) for _ in expected]
    assert got == [(ids, ids) for ids in expected]


def test_the_shelf_is_short(pairs, static):
    engine = static(pairs(context=0))
    for rows in (1, 2, 4, 8, 16, 1):
        engine.generate([[1]] * rows, GREEDY)
    assert [key[0] for key in engine.shelf] == [4, 8, 16, 1]
