"""Bugs of series and forecasts: what is normed by what, who sees what, which windows there are."""

from tests.zoo.bug import bugs

CONTRACT, TORCH = ("contract/test_series.py", "contract/test_contract.py"), "reference/test_series.py"
READING, SCORES = "unit/data/test_series.py", "unit/metrics/test_series.py"
BATCHES, START = "unit/data/test_series_batch.py", "unit/tasks/test_forecast.py"

SERIES = [
    *bugs(
        "models.series",
        ("bands are centred by the mean of all", "norm", "(kinds * levels[:, None]).sum(-1)", "level", TORCH),
        (
            "a hidden value is in the norm",
            "SeriesTokens.forward",
            "seen = real if hidden is None else real & ~hidden",
            "seen = real",
            CONTRACT,
        ),
        (
            "time begins with the calendar",
            "SeriesTokens.forward",
            "(times - times[:, :1]) * real",
            "times * real",
            CONTRACT,
        ),
        ("a peak is all that rises", "peak", "2 * rise >= rise.amax(1, keepdim=True)", "rise > 0", TORCH),
        (
            "a hidden value makes the peak",
            "SeriesTokens.forward",
            "peak(passed, rise * seen)",
            "peak(passed, rise)",
            CONTRACT,
        ),
        (
            "how sure a point is goes by the spread",
            "SeriesTokens.forward",
            "torch.asinh(rise)",
            "torch.asinh(normed)",
            TORCH,
        ),
        (
            "what is not known is zero",
            "SeriesTokens.forward",
            "torch.where(whole.isnan(), self.usual[0], whole)",
            "whole.nan_to_num(0.0)",
            CONTRACT,
        ),
        ("padding is in the mean", "SeriesModel.forward", "pooled(x, tokens,", "pooled(x, None,", CONTRACT),
    ),
    *bugs(
        "models.forecaster",
        (
            "the norm is not undone",
            "Forecaster.forward",
            "forecast * scale[..., None] + centre[..., None]",
            "forecast",
            CONTRACT,
        ),
        ("patches begin at the first row", "Forecaster.patches", "(short, 0), mode", "(0, short), mode", CONTRACT),
        ("the straight line is left out", "Forecaster.forward", " + self.straight(seen)", "", TORCH),
        (
            "the straight line sees numbers as they are",
            "Forecaster.forward",
            "self.straight(seen)",
            "self.straight(past.transpose(1, 2).flatten(0, 1))",
            CONTRACT,
        ),
        (
            "a fitted line is of differences to the mean",
            "Forecaster.start_from_",
            "line[-1] += 1 - line.sum(0)",
            "pass",
            START,
        ),
        ("a fitted line is trained", "Forecaster.start_from_", "requires_grad_(False)", "requires_grad_(True)", START),
        (
            "the head speaks before it has learned",
            "Forecaster.start_from_",
            "nn.init.zeros_(self.head.weight)",
            "pass",
            START,
        ),
        ("the drift of the past is forecast", "Forecaster.forward", "if self.training:", "if True:", START),
        ("gaps count in the drift", "Forecaster.start_from_", ".masked_fill(miss.isnan(), 0.0)", "", START),
        (
            "each quantile has a line of its own",
            "Forecaster.start_from_",
            "line.T.repeat_interleave(1 + len(c.quantiles), 0)",
            "line.T.repeat(1 + len(c.quantiles), 1)",
            START,
        ),
        (
            "the straight line speaks at birth",
            "Forecaster.__init__",
            "nn.init.zeros_(self.straight.weight)",
            "pass",
            TORCH,
        ),
    ),
    *bugs(
        "metrics.forecast",
        (
            "the ridge is chosen on what it was fitted on",
            "LinearForecast.__init__",
            "moments(held_out, spread)",
            "moments(train, spread)",
            SCORES,
        ),
    ),
    *bugs(
        "training.loop",
        ("a fitted start is no candidate", "Training.loop", "self.parts.starts_fitted and not at.step", "False", START),
    ),
    *bugs(
        "objectives.forecast",
        ("too low costs as much as too high", "pinball", "torch.maximum(q * x, (q - 1) * x)", "x.abs() / 2", CONTRACT),
    ),
    *bugs(
        "data.series",
        ("files called alike are one series", "_folder", "stem if name_counts[stem] == 1 else name", "stem", READING),
        ("a table may not lack the label", "with_labels", "if labelled else _there(config.label, table)", "", READING),
        ("what comes twice is kept twice", "gather", "[order][~double]", "[order]", READING),
    ),
    *bugs(
        "data.series_batch",
        (
            "thinned points lose their order",
            "thinned",
            "np.sort(np.where(stays, order, real.shape[1]), 1)",
            "np.where(stays, order, real.shape[1])",
            BATCHES,
        ),
        (
            "padding stays and points go",
            "thinned",
            "np.where(real, rng.random(real.shape), 2.0)",
            "rng.random(real.shape)",
            BATCHES,
        ),
    ),
    *bugs(
        "data.history",
        (
            "the last window is dropped",
            "Windows.__init__",
            "np.arange(a, b - horizon + 1)",
            "np.arange(a, b - horizon)",
            "unit/data/test_history.py",
        ),
    ),
    *bugs(
        "metrics.series",
        ("a common class counts more", "weighted_log_loss", "logs[true == c].mean()", "logs[true == c].sum()", SCORES),
    ),
]
