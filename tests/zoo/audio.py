"""Bugs of sound: samples, pictures, windows, what Whisper may say, and clips of unequal length."""

from tests.zoo.bug import bugs

WAVEFORM, CLIPS, SOUND = "unit/data/test_waveform.py", "unit/data/test_audio.py", "contract/test_contract.py"
WHISPER = "reference/test_whisper.py"
SEARCH = "unit/generate/test_search.py::test_what_may_not_come_does_not_come"

AUDIO = [
    *bugs(
        "data.waveform",
        (
            "bytes of 24 bits lose their sign",
            "_int24",
            "np.concatenate((np.zeros_like(low[:, :1]), low), 1)",
            "np.concatenate((low, np.zeros_like(low[:, :1])), 1)",
            WAVEFORM,
        ),
        (
            "resampling lets through what cannot be carried",
            "resample",
            "cut = PASSED * min(1.0, to / rate)",
            "cut = PASSED",
            WAVEFORM,
        ),
        (
            "the picture keeps its last frame",
            "log_mel",
            "return_complex=True)[:, :-1]",
            "return_complex=True)[:, 1:]",
            WHISPER,
        ),
        (
            "mel filters are of equal height",
            "mel_filters",
            "triangles.clamp(min=0) * 2 / (right - left)",
            "triangles.clamp(min=0)",
            WHISPER,
        ),
        ("a long sound is cut where it is loud", "windows", "power.argmin()", "power.argmax()", WAVEFORM),
    ),
    *bugs(
        "nn.audio",
        (
            "the bias of the first convolution leaks into padding",
            "AudioStem.forward",
            "if lengths is not None:",
            "if False:",
            SOUND,
        ),
    ),
    *bugs(
        "models.whisper",
        (
            "Whisper scales its embeddings as Marian does",
            "Whisper.__init__",
            "c, None, 1.0",
            "c, None, math.sqrt(c.width)",
            "reference/test_whisper.py",
        ),
        (
            "places of the sound are forgotten",
            "Whisper.encode",
            "self.stem(source) + self.places",
            "self.stem(source)",
            WHISPER,
        ),
    ),
    *bugs(
        "models.audio_classifier",
        (
            "the mean of a clip is over padding too",
            "AudioTransformer.forward",
            "pooled(self.norm(x), sizes,",
            "pooled(self.norm(x), None,",
            SOUND,
        ),
    ),
    *bugs(
        "generate.search",
        (
            "a prefix dies of what may not come later",
            "Beam.totals",
            "torch.where(it, plain, NEVER)",
            "torch.where(it, words, NEVER)",
            SEARCH,
        ),
    ),
    *bugs(
        "data.audio",
        (
            "masks are drawn anew for no clip",
            "AudioSource.batch",
            "frames = [masked(x, self.masks",
            "[masked(x, self.masks",
            CLIPS,
        ),
    ),
    *bugs(
        "metrics.wer",
        (
            "a left-out word costs nothing",
            "_changes",
            "dropped = np.roll(cost, 1) + differs, cost + 1",
            "dropped = np.roll(cost, 1) + differs, cost",
            "unit/metrics/test_wer.py",
        ),
    ),
]
