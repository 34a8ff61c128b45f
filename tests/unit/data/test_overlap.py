"""What is validated or scored on and was trained on too: counted, and said."""

import io
import json
import shutil
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard.data import overlap, prepare, text
from regard.data.audio import load_audio
from regard.data.features import load_table
from regard.data.images import load_images
from regard.data.pairs import clean
from regard.data.series import read_parts
from regard.data.settings import AudioConfig, ImagesConfig, PairsConfig, SeriesConfig, TableConfig, TextConfig
from regard.errors import DataError

LINES = [f"this is line number {i} of a text that nobody wrote twice" for i in range(60)]


def quiet(_: str) -> None:
    pass


def lines(path: Path, some) -> str:
    path.write_text("".join(x + "\n" for x in some))
    return str(path)


def sources_seen(config: PairsConfig, sources: list[str]) -> int:
    return overlap.count([clean(source) for source in sources], prepare.training_sources(config))


def passages_seen(config: TextConfig, scored: list[str], tokenizer) -> int:
    return overlap.count(scored, text.training_passages(config, tokenizer))


def test_count_is_of_what_is_scored_each_time_it_comes():
    assert overlap.count(["a", "b", "a", "c", ""], iter(["", "a", "x", "c"])) == 3
    assert overlap.count([], ["a"]) == 0 and overlap.count(["a"], []) == 0

    def endless():
        while True:
            yield from "abc"

    assert overlap.count(["b", "c"], endless()) == 2, "read no further than it takes"


def test_passages_are_lines_or_sentences_for_any_block_size():
    long = " ".join(f"Here is sentence number {i} of many." for i in range(20))
    whole = f"short\n{LINES[0]}\n\n  {LINES[1]}  \n{long}"
    expected = [LINES[0], LINES[1], *(f"Here is sentence number {i} of many." for i in range(20))]
    assert list(overlap.passages([whole])) == expected
    for size in (1, 7, 100):
        assert list(overlap.passages([whole[i : i + size] for i in range(0, len(whole), size)])) == expected
    assert list(overlap.passages([LINES[0], None, LINES[1]])) == LINES[:2], "a document ends its last line"


# -- translators ---------------------------------------------------------------------------------------------------


def test_sentences_a_translator_was_trained_on_are_counted(tmp_path):
    """Held-out ones were not trained on, though they stand in the same file; nor was a sentence over the word limit."""
    files = dict(source=lines(tmp_path / "a.en", LINES), target=lines(tmp_path / "a.fr", LINES))
    config = PairsConfig(**files, vocab=320)
    held = len(prepare.prepare(config, quiet).valid_text()[0])
    assert held > 0 and sources_seen(config, LINES) == 60 - held
    assert sources_seen(config, ["  ".join(x.split()) + " " for x in LINES] + ["new"]) == 60 - held
    own = PairsConfig(**files, valid_source=files["source"], valid_target=files["target"], max_words=5)
    assert sources_seen(own, LINES) == 0
    (tmp_path / "a.en").unlink()
    with pytest.raises(DataError):
        sources_seen(config, LINES)
    with pytest.raises(DataError, match="regard data get tatoeba-en-fr"):  # nothing is downloaded for it
        sources_seen(PairsConfig(name="tatoeba-en-fr"), LINES)


# -- language models -----------------------------------------------------------------------------------------------


def test_passages_a_language_model_was_trained_on_are_counted(tmp_path):
    """The last part of the text is held out; six lines of sixty."""
    config = TextConfig(path=lines(tmp_path / "a.txt", LINES), vocab=320, held_out=0.1)
    tokenizer = text.prepare_text(config, quiet).tokenizer
    scored = text.scored_passages(tmp_path / "a.txt", "")
    assert scored == LINES and passages_seen(config, scored, tokenizer) == 54
    other = text.scored_passages(
        Path(lines(tmp_path / "b.txt", [*LINES[:3], "a line of its own, and long enough"])), ""
    )
    assert passages_seen(config, other, tokenizer) == 3
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataError):
        passages_seen(config, other, tokenizer)
    with pytest.raises(DataError):
        passages_seen(TextConfig(name="shakespeare"), other, tokenizer)


def test_records_a_language_model_was_trained_on_are_counted(tmp_path):
    records = [json.dumps({"prompt": f"what is {i}?", "response": f"a number, {i}"}) for i in range(20)]
    config = TextConfig(path=lines(tmp_path / "a.jsonl", records), vocab=320, held_out=0.1)
    made = text.prepare_text(config, quiet)
    again = [*records, json.dumps({"prompt": "what is 1?", "response": "one"})]
    scored = text.scored_passages(Path(lines(tmp_path / "b.jsonl", again)), "")
    assert len(scored) == 21 and passages_seen(config, scored, made.tokenizer) == made.train.records < 20


@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_a_language_model_validated_on_its_training_text_is_warned(tmp_path, kind):
    rows = [json.dumps({"prompt": x, "response": "yes"}) for x in LINES] if kind == "jsonl" else LINES
    train, part = lines(tmp_path / f"a.{kind}", rows), lines(tmp_path / f"b.{kind}", [*rows[:7], *rows[:1]])
    for valid, shared, total in ((train, 60, 60), (part, 8, 8)):
        messages: list[str] = []
        for _ in range(2):  # built, and found ready
            text.prepare_text(TextConfig(path=train, valid=valid, vocab=320), messages.append)
        unit = "records" if kind == "jsonl" else "passages"
        warning = f"warning: {shared} of {total} validation {unit} are in the training data too"
        assert sum(warning in line for line in "\n".join(messages).splitlines()) == 2
    messages = []
    text.prepare_text(TextConfig(path=train, vocab=320, held_out=0.1), messages.append)
    assert "warning" not in "\n".join(messages)


# -- everything else -----------------------------------------------------------------------------------------------


def picture(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (8, 8, 3)).astype(np.uint8)).save(path)


def tone(path: Path, hertz: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    with wave.open(file, "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(8000)
        w.writeframes((np.sin(hertz * np.arange(1600) / 1000) * 9000).astype("<i2").tobytes())
    path.write_bytes(file.getvalue())


@pytest.mark.parametrize(("unit", "write", "ending"), [("images", picture, "png"), ("clips", tone, "wav")])
def test_overlap_of_images_and_clips_is_counted_by_content(tmp_path, unit, write, ending):
    for i in range(6):
        write(tmp_path / "train" / "ab"[i % 2] / f"{i}.{ending}", i)
        write(tmp_path / "other" / "ab"[i % 2] / f"{i}.{ending}", 100 + i)
    for i in (2, 3):
        shutil.copy(
            tmp_path / "train" / "ab"[i % 2] / f"{i}.{ending}", tmp_path / "other" / "ab"[i % 2] / f"x{i}.{ending}"
        )
    (tmp_path / "train" / "a" / f"broken.{ending}").write_bytes(b"")
    (tmp_path / "other" / "a" / f"also.{ending}").write_bytes(b"")
    config, load = (ImagesConfig, load_images) if unit == "images" else (AudioConfig, load_audio)
    said = load(config(path=str(tmp_path / "train"), valid=str(tmp_path / "other")), quiet).report()
    assert f"of 9 validation {unit} are in the training data too" in said
    assert "warning" not in load(config(path=str(tmp_path / "train")), quiet).report()


def test_rows_that_validate_and_are_trained_on_are_counted(tmp_path):
    rows = [f"{i},{'xy'[i % 2]},{i % 2}" for i in range(20)]
    train = lines(tmp_path / "a.csv", ["n,c,label", *rows])
    valid = lines(tmp_path / "b.csv", ["label,c,n", *(",".join(reversed(r.split(","))) for r in rows[:5]), "0,x,99"])
    data = load_table(TableConfig(path=train, valid=valid, label="label"))
    assert "warning: 5 of 6 validation rows are in the training data too; the score will be inflated" in data.report()
    assert "warning" not in load_table(TableConfig(path=train, label="label")).report()


def test_series_that_validate_and_are_trained_on_are_counted(tmp_path):
    rows = [f"{'ab'[i % 2]}\t{i}\t{i + 1}\t{i * i}" for i in range(12)]
    train, valid = lines(tmp_path / "a.tsv", rows), lines(tmp_path / "b.tsv", [*rows[:4], "a\t5\t5\t5", "b\t6\t6\t6"])
    messages: list[str] = []
    read_parts(SeriesConfig(path=train, valid=valid), messages.append)
    assert "warning: 4 of 6 validation series are in the training data too; the score will be inflated" in messages
