"""Bugs of sound: samples, pictures, windows, what Whisper may say, and clips of unequal length."""

from tests.zoo.bug import bugs

AUDIO, CLIPS, SOUND = "unit/data/test_audio.py", "unit/data/test_clips.py", "contract/test_sound.py"
WHISPER = "reference/test_whisper.py"
SEARCH = "unit/generate/test_search.py::test_what_may_not_come_does_not_come"

SOUNDS = [
    *bugs(
        "data/audio.py",
        (
            "bytes of 24 bits lose their sign",
            "np.concatenate((np.zeros_like(low[:, :1]), low), 1)",
            "np.concatenate((low, np.zeros_like(low[:, :1])), 1)",
            AUDIO,
        ),
        (
            "resampling lets through what cannot be carried",
            "cut = PASSED * min(1.0, to / rate)",
            "cut = PASSED",
            AUDIO,
        ),
        ("the picture keeps its last frame", "return_complex=True)[:, :-1]", "return_complex=True)[:, 1:]", WHISPER),
        (
            "mel filters are of equal height",
            "triangles.clamp(min=0) * 2 / (right - left)",
            "triangles.clamp(min=0)",
            WHISPER,
        ),
        ("a long sound is cut where it is loud", "power.argmin()", "power.argmax()", AUDIO),
    ),
    *bugs(
        "nn/sound.py",
        ("the bias of the first convolution leaks into padding", "if lengths is not None:", "if False:", SOUND),
    ),
    *bugs(
        "models/whisper.py",
        (
            "a step of Whisper stands at the start",
            "self.decoder_place(state.time)",
            "self.decoder_place(0 * state.time)",
            SOUND,
        ),
        ("places of the sound are forgotten", "self.stem(source) + self.places", "self.stem(source)", WHISPER),
    ),
    *bugs(
        "models/sound_classifier.py",
        ("the mean of a clip is over padding too", "sum(1) / sizes[:, None]", "sum(1) / x.size(1)", SOUND),
    ),
    *bugs(
        "generate/search.py",
        (
            "a prefix dies of what may not come later",
            "torch.where(it, plain, NEVER)",
            "torch.where(it, words, NEVER)",
            SEARCH,
        ),
    ),
    *bugs(
        "data/clips.py",
        ("masks are drawn anew for no clip", "frames = [masked(x, self.masks", "[masked(x, self.masks", CLIPS),
    ),
    *bugs(
        "evaluate/wer.py",
        (
            "a left-out word costs nothing",
            "dropped = np.roll(cost, 1) + differs, cost + 1",
            "dropped = np.roll(cost, 1) + differs, cost",
            "unit/evaluate/test_wer.py",
        ),
    ),
]
