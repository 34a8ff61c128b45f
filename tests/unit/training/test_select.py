"""Which model is kept: by what people ask for, of equals the one of lower loss, and the mean of all that were kept."""

import math

import pytest
import torch
from safetensors.torch import load_file
from tests.unit.training.toy import Model, toy_run, toy_train

from regard import checkpoint
from regard.training.select import rank, score

LOSS = {"held_out_loss": 2.0}


@pytest.mark.parametrize(
    ("metrics", "value"),
    [
        (LOSS, -2.0),
        (LOSS | {"accuracy": 0.7}, 0.7),
        (LOSS | {"accuracy": 0.9, "entity_f1": 0.3}, 0.3),
        (LOSS | {"entity_f1": 0.3, "accuracy": 0.9}, 0.3),
        (LOSS | {"accuracy": 0.7, "macro_f1": 0.1, "balanced_accuracy": 0.2}, 0.7),
        (LOSS | {"bleu": 12.0, "chrf": 40.0}, 12.0),
        (LOSS | {"bleu": 0.0, "accuracy": 0.9}, 0.0),
        (LOSS | {"perplexity": 7.4, "mae": 0.1, "inside": 0.8}, -2.0),
        (LOSS | {"masked_accuracy": 0.5, "unigram_entropy": 6.0}, -2.0),
        (LOSS | {"accuracy": math.nan}, -math.inf),
        ({"held_out_loss": math.nan}, -math.inf),
        (LOSS | {"accuracy": None}, -math.inf),  # as a log has NaN
        ({"held_out_loss": None}, -math.inf),
    ],
)
def test_the_score_is_what_people_ask_for(metrics, value):
    """BLEU where there is one, then the F1 of entities, then accuracy; the loss where nothing else is measured."""
    assert score(metrics) == value


def entry(step: int, **metrics: float) -> dict:
    actual = LOSS | metrics
    return {"step": step, "score": score(actual), "metrics": actual}


def test_of_equal_scores_the_lower_loss_is_better():
    kept = [entry(1, bleu=0.0, held_out_loss=3.0), entry(2, bleu=0.0, held_out_loss=2.5), entry(3, bleu=1.0),
            entry(4, bleu=0.0, held_out_loss=math.nan), entry(5, bleu=math.nan, held_out_loss=0.1)]  # fmt: skip
    assert [k["step"] for k in sorted(kept, key=rank)] == [3, 2, 1, 4, 5]


def scripted(metrics: list[dict[str, float]]):
    left = list(metrics)
    return lambda model: left.pop(0)


def test_equal_evaluations_keep_the_earlier_and_cost_patience(tmp_path):
    run = toy_run(steps=40, eval_every=4, patience=2, average=False)
    result = toy_train(tmp_path, run, metric=lambda model: {"bleu": 1.0, "held_out_loss": 2.0})
    assert (result.stopped, result.steps, result.kept) == ("patience", 12, "step 4")


def test_a_tagger_is_kept_by_its_entities(tmp_path):
    """Saying "outside" everywhere is often right and finds nothing."""
    told = [
        {"accuracy": 0.9, "entity_f1": 0.0},
        {"accuracy": 0.8, "entity_f1": 0.5},
        {"accuracy": 0.95, "entity_f1": 0.2},
    ]
    result = toy_train(tmp_path, toy_run(steps=12, eval_every=4, average=False), metric=scripted(told))
    assert result.kept == "step 8" and result.best["entity_f1"] == 0.5


@pytest.mark.parametrize("keep", [2, 3, 4])
def test_the_mean_is_of_all_that_were_kept(tmp_path, keep):
    """Five evaluations, the best `keep` of them: the published weights are the mean of just those."""
    scores = [3.0, 5.0, 1.0, 4.0, 2.0]
    run = toy_run(steps=20, eval_every=4, keep=keep, average=True)
    result = toy_train(tmp_path, run, metric=scripted([{"bleu": s} for s in (*scores, 9.0)]))
    steps = sorted(range(5), key=lambda i: -scores[i])[:keep]
    assert result.kept == "mean of steps " + ", ".join(str(4 * (i + 1)) for i in steps)
    files = sorted((tmp_path / "checkpoints").iterdir())
    assert [int(f.stem.split("-")[1]) for f in files] == sorted(4 * (i + 1) for i in steps)
    parts, published = [load_file(f) for f in files], load_file(tmp_path / "model.safetensors")
    names = [name for name, _ in Model().named_parameters()]
    assert set(names) <= set(published)
    for name in names:
        expected = torch.stack([part[name].double() for part in parts]).mean(0).float()
        torch.testing.assert_close(published[name], expected, rtol=0, atol=1e-7)
        assert not torch.equal(published[name], parts[0][name]), "all alike: nothing is compared"


def test_an_average_takes_every_file_and_leaves_whole_numbers(tmp_path):
    files = []
    for i, value in enumerate((1.0, 2.0, 6.0)):
        model = torch.nn.BatchNorm1d(2)
        model.weight.data.fill_(value)
        model.num_batches_tracked.fill_(10 * (i + 1))
        files.append(tmp_path / f"{i}.safetensors")
        checkpoint.save_state(files[-1], checkpoint.weights(model), {})
    mean = checkpoint.average(files)
    assert mean["weight"].tolist() == [3.0, 3.0] and mean["num_batches_tracked"].item() == 10
    assert checkpoint.average(files[::-1])["num_batches_tracked"].item() == 30
