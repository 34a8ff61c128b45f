"""WAV files in all their widths, rates and states; the band a rate can carry; where long sounds are cut."""

import io
import itertools
import math
import struct
import sys
import wave

import numpy as np
import pytest
import soundfile
import torch

from regard.data.waveform import RATE, decode, hertz, load_waveform, log_mel, mel, resample, windows
from regard.errors import DataError, LimitError, MissingExtra

VALUES = [0.0, 0.5, -0.5, 0.25, -1.0]


def riff(
    tag: int, channels: int, rate: int, bits: int, data: bytes, extra: bytes = b"", size: int | None = None
) -> bytes:
    """A WAV file by hand, with a chunk of odd length that nobody asked for before the sound."""
    frame = channels * bits // 8
    fmt = struct.pack("<HHIIHH", tag, channels, rate, rate * frame, frame, bits) + extra
    chunks = b"fmt " + struct.pack("<I", len(fmt)) + fmt + b"LIST" + struct.pack("<I", 3) + b"abc\0"
    chunks += b"data" + struct.pack("<I", len(data) if size is None else size) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_pcm_of_every_width_as_the_standard_library_writes_it(width):
    whole = 2 ** (8 * width - 1)
    numbers = [max(-whole, min(whole - 1, round(v * whole))) for v in VALUES]
    data = b"".join((n + 128 if width == 1 else n).to_bytes(width, "little", signed=width > 1) for n in numbers)
    file = io.BytesIO()
    with wave.open(file, "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(width)
        w.setframerate(8000)
        w.writeframes(data)
    samples, rate = decode(file.getvalue(), "x.wav")
    assert rate == 8000 and samples.tolist() == VALUES


@pytest.mark.parametrize(("bits", "kind"), [(32, "<f4"), (64, "<f8")])
def test_floats_and_the_extensible_header(bits, kind):
    data = np.array(VALUES, kind).tobytes()
    assert decode(riff(3, 1, 16000, bits, data), "x")[0].tolist() == VALUES
    guid = struct.pack("<HHIH", 22, bits, 0, 3) + b"\0" * 14
    assert decode(riff(0xFFFE, 1, 16000, bits, data, guid), "x")[0].tolist() == VALUES


def test_channels_are_mixed_and_half_a_frame_is_left_out():
    data = struct.pack("<4h", 16384, 0, -16384, -16384) + b"\1"
    assert decode(riff(1, 2, 16000, 16, data), "x")[0].tolist() == [0.25, -0.5]


def test_wav_of_unknown_size_is_read_to_its_end():
    data = struct.pack("<2h", 16384, -16384)
    for size in (0x7FFF_FFFF, 0xFFFF_FFFF):
        assert decode(riff(1, 1, 16000, 16, data, size=size), "x")[0].tolist() == [0.5, -0.5]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"ID3\3 an mp3", "not a WAV, FLAC, OGG or MP3 file, or is damaged; convert it: ffmpeg"),
        (b"", "not a WAV, FLAC"),
        (riff(1, 1, 16000, 16, b"\0" * 8, size=80), "cut short: it claims 80 bytes of audio and has 8"),
        (riff(85, 1, 16000, 16, b"\0" * 8), "format 85; we read PCM"),
        (riff(1, 1, 0, 16, b"\0" * 8), "at 0 Hz"),
        (riff(1, 1, 16000, 16, b""), "holds no audio"),
        (riff(3, 1, 16000, 32, struct.pack("<4f", math.nan, 0, math.inf, 1)), "x.wav: 2 of 4 samples are not finite"),
        (riff(3, 1, 16000, 32, struct.pack("<2f", 1, 1e19)), "1 of 2 samples are not finite or far too large"),
        (riff(3, 1, 16000, 64, struct.pack("<2d", -1e300, 1e300)), "2 of 2 samples are not finite or far too large"),
        (riff(1, 1, 16000, 16, b"\0\0")[:36], "without audio"),
    ],
)
def test_what_cannot_be_read_is_said_in_words(data, message):
    with pytest.raises(DataError, match=message):
        decode(data, "x.wav")


@pytest.mark.parametrize(
    ("form", "apart"), [("FLAC", 1e-4), ("OGG", 0.05), ("MP3", 0.05), ("WAV", 1e-4), ("AIFF", 1e-4)]
)
def test_compressed_files_hold_the_same_audio(form, apart):
    """A chord of two channels, written by libsndfile; lossy formats may differ a little."""
    time = np.arange(16_000) / RATE
    chord = np.stack([0.4 * np.sin(2 * np.pi * 440 * time), 0.2 * np.sin(2 * np.pi * 330 * time)], 1)
    file = io.BytesIO()
    soundfile.write(file, chord, RATE, format=form)
    samples, rate = decode(file.getvalue(), "x")
    assert rate == RATE and abs(len(samples) - len(chord)) < 2_400
    shared = min(len(samples), len(chord))
    assert np.abs(samples.numpy()[:shared] - chord.mean(1)[:shared])[100:-2_400].max() < apart


@pytest.mark.parametrize("form", ["FLAC", "OGG", "MP3"])
def test_a_damaged_compressed_file_is_refused_in_a_sentence(form, monkeypatch):
    file = io.BytesIO()
    soundfile.write(file, np.zeros((16_000, 1)), RATE, format=form)
    data = file.getvalue()
    for bad in (data[:40], data[:4] + bytes(200)):
        with pytest.raises(DataError, match=r"x: |x is not a WAV, FLAC, OGG or MP3 file|x holds no audio"):
            decode(bad, "x")
    monkeypatch.setenv("REGARD_MEMORY", "64K")
    with pytest.raises(LimitError, match=r"x: 1 seconds of audio would need"):
        decode(data, "x")


def test_other_formats_than_wav_need_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "soundfile", None)
    assert decode(riff(1, 1, 16000, 16, b"\0" * 8), "x.wav")[1] == RATE
    with pytest.raises(MissingExtra, match=r"x.flac is not a WAV file; .* pip install 'regard\[audio\]'") as e:
        decode(b"fLaC", "x.flac")
    with pytest.raises(DataError, match=r"x.wav is not a WAV file"):
        decode(b"RIFF", "x.wav")
    assert e.value.exit_code == 3


def test_the_loudest_float_still_has_a_finite_picture():
    sound, _ = decode(riff(3, 1, 16000, 32, struct.pack("<2f", 2.0**31, -(2.0**31)) * 800), "x.wav")
    assert log_mel(sound).isfinite().all()


def test_a_file_that_is_not_there_and_a_folder(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        load_waveform(tmp_path / "no.wav")
    with pytest.raises(DataError, match="is a folder"):
        load_waveform(tmp_path)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 16001, 191_999])
def test_a_tone_is_the_same_tone_at_another_rate(rate):
    """The tone of 1 kHz, worked out at both rates; at the ends the sinc reaches into silence."""
    old = torch.sin(2 * math.pi * 1000 * torch.arange(rate) / rate)
    new = torch.sin(2 * math.pi * 1000 * torch.arange(RATE) / RATE)
    actual = resample(old, rate)
    assert len(actual) == RATE
    assert (actual - new)[400:-400].abs().max() < 1e-3


@pytest.mark.parametrize("rate", [22050, 44100, 48000])
def test_a_tone_the_new_rate_cannot_carry_is_gone(rate):
    """9 kHz at 16,000 samples a second would be heard as 7 kHz."""
    assert resample(torch.sin(2 * math.pi * 9000 * torch.arange(rate) / rate), rate)[400:-400].abs().max() < 5e-3


@pytest.mark.parametrize("rate", [1, 999, 384_001, 4_000_000_000])
def test_a_rate_nothing_records_at_is_refused_before_resampling(rate):
    data = riff(1, 1, 16_000, 16, b"\0" * 800)
    data = data.replace(struct.pack("<II", 16_000, 32_000), struct.pack("<II", rate, 0))
    with pytest.raises(DataError, match=f"x.wav: {rate:,} samples per second, expected 1,000 to 384,000"):
        decode(data, "x.wav")


def test_a_sound_larger_than_the_memory_budget_is_refused(monkeypatch, tmp_path):
    (tmp_path / "long.wav").write_bytes(data := riff(1, 1, 1_000, 8, b"\0" * 100_000))
    monkeypatch.setenv("REGARD_MEMORY", "1M")
    with pytest.raises(LimitError, match=r"x.wav: 100 seconds of audio would need .* the limit is 1.0 MB; cut it into"):
        decode(data, "x.wav")
    monkeypatch.setenv("REGARD_MEMORY", "50K")
    with pytest.raises(LimitError, match=r"reading .*long.wav would need"):
        load_waveform(tmp_path / "long.wav")


def test_hertz_and_mels_undo_each_other_and_meet_at_one_kilohertz():
    assert mel(torch.tensor([0.0, 200.0, 1000.0, 6400.0])).tolist() == pytest.approx([0, 3, 15, 42])
    f = torch.linspace(0, 8000, 50)
    torch.testing.assert_close(hertz(mel(f)), f)


def test_a_tone_lights_the_band_that_holds_it():
    picture = log_mel(torch.sin(2 * math.pi * 1000 * torch.arange(RATE) / RATE), 40)
    corners = hertz(torch.linspace(0, float(mel(torch.tensor(RATE / 2))), 42))
    loudest = picture[:, 50].argmax()
    assert picture.shape == (40, 100) and corners[loudest] < 1000 < corners[loudest + 2]


def test_a_click_shorter_than_a_frame_still_has_a_picture():
    assert log_mel(torch.ones(3), 8).shape == (8, 2) and log_mel(torch.ones(3), 8).isfinite().all()


def test_long_audio_is_cut_at_quiet_places_without_loss():
    sound = torch.randn(100_000)
    sound[34_000:40_000] = 0.0  # twice a quiet place in the last third of a part
    sound[68_000:74_000] = 0.0
    parts = list(windows(sound, 45_000))
    assert parts[0][0] == 0 and parts[-1][1] == 100_000
    assert all(a[1] == b[0] for a, b in itertools.pairwise(parts))
    assert all(0 < stop - start <= 45_000 for start, stop in parts)
    assert 34_000 <= parts[0][1] <= 40_000 and 68_000 <= parts[1][1] <= 74_000 and len(parts) == 3
    assert list(windows(sound[:45_000], 45_000)) == [(0, 45_000)]
