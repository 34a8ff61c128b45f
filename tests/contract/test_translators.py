"""What is asked of translators alone; the rest is in `test_contract.py`."""

import torch

from regard.models import build
from regard.models.bart import BartConfig
from regard.models.seq2seq import Seq2SeqConfig
from regard.models.t5 import T5Config
from regard.models.transformer import Transformer, TransformerConfig
from regard.nn.taps import watch
from regard.objectives.regularised import Regularised
from regard.objectives.translate import TranslateLoss

close = torch.testing.assert_close


def logits(model, source, lengths, inputs):
    return model.logits(model(source, lengths, inputs))


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
    elif isinstance(config, T5Config):
        D, H = config.width, config.heads * config.head_width
        layer = 4 * D * H + 2 * D * config.ffn + 2 * D
        want = config.vocab * D + 2 * D + 2 * config.buckets * config.heads
        want += config.encoder_layers * layer + config.decoder_layers * (layer + 4 * D * H + D)
    elif isinstance(config, BartConfig):
        D, F = config.width, config.ffn
        attention, mlp, norm = 4 * (D * D + D), 2 * D * F + F + D, 2 * D
        want = config.vocab * D + 2 * config.max_length * D + 2 * norm
        want += config.encoder_layers * (attention + mlp + 2 * norm)
        want += config.decoder_layers * (2 * attention + mlp + 3 * norm)
    else:
        assert isinstance(config, Seq2SeqConfig)
        E, D, g = config.embedding, config.width, {"rnn": 1, "gru": 3, "lstm": 4}[config.cell]
        cell = lambda i: g * (D * i + D * D + 2 * D)  # noqa: E731
        want = config.vocab * E + 2 * cell(E) + 2 * (config.encoder_layers - 1) * cell(2 * D)
        want += (2 * D + 1) * D + cell(E + 2 * D) + (3 * D + E + 1) * E
        want += config.attention * (D * D + 2 * D * D + D + D)
    assert got == want


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


def test_the_loss_is_the_one_worked_out_by_hand(model, ragged):
    """Padding neither in the sum nor in the count; each target predicted from the words before it."""
    batch = ragged.batch()
    words = logits(model, ragged.source, ragged.lengths, ragged.inputs).log_softmax(-1)
    total, count = 0.0, 0
    for b in range(3):
        for t in range(int(ragged.target_lengths[b])):
            total -= words[b, t, ragged.target[b, t]].item()
            count += 1
    task = TranslateLoss(0.0)
    assert task.count(batch) == count == 14
    close(task.loss_sum(model, batch).item(), total, rtol=1e-6, atol=1e-6)
    close(task.held_out(model, [batch])["loss"], total / count, rtol=1e-6, atol=1e-6)


def test_consistency_loss_is_plain_when_both_passes_agree(model, ragged):
    """Without dropout the two passes are the same, so nothing is left of R-Drop but the cross-entropy."""
    batch = ragged.batch()
    close(
        Regularised(TranslateLoss(0.1), 5.0).loss_sum(model, batch),
        TranslateLoss(0.1).loss_sum(model, batch),
        check_dtype=False,
    )
    model.train()
    torch.manual_seed(5)
    both = Regularised(TranslateLoss(0.1), 5.0).loss_sum(model, batch)
    torch.manual_seed(5)
    assert both > Regularised(TranslateLoss(0.1), 1e-9).loss_sum(model, batch)


def test_every_decoder_layer_sees_the_last_encoder_layer(model, ragged):
    if not isinstance(model, Transformer):
        return
    memory, _ = model.encode(ragged.source, ragged.lengths)
    with watch(model, "decoder.*.cross.look") as seen:
        logits(model, ragged.source, ragged.lengths, ragged.inputs)
    assert len(seen) == 2
    for layer, calls in zip(model.decoder, seen.values(), strict=True):
        close(calls[0].k, layer.cross.keys_values(memory)[0])
