"""Bugs of series and forecasts: what is normed by what, who sees what, which windows there are."""

from tests.zoo.bug import bugs

CONTRACT, TORCH = "contract/test_series.py", "reference/test_series.py"
READING, SCORES = "unit/data/test_series.py", "unit/evaluate/test_series.py"
BATCHES = "unit/data/test_series_batch.py"

SERIES = [
    *bugs(
        "models/series.py",
        ("bands are centred by the mean of all", "(kinds * levels[:, None]).sum(-1)", "level", TORCH),
        ("a hidden value is in the norm", "seen = real if hidden is None else real & ~hidden", "seen = real", CONTRACT),
        ("time begins with the calendar", "(times - times[:, :1]) * real", "times * real", CONTRACT),
        ("a peak is all that rises", "2 * rise >= rise.amax(1, keepdim=True)", "rise > 0", TORCH),
        ("a hidden value makes the peak", "peak(passed, rise * seen)", "peak(passed, rise)", CONTRACT),
        ("how sure a point is goes by the spread", "torch.asinh(rise)", "torch.asinh(normed)", TORCH),
        ("what is not known is zero", "torch.where(whole.isnan(), self.usual[0], whole)", "whole.nan_to_num(0.0)",
         CONTRACT),
        ("padding is in the mean", "(x * real[..., None]).sum(1)", "x.sum(1)", CONTRACT),
    ),
    *bugs(
        "models/forecaster.py",
        ("the norm is not undone", "told * scale[..., None] + centre[..., None]", "told", CONTRACT),
        ("patches begin at the first row", "(short, 0), mode", "(0, short), mode", CONTRACT),
        ("the straight line is left out", " + self.straight(seen)", "", TORCH),
        ("the straight line sees numbers as they are", "self.straight(seen)",
         "self.straight(past.transpose(1, 2).flatten(0, 1))", CONTRACT),
        ("the straight line speaks at birth", "nn.init.zeros_(self.straight.weight)", "pass", TORCH),
    ),
    *bugs(
        "objectives/forecast.py",
        ("too low costs as much as too high", "torch.maximum(q * x, (q - 1) * x)", "x.abs() / 2", CONTRACT),
    ),
    *bugs(
        "data/series.py",
        ("files called alike are one series", "stem if alike[stem] == 1 else name", "stem", READING),
        ("a table may not lack the label", "if labelled else _there(config.label, table)", "", READING),
        ("what comes twice is kept twice", "[order][~double]", "[order]", READING),
    ),
    *bugs(
        "data/series_batch.py",
        ("thinned points lose their order", "np.sort(np.where(stays, order, real.shape[1]), 1)",
         "np.where(stays, order, real.shape[1])", BATCHES),
        ("padding stays and points go", "np.where(real, rng.random(real.shape), 2.0)", "rng.random(real.shape)",
         BATCHES),
    ),
    *bugs(
        "data/history.py",
        ("the last window is dropped", "stop - horizon - self.first + 1", "stop - horizon - self.first",
         "unit/data/test_history.py"),
    ),
    *bugs(
        "evaluate/series.py",
        ("a common class counts more", "logs[true == c].mean()", "logs[true == c].sum()", SCORES),
    ),
]  # fmt: skip
