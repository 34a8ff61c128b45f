"""The files that command lines are tried on: good ones of every format, and those that break readers."""

import base64
import gzip
import io
import json
import os
import random
import struct
import tarfile
from pathlib import Path

import numpy as np

TONES = {"high": 1500, "low": 300}
SHADES = {"dark": 40, "light": 210}
NAMES = ("Ada", "Grace", "Bert")
NUMBERS = ("0", "-1", "1e308", "-1e308", "1e400", "nan", "inf", "-inf", "9" * 30, "0x10", "1_000", "٣", "", "1,5")


def write_files(folder: Path) -> None:
    """All of them, in `folder`."""
    folder.mkdir(parents=True)
    _texts(folder)
    _records(folder)
    _labels(folder)
    _tables(folder)
    _series(folder)
    _pictures(folder)
    _sounds(folder)
    _strange(folder)


def _lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(line + "\n" for line in lines), "utf-8")


def _texts(folder: Path) -> None:
    story = "the cat sat on the mat. the dog ran to the log.\n"
    (folder / "text.txt").write_text(story * 60)
    (folder / "story.txt").write_text(story * 200)
    (folder / "text.txt.gz").write_bytes(gzip.compress((story * 60).encode()))
    _lines(
        folder / "lines.txt", ["the cat sat", "", "a good film", "the [MASK] sat", "Ada met Bert", "naïve 日本語 😀"]
    )
    (folder / "corpus.txt").write_text("\n\n".join(f"the cat number {i} sat. the dog ran." for i in range(40)))
    (folder / "docs").mkdir()
    for i in range(3):
        (folder / "docs" / f"{i}.txt").write_text(story * 20)
    words = {"the": "le", "dog": "chien", "cat": "chat", "sees": "voit", "big": "grand", "small": "petit"}
    source = [f"the {a} {x} sees the {b} {y}" for a in ("big", "small") for b in ("big", "small")
              for x in ("dog", "cat") for y in ("dog", "cat")]  # fmt: skip
    target = [" ".join(words[w] for w in line.split()) for line in source]
    for name, repeat in (("train", 6), ("few", 1)):
        _lines(folder / f"{name}.en", source[: 4 if repeat == 1 else None] * repeat)
        _lines(folder / f"{name}.fr", target[: 4 if repeat == 1 else None] * repeat)


def _records(folder: Path) -> None:
    chat = [{"role": "user", "content": "where is the cat"}, {"role": "assistant", "content": "on the mat"}]
    rows = {
        "docs.jsonl": {"text": "the cat sat on the mat. " * 20},
        "chat.jsonl": {"messages": chat},
        "tasks.jsonl": {"prompt": "where is the cat", "completion": "on the mat"},
        "summaries.jsonl": {"text": "the cat sat on the mat and slept.", "summary": "a cat slept."},
    }
    for name, row in rows.items():
        _lines(folder / name, [json.dumps(row)] * 12)


def _labels(folder: Path) -> None:
    films = [("good", "pos"), ("bad", "neg"), ("great", "pos"), ("dull", "neg")]
    rows = [(f"a {word} {thing}", label) for thing in ("film", "plot", "cast", "book") for word, label in films] * 2
    _lines(folder / "reviews.csv", ["review,sentiment", *(f'"{a}",{b}' for a, b in rows)])
    _lines(folder / "reviews.tsv", ["review\tsentiment", *(f"{a}\t{b}" for a, b in rows)])
    _lines(folder / "reviews.jsonl", [json.dumps({"review": a, "sentiment": b}) for a, b in rows])
    things = ("film", "plot", "cast")
    pairs = [(f"the {a} was good", f"a good {b}", "same" if a == b else "other") for a in things for b in things]
    _lines(folder / "pairs.tsv", ["\t".join(row) for row in pairs * 4])
    tagged = [[(a, "B-person"), ("met", "O"), (b, "B-person"), ("in", "O"), ("Paris", "B-place")]
              for a in NAMES for b in NAMES] * 2  # fmt: skip
    _lines(folder / "tags.conll", ["\n".join(f"{w}\t{t}" for w, t in s) + "\n" for s in tagged])
    numbered = [[f"{i}\t{w}\t_\t{t}" + "\t_" * 6 for i, (w, t) in enumerate(s, 1)] for s in tagged]
    _lines(folder / "tags.conllu", ["\n".join(s) + "\n" for s in numbered])
    columns = [{"tokens": [w for w, _ in s], "tags": [t for _, t in s]} for s in tagged]
    _lines(folder / "tags.jsonl", [json.dumps(c) for c in columns])


def _tables(folder: Path) -> None:
    rows = [f"{i % 9},{'north' if i % 2 else 'south'},{'yes' if i % 9 > 4 else 'no'}" for i in range(40)]
    _lines(folder / "students.csv", ["hours,school,passed", *rows])
    _lines(folder / "prices.csv", ["date,close,volume",
           *(f"2024-{1 + i // 28:02}-{1 + i % 28:02},{100 + i % 7},{i}" for i in range(200))])  # fmt: skip
    days = [f"2024-{1 + i // 28:02}-{1 + i % 28:02},{100 + i % 7}" for i in range(100)]
    _lines(folder / "shops.csv", ["shop,date,close", *(f"{shop},{day}" for shop in "ab" for day in days)])
    numbers = np.arange(200.0)
    np.savez(folder / "prices.npz", time=numbers, close=numbers % 7)


def _series(folder: Path) -> None:
    rows = [(f"s{s}", t, (t % 3) * (1 + s % 2) + s / 8, "ab"[s % 2]) for s in range(16) for t in range(6)]
    _lines(folder / "curves.csv", ["id,time,value,class", *(",".join(map(str, row)) for row in rows)])
    columns = list(zip(*rows, strict=True))
    arrays = {name: np.array(column) for name, column in zip(("id", "time", "value", "class"), columns, strict=True)}
    np.savez(folder / "curves.npz", **arrays)
    _lines(folder / "bare.csv", ["id,time,value", *(",".join(map(str, row[:3])) for row in rows)])
    _lines(folder / "kinds.csv", ["id,class", *(f"s{s},{'ab'[s % 2]}" for s in range(16))])
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return
    parquet.write_table(pyarrow.table({k: v.tolist() for k, v in arrays.items()}), folder / "curves.parquet")


def _pictures(folder: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    names = []
    for label, shade in SHADES.items():
        (folder / "photos" / label).mkdir(parents=True)
        for i in range(6):
            pixels = np.clip(rng.normal(shade, 20, (8, 8, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / label / f"{i}.png")
            names.append((f"photos/{label}/{i}.png", label))
    _lines(folder / "photos.csv", ["file,label", *(f"{name},{label}" for name, label in names)])
    _lines(folder / "captions.tsv", [f"{name}\ta {label} square" for name, label in names])
    Image.new("1", (1, 1)).save(folder / "dot.png")
    Image.new("P", (3, 5000)).save(folder / "tall.gif")
    plain = (folder / "photos" / "dark" / "0.png").read_bytes()
    (folder / "cut.png").write_bytes(plain[: len(plain) // 2])
    wide = plain.replace(plain[16:24], (60_000).to_bytes(4, "big") * 2, 1)
    (folder / "wide.png").write_bytes(wide)  # a header of 60,000 by 60,000 pixels


def wav(rate: int = 8000, seconds: float = 0.2, hertz: float = 400, channels: int = 1) -> bytes:
    """A tone as a WAV file; the header says `rate`."""
    count = int(8000 * seconds)
    sound = np.sin(2 * np.pi * hertz * np.arange(count * channels) / 8000) * 12000
    samples = sound.astype("<i2").tobytes()
    form = struct.pack("<HHIIHH", 1, channels, rate, 2 * rate * channels % 2**32, 2 * channels, 16)
    return b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0" + form + b"data" + len(samples).to_bytes(4, "little") + samples


def _sounds(folder: Path) -> None:
    names = []
    for label, hertz in TONES.items():
        (folder / "clips" / label).mkdir(parents=True)
        for i in range(6):
            (folder / "clips" / label / f"{i}.wav").write_bytes(wav(hertz=hertz + 20 * i))
            names.append((f"clips/{label}/{i}.wav", label))
    _lines(folder / "clips.csv", ["file,label", *(f"{name},{label}" for name, label in names)])
    _lines(folder / "spoken.csv", ["file,text", *(f"{name},the {label} tone" for name, label in names[:3])])
    with tarfile.open(folder / "clips.tar.gz", "w:gz") as box:
        box.add(folder / "clips", "clips")
    (folder / "fast.wav").write_bytes(wav(rate=4_000_000_000))
    (folder / "slow.wav").write_bytes(wav(rate=1))
    (folder / "silent.wav").write_bytes(wav(seconds=0))
    (folder / "stereo.wav").write_bytes(wav(channels=2))
    (folder / "cut.wav").write_bytes(wav()[:60])


def _strange(folder: Path) -> None:
    for name in ("empty.txt", "empty.csv", "empty.jsonl", "empty.npz", "empty.wav", "empty.png", "empty.conll"):
        (folder / name).write_bytes(b"")
    noise = random.Random(0).randbytes(3000)
    for name in ("noise.txt", "noise.csv", "noise.jsonl", "noise.npz", "noise.wav", "noise.parquet", "noise.txt.gz",
                 "noise.gguf", "noise.tar"):  # fmt: skip
        (folder / name).write_bytes({"gz": b"\x1f\x8b", "gguf": b"GGUF"}.get(name.split(".")[-1], b"") + noise)
    (folder / "latin.txt").write_bytes("naïve\n".encode("latin-1") * 20)
    (folder / "utf16.csv").write_text("text,label\na,b\n", "utf-16")
    (folder / "returns.csv").write_bytes(b"text,label\ra good film,pos\ra bad film,neg\r")
    (folder / "returns.txt").write_bytes(b"the cat sat\rthe dog ran\r" * 30)
    (folder / "nul.csv").write_bytes(b"text,label\na\0b,pos\nc,neg\n")
    (folder / "quote.csv").write_bytes(b'text,label\n"never closed,pos\nc,neg\n')
    (folder / "same.csv").write_bytes(b"a,a\n1,2\n3,4\n")
    (folder / "ragged.csv").write_bytes(b"id,time,value\n1,2\n1,2,3,4\n")
    cells = [(x, y) for x in NUMBERS for y in NUMBERS if "," not in x + y]
    _lines(folder / "numbers.csv", [f"s{i % 4},{x},{y},{'ab'[i % 2]}" for i, (x, y) in enumerate(cells)])
    rows = {
        "deep.jsonl": "[" * 100_000,
        "closed.jsonl": '{"text":' + "[" * 20_000 + "]" * 20_000 + "}",
        "list.jsonl": "[1, 2]",
        "types.jsonl": '{"text": 3, "label": null, "tokens": {}, "tags": 1}',
        "roles.jsonl": '{"messages": [{"role": 3}]}',
        "surrogate.jsonl": r'{"text": "\ud800 x"}',
    }
    for name, row in rows.items():
        (folder / name).write_text(f"{row}\n" * 4)
    (folder / "long.csv").write_text("text,label\n" + "a good film,pos\nb,neg\n" * 8 + "x" * 300_000 + ",pos\n")
    page = "x" * 1_000_000  # which padded to every row would be gigabytes
    _lines(
        folder / "page.csv",
        ["id,time,value,class", *(f"s{i % 9},{i},1,{'ab'[i % 2]}" for i in range(999)), f"{page},1,1,a"],
    )
    _lines(folder / "pages.csv", ["hours,school,passed", *(f"{i % 9},north,yes" for i in range(999)), f"1,{page},no"])
    (folder / "long.txt").write_text("word " * 60_000)
    (folder / "wide.csv").write_text(",".join(f"c{i}" for i in range(3000)) + "\n" + (",".join("1" * 3000) + "\n") * 3)
    np.savez(folder / "none.npz")
    np.savez(folder / "scalar.npz", time=np.array(3), value=np.array("x"), id=np.zeros((2, 2)))
    np.savez(folder / "objects.npz", value=np.array([{}, []], dtype=object))
    np.savez(folder / "lengths.npz", time=np.arange(5), value=np.arange(4), id=np.zeros(3))
    (folder / "empty").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "gone.txt").symlink_to("nowhere")
    (folder / "null").symlink_to("/dev/null")  # a device behind a link: who replaces it replaces the link
    (folder / "full").symlink_to("/dev/full")
    (folder / "linked.csv").symlink_to("reviews.csv")
    for name, source in ((b"caf\xe9.txt", "text.txt"), (b"caf\xe9.csv", "reviews.csv"), (b"caf\xe9.wav", "stereo.wav")):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes((folder / source).read_bytes())
    (folder / "new\nline, and space.csv").write_bytes((folder / "reviews.csv").read_bytes())
    (folder / "recipe.py").write_text("def recipe():\n    return 3\n")
    (folder / "broken.py").write_text("def recipe(:\n")
    with tarfile.open(folder / "outside.tar", "w") as box:
        member = tarfile.TarInfo("../../outside.wav")
        member.size = len(data := wav())
        box.addfile(member, io.BytesIO(data))


def write_home(folder: Path) -> None:
    """A home with files of its owner: none of them may change."""
    for name in (".bashrc", "notes.txt", ".config/app/settings.json", ".cache/other/entry", "project/README.md",
                 "project/config.json", "project/tokenizer.json", "project/model.safetensors", "project/metrics.jsonl",
                 "project/.new/draft", "project/checkpoints/step-1/weights", "project/.notes.tmp",
                 "project/src/.x.tmp"):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name} belongs to somebody\n")


def write_whisper(folder: Path) -> None:
    """A Whisper that has learned nothing."""
    import torch

    from regard.data.tokenizers.tiktoken import whisper_tokenizer
    from regard.models import build
    from regard.models.published import to_published, weights_bytes
    from regard.models.whisper import WhisperConfig

    torch.manual_seed(0)
    size = 256 + 2 + 1 + 6 + 1501
    vocabulary = b"".join(base64.b64encode(bytes([b])) + b" %d\n" % b for b in range(256))
    whisper_tokenizer(vocabulary, size).save(folder, 24)
    model = build(WhisperConfig(vocab=size, mels=8, width=16, heads=2, ffn=32, encoder_layers=1, decoder_layers=1,
                                places=50, max_length=24))  # fmt: skip
    never = [i for i in range(size) if not 97 <= i <= 110 and i != 256]
    (folder / "config.json").write_text(json.dumps(to_published(model.config, 256)))
    generation = {"suppress_tokens": never, "begin_suppress_tokens": [256]}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    (folder / "model.safetensors").write_bytes(weights_bytes(model))
