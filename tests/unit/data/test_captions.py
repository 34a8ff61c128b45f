"""Captions: exact lengths, all references of an image, and archives that hold more than images."""

import io
import tarfile

import numpy as np
import pytest
from PIL import Image

from regard.data.captions import Captioned, CaptionsConfig, CaptionSource, load_captions, open_images
from regard.data.labelled import NONE
from regard.data.tokenizers.bpe import BPE
from regard.errors import DataError

WORDS = BPE.train(["word " * 9] * 20, 330, "spaces")  # one piece a word


def table(tmp_path, captions: list[list[str]], **settings) -> CaptionsConfig:
    """A table of as many grey images, each with its captions."""
    rows = ["image\tcaption"]
    for number, texts in enumerate(captions):
        Image.fromarray(np.full((8, 8), 10 * number, np.uint8)).save(tmp_path / f"{number}.png")
        rows += [f"{number}.png\t{text}" for text in texts]
    (tmp_path / "captions.tsv").write_text("\n".join(rows) + "\n")
    return CaptionsConfig(path=str(tmp_path / "captions.tsv"), size=8, vocab=330, **settings)


@pytest.mark.parametrize(("words", "kept"), [(4, 4), (5, 5), (6, 5)])
def test_a_caption_keeps_its_end_mark_at_the_limit(words, kept):
    """Of 6 pieces the last is the end mark: a caption of 5 words is whole, one of 6 loses its last."""
    one = Captioned(np.zeros((1, 3, 8, 8), np.uint8), [[" ".join(["word"] * words)]])
    (target,) = CaptionSource(one, WORDS, length=6).targets
    assert target[: kept + 1].tolist() == [*WORDS.encode(" ".join(["word"] * kept)), WORDS.eos]
    assert (target[kept + 1 :] == NONE).all()


def test_only_captions_over_the_limit_are_told_as_cut(tmp_path):
    captions = [[f"{'word ' * n}".strip()] for n in (3, 4, 5, 6, 7, 8)] + [["word"]] * 12
    data = load_captions(table(tmp_path, captions, max_length=6, held_out=0.05), lambda _: None)
    lengths = [len(data.tokenizer.encode(c)) for captions in data.train.captions for c in captions]
    assert 5 in lengths and max(lengths) > 6, "no caption at the limit: nothing is tested"
    assert f"cut {sum(n > 5 for n in lengths)} captions" in data.report()


def test_every_caption_of_an_image_is_kept_with_it(tmp_path):
    captions = [[f"number {n} {k}" for k in range(1 + n % 3)] for n in range(10)]
    data = load_captions(table(tmp_path, captions, held_out=0.3), lambda _: None)
    for part in (data.train, data.valid):
        for pixels, texts in zip(part.pixels[np.arange(len(part))], part.captions, strict=True):
            assert texts == captions[int(pixels[0, 0, 0]) // 10]
    assert len(data.train) == 7 and len(data.valid) == 3
    source = CaptionSource(data.train, data.tokenizer, 12)
    batch = source.batch(np.arange(len(source)))
    for pixels, target in zip(batch.inputs[0], batch.targets, strict=True):
        ids = [i for i in target.tolist() if i not in (NONE, data.tokenizer.eos)]
        assert data.tokenizer.decode(ids) in captions[int(pixels[0, 0, 0]) // 10]


def test_a_link_in_an_archive_is_no_image(tmp_path):
    """A member is read only where it is a file: a link's name must not lead out of the archive."""
    (tmp_path / "secret.png").write_bytes(b"outside")
    with tarfile.open(tmp_path / "images.tar", "w") as tar:
        for name, kind in (("soft.png", tarfile.SYMTYPE), ("hard.png", tarfile.LNKTYPE)):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, str(tmp_path / "secret.png")
            tar.addfile(link)
        member = tarfile.TarInfo("real.png")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"real"))
    with open_images(tmp_path / "images.tar") as find:
        assert find("real.png").read() == b"real"
        for name in ("soft.png", "hard.png", "secret.png"):
            with pytest.raises(DataError, match="no such file"):
                find(name)


def test_a_device_is_not_an_archive_of_images(tmp_path):
    """Reading one may never end."""
    config = table(tmp_path, [["a dog"], ["a cat"]], images="/dev/full")
    with pytest.raises(DataError, match="no folder or tar file /dev/full"):
        load_captions(config)
