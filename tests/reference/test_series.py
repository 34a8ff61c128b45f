"""Series and forecasts against torch's own encoder, transformers' PatchTST and sines worked out one by one."""

import itertools
import math

import pytest
import torch
from torch import nn
from transformers import PatchTSTConfig, PatchTSTForPrediction

from regard.models import build
from regard.models.forecaster import ForecasterConfig
from regard.models.series import SeriesRecurrentConfig, SeriesTransformerConfig, known_errors
from regard.nn.positions import TimeModulation, TimeWaves

close = torch.testing.assert_close


def test_the_forecaster_is_patchtst_and_a_straight_line(shake):
    """Pre-norm with layer norms. Theirs has no norm after the last layer, so ours is taken out here; the line is silent
    at birth, and then worked out here."""
    size = dict(width=16, layers=2, heads=4, ffn=24)
    c = ForecasterConfig(columns=("x", "y", "z"), lookback=20, horizon=7, patch=4, stride=2, quantiles=(), **size)
    ours = shake(build(c), 2.0).double().eval()
    ours.norm = nn.Identity()
    theirs = PatchTSTForPrediction(
        PatchTSTConfig(
            num_input_channels=3, context_length=20, prediction_length=7, patch_length=4, patch_stride=2, d_model=16,
            num_hidden_layers=2, num_attention_heads=4, ffn_dim=24, norm_type="layernorm", norm_eps=1e-5, pre_norm=True,
            activation_function="gelu", positional_encoding_type="random", scaling="std", loss="mse",
            use_cls_token=False, share_embedding=True, channel_attention=False, pooling_type=None,
        )
    ).double().eval()  # fmt: skip
    state = {
        "model.encoder.embedder.input_embedding": ours.embed,
        "head.projection": ours.head,
    }
    weights = {f"{name}.{k}": v for name, part in state.items() for k, v in part.state_dict().items()}
    weights["model.encoder.positional_encoder.position_enc"] = ours.place.table
    for i, layer in enumerate(ours.layers):
        at = f"model.encoder.layers.{i}."
        for n, name in enumerate(("q_proj", "k_proj", "v_proj")):
            for key, tensor in layer.attention.qkv.state_dict().items():
                weights[f"{at}self_attn.{name}.{key}"] = tensor.chunk(3)[n]
        parts = {"self_attn.out_proj": layer.attention.out, "ff.0": layer.mlp.up, "ff.3": layer.mlp.down}
        for name, part in (parts | {"norm_sublayer1": layer.norm1, "norm_sublayer3": layer.norm2}).items():
            weights |= {f"{at}{name}.{key}": tensor for key, tensor in part.state_dict().items()}
    theirs.load_state_dict(weights)
    past = torch.randn(4, 20, 3, generator=torch.Generator().manual_seed(0)).double().cumsum(1)
    ours_told, theirs_told = ours(past)[..., 0], theirs(past_values=past).prediction_outputs
    close(ours_told, theirs_told)
    ours_told.square().sum().backward()
    theirs_told.square().sum().backward()
    close(ours.embed.weight.grad, theirs.get_parameter("model.encoder.embedder.input_embedding.weight").grad)
    with torch.no_grad():
        line = ours.straight.weight.normal_(generator=torch.Generator().manual_seed(1))
        told = ours(past)[..., 0] - ours_told
    for b, column in itertools.product(range(4), range(3)):
        seen = past[b, :, column]
        close(told[b, :, column], line @ (seen - seen.mean()))  # the norm goes in and comes out


@pytest.fixture
def points():
    g = torch.Generator().manual_seed(3)
    return torch.rand(2, 6, generator=g).double().cumsum(1), torch.randn(2, 6, generator=g).double()


def test_the_encoder_of_series_is_torchs(points, shake):
    model = shake(build(SeriesTransformerConfig(width=16, layers=1, heads=2, ffn=24)), 2.0).double().eval()
    layer, ours = (
        nn.TransformerEncoderLayer(16, 2, 24, 0.0, "gelu", batch_first=True, norm_first=True).double(),
        model.layers[0],
    )
    attention, mlp = ours.attention, ours.mlp
    for name, tensor in {
        "self_attn.in_proj_weight": attention.qkv.weight, "self_attn.in_proj_bias": attention.qkv.bias,
        "self_attn.out_proj.weight": attention.out.weight, "self_attn.out_proj.bias": attention.out.bias,
        "linear1.weight": mlp.up.weight, "linear1.bias": mlp.up.bias,
        "linear2.weight": mlp.down.weight, "linear2.bias": mlp.down.bias,
        "norm1.weight": ours.norm1.weight, "norm1.bias": ours.norm1.bias,
        "norm2.weight": ours.norm2.weight, "norm2.bias": ours.norm2.bias,
    }.items():  # fmt: skip
        layer.get_parameter(name).data.copy_(tensor)
    tokens, _ = model.tokens(*points)
    close(model(*points), model.norm(layer(tokens)).mean(1))


def test_the_recurrent_model_of_series_is_torchs_lstm(points, shake):
    model = shake(build(SeriesRecurrentConfig(width=8, layers=1)), 2.0).double().eval()
    lstm, cell = nn.LSTM(8, 8, batch_first=True).double(), model.cells[0]
    for name, tensor in (("weight_ih_l0", cell.W_xh), ("weight_hh_l0", cell.W_hh), ("bias_ih_l0", cell.b_h)):
        lstm.get_parameter(name).data.copy_(tensor)
    lstm.bias_hh_l0.data.zero_()
    close(model(*points), lstm(model.tokens(*points)[0])[0].mean(1))


def test_tokens_are_those_worked_out_by_hand():
    """Two bands; one token of two points, and the token of the whole."""
    c = SeriesTransformerConfig(bands=("g", "r"), width=24, heads=2, patch=2, stride=1, tick=1.0, span=8.0)
    model = build(c).double()
    tokens = model.tokens
    tokens.points.weight.data, tokens.points.bias.data = torch.eye(24, 10).double(), torch.zeros(24).double()
    tokens.whole.weight.data, tokens.whole.bias.data = torch.eye(24, 6).double(), torch.zeros(24).double()
    tokens.time.gain.data.zero_()
    times, values = torch.tensor([[3.0, 4.0, 6.0]]).double(), torch.tensor([[1.0, 5.0, 3.0]]).double()
    errors, bands = torch.tensor([[0.5, 0.5, 1.0]]).double(), torch.tensor([[0, 1, 0]])
    x, count = tokens(times, values, errors, bands)
    assert count is None and x.shape == (1, 3, 24)
    spread = math.sqrt((1 + 0 + 1) / 3)  # band g is centred at 2, band r at 5
    point = lambda z, e, g: [z / spread, math.asinh(z / e), 1.0, g, 1.0 - g]  # noqa: E731
    a, b, d = point(-1, 0.5, 1.0), point(0, 0.5, 0.0), point(1, 1.0, 1.0)
    expected = [v for pair in zip(a, b, strict=True) for v in pair]
    close(x[0, 1, :10], torch.tensor(expected).double(), rtol=1e-4, atol=1e-4)
    expected = [v for pair in zip(b, d, strict=True) for v in pair]
    close(x[0, 2, :10], torch.tensor(expected).double(), rtol=1e-4, atol=1e-4)
    whole = [math.asinh(3), math.log(spread), math.asinh(-1), math.asinh(2)]
    whole += [math.log(1 / spread), math.log(1e-3)]
    close(x[0, 0, :6], torch.tensor(whole).double(), rtol=1e-2, atol=1e-2)


def test_a_peak_is_the_mean_time_of_what_rises_half_as_high():
    """In errors: the second and third point stand 4 and 3 above the mean of 2, the last a little, the others below."""
    c = SeriesTransformerConfig(width=8, heads=2, tick=1.0, span=8.0, origin="peak")
    tokens = build(c).double().tokens
    messages = []
    tokens.time.forward = lambda x, times: messages.append(times) or x
    values, errors = torch.tensor([[1.0, 6.0, 3.5, -3.0, 2.5]]).double(), torch.tensor([[1.0, 1, 0.5, 1, 9]]).double()
    tokens(torch.tensor([[3.0, 4.0, 6.0, 7.0, 9.0]]).double(), values, errors)
    peak = (4 * 4.0 + 3 * 6.0) / 7
    close(messages[0][0], torch.tensor([3.0, 4.0, 6.0, 7.0, 9.0]).double() - peak)


def test_an_error_of_zero_is_one_that_is_not_known():
    errors, seen = torch.tensor([[0.0, 1.0, 3.0, 9.0], [0.0, 0.0, 0.0, 0.0]]), torch.ones(2, 4, dtype=torch.bool)
    seen[0, 3] = False
    actual = known_errors(errors, seen, torch.tensor([[0.5], [0.7]]))
    close(actual, torch.tensor([[2.0, 1.0, 3.0, 9.0], [0.7, 0.7, 0.7, 0.7]]))


def test_time_is_told_by_sines_of_periods_between_tick_and_span():
    waves = TimeWaves(6, 2.0, 32.0).double()
    waves.gain.data.fill_(1.0)
    times = torch.tensor([[0.0, 1.3, 7.0]]).double()
    told = waves(torch.zeros(1, 3, 6).double(), times)[0]
    for t, row in zip(times[0].tolist(), told, strict=True):
        angles = [2 * math.pi * t / period for period in (2.0, 8.0, 32.0)]
        expected = [*map(math.sin, angles), *map(math.cos, angles)]
        close(row, torch.tensor(expected).double(), rtol=1e-5, atol=1e-5)


def test_modulation_is_a_factor_and_a_summand_of_fourier_series():
    part = TimeModulation(3, 2.0, 8.0).double()
    times, x = torch.tensor([[0.5, 3.0]]).double(), torch.randn(1, 2, 3).double()
    actual = part(x, times)
    for t in range(2):
        angles = [2 * math.pi * k * float(times[0, t]) / 8.0 for k in (1, 2, 3, 4)]
        waves = torch.tensor([*map(math.sin, angles), *map(math.cos, angles)]).double()
        factor, summand = (m.weight @ waves + m.bias for m in (part.factor, part.summand))
        close(actual[0, t], x[0, t] * (1 + factor) + summand, rtol=1e-5, atol=1e-5)
