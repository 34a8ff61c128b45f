"""Every model × every property. Each test is one sentence of the contract."""

import math

import pytest
import torch
from torch import nn

from regard.data.batch import collate
from regard.models import build
from regard.models.published import load_model, to_published, weights_bytes
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.transformer import Transformer, TransformerConfig, TransformerState
from regard.nn.taps import watch
from regard.objectives.translate import ConsistentTranslate, Translate

from .conftest import EOS, PAD, VOCAB

close = torch.testing.assert_close


def logits(model, source, lengths, inputs):
    return model.logits(model(source, lengths, inputs))


def as_batch(ragged):
    cut = lambda rows, sizes: [r[: n - 1].tolist() for r, n in zip(rows, sizes, strict=True)]  # noqa: E731
    return collate(cut(ragged.source, ragged.lengths), cut(ragged.target, ragged.target_lengths), EOS, PAD)


def test_outputs_have_the_promised_shape(model, ragged):
    assert logits(model, ragged.source, ragged.lengths, ragged.inputs).shape == (3, 6, VOCAB)


def test_parameters_are_counted_by_the_papers_formula(config):
    got = sum(p.numel() for p in build(config).parameters())
    if isinstance(config, TransformerConfig):
        D, F = config.width, config.ffn
        linear = lambda i, o: i * o + o  # noqa: E731
        attention, mlp, norm = 4 * linear(D, D), linear(D, F) + linear(F, D), 2 * D
        want = config.vocab * D
        want += config.encoder_layers * (attention + mlp + 2 * norm)
        want += config.decoder_layers * (2 * attention + mlp + 3 * norm)
        want += 2 * norm * (config.norm == "pre") + 2 * config.max_length * D * (config.positions == "learned")
    else:
        assert isinstance(config, Seq2SeqConfig)
        E, D, g = config.embedding, config.width, {"rnn": 1, "gru": 3, "lstm": 4}[config.cell]
        cell = lambda i: g * (D * i + D * D + 2 * D)  # noqa: E731
        want = config.vocab * E + 2 * cell(E) + 2 * (config.encoder_layers - 1) * cell(2 * D)
        want += (2 * D + 1) * D + cell(E + 2 * D) + (3 * D + E + 1) * E
        want += config.attention * (D * D + 2 * D * D + D + D)
    assert got == want


def test_the_first_loss_is_near_that_of_guessing(config, ragged):
    """Logits start with a spread of about one, which costs half a nat; the mean of 20 seeds, so that luck is small."""
    losses = []
    for seed in range(20):
        torch.manual_seed(seed)
        losses.append(Translate(0.0).held_out(build(config).eval(), [as_batch(ragged)])["loss"])
    assert 0 <= sum(losses) / 20 - math.log(VOCAB) < 0.8


def test_every_parameter_gets_a_gradient(model, ragged):
    logits(model, ragged.source, ragged.lengths, ragged.inputs)[ragged.real].square().sum().backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not idle


def test_only_parameters_and_buffers_hold_tensors(model, ragged):
    logits(model, ragged.source, ragged.lengths, ragged.inputs)
    model.begin(ragged.source, ragged.lengths, 2, 4)
    stray = [
        f"{name}.{key}"
        for name, m in model.named_modules()
        for key, value in vars(m).items()
        if isinstance(value, torch.Tensor)
    ]
    assert not stray


def test_the_past_does_not_depend_on_the_future(model, ragged):
    before = logits(model, ragged.source, ragged.lengths, ragged.inputs)
    poked = ragged.inputs.clone()
    poked[:, 4:] = (poked[:, 4:] + 5) % PAD
    after = logits(model, ragged.source, ragged.lengths, poked)
    close(before[:, :4], after[:, :4], rtol=0, atol=0 if not before.is_cuda else 1e-12)
    assert (before[0, 4:] - after[0, 4:]).abs().max() > 1e-3


def test_every_position_depends_on_all_it_should(model, ragged):
    """The gradient of the logits at t reaches inputs 0…t and every real source word, and nothing else."""
    tables = []

    def remember(module, args, output):
        output.retain_grad()
        tables.append(output)

    handle = model.token.register_forward_hook(remember)
    out = logits(model, ragged.source, ragged.lengths, ragged.inputs)
    handle.remove()
    out[1, 2].square().sum().backward()
    source, inputs = (t.grad.abs().sum(-1) for t in tables)  # B S, B T
    if source.size(1) != 7:
        source, inputs = inputs, source
    assert (source[1, :4] > 0).all() and (source[1, 4:] == 0).all()
    assert (inputs[1, :3] > 0).all() and (inputs[1, 3:] == 0).all()
    assert source[[0, 2]].sum() == 0 and inputs[[0, 2]].sum() == 0


def test_rows_do_not_depend_on_padding_or_their_batch(model, ragged):
    together = logits(model, ragged.source, ragged.lengths, ragged.inputs)
    for b in range(3):
        s, t = ragged.lengths[b], ragged.target_lengths[b]
        alone = logits(model, ragged.source[b : b + 1, :s], None, ragged.inputs[b : b + 1, :t])
        close(together[b, :t], alone[0])


def test_permuting_rows_permutes_outputs(model, ragged):
    order = torch.tensor([2, 0, 1])
    straight = logits(model, ragged.source, ragged.lengths, ragged.inputs)
    close(logits(model, ragged.source[order], ragged.lengths[order], ragged.inputs[order]), straight[order])


@pytest.mark.parametrize("fixed", [False, True], ids=["growing", "fixed"])
def test_decoding_in_steps_equals_decoding_at_once(model, ragged, fixed):
    """Hypotheses that multiply, swap and merge on the way, against the full pass over each history.

    "fixed" is how a GPU decodes: slots are counted on the device and all of the cache is looked at.
    """
    state = model.begin(ragged.source, ragged.lengths, 3, 6)
    if fixed and isinstance(state, TransformerState):
        state.fixed, state.stop = True, state.cache.keys[0].size(2)
        state.cache.clear(slice(None))
    g = torch.Generator().manual_seed(9)
    history = torch.empty(3, 1, 0, dtype=torch.long)
    for hypotheses in (1, 2, 2, 3, 3, 2):  # how many there are in each step
        parents = torch.randint(0, history.size(1), (3, hypotheses), generator=g)
        state.reorder(parents)
        history = history.gather(1, parents[:, :, None].expand(-1, -1, history.size(2)))
        new = torch.randint(1, PAD, (3, hypotheses), generator=g)
        history = torch.cat((history, new[:, :, None]), 2)
        stepped = model.logits(model.step(new, state))  # B N V
        for n in range(hypotheses):
            close(stepped[:, n], logits(model, ragged.source, ragged.lengths, history[:, n])[:, -1])


def test_finished_sentences_leave_without_a_trace(model, ragged):
    state = model.begin(ragged.source, ragged.lengths, 1, 6)
    model.step(ragged.inputs[:, :1], state)
    state.select(torch.tensor([0, 2]))
    second = model.logits(model.step(ragged.inputs[[0, 2], 1:2], state))[:, 0]
    close(second, logits(model, ragged.source, ragged.lengths, ragged.inputs)[[0, 2], 1])


def test_watching_changes_nothing_and_weights_sum_to_one(model, ragged):
    unwatched = logits(model, ragged.source, ragged.lengths, ragged.inputs)
    with watch(model, "*look") as seen:
        watched = logits(model, ragged.source, ragged.lengths, ragged.inputs)
    close(watched, unwatched, rtol=0, atol=0)
    assert all(m.seen is None for m in model.modules() if hasattr(m, "seen"))
    for name, calls in seen.items():
        for look in calls:
            weights = look.weights()
            close(weights.sum(-1), torch.ones_like(weights.sum(-1)), check_dtype=False)
            if "encoder" in name or "cross" in name or name == "attention.look":
                assert weights[1, ..., 4:].abs().max() == 0  # padding gets weight exactly zero


def test_evaluation_is_still_and_training_is_not(model, ragged):
    run = lambda: logits(model, ragged.source, ragged.lengths, ragged.inputs)  # noqa: E731
    assert torch.equal(run(), run())
    model.train()
    assert not torch.equal(run(), run())


def test_saving_and_loading_changes_nothing(model, ragged, tmp_path):
    import json

    model = model.float()
    (tmp_path / "config.json").write_text(json.dumps(to_published(model.config)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(model))
    again = load_model(tmp_path)
    assert again.config == model.config
    args = (ragged.source, ragged.lengths, ragged.inputs)
    assert torch.equal(logits(again, *args), logits(model, *args))
    assert again.head is again.token.weight  # tied before, tied after


def test_the_loss_is_the_one_worked_out_by_hand(model, ragged):
    """Padding neither in the sum nor in the count; each target predicted from the words before it."""
    batch = as_batch(ragged)
    words = logits(model, ragged.source, ragged.lengths, ragged.inputs).log_softmax(-1)
    total, count = 0.0, 0
    for b in range(3):
        for t in range(int(ragged.target_lengths[b])):
            total -= words[b, t, ragged.target[b, t]].item()
            count += 1
    task = Translate(0.0)
    assert task.count(batch) == count == 14
    close(task.loss_sum(model, batch).item(), total, rtol=1e-6, atol=1e-6)
    close(task.held_out(model, [batch])["loss"], total / count, rtol=1e-6, atol=1e-6)


def test_micro_batches_give_the_same_gradient(model, ragged):
    batch, task = as_batch(ragged), Translate(0.1)

    def gradient(batches):
        model.zero_grad()
        for b in batches:
            (task.loss_sum(model, b) / task.count(batch)).backward()
        return [p.grad.clone() for p in model.parameters()]

    for whole, parts in zip(gradient([batch]), gradient(batch.split()), strict=True):
        close(whole, parts)


def test_consistency_loss_is_plain_when_both_passes_agree(model, ragged):
    """Without dropout the two passes are the same, so nothing is left of R-Drop but the cross-entropy."""
    batch = as_batch(ragged)
    close(
        ConsistentTranslate(0.1, 5.0).loss_sum(model, batch), Translate(0.1).loss_sum(model, batch), check_dtype=False
    )
    model.train()
    torch.manual_seed(5)
    both = ConsistentTranslate(0.1, 5.0).loss_sum(model, batch)
    torch.manual_seed(5)
    assert both > ConsistentTranslate(0.1, 0.0).loss_sum(model, batch)


def test_taps_leave_no_key_in_the_checkpoint(model):
    assert not [key for key in model.state_dict() if "look" in key]
    assert isinstance(model, nn.Module)


def test_every_decoder_layer_sees_the_last_encoder_layer(model, ragged):
    if not isinstance(model, Transformer):
        return
    memory, _ = model.encode(ragged.source, ragged.lengths)
    with watch(model, "decoder.*.cross.look") as seen:
        logits(model, ragged.source, ragged.lengths, ragged.inputs)
    assert len(seen) == 2
    for layer, calls in zip(model.decoder, seen.values(), strict=True):
        close(calls[0].k, layer.cross.keys_values(memory)[0])
