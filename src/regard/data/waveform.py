"""Audio files to samples at one rate, and samples to the log-mel spectrogram that speech models read."""

import io
import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard import limits
from regard.data.folders import user_path
from regard.data.settings import HOP, RATE
from regard.errors import DataError, MissingExtra

REACH = 400  # samples of a frame: 25 ms
PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE  # format tags of a WAV file
STREAMED = 0x7FFF_0000  # a size this large was written before the samples; the actual size counts
LOUDEST = 2.0**31  # largest sample; floats are usually within ±1, or as large as 32-bit integers
ZEROS = 32  # zero crossings of the sinc on each side, when resampling
SLOWEST, FASTEST = 1_000, 384_000  # samples per second of a file
TABLE = 1 << 22  # weights computed, or applied, at once
PASSED = 0.95  # of the common bandwidth of both rates
CONVERT = f"convert it: ffmpeg -i FILE -ac 1 -ar {RATE} clip.wav"


def load_waveform(path: str | Path) -> Tensor:
    """The samples of a file, within ±1 at `RATE`, mixed to mono."""
    path = user_path(path)
    try:
        limits.require(path.stat().st_size, f"reading {path}", "cut it into parts")
        data = path.read_bytes()
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; name an audio file") from None
    except OSError as e:
        raise DataError(f"{path} cannot be read ({e.strerror or e})") from None
    return resample(*decode(data, str(path)))


def decode(data: bytes, where: str) -> tuple[Tensor, int]:
    """The samples of a file's bytes, mixed to mono, and their rate. `where` is for error messages."""
    samples, rate = (_read_wav if is_wav(data) else _read_compressed)(data, where)
    if bad := int((~(np.abs(samples) <= LOUDEST)).sum()):  # NaN is not below anything
        raise DataError(f"{where}: {bad:,} of {samples.size:,} samples are not finite or far too large; it is damaged")
    return torch.from_numpy(samples.astype(np.float32)).mean(1), rate


def count_seconds(path: Path) -> float:
    """The length of an audio file, as its header claims."""
    data, where = path.read_bytes(), str(path)
    if is_wav(data):
        _, channels, rate, bits, samples = _wav_parts(data, where)
        return len(samples) // (channels * bits // 8) / rate
    with _compressed(data, where) as file:
        return file.frames / file.samplerate


def is_wav(data: bytes) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WAVE"


def _read_wav(data: bytes, where: str) -> tuple[np.ndarray, int]:
    """The samples of a WAV file, T C, and their rate."""
    tag, channels, rate, bits, samples = _wav_parts(data, where)
    frame = channels * bits // 8
    count = len(samples) // frame
    _check_size(count, channels, rate, where)
    return DECODERS[tag, bits](samples[: count * frame]).reshape(-1, channels), rate


def _wav_parts(data: bytes, where: str) -> tuple[int, int, int, int, bytes]:
    """The format, channels, rate, bits and sample bytes of a WAV file."""
    chunks: dict[bytes, bytes] = {}
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        chunks.setdefault(name, data[at + 8 : at + 8 + size])
        if name == b"data" and len(chunks[name]) < size < STREAMED:
            raise DataError(f"{where} is cut short: it claims {size:,} bytes of audio and has {len(chunks[name]):,}")
        at += 8 + size + size % 2
    if len(chunks.get(b"fmt ", b"")) < 16 or b"data" not in chunks:
        raise DataError(f"{where}: a WAV file without {'a format' if b'data' in chunks else 'audio'}; it is damaged")
    tag, channels, rate, _, _, bits = struct.unpack("<HHIIHH", chunks[b"fmt "][:16])
    if tag == EXTENSIBLE and len(chunks[b"fmt "]) >= 26:
        tag = int.from_bytes(chunks[b"fmt "][24:26], "little")
    if not channels or not rate or (tag, bits) not in DECODERS:
        raise DataError(
            f"{where}: {channels} channels of {bits} bits at {rate} Hz, format {tag}; we read PCM of 8, 16, 24 and 32 "
            "bits and floats of 32 and 64"
        )
    return tag, channels, rate, bits, chunks[b"data"]


def _read_compressed(data: bytes, where: str) -> tuple[np.ndarray, int]:
    """The samples of a FLAC, OGG, MP3 or other file that libsndfile reads, T C, and their rate."""
    with _compressed(data, where) as file:
        _check_size(file.frames, file.channels, file.samplerate, where)
        return file.read(dtype="float32", always_2d=True), file.samplerate


@contextmanager
def _compressed(data: bytes, where: str) -> Iterator[Any]:
    """The file, opened by libsndfile."""
    try:
        import soundfile
    except (ImportError, OSError):
        if where.lower().endswith(".wav"):
            raise DataError(f"{where} is not a WAV file, or is damaged; {CONVERT}") from None
        raise MissingExtra(f"{where} is not a WAV file; reading other formats", "audio") from None
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            yield file
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError):
        raise DataError(f"{where} is not a WAV, FLAC, OGG or MP3 file, or is damaged; {CONVERT}") from None


def _check_size(count: int, channels: int, rate: int, where: str) -> None:
    """Check what a header claims, before anything of that size is allocated."""
    if not SLOWEST <= rate <= FASTEST:
        expected = f"expected {SLOWEST:,} to {FASTEST:,}; if its header is wrong, {CONVERT}"
        raise DataError(f"{where}: {rate:,} samples per second, {expected}")
    if not count:
        raise DataError(f"{where} holds no audio")
    need = 8 * count * channels + 4 * count * max(1.0, RATE / rate)  # decoded, then at our rate
    limits.require(need, f"{where}: {count / rate:,.0f} seconds of audio", "cut it into parts")


def _int24(data: bytes) -> np.ndarray:
    low = np.frombuffer(data, np.uint8).reshape(-1, 3)
    padded = np.concatenate((np.zeros_like(low[:, :1]), low), 1)  # the upper three bytes of four
    return padded.reshape(-1).view("<i4") / 2**31


DECODERS = {
    (PCM, 8): lambda data: (np.frombuffer(data, np.uint8) - 128.0) / 128,  # the only unsigned width
    (PCM, 16): lambda data: np.frombuffer(data, "<i2") / 2**15,
    (PCM, 24): _int24,
    (PCM, 32): lambda data: np.frombuffer(data, "<i4") / 2**31,
    (FLOAT, 32): lambda data: np.frombuffer(data, "<f4"),
    (FLOAT, 64): lambda data: np.frombuffer(data, "<f8"),
}


def resample(samples: Tensor, rate: int, to: int = RATE) -> Tensor:
    """The samples at another rate, band-limited: each a mean of the old ones around it, weighted by a windowed sinc."""
    if rate == to:
        return samples
    up, down = to // math.gcd(rate, to), rate // math.gcd(rate, to)
    cut = PASSED * min(1.0, to / rate)  # of half the old rate
    reach = math.ceil(ZEROS / cut)
    rows = max(1, TABLE // (2 * reach + 1))
    count = math.ceil(len(samples) * up / down)
    phases = torch.arange(min(up, count), dtype=torch.float64) * down / up  # new samples on the old time axis
    weights = torch.cat([_sinc(part % 1, cut, reach) for part in phases.split(rows)])  # phases x taps
    old = F.pad(samples, (reach, reach)).unfold(0, 2 * reach + 1, 1)
    new = torch.empty(count)
    for part in torch.arange(count).split(rows):
        new[part] = (old[part * down // up] * weights[part % up]).sum(1)
    return new


def _sinc(phases: Tensor, cut: float, reach: int) -> Tensor:
    """A windowed sinc around each phase: phases x taps."""
    away = torch.arange(-reach, reach + 1) - phases[:, None]
    return (torch.sinc(cut * away) * cut * (away * math.pi / (2 * reach + 2)).cos().square()).float()


def log_mel(samples: Tensor, mels: int = 80) -> Tensor:
    """Radford et al. 2022, section 2.2: the loudness of `mels` bands every 10 ms, mels F, about within ±1.

    Loudness is the logarithm of the power, cut 80 dB below the loudest.
    """
    samples = F.pad(samples, (0, max(0, REACH - len(samples))))
    window = torch.hann_window(REACH)
    waves = torch.stft(samples, REACH, HOP, window=window, return_complex=True)[:, :-1]  # frequencies F
    levels = (mel_filters(mels) @ waves.abs().square()).clamp(min=1e-10).log10()
    return (levels.clamp(min=float(levels.max()) - 8.0) + 4.0) / 4.0


@lru_cache
def mel_filters(mels: int) -> Tensor:
    """Triangles of equal width in mels and equal area, over the frequencies of a frame: mels x (REACH/2 + 1)."""
    frequencies = torch.linspace(0, RATE / 2, REACH // 2 + 1, dtype=torch.float64)
    corners = hertz(torch.linspace(0, float(mel(frequencies[-1])), mels + 2, dtype=torch.float64))[:, None]
    left, top, right = corners[:-2], corners[1:-1], corners[2:]
    triangles = torch.minimum((frequencies - left) / (top - left), (right - frequencies) / (right - top))
    return (triangles.clamp(min=0) * 2 / (right - left)).float()


def mel(hertz: Tensor) -> Tensor:
    """Slaney 1998: 3 mels in 200 Hz up to 1 kHz, where they are 15; from there 27 for every factor of 6.4."""
    return torch.where(hertz < 1000, 3 * hertz / 200, 15 + 27 * (hertz / 1000).clamp(min=1).log() / math.log(6.4))


def hertz(mels: Tensor) -> Tensor:
    return torch.where(mels < 15, 200 * mels / 3, 1000 * 6.4 ** ((mels - 15) / 27))


def windows(samples: Tensor, size: int) -> Iterator[tuple[int, int]]:
    """Where to cut long audio into parts of at most `size` samples: in the middle of the quietest 0.3 seconds, the last
    if several are equally quiet, of each one's last third, which is rarely inside a word."""
    start, quiet = 0, min(3 * RATE // 10, size // 3)
    while len(samples) - start > size:
        stop = start + size
        power = samples[stop - size // 3 : stop].flip(0).unfold(0, quiet, HOP).square().mean(1)
        stop -= int(power.argmin()) * HOP + quiet // 2
        yield start, stop
        start = stop
    yield start, len(samples)
