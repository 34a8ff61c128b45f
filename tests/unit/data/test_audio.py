"""Clips as people keep them: folders, names, archives and tables; what is held out, hidden, cut and skipped."""

import io
import tarfile
import wave
from pathlib import PurePosixPath

import numpy as np
import pytest
import torch

from regard.data.audio import (
    STEP,
    AudioConfig,
    AudioSource,
    Clip,
    Spectrograms,
    class_of,
    hold_out,
    list_clips,
    load_audio,
    masked,
    padded,
    parts,
)
from regard.data.waveform import HOP
from regard.errors import ConfigError, DataError


def tone(hertz: int, seconds: float = 0.2, rate: int = 8000) -> bytes:
    file = io.BytesIO()
    sound = np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)
    with wave.open(file, "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(rate)
        w.writeframes((sound * 20000).astype("<i2").tobytes())
    return file.getvalue()


@pytest.fixture
def folder(tmp_path):
    """Two classes of ten clips, a note and a broken clip beside them."""
    for name, base in (("high", 2000), ("low", 300)):
        (tmp_path / name).mkdir()
        for i in range(10):
            (tmp_path / name / f"{i}.wav").write_bytes(tone(base + 10 * i, 0.1 + 0.02 * i))
    (tmp_path / "high" / "notes.txt").write_text("not a clip")
    (tmp_path / "high" / "._0.wav").write_bytes(b"what some systems leave behind")
    return tmp_path


def quiet(_: str) -> None:
    pass


def test_the_class_is_the_folder_or_the_beginning_of_the_name(folder, tmp_path_factory):
    assert [(c.label, c.file.rsplit("/", 1)[1]) for c in list_clips(folder)][::10] == [
        ("high", "0.wav"),
        ("low", "0.wav"),
    ]
    assert len(list_clips(folder)) == 20
    flat = tmp_path_factory.mktemp("flat")
    (flat / "7_ada_3.wav").write_bytes(tone(100))
    (flat / "seven.wav").write_bytes(tone(100))
    assert [clip.label for clip in list_clips(flat)] == ["7", ""]
    with pytest.raises(DataError, match=r"seven.wav has no class"):
        parts(AudioConfig(path=str(flat)))
    assert list_clips(flat / "seven.wav") == [Clip(str(flat / "seven.wav"))]


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("cat/1.wav", "cat"),
        ("cat/loud/1.wav", "cat"),
        ("cat/dog_1.wav", "cat"),
        ("cat_dog_1.wav", "cat"),
        ("1.wav", ""),
    ],
)
def test_class_of_is_the_top_folder_or_the_first_word(path, label):
    assert class_of(PurePosixPath(path)) == label


def test_archive_of_a_folder_and_loose_clips_keeps_the_folder(folder, tmp_path):
    path = tmp_path / "mixed.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(folder / "low" / "0.wav", "clips/low/0.wav")
        tar.add(folder / "high" / "0.wav", "high_0.wav")
    assert {clip.label for clip in list_clips(path)} == {"clips", "high"}


@pytest.mark.parametrize("column", ["file", "path", "clip", "audio", "wav", "filename", "file_name"])
def test_column_of_files_is_found_by_every_usual_name(folder, column):
    (folder / "table.csv").write_text(f"label,{column}\nhigh,high/0.wav\nlow,low/0.wav\n")
    clips = list_clips(folder / "table.csv")
    assert [(clip.label, clip.file) for clip in clips] == [
        ("high", str(folder / "high/0.wav")), ("low", str(folder / "low/0.wav"))
    ]  # fmt: skip


def test_report_adds_up_the_minutes_of_training(tmp_path):
    for label in ("low", "high"):
        (tmp_path / label).mkdir()
        for i in range(4):
            (tmp_path / label / f"{i}.wav").write_bytes(tone(200 + 10 * i, 15.0, 2000))
    data = load_audio(AudioConfig(path=str(tmp_path), seconds=15, mels=4, held_out=0.25), quiet)
    assert len(data.train) == 6 and "; 1.5 minutes\n" in data.report()


def test_an_archive_is_a_folder(folder, tmp_path):
    path = tmp_path / "clips.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in ("low", "high"):
            tar.add(folder / name, name)
    actual, expected = list_clips(path), list_clips(folder)
    assert [clip.label for clip in actual] == [clip.label for clip in expected]
    assert all(torch.equal(a.waveform(), b.waveform()) for a, b in zip(actual, expected, strict=True))
    with tarfile.open(tmp_path / "whole.tar", "w") as tar:  # as tar cf whole.tar clips/ makes it
        for name in ("low", "high"):
            tar.add(folder / name, f"clips/{name}")
    assert [clip.label for clip in list_clips(tmp_path / "whole.tar")] == [clip.label for clip in expected]
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match="damaged or not a tar archive"):
        list_clips(path)


def test_a_table_names_files_beside_it(folder):
    table = folder / "clips.csv"
    table.write_text("file,speaker,word\nhigh/1.wav,ada,up\nlow/2.wav,bob,down\n")
    assert [clip.label for clip in list_clips(table)] == ["up", "down"]  # the last column, where none has a usual name
    assert [clip.label for clip in list_clips(table, "speaker")] == ["ada", "bob"]
    assert list_clips(table)[1].waveform().shape == list_clips(folder / "low" / "2.wav")[0].waveform().shape
    table.write_text("file,label\nhigh/1.wav,\n")
    with pytest.raises(DataError, match=r"line 2: no label"):
        list_clips(table)
    with pytest.raises(DataError, match="no file or folder"):
        list_clips(folder / "none")


def test_some_of_every_class_are_held_out_always_the_same():
    clips = [Clip(f"{label}/{n}.wav", label, data=f"{label}{n}".encode()) for label in "ab" for n in range(50)]
    train, valid = hold_out(clips, AudioConfig())
    assert sorted(c.label for c in valid) == ["a"] * 5 + ["b"] * 5
    assert {c.file for c in train} | {c.file for c in valid} == {c.file for c in clips}
    assert hold_out(clips[::-1], AudioConfig())[1] == valid[::-1]
    twice = [Clip(f"again/{c.file}", c.label, c.data) for c in clips]
    train, valid = hold_out([*clips, *twice], AudioConfig())
    assert len(valid) == 20 and not {c.data for c in train} & {c.data for c in valid}, "a copy is the same clip"
    with pytest.raises(DataError, match="too few"):
        hold_out([clips[0], clips[-1]], AudioConfig())


def test_pictures_of_all_that_can_be_read_and_a_word_about_the_rest(folder):
    (folder / "low" / "bad.wav").write_bytes(b"RIFF")
    (folder / "low" / "long.wav").write_bytes(tone(200, 1.0))
    data = load_audio(AudioConfig(path=str(folder), seconds=0.5, mels=12, held_out=0.2), quiet)
    assert data.labels == ("high", "low") and len(data.train) + len(data.valid) == 21
    assert "skipped 1 clip" in data.report() and "bad.wav is not a WAV, FLAC, OGG or MP3 file" in data.report()
    assert "cut 1 clips: longer than 0.5 seconds" in data.report()
    assert max(x.size(1) for part in (data.train, data.valid) for x in part.frames) == 50
    loudest = [float(x.mean(1).argmax()) for x in data.train.frames]
    by_class = [np.mean([m for m, y in zip(loudest, data.train.labels, strict=True) if y == k]) for k in (0, 1)]
    assert by_class[0] > by_class[1] + 3  # high is high


def test_clips_larger_than_memory_are_skipped_unless_all_are(folder, tmp_path_factory, monkeypatch):
    """A file of a megabyte with a budget of half that; and a validation folder of which nothing can be read."""
    monkeypatch.setenv("REGARD_MEMORY", "500K")
    (folder / "low" / "huge.wav").write_bytes(tone(200, 60.0))
    data = load_audio(AudioConfig(path=str(folder), mels=12), quiet)
    assert "skipped 1 clip" in data.report() and "huge.wav would need" in data.report()
    other = tmp_path_factory.mktemp("valid")
    (other / "low").mkdir()
    (other / "low" / "bad.wav").write_bytes(b"")
    with pytest.raises(DataError, match=r"no validation clip can be read; skipped 1 clip; .*bad\.wav"):
        load_audio(AudioConfig(path=str(folder), valid=str(other), mels=12), quiet)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: f / "only" / "0.wav", "all clips have the class 'only'"),
        (lambda f: None, "there are no clips"),
    ],
)
def test_nothing_to_tell_apart_is_an_error(tmp_path, make, message):
    if path := make(tmp_path):
        path.parent.mkdir()
        for n in range(10):
            path.with_name(f"{n}.wav").write_bytes(tone(100 + n))
    with pytest.raises(DataError, match=message):
        load_audio(AudioConfig(path=str(tmp_path)), quiet)


def test_a_class_that_was_not_trained_on_is_named(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "middle").mkdir()
    (other / "middle" / "0.wav").write_bytes(tone(800))
    with pytest.raises(DataError, match="'middle' is not among those trained on: high, low"):
        load_audio(AudioConfig(path=str(folder), valid=str(other)), quiet)
    with pytest.raises(ConfigError, match="train on what"):
        load_audio(AudioConfig(), quiet)


def test_batches_are_zero_padded_and_masked_only_in_training():
    frames = [torch.rand(8, n) + 1 for n in (40, 7)]
    source = AudioSource(Spectrograms(frames, np.array([1, 0])), masks=2, widest=0.5)
    plain = source.batch(np.array([1, 0]))
    assert plain.inputs[0].shape == (2, 8, 2 * STEP) and plain.inputs[1].tolist() == [7, 40]
    assert torch.equal(plain.inputs[0][0, :, :7], frames[1]) and not plain.inputs[0][0, :, 7:].any()
    assert plain.targets.tolist() == [0, 1]
    changed = source.batch(np.array([1, 0]), np.random.default_rng(1))
    assert (changed.inputs[0] != plain.inputs[0]).any() and not changed.inputs[0][0, :, 7:].any()
    assert torch.equal(frames[0], source.clips.frames[0])


def test_masks_are_time_and_frequency_spans_of_set_widths():
    picture, widths = torch.rand(20, 50), []
    for seed in range(200):
        hidden = masked(picture, 1, 0.4, np.random.default_rng(seed)) != picture
        rows, columns = hidden.all(1), hidden.all(0)
        assert torch.equal(hidden, rows[:, None] | columns)  # whole bands and whole moments, nothing else
        for line in (rows, columns):
            where = line.nonzero().flatten().tolist()
            assert where == list(range(where[0], where[-1] + 1)) if where else True
        widths.append((int(rows.sum()), int(columns.sum())))
    assert max(w for w, _ in widths) == 8 and max(w for _, w in widths) == 20 and min(widths)[0] == 0


def test_what_a_mask_hides_becomes_the_mean_of_the_clip():
    picture = torch.rand(20, 50) + 3.0
    for seed in range(20):
        changed = masked(picture, 2, 0.4, np.random.default_rng(seed))
        hidden = changed != picture
        assert torch.allclose(changed[hidden], picture.mean().expand(int(hidden.sum())))


@pytest.mark.parametrize(("samples", "cut"), [(-1, 0), (0, 0), (1, 1)])
def test_a_clip_of_exactly_the_limit_is_not_cut(folder, samples, cut):
    """At half a second: one sample more is reported, and cut off."""
    (folder / "low" / "new.wav").write_bytes(tone(200, (8000.5 + samples) / 16000, rate=16000))
    data = load_audio(AudioConfig(path=str(folder), seconds=0.5, mels=12, held_out=0.2), quiet)
    assert ("cut 1 clips" in data.report()) == bool(cut)
    longest = max(x.size(1) for part in (data.train, data.valid) for x in part.frames)
    assert longest == (50 if samples >= 0 else 49)


def test_a_link_in_an_archive_is_no_clip(tmp_path):
    (tmp_path / "secret.wav").write_bytes(tone(100))
    with tarfile.open(tmp_path / "clips.tar", "w") as tar:
        for name, kind in (("high/soft.wav", tarfile.SYMTYPE), ("high/hard.wav", tarfile.LNKTYPE)):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, str(tmp_path / "secret.wav")
            tar.addfile(link)
        member, data = tarfile.TarInfo("high/real.wav"), tone(200)
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    assert [clip.file for clip in list_clips(tmp_path / "clips.tar")] == ["high/real.wav"]


def test_frames_are_ten_milliseconds():
    assert AudioConfig(seconds=2.0).frames == 200 == 2 * 16000 // HOP
    assert padded([torch.zeros(3, STEP)])[0].size(2) == STEP


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 0.0])
def test_length_of_clips_must_be_a_number_of_seconds(seconds):
    with pytest.raises(ConfigError, match=f"data.seconds is {seconds}; must be at least 0.1"):
        AudioConfig(path="clips", seconds=seconds)
