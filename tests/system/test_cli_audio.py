"""Sounds on the command line: clips are learned, told, scored and listed; speech is written down."""

import base64
import csv
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.system.cli_toy import regard, works

from regard.checkpoint import load_state
from regard.data.loader import Loader
from regard.data.tokenizers.tiktoken import END, START, whisper_tokenizer
from regard.models import build
from regard.models.published import to_published, weights_bytes
from regard.models.whisper import WhisperConfig

SMALL = ["--set=model.width=32", "--set=model.ffn=32", "--set=model.layers=1", "--set=data.mels=16"]
FAST = [*SMALL, "--device=cpu", "--set=schedule.warmup=5", "--set=data.seconds=0.5", "--set=optim.lr=0.005"]


def write_wav(path, hertz: float, seed: int) -> None:
    """A tone that rises or falls a little, in noise."""
    rng = np.random.default_rng(seed)
    time = np.arange(int(8000 * rng.uniform(0.15, 0.3))) / 8000
    sound = np.sin(2 * np.pi * hertz * rng.uniform(0.9, 1.1) * time) + 0.1 * rng.standard_normal(len(time))
    import wave

    with wave.open(str(path), "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(8000)
        w.writeframes((sound * 12000).astype("<i2").tobytes())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Clips of two classes, a classifier of them, and a Whisper that has learned nothing."""
    folder = tmp_path_factory.mktemp("sounds")
    for name, hertz in (("high", 1500), ("low", 300)):
        (folder / "clips" / name).mkdir(parents=True)
        for i in range(30):
            write_wav(folder / "clips" / name / f"{i}.wav", hertz, i)
    (folder / "clips" / "low" / "broken.wav").write_bytes(b"no sound")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = works("train", "audio", "--data=clips", "--steps=40", "--name=tones", *FAST)
    assert "skipped 1 clip" in result.err and "regard classify runs/tones clip.wav" in result.err
    torch.manual_seed(0)
    whisper = folder / "whisper"
    vocabulary = b"".join(base64.b64encode(bytes([b])) + b" %d\n" % b for b in range(256))
    size = 256 + 2 + 1 + 6 + 1501
    tokenizer = whisper_tokenizer(vocabulary, size)
    tokenizer.save(whisper, 24)
    model = build(
        WhisperConfig(vocab=size, mels=8, width=16, heads=2, ffn=32, encoder_layers=1, decoder_layers=1,
                      places=50, max_length=24)
    )  # fmt: skip
    never = [i for i in range(size) if not 97 <= i <= 110 and i != 256]
    (whisper / "config.json").write_text(json.dumps(to_published(model.config, 256)))
    (whisper / "generation_config.json").write_text(
        json.dumps({"suppress_tokens": never, "begin_suppress_tokens": [256]})
    )
    (whisper / "model.safetensors").write_bytes(weights_bytes(model))
    assert (tokenizer.tokenizer.token_to_id(END), tokenizer.tokenizer.token_to_id(START)) == (256, 257)
    return folder


@pytest.fixture(autouse=True)
def _here(place, monkeypatch):
    monkeypatch.chdir(place)


def test_a_clip_is_told(tmp_path):
    write_wav(tmp_path / "new.wav", 1500, 99)
    result = works("classify", "runs/tones", tmp_path / "new.wav", "--device=cpu")
    assert result.lines[0] == "high" and "%" in result.lines[1]
    predictions = json.loads(works("classify", "runs/tones", tmp_path / "new.wav", "--json", "--device=cpu").out)
    assert predictions["label"] == "high" and sum(predictions["probabilities"].values()) == pytest.approx(1)
    result = regard("classify", "runs/tones", "clips/low/broken.wav", "--device=cpu")
    assert result.code == 2 and "not a WAV, FLAC, OGG or MP3 file" in result.err
    assert regard("classify", "runs/tones", "a.wav", "b.wav").code == 2


def test_held_out_clips_and_others_are_scored(place):
    scores = json.loads(works("evaluate", "runs/tones", "--json", "--device=cpu").out)
    assert scores["accuracy"] == 1.0 and scores["clips"] == 5 and scores["majority"] == 0.6
    result = works("evaluate", "runs/tones", "--data=clips", "--device=cpu")
    assert "60 clips" in result.out and "skipped: " in result.err and "broken.wav" in result.err
    assert "warning: 55 of these 60 clips were in the training data" in result.out
    (place / "other.csv").write_text("file,label\nclips/low/1.wav,middle\n")
    result = regard("evaluate", "runs/tones", "--data=other.csv", "--device=cpu")
    assert result.code == 2 and "'middle' is not among those trained on" in result.err


def test_another_table_is_read_by_the_column_it_was_trained_on(place):
    shutil.copytree("runs/tones", "runs/pitch")
    settings = json.loads((place / "runs/pitch/run.json").read_text())
    settings["data"]["label"] = "pitch"
    (place / "runs/pitch/run.json").write_text(json.dumps(settings))
    (place / "pitches.csv").write_text("file,pitch,voice\nclips/low/1.wav,low,ada\nclips/high/1.wav,high,bob\n")
    scores = json.loads(works("evaluate", "runs/pitch", "--data=pitches.csv", "--json", "--device=cpu").out)
    assert scores["accuracy"] == 1.0 and scores["clips"] == 2


def test_a_folder_becomes_a_table(tmp_path):
    works("predict", "runs/tones", "clips", f"--out={tmp_path}/told.csv", "--device=cpu")
    with open(tmp_path / "told.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 61
    for row in rows:
        if "broken" in row["file"]:
            assert row["label"] == row["probability_low"] == ""
        else:
            assert row["label"] == row["file"].split("/")[1]
            assert float(row["probability_high"]) + float(row["probability_low"]) == pytest.approx(1, abs=1e-5)


def test_info_dry_run_and_bad_words():
    assert "a sound_classifier to classify audio" in works("info", "runs/tones").out
    result = works("train", "audio", "--data=clips", "--dry-run", "--device=cpu")
    assert "samples per step: 32" in result.out
    for words, message in (
        (("train", "audio"), "train on what"),
        (("train", "audio", "--data=clips", "--arch=vit"), "no architecture 'vit'"),
        (("train", "audio", "--data=clips", "--text=x"), "--text: not for the task audio"),
        (("transcribe", "runs/tones", "clips/low/1.wav"), "type: regard classify runs/tones clip.wav"),
        (
            ("translate", "whisper", "hello"),
            "not for whisper, a model to transcribe speech; type: regard transcribe whisper clip.wav",
        ),
        (
            ("generate", "runs/tones", "hello"),
            "not for runs/tones, a model to classify audio; type: regard classify runs/tones clip.wav",
        ),
        (("train", "audio", "--data=fsdd"), "REGARD_DATA"),
    ):
        result = regard(*words)
        assert result.code == 2 and message in result.err, result.err


def test_a_stopped_run_resumes_exactly(place, monkeypatch):
    """Masks and order are functions of the step, so the weights come out bit for bit."""
    how = ["train", "audio", "--data=clips", *FAST, "--set=save_every=3", "--steps=8", "--set=batch=4",
           "--set=keep_state=true"]  # fmt: skip
    works(*how, "--name=whole")
    given = Loader.__next__
    with monkeypatch.context() as patch:
        patch.setattr(Loader, "__next__", lambda self: given(self) if self.position < 5 else 1 / 0)
        assert regard(*how, "--name=halves").code == 1
    works("train", "--resume", "runs/halves", "--device=cpu")
    whole, halves = (load_state(place / "runs" / name / "state.safetensors") for name in ("whole", "halves"))
    assert halves[1]["progress"]["step"] == 8
    assert all(torch.equal(tensor, halves[0][name]) for name, tensor in whole[0].items())


def test_speech_is_written_down(place, tmp_path):
    """By a model that has learned nothing: letters a to n, as its settings allow, or nothing."""
    text = works("transcribe", "whisper", "clips/low/1.wav", "--beam=2", "--device=cpu").lines[0]
    assert text and set(text) <= set("abcdefghijklmn")
    long = tmp_path / "long.wav"
    from regard.data.waveform import load_waveform

    parts = [load_waveform(f"clips/low/{i}.wav") for i in range(12)]
    sound = (torch.cat(parts) * 12000).to(torch.int16).numpy()
    import wave

    with wave.open(str(long), "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(16000)
        w.writeframes(sound.tobytes())
    result = works("transcribe", "whisper", long, "--timestamps", "--device=cpu")
    assert len(result.lines) >= 3 and result.lines[0].startswith("00:00.00 - 00:0")
    predictions = json.loads(works("transcribe", "whisper", long, "--json", "--device=cpu").out)
    assert predictions["passages"][-1]["end"] == pytest.approx(len(sound) / 16000) and predictions["file"] == str(long)
    both = works("transcribe", "whisper", "clips/low/1.wav", "clips/low/2.wav", "--beam=2", "--device=cpu")
    assert both.lines[0] == f"clips/low/1.wav: {text}" and len(both.lines) == 2
    result = regard("transcribe", "whisper", "clips/low/1.wav", "--language=de", "--device=cpu")
    assert result.code == 2 and "English only" in result.err


def test_transcripts_are_scored_and_listed(place, tmp_path):
    right = works("transcribe", "whisper", "clips/low/1.wav", "--beam=2", "--device=cpu").lines[0]
    (place / "said.csv").write_text(f"file,text\nclips/low/1.wav,{right}\nclips/low/2.wav,one two three\n")
    scores = json.loads(works("evaluate", "whisper", "--data=said.csv", "--beam=2", "--json", "--device=cpu").out)
    assert scores["words"] == 4 and scores["wer"] == 0.75 and scores["clips"] == 2
    assert "word error rate 75.00%" in works("evaluate", "whisper", "--data=said.csv", "--beam=2", "--device=cpu").out
    works("predict", "whisper", "said.csv", f"--out={tmp_path}/all.jsonl", "--beam=2", "--device=cpu")
    rows = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert rows[0] == {"file": "clips/low/1.wav", "text": right}
    result = regard("evaluate", "whisper", "--device=cpu")
    assert result.code == 2 and "a table of file and text" in result.err


def test_whispers_encoder_is_fine_tuned_to_classes(place):
    words = ["finetune", "whisper", "audio", "--data=clips", "--steps=25", "--device=cpu", "--set=optim.lr=0.01"]
    result = works(*words, "--name=heard", "--set=optim.layer_decay=1.0")
    assert "randomly initialised: classifier" in result.err
    scores = json.loads(works("evaluate", "runs/heard", "--json", "--device=cpu").out)
    assert scores["accuracy"] >= 0.8
    works(*words, "--name=probed", "--probe")
    before, after = load_file("whisper/model.safetensors"), load_file("runs/probed/model.safetensors")
    assert torch.equal(before["model.encoder.conv1.weight"], after["stem.conv1.weight"])
    assert torch.equal(before["model.encoder.layers.0.fc1.weight"], after["layers.0.mlp.up.weight"])
    assert torch.equal(before["model.encoder.layer_norm.bias"], after["norm.bias"])
