"""Every model × every property. Each test is one sentence of the contract; the models are in `cases.py`."""

import json

import pytest
import torch

from regard.models import MODELS, build, model_type
from regard.models.published import load_model, to_published, weights_bytes
from regard.models.transformer import TransformerState
from regard.nn.stored import store_
from regard.nn.taps import watch

from .case import PAD, Case, floats
from .cases import CASES, GUESSING

close = torch.testing.assert_close
SEEDS = 20


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


@pytest.fixture
def model(case, shake):
    return case.model(shake)


def some(chosen) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [c for c in CASES.values() if chosen(c)],
                                   ids=[name for name, c in CASES.items() if chosen(c)])  # fmt: skip


def test_every_model_has_a_case():
    untrained = {"clip"}  # only published ones are used, which `reference/test_clip.py` compares
    assert {model_type(case.config) for case in CASES.values()} == set(MODELS) - untrained


def test_outputs_have_the_promised_shape(case, model):
    out = case.forward(model, *case.inputs)
    assert out.shape == case.shape and out.dtype == torch.float64 and out.isfinite().all()


def test_every_parameter_gets_a_gradient(case, model):
    out = case.forward(model, *case.inputs)
    sum(out[b, real].square().sum() for b, real in enumerate(case.lengths)).backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]


def test_only_parameters_and_buffers_hold_tensors(case, model):
    case.forward(model, *case.inputs)
    if case.decodes:
        model.begin(*case.inputs[:2], 2, 4)
    vars_of = ((name, key, value) for name, m in model.named_modules() for key, value in vars(m).items())
    assert not [f"{name}.{key}" for name, key, value in vars_of if isinstance(value, torch.Tensor)]


def test_rows_do_not_depend_on_padding_or_their_batch(case, model):
    together = case.forward(model, *case.inputs)
    for b, real in enumerate(case.lengths):
        close(case.forward(model, *case.alone(case.inputs, b))[0], together[b, real])


def test_permuting_rows_permutes_outputs(case, model):
    order = torch.tensor([2, 0, 1])
    straight = case.forward(model, *case.inputs)
    turned = case.forward(model, *(None if x is None else x[order] for x in case.inputs))
    for b, row in enumerate(order.tolist()):
        close(turned[b, case.lengths[row]], straight[row, case.lengths[row]])


def test_evaluation_is_still_and_training_is_not(case, model):
    assert torch.equal(case.forward(model, *case.inputs), case.forward(model, *case.inputs))
    model.train()
    assert not torch.equal(case.forward(model, *case.inputs), case.forward(model, *case.inputs))


def test_watching_changes_nothing_and_weights_sum_to_one(case, model):
    unwatched = case.forward(model, *case.inputs)
    with watch(model, "*look") as seen:
        assert torch.equal(case.forward(model, *case.inputs), unwatched)
    assert all(m.seen is None for m in model.modules() if hasattr(m, "seen"))
    looks = [(name, look) for name, calls in seen.items() for look in calls]
    assert len(looks) >= case.looks and bool(looks) == bool(case.looks)
    for name, look in looks:
        weights = look.weights()
        table = look.mask.dense() if hasattr(look, "mask") else None
        sums = torch.ones(()) if table is None else table.any(-1)  # padding far from a text may see nothing: 0
        close(weights.sum(-1), sums.to(weights).expand_as(weights.sum(-1)))
        if name.startswith("blocks.") or (name.startswith("decoder.") and "cross" not in name):
            assert not weights.triu(1).any()  # nobody looks ahead
        elif case.hidden is not None:
            b, first = case.hidden
            assert not weights[b, ..., first:].any()  # padding gets weight exactly zero
    assert not [key for key in model.state_dict() if "look" in key or ".seen" in key]


def test_saving_and_loading_changes_nothing(case, model, tmp_path):
    inputs = floats(case.inputs)
    model = model.float()
    (tmp_path / "config.json").write_text(json.dumps(to_published(model.config)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(model))
    again = load_model(tmp_path)
    assert again.config == model.config and not again.training
    before, after = case.forward(model, *inputs), case.forward(again, *inputs)
    if model_type(case.config) == "whisper":  # but for the bias of keys, which changes no weight
        close(after, before, rtol=1e-4, atol=1e-4)
    else:
        assert torch.equal(after, before)
    if hasattr(model, "token") and hasattr(model, "head"):  # tied before, tied after
        assert (again.head is again.token.weight) == (model.head is model.token.weight)


@pytest.mark.skipif(torch.backends.quantized.engine not in ("x86", "fbgemm"), reason="for x86 only")
@torch.inference_mode()
def test_weights_that_fp16_holds_are_stored_without_loss(case, shake):
    model = case.model(shake).float()
    for p in model.parameters():
        p.copy_(p.half())
    expected = case.forward(model, *floats(case.inputs))
    assert store_(model, "fp16").names
    close(case.forward(model, *floats(case.inputs)), expected, rtol=1e-3, atol=1e-4)


def test_micro_batches_give_the_same_gradient(case, model):
    def gradient(batches):
        model.zero_grad()
        for batch in batches:
            (case.objective.loss_sum(model, batch) / case.objective.count(case.batch)).backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    parts = case.batch.split()
    assert len(parts) > 1 and sum(map(case.objective.count, parts)) == case.objective.count(case.batch)
    close(gradient(parts), gradient([case.batch]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", GUESSING)
def test_the_first_loss_is_near_that_of_guessing(name):
    """The mean of 20 seeds, so that chance is small."""
    case, losses = CASES[name], []
    batch = floats(case.batch)
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        losses.append(case.objective.held_out(build(case.config), [batch])["loss"])
    low, high = case.first_loss
    assert low <= sum(losses) / SEEDS - GUESSING[name] < high


@some(lambda case: case.words is not None)
def test_the_past_does_not_depend_on_the_future(case, shake):
    model, inputs = case.model(shake), list(case.inputs)
    before = case.forward(model, *inputs)
    ids = inputs[case.words]
    inputs[case.words] = torch.cat((ids[:, :4], (ids[:, 4:] + 5) % PAD), 1)
    after = case.forward(model, *inputs)
    assert torch.equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] - after[:, 4:]).abs().amax((1, 2)).min() > 1e-3


@pytest.mark.parametrize("fixed", [False, True], ids=["growing", "fixed"])
@some(lambda case: case.decodes)
def test_decoding_in_steps_equals_decoding_at_once(case, shake, fixed):
    """Hypotheses that multiply, swap and merge on the way, against the full pass over each history; one row leaves.

    "fixed" is how a GPU decodes: slots are counted on the device and all of the cache is looked at.
    """
    model, (source, lengths, _) = case.model(shake), case.inputs
    state = model.begin(source, lengths, 3, 6)
    if fixed and isinstance(state, TransformerState):
        state.fixed, state.stop = True, state.cache.keys[0].size(2)
        state.cache.clear(slice(None))
    g = torch.Generator().manual_seed(9)
    history = torch.empty(3, 1, 0, dtype=torch.long)
    for hypotheses in (1, 2, 2, 3, 3, 2):  # how many there are in each step
        parents = torch.randint(0, history.size(1), (len(history), hypotheses), generator=g)
        state.reorder(parents)
        history = history.gather(1, parents[:, :, None].expand(-1, -1, history.size(2)))
        new = torch.randint(1, PAD, (len(history), hypotheses), generator=g)
        history = torch.cat((history, new[:, :, None]), 2)
        stepped = model.logits(model.step(new, state))  # B N V
        for n in range(hypotheses):
            close(stepped[:, n], case.forward(model, source, lengths, history[:, n])[:, -1])
        if hypotheses == 3 and len(history) == 3:
            keep = torch.tensor([0, 2])
            state.select(keep)
            source, history = source[keep], history[keep]
            lengths = None if lengths is None else lengths[keep]


@some(lambda case: case.decodes)
def test_two_decoders_do_not_disturb_each_other(case, shake):
    model, (source, lengths, ids) = case.model(shake), case.inputs
    want = case.forward(model, source, lengths, ids[:, :2])[:, 1]
    one, other = (model.begin(source, lengths, 1, 6) for _ in range(2))
    model.step(ids[:, :1], one)
    model.step(ids[:, 3:4], other)
    close(model.logits(model.step(ids[:, 1:2], one))[:, 0], want)
