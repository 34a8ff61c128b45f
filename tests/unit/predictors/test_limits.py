"""Predictors at exactly what their models can read: that much is read whole, one more is refused or cut."""

import numpy as np
import pytest
import torch
from tests.contract.cases import EOS, LANGUAGE_MODELS, TRANSLATORS
from tests.contract.test_translator import Ids
from tests.system.cli_toy import regard, works
from tests.unit.inside.tiny import write

from regard.data.history import History
from regard.data.tokenizers.bpe import BPE
from regard.errors import ConfigError, DataError
from regard.models import build
from regard.models.forecaster import ForecasterConfig
from regard.predictors import ForecastPredictor, Translator, Writer

ROOM = 32  # of the tiny models, all alike


class Numbers(Ids):
    """Of a language model: ids are written as they are, and nothing stands before a text."""

    bos, ends, chat_template = None, (EOS,), ""

    def encode(self, text, special=False):
        return super().encode(text)

    def piece(self, id):
        return str(id)


@pytest.fixture
def writer(shake) -> Writer:
    torch.manual_seed(0)
    return Writer(shake(build(LANGUAGE_MODELS["gpt-learned"])), Numbers())


def numbers(count: int) -> str:
    return " ".join(str(1 + i % 20) for i in range(count))


def test_a_source_and_its_end_mark_fill_the_model(shake):
    torch.manual_seed(0)
    translator = Translator(shake(build(TRANSLATORS["transformer-learned"])), Ids())
    fits, over = numbers(ROOM - 1), numbers(ROOM)
    assert translator.translate([fits], beam=2, max_length=4) and translator.score([fits], ["1 2"])[0] < 0
    with pytest.raises(ConfigError, match=f"text 2 has {ROOM + 1} tokens, this model reads at most {ROOM}"):
        translator.translate(["1", over], beam=2, max_length=4)


def test_a_translation_grows_to_exactly_the_limit(shake):
    """Twice its source and ten more, and no more than the model has places for."""
    torch.manual_seed(0)
    translator = Translator(shake(build(TRANSLATORS["transformer-learned"])), Ids())
    texts = [numbers(n) for n in (1, 5, 12, 31)]
    (limits,) = [limits.tolist() for _, _, _, limits in translator.batches(texts, 8, 0)]
    assert limits == [32, 32, 22, 14], "sources of 32, 13, 6 and 2 pieces with their end marks"
    (limits,) = [limits.tolist() for _, _, _, limits in translator.batches(texts, 8, 33)]
    assert limits == [32] * 4


def by_hand(writer: Writer, ids: list[int], start: int, stop: int) -> float:
    """Bits of the ids after `start`, up to `stop`, read from `start` on."""
    x = torch.tensor([ids[start:stop]])
    words = writer.model.logits(writer.model(x[:, :-1]))[0].double().log_softmax(-1)
    return -sum(words[t, id].item() for t, id in enumerate(ids[start + 1 : stop])) / np.log(2)


@torch.inference_mode()
def test_surprisal_reads_exactly_as_much_as_the_model(writer):
    ids = Numbers().encode(numbers(ROOM))
    actual = writer.surprisal(numbers(ROOM))
    assert len(actual) == ROOM - 1
    assert sum(s.bits for s in actual) == pytest.approx(by_hand(writer, ids, 0, ROOM), rel=1e-5)
    with pytest.raises(DataError, match=f"a text of {ROOM + 1} tokens; .* at most {ROOM}"):
        writer.surprisal(numbers(ROOM + 1))


@pytest.mark.parametrize("count", [ROOM - 1, ROOM, ROOM + 1, 2 * ROOM, 2 * ROOM + 1])
@torch.inference_mode()
def test_bits_of_a_long_text_are_those_of_its_windows(writer, count):
    """Every target once, in windows of as many inputs as the model reads, the first target of each seen before."""
    ids = [7, *Numbers().encode(numbers(count))]
    expected = sum(by_hand(writer, ids, a, min(a + ROOM + 1, len(ids))) for a in range(0, len(ids) - 1, ROOM))
    assert writer.bits(numbers(count), after="7") == pytest.approx(expected, rel=1e-5)


def test_the_next_token_goes_by_the_last_that_fit(writer):
    long = numbers(50)
    last = " ".join(long.split()[-ROOM:])
    assert [c.probability for c in writer.next(long)] == [c.probability for c in writer.next(last)]
    shorter = " ".join(long.split()[-ROOM + 1 :])
    assert [c.probability for c in writer.next(long)] != [c.probability for c in writer.next(shorter)]


def test_a_forecast_takes_exactly_the_rows_it_looks_back(shake):
    torch.manual_seed(0)
    config = ForecasterConfig(
        columns=("x",), lookback=12, horizon=3, patch=4, stride=4, width=8, layers=1, heads=2, ffn=8
    )
    model = ForecastPredictor(shake(build(config), 2.0), "cpu", {})
    values = np.sin(np.arange(20.0))[:, None]
    exact, more = (History(("x",), values[-n:], None) for n in (12, 20))
    assert np.allclose(model.forecast(exact).mean, model.forecast(more).mean)
    with pytest.raises(DataError, match="11 rows, but this model needs 12"):
        model.forecast(History(("x",), values[-11:], None))


@pytest.mark.parametrize("verb", ["translate", "predict"])
def test_the_command_line_draws_the_same_line(tmp_path, verb):
    """A line that fits with its end mark is translated; of one that does not, the number is told."""
    folder = write(tmp_path / "model", "transformer")
    room = 64
    fits = " ".join(["the"] * (room - 1))
    assert len(BPE.load(folder).encode(fits)) == room - 1, "a piece a word"
    (tmp_path / "in.txt").write_text(f"The cat\n{fits}\n")
    words = [verb, folder, "--beam=1", "--device=cpu"] + [tmp_path / "in.txt"] * (verb == "predict")
    assert len(works(*words, typed=f"The cat\n{fits}\n").lines) == 2
    (tmp_path / "in.txt").write_text(f"The cat\n{fits} the\n")
    result = regard(*words, typed=f"The cat\n{fits} the\n")
    assert result.code == 2 and f"line 2 has {room + 1} tokens, this model reads at most {room}" in result.err
