"""The defaults are a run that holds together, on every device and for every architecture."""

import dataclasses

import pytest

from regard import tasks
from regard.data.catalog import CATALOG
from regard.data.masked import MaskedConfig
from regard.data.prepare import PairsConfig
from regard.errors import ConfigError
from regard.tasks import assembly, translate
from regard.tasks.caption import sided
from regard.tasks.plan import run_from_dict
from regard.tasks.registry import TASKS, get


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1"])
@pytest.mark.parametrize("arch", get("translate").archs)
def test_default_runs_survive_json_for_every_architecture(arch, device):
    run = tasks.default_run("Translate", arch.upper(), "", PairsConfig(source="a", target="b", vocab=0), device)
    assert run.model.vocab == run.data.vocab > 1000 and run.minutes > 0
    assert run_from_dict(run.to_dict()) == run


def test_a_known_data_set_brings_its_own_way_of_splitting():
    run = tasks.default_run(data=PairsConfig(name="Multi30k-EN-DE-tok"))
    assert (run.data.name, run.data.split) == ("multi30k-en-de-tok", "spaces")


def test_what_is_missing_or_unknown_is_said():
    with pytest.raises(ConfigError, match="--data tatoeba-en-fr"):
        tasks.default_run(data=PairsConfig())
    with pytest.raises(ConfigError, match="did you mean 'translate'"):
        tasks.default_run("translat", data=PairsConfig(source="a", target="b"))
    with pytest.raises(ConfigError, match="did you mean 'tiny'"):
        tasks.default_run(size="tinny", data=PairsConfig(source="a", target="b"))


def test_few_examples_get_minimum_steps_and_a_short_warmup():
    run = tasks.default_run(data=PairsConfig(source="a", target="b"))
    run = dataclasses.replace(run, epochs=3.0, minutes=0, schedule=dataclasses.replace(run.schedule, warmup=50))
    messages = []
    few = assembly.with_min_steps(dataclasses.replace(run, start="minilm"), 6, 60, messages.append)
    assert (few.steps, few.schedule.warmup) == (60, 6) and "training takes 60" in messages[0]
    own = assembly.with_min_steps(run, 6, 60, messages.append)
    assert (own.steps, own.schedule.warmup) == (6, 1), "from nothing, the epochs asked for"
    many = assembly.with_min_steps(dataclasses.replace(run, start="minilm"), 800, 60, messages.append)
    assert (many.steps, many.schedule.warmup, len(messages)) == (800, 50, 1)


def test_the_cost_grows_with_the_batch_but_the_weights_do_not():
    run = tasks.default_run(data=PairsConfig(source="a", target="b"))
    parts, memory = tasks.cost(run)
    _, twice = tasks.cost(dataclasses.replace(run, tokens=2 * run.tokens))
    assert memory.weights == 4 * sum(parts.values()) == twice.weights
    assert 1.8 < twice.activations / memory.activations < 2.2


def test_two_passes_for_consistency_cost_more():
    run = tasks.default_run(data=PairsConfig(source="a", target="b"))
    _, once = tasks.cost(run)
    _, twice = tasks.cost(dataclasses.replace(run, consistency=1.0))
    assert twice.activations > 1.8 * once.activations


def test_few_held_out_sentences_are_judged_by_their_loss(tmp_path):
    """BLEU of a handful of sentences is luck; from `FEW` on it is measured."""

    class Held:
        class tokenizer:
            @staticmethod
            def encode_batch(texts):
                return [list(text) for text in texts]

        def __init__(self, count):
            self.count = count

        def valid_text(self):
            return ["a"] * self.count, ["b"] * self.count

    run = tasks.default_run(data=PairsConfig(source="a", target="b"))
    assert get("translate").metric(run, Held(translate.FEW - 1), "cpu") is None
    assert get("translate").metric(run, Held(translate.FEW), "cpu") is not None


@pytest.mark.parametrize(
    ("device", "settings", "says"),
    [
        ("cpu", {"model": {"attention_dropout": 0.1}}, "--set model.attention_dropout=0, or --set compile=false"),
        ("cuda", {"run": {"precision": "fp32"}}, "--set precision=bf16, or --set compile=false"),
    ],
)
def test_a_compiled_run_of_bert_says_what_packed_rows_go_without(device, settings, says):
    run = tasks.default_run("mlm", data=MaskedConfig(path="nowhere.txt"), device="cuda")
    model = dataclasses.replace(run.model, **settings.get("model", {}))
    run = dataclasses.replace(run, model=model, **settings.get("run", {}))
    with pytest.raises(ConfigError, match=says):
        tasks.assemble(run, device)


def test_captions_that_tell_left_from_right_are_counted():
    assert sided([["a dog on the LEFT .", "a bright day"], ["leftovers"]]) == pytest.approx(1 / 3)
    assert sided([]) == 0


def test_every_ready_made_set_has_a_task():
    kinds = {data.kind for data in CATALOG.values() if not data.task}
    assert kinds <= {task.trains_on for task in TASKS.values()}
