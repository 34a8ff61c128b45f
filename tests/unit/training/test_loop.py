"""What the loop promises besides resuming: exact sums, skipped steps, memory, patience, the choice of the model."""

import json
from pathlib import Path

import pytest
import torch
from tests.unit.training.toy import Batch, Loader, Model, Task, toy_run, toy_train, valid_batches
from torch.testing import assert_close

from regard import checkpoint
from regard.errors import WorkFailed
from regard.training.memory import pieces, size
from regard.training.progress import Tally
from regard.training.settings import Optim, Schedule


def events(folder: Path, key: str = "step") -> list[dict]:
    read = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [event for event in read if key in event]


def still() -> Model:
    """Without dropout, so that two ways to the same gradient can be compared."""
    torch.manual_seed(0)
    model = Model()
    model.drop.p = 0.0
    return model


class Joined(Loader):
    """Batches of one width and uneven height, one by one or two in one."""

    def __init__(self, joined: bool):
        super().__init__()
        self.joined = joined

    def batch(self) -> Batch:
        random = torch.Generator().manual_seed(self.position)
        self.position += 1
        x = torch.randint(0, 13, (1 + self.position % 3, 4), generator=random)
        return Batch(x, (5 * x + 2) % 13)

    def __next__(self) -> Batch:
        if not self.joined:
            return self.batch()
        one, two = self.batch(), self.batch()
        return Batch(torch.cat([one.x, two.x]), torch.cat([one.y, two.y]))


def test_micro_batches_are_one_batch(tmp_path):
    """Sums and one count: two uneven micro-batches move the weights as their union does."""
    models = {}
    for name, joined in (("joined", True), ("apart", False)):
        models[name] = still()
        run = toy_run(accumulate=1 if joined else 2, average=False)
        toy_train(tmp_path / name, run, model=models[name], loader=Joined(joined))
    for a, b in zip(models["joined"].parameters(), models["apart"].parameters(), strict=True):
        assert_close(a, b, rtol=1e-4, atol=1e-6)
    one, two = events(tmp_path / "joined", "lr"), events(tmp_path / "apart", "lr")
    assert [e["loss"] for e in one] == pytest.approx([e["loss"] for e in two], rel=1e-4)


def test_it_learns(tmp_path):
    result = toy_train(tmp_path, toy_run(steps=300, eval_every=50, schedule=Schedule(warmup=10)))
    assert result.best["held_out_loss"] < 0.1 and result.steps == 300 and result.stopped == "steps"


def test_a_fitted_model_may_be_kept_as_it_was(tmp_path):
    """Step 0 is evaluated only if the model was fitted before; a resumed run does not do it again."""
    wild = toy_run(steps=4, eval_every=2, optim=Optim(name="adamw", lr=100.0), average=False)
    for name, fitted in (("fitted", True), ("random", False)):
        result = toy_train(tmp_path / name, wild, starts_fitted=fitted)
        steps = [e["step"] for e in events(tmp_path / name, "held_out_loss") if not e.get("final")]
        assert steps == [0] * fitted + [2, 4] and (result.kept == "step 0") == fitted


@pytest.mark.parametrize(("loss", "kept"), [(0.997, "step 0"), (0.993, "step 2")])
def test_training_must_improve_a_fitted_model_by_half_a_percent(tmp_path, loss, kept):
    losses = iter([1.0, loss])
    objective = Task()
    objective.held_out = lambda model, batches: {"loss": next(losses)}
    run = toy_run(steps=2, eval_every=2, average=False)
    result = toy_train(tmp_path, run, objective=objective, starts_fitted=True)
    assert result.kept == kept and result.best["held_out_loss"] == (1.0 if kept == "step 0" else loss)


class Failing(Task):
    """The loss is not finite at some steps."""

    def __init__(self, steps: range, value: float):
        self.steps, self.value, self.step = steps, value, 0

    def loss_sum(self, model, batch):
        loss = super().loss_sum(model, batch)
        if model.training:
            self.step += 1
            if self.step in self.steps:
                return loss * self.value
        return loss


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_step_without_a_finite_loss_is_skipped_and_counted(tmp_path, name: str, value: float):
    run = toy_run(name=name, accumulate=1, log_every=4)
    toy_train(tmp_path, run, objective=Failing(range(6, 9), value))
    assert [e["skipped"] for e in events(tmp_path, "lr")] == [0, 3, 0, 0, 0, 0]
    assert all(e["loss"] is not None and e["norm"] is not None for e in events(tmp_path, "lr"))
    held_out = [e["held_out_loss"] for e in events(tmp_path, "better")]
    assert held_out[-1] < held_out[0], "it went on learning"


def test_ten_in_a_row_stop_the_run_with_a_state(tmp_path):
    run = toy_run(accumulate=1, save_every=100, eval_every=100)
    before = {}

    class Watching(Failing):
        def loss_sum(self, model, batch):
            if model.training and self.step == 4:
                before.update({name: p.detach().clone() for name, p in model.named_parameters()})
            return super().loss_sum(model, batch)

    with pytest.raises(WorkFailed, match="not finite for 10 steps in a row, up to step 14"):
        toy_train(tmp_path, run, objective=Watching(range(5, 100), float("nan")))
    tensors, meta = checkpoint.load_state(tmp_path / "state.safetensors")
    assert meta["progress"]["step"] == 14
    assert all(torch.equal(tensors[f"model.{name}"], p) for name, p in before.items())
    assert toy_train(tmp_path, run, resume=True).steps == 24, "with better luck it goes on"


def test_nine_in_a_row_do_not(tmp_path):
    assert toy_train(tmp_path, toy_run(accumulate=1), objective=Failing(range(5, 14), float("nan"))).steps == 24


class Small(Task):
    """A device on which only `room` rows fit."""

    def __init__(self, room: int):
        self.room, self.largest = room, 0

    def loss_sum(self, model, batch):
        loss = super().loss_sum(model, batch)
        if model.training:
            self.largest = max(self.largest, len(batch.x))
            if len(batch.x) > self.room:
                (loss * 1e6).backward()  # half a gradient may be there already
                raise torch.OutOfMemoryError("out of memory")
        return loss


def test_too_little_memory_cuts_batches_and_changes_nothing_else(tmp_path, capsys):
    large, small = still(), still()
    toy_train(tmp_path / "large", toy_run(average=False), model=large)
    toy_train(tmp_path / "small", toy_run(average=False), model=small, objective=Small(room=2), quiet=False)
    for a, b in zip(large.parameters(), small.parameters(), strict=True):
        assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert "out of memory; from here on batches are cut" in capsys.readouterr().err
    limit = checkpoint.load_state(tmp_path / "small/state.safetensors")[1]["progress"]["limit"]
    assert limit > 0, "a resumed run need not run out of memory again"


def test_one_example_that_does_not_fit_is_named(tmp_path):
    with pytest.raises(WorkFailed, match=r"one example of \d+ padded tokens does not fit"):
        toy_train(tmp_path, objective=Small(room=0))


def test_pieces_hold_everything_once():
    batch = Batch(torch.arange(14).reshape(7, 2), torch.zeros(7, 2))
    cut = list(pieces([batch], limit=8))
    assert torch.equal(torch.cat([p.x for p in cut]), batch.x)
    assert max(map(size, cut)) <= 8 and list(pieces([batch], 0)) == [batch]


def scripted(scores: list[float]):
    """A metric that says what it is told."""
    left = list(scores)
    return lambda model: {"bleu": left.pop(0)}


def test_the_best_are_kept_and_the_best_is_published(tmp_path):
    run = toy_run(steps=20, eval_every=4, keep=2, average=False)
    result = toy_train(tmp_path, run, metric=scripted([1.0, 5.0, 3.0, 5.0, 2.0]))
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [
        "step-0000008.safetensors",
        "step-0000016.safetensors",
    ]
    assert (result.best["bleu"], result.kept) == (5.0, "step 16"), "of equal BLEU the lower loss"
    best, published = (
        checkpoint.load_state(tmp_path / name)[0]
        for name in ("checkpoints/step-0000016.safetensors", "model.safetensors")
    )
    assert all(torch.equal(published[name], t) for name, t in best.items())
    assert [e["better"] for e in events(tmp_path, "better")] == [True, True, False, True, False]


@pytest.mark.parametrize(("score", "kept"), [(6.0, "mean of steps 8, 16"), (5.0, "step 8")])
def test_the_average_must_be_better_to_be_kept(tmp_path, score: float, kept: str):
    run = toy_run(steps=16, eval_every=8, keep=2)
    result = toy_train(tmp_path, run, metric=scripted([5.0, 4.0, score]))
    assert result.kept == kept and result.best["bleu"] == max(score, 5.0)
    files = [tmp_path / f"checkpoints/step-00000{step}.safetensors" for step in ("08", "16")]
    expected = checkpoint.average(files) if score > 5 else checkpoint.load_state(files[0])[0]
    published = checkpoint.load_state(tmp_path / "model.safetensors")[0]
    assert all(torch.equal(published[name], t) for name, t in expected.items())
    assert events(tmp_path, "final")[0]["kept"] == kept


def test_patience_ends_a_run(tmp_path):
    run = toy_run(steps=40, eval_every=4, patience=2, average=False)
    result = toy_train(tmp_path, run, metric=scripted([1.0, 2.0, 1.0, 1.5, 9.0]))
    assert (result.stopped, result.steps, result.kept) == ("patience", 16, "step 8")


def test_a_score_that_is_no_number_is_never_the_best(tmp_path):
    nan = float("nan")
    result = toy_train(tmp_path, toy_run(steps=12, eval_every=4, average=False), metric=scripted([nan, 1.0, nan]))
    assert result.kept == "step 8"


def test_without_a_metric_the_held_out_loss_decides(tmp_path):
    result = toy_train(tmp_path, toy_run(average=False))
    assert result.best["held_out_loss"] == min(e["held_out_loss"] for e in events(tmp_path, "better"))
    model = Model()
    checkpoint.load_weights(model, checkpoint.load_state(tmp_path / "model.safetensors")[0], "model")
    with torch.no_grad():
        assert Task().held_out(model.eval(), valid_batches())["loss"] == result.best["held_out_loss"]


def test_eight_evaluations_unless_told(tmp_path):
    toy_train(tmp_path, toy_run(steps=30, eval_every=0))
    assert [e["step"] for e in events(tmp_path, "better")] == [4, 8, 12, 16, 20, 24, 28, 30]


def test_the_tally_is_read_as_means():
    tally = Tally(torch.device("cpu"))
    good, bad = torch.tensor(0.0), torch.tensor(1.0)
    tally.add(torch.tensor(2.0), torch.tensor(1.0), good, 10)
    tally.add(torch.tensor(float("nan")), torch.tensor(float("inf")), bad, 1000)
    tally.add(torch.tensor(4.0), torch.tensor(2.0), good, 30)
    assert tally.read() == {"loss": (20 + 120) / 40, "norm": 1.5, "skipped": 1}
    assert tally.worst() == 1


def test_half_precision_keeps_full_weights(tmp_path):
    model = still()
    toy_train(tmp_path, toy_run(precision="bf16", average=False), model=model)
    full = still()
    toy_train(tmp_path / "full", toy_run(average=False), model=full)
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), full.parameters(), strict=True))
