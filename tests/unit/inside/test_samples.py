"""Models that read no text: their parts, where they look, and what they lose without a part."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from regard.data.features import Feature
from regard.data.history import History
from regard.data.series import Curves
from regard.inside.attention import stages
from regard.inside.look import look
from regard.inside.looked import Question
from regard.models import build
from regard.models.audio_classifier import AudioTransformerConfig
from regard.models.captioner import CaptionerConfig, ShowAttendTellConfig
from regard.models.forecaster import ForecasterConfig
from regard.models.plain import ConvConfig, MLPConfig
from regard.models.series import SeriesTransformerConfig
from regard.models.vit import ViTConfig
from regard.predictors.audio import AudioClassifier
from regard.predictors.captioner import ImageCaptioner
from regard.predictors.images import ImageClassifier
from regard.predictors.series import ForecastPredictor, SeriesClassifier
from regard.predictors.tables import TableClassifier
from regard.tasks.registry import TASKS
from regard.tasks.use import TestSet

LABELS = ("a", "b", "c")


def ready(predictor, task: str, inputs, count: int):
    """A predictor as `regard.load` returns it, with a test set in memory."""
    predictor.task, predictor.test = TASKS[task], TestSet(on="memory", inputs=inputs, targets=[0] * count)
    return predictor


def classes(looked) -> list[float]:
    return [one["p"] for one in looked.results["classes"]]


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (3, 1, 8, 8), dtype=np.uint8)


@pytest.mark.parametrize("pool", ["token", "mean"])
def test_patches_of_an_image_and_where_its_heads_look(pixels, tmp_path, pool):
    torch.manual_seed(0)
    model = build(
        ViTConfig(image=8, channels=1, patch=2, width=16, layers=2, heads=2, ffn=16, labels=LABELS, pool=pool)
    )
    predictor = ready(ImageClassifier(model), "image", pixels, 3)
    looked = look(predictor, Question(number=4))
    assert looked.example == {"on": "memory", "number": 1, "count": 3}
    assert classes(looked) == pytest.approx(predictor.probabilities(pixels[1:2])[0].tolist())
    before = int(pool == "token")
    names = [chip["shown"] for chip in looked.streams["parts"]]
    assert names[before : before + 5] == ["1,1", "1,2", "1,3", "1,4", "2,1"] and len(names) == 16 + before
    assert (looked.tensors["pixels"].numpy() == pixels[1, 0][..., None]).all()
    Image.fromarray(pixels[1, 0]).save(tmp_path / "one.png")
    seen = predictor.attention(tmp_path / "one.png")
    for layer in range(2):
        for head in range(2):
            table = stages(looked.attention["self"].layers[layer], head)["weights"]
            row = table[0, 1:] / table[0, 1:].sum() if before else table.mean(0)
            assert_close(row.view(4, 4), torch.tensor(seen.heads[layer, head]))
    typed = look(predictor, Question(text=str(tmp_path / "one.png")))
    assert typed.example["number"] == 0, "a text is not the name of a file"
    again = look(predictor, Question(file=tmp_path / "one.png"))
    assert classes(again) == pytest.approx(classes(looked)) and again.example is None


def test_blocks_of_an_image_are_left_out_one_by_one(pixels):
    torch.manual_seed(0)
    model = build(ConvConfig(image=8, channels=1, width=4, layers=1, labels=LABELS, mean=(0.5,)))
    predictor = ready(ImageClassifier(model.double()), "image", pixels, 3)  # 32 bits round by batch size
    looked = look(predictor, Question())
    assert not looked.attention and looked.picture["count"] == 49
    without = pixels[0].copy()
    without[:, 0, 0] = 128  # the first of 7 x 7 blocks of 8 x 8 pixels
    before, after = (predictor.probabilities(x[None])[0] for x in (pixels[0], without))
    best = before.argmax()
    assert looked.results["occlusion"]["of"] == LABELS[best]
    assert looked.results["occlusion"]["changes"][0] == pytest.approx(before[best] - after[best])


def test_columns_of_a_row_are_left_out_one_by_one(tmp_path, monkeypatch):
    columns = (Feature("hours", usual=2.0), Feature("school", ("north", "south")))
    monkeypatch.setattr("regard.predictors.tables.read_columns", lambda _: ("passed", columns))
    mean = (2.0, 0.5, 0.5)
    predictor = TableClassifier(build(MLPConfig(shape=(3,), layers=0, labels=("no", "yes"), mean=mean)), tmp_path)
    weight = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, -1.0]])
    predictor.model.classifier.weight.data, predictor.model.classifier.bias.data = weight, torch.zeros(2)
    rows = np.array([[5.0, 1.0, 0.0]], np.float32)
    looked = look(ready(predictor, "table", rows, 1), Question())
    assert [chip["shown"] for chip in looked.streams["parts"]] == ["hours=5", "school=north"]
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    whole = 3 + 2 * 0.5 + 0.5
    expected = [sigmoid(whole) - sigmoid(whole - 3), sigmoid(whole) - sigmoid(3)]
    assert looked.results["occlusion"]["of"] == "yes"
    assert looked.results["occlusion"]["changes"] == pytest.approx(expected, abs=1e-6)
    assert "Without school=north" in looked.finding["occlusion"] or "Without hours=5" in looked.finding["occlusion"]
    typed = look(predictor, Question(text="hours=5, school=north"))
    assert typed.results["occlusion"]["changes"] == pytest.approx(expected, abs=1e-6)


def test_frames_of_a_clip_and_no_weight_on_padding():
    torch.manual_seed(0)
    config = AudioTransformerConfig(mels=8, frames=60, width=16, layers=1, heads=2, ffn=16, labels=LABELS)
    sounds = [torch.randn(4000)]
    predictor = ready(AudioClassifier(build(config)), "audio", sounds, 1)
    looked = look(predictor, Question())
    assert classes(looked) == pytest.approx(predictor.probabilities(sounds)[0].tolist())
    weights = stages(looked.attention["self"].layers[0], 1)["weights"]
    real = [not chip["special"] for chip in looked.streams["parts"]]
    assert len(real) == weights.size(1) and sum(real) == looked.picture["count"]
    assert_close(weights[:, real].sum(-1), torch.ones(len(weights)))
    assert [chip["shown"] for chip in looked.streams["parts"]][:3] == ["0.00 s", "0.02 s", "0.04 s"]


def test_points_of_a_series_and_the_token_of_the_whole():
    torch.manual_seed(0)
    config = SeriesTransformerConfig(labels=LABELS, width=16, layers=1, heads=2, ffn=16, patch=2, stride=1, span=20.0)
    times, values = np.arange(9.0), np.random.default_rng(0).normal(size=9)
    curves = Curves(["x", "y"], np.array([0, 4, 9]), times, values, None, None)
    predictor = ready(SeriesClassifier(build(config), "cpu", {}), "series", curves, 2)
    looked = look(predictor, Question(number=1))
    assert classes(looked) == pytest.approx(predictor.probabilities(curves)[1].tolist())
    assert looked.picture["spans"] == [[0, 2], [1, 3], [2, 4], [3, 5]] and looked.picture["before"] == 1
    assert_close(looked.tensors["y"], torch.tensor(values[4:]).float())
    assert len(looked.streams["parts"]) == looked.attention["self"].layers[0].k.size(2) == 5


def test_patches_of_the_past_and_the_forecast():
    torch.manual_seed(0)
    config = ForecasterConfig(
        columns=("x", "y"), lookback=20, horizon=4, patch=8, stride=5, width=16, layers=1, heads=2
    )
    predictor = ForecastPredictor(build(config), "cpu", {})
    history = History(("x", "y"), np.random.default_rng(0).normal(size=(30, 2)), None)
    predictor.task, predictor.test = TASKS["forecast"], [history]
    looked = look(predictor, Question())
    outlook = predictor.forecast(history)
    assert looked.results["forecast"]["mean"] == pytest.approx(outlook.mean[:, 0].tolist())
    assert looked.results["forecast"]["high"] == pytest.approx(outlook.quantiles[:, 0, -1].tolist())
    assert looked.picture["spans"] == [[0, 5], [2, 10], [7, 15], [12, 20]], "the last patch ends with the last row"
    assert_close(looked.tensors["y"], torch.tensor(history.values[-20:, 0]).float())
    assert "the first, x" in looked.notes[0]


@pytest.mark.parametrize("config", [CaptionerConfig, ShowAttendTellConfig])
def test_words_of_a_caption_and_where_each_looked(open_model, config):
    torch.manual_seed(0)
    tokenizer = open_model("transformer").tokenizer
    shape = dict(image=8, channels=1, patch=4, heads=2, ffn=16, encoder_layers=1, max_length=6, width=16)
    model = build(config(vocab=open_model("transformer").model.config.vocab, **shape))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 1, 8, 8), dtype=np.uint8)
    captioner = ready(ImageCaptioner(model, tokenizer), "caption", pixels, 2)
    looked = look(captioner, Question(number=1))
    (answer,) = captioner.predict(pixels[1:], beam=5)
    best = answer.candidates[0]
    assert looked.results["answer"] == best.text
    assert [chip["id"] for chip in looked.streams["target"]] == best.ids
    part = looked.attention[looked.picture["attention"]]
    weights = stages(part.layers[-1], 0)["weights"]
    assert weights.shape == (len(best.ids), len(looked.streams["parts"]))
    assert_close(weights.sum(-1), torch.ones(len(best.ids)))
