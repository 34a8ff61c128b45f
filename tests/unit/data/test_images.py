"""Images from folders, tables and sets with a name; and what happens to broken ones."""

import gzip
import json
from dataclasses import astuple

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data import image_sets, images
from regard.data import pixels as pixels_module
from regard.data.augment import Augment
from regard.data.images import Images, ImagesConfig, ImageSource, hold_out, load_images, spread_of
from regard.data.loader import FixedSize, Loader
from regard.data.pixels import grey, read_image
from regard.errors import ConfigError, DataError

quiet = lambda _: None  # noqa: E731


def picture(path, colour, size=(20, 12), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(abs(hash(str(path.name))) % 2**32)
    noise = (np.array(colour) + rng.integers(0, 30, (size[1], size[0], 3))).clip(0, 255).astype(np.uint8)
    Image.fromarray(noise).convert(mode).save(path)
    return path


@pytest.fixture
def photos(tmp_path):
    for i in range(12):
        picture(tmp_path / "photos" / "red" / f"{i}.png", (200, 20, 20))
        picture(tmp_path / "photos" / "blue" / "deeper" / f"{i}.jpg", (20, 20, 200), size=(9, 30))
    return tmp_path / "photos"


def test_a_folder_for_each_class(photos):
    data = load_images(ImagesConfig(path=str(photos), size=8, held_out=0.25), quiet)
    assert data.labels == ("blue", "red") and len(data.train) == 18 and len(data.valid) == 6
    assert data.train.pixels.shape == (18, 3, 8, 8) and data.train.pixels[:].dtype == np.uint8
    red = data.train.labels == 1
    assert data.train.pixels[red][:, 0].mean() > 190 > 60 > data.train.pixels[red][:, 2].mean()
    assert sorted(data.valid.labels.tolist()) == [0, 0, 0, 1, 1, 1]  # of every class alike
    assert (
        "18 images to train on, 6 for validation: 25 % of each class, chosen by a hash of the content" in data.report()
    )
    assert "content; 8 x 8 pixels, in colour" in data.report()


def test_a_table_of_paths_and_labels_reads_the_same(photos, tmp_path):
    rows = [f"photos/red/{i}.png,red" for i in range(12)] + [f"photos/blue/deeper/{i}.jpg,blue" for i in range(12)]
    (tmp_path / "list.csv").write_text("\n".join(["file,colour", *rows]))
    how = dict(size=8, held_out=0.25)
    table = load_images(ImagesConfig(path=str(tmp_path / "list.csv"), label="colour", **how), quiet)
    folder = load_images(ImagesConfig(path=str(photos), **how), quiet)
    key = lambda part: sorted(zip(part.labels.tolist(), (x.tobytes() for x in part.pixels), strict=True))  # noqa: E731
    assert key(table.train) == key(folder.train) and key(table.valid) == key(folder.valid)


def test_folders_for_train_valid_and_test(photos, tmp_path):
    for part in ("train", "val", "test"):
        picture(tmp_path / "parts" / part / "a" / "1.png", (9, 9, 9))
        picture(tmp_path / "parts" / part / "b" / "1.png", (200, 9, 9))
    data = load_images(ImagesConfig(path=str(tmp_path / "parts"), size=4), quiet)
    assert [len(p) for p in (data.train, data.valid, data.test)] == [2, 2, 2]
    assert "one image only: a" in data.report()
    picture(tmp_path / "parts" / "test" / "c" / "1.png", (9, 9, 9))
    with pytest.raises(DataError, match="'c' is not among those trained on"):
        load_images(ImagesConfig(path=str(tmp_path / "parts"), size=4), quiet)


def test_what_cannot_be_read_is_counted_and_told(photos, monkeypatch):
    (photos / "red" / "broken.png").write_bytes((photos / "red" / "1.png").read_bytes()[:60])
    (photos / "red" / "empty.jpg").write_bytes(b"")
    (photos / "red" / "notes.txt").write_text("not an image, and not taken for one")
    monkeypatch.setattr(pixels_module, "HUGE", 1000)
    picture(photos / "blue" / "wall.png", (0, 0, 200), size=(100, 11))
    report = load_images(ImagesConfig(path=str(photos), size=8), quiet).report()
    assert "skipped 2 (train): cannot be read; it is damaged or not an image; the first is" in report
    assert "skipped 1 (train): larger than 1,000 pixels" in report and "broken.png" in report
    again = []
    load_images(ImagesConfig(path=str(photos), size=8), again.append)
    assert not again, "decoded images are found in the cache"


def test_nothing_left_of_a_class_is_an_error(photos, tmp_path):
    (photos / "green").mkdir()
    (photos / "green" / "1.png").write_bytes(b"no")
    with pytest.raises(DataError, match="no image of the class 'green'"):
        load_images(ImagesConfig(path=str(photos), size=8), quiet)
    for config, said in (
        (ImagesConfig(path=str(photos / "red")), r"red holds \d+ images and no folder for each class"),
        (ImagesConfig(path=str(tmp_path / "none")), "no file or folder"),
        (ImagesConfig(), "train on what"),
    ):
        with pytest.raises((DataError, ConfigError), match=said):
            load_images(config, quiet)


@pytest.mark.parametrize(
    ("mode", "value", "expected"),
    [
        ("L", 100, (100, 100, 100)),
        ("1", 1, (255, 255, 255)),
        ("RGB", (10, 20, 30), (10, 20, 30)),
        ("RGBA", (10, 20, 30, 0), (255, 255, 255)),
        ("RGBA", (10, 20, 30, 255), (10, 20, 30)),
        ("LA", (100, 0), (255, 255, 255)),
        ("P", 0, (0, 0, 0)),
        ("CMYK", (0, 0, 0, 0), (255, 255, 255)),
        ("I;16", 100 * 256 + 7, (100, 100, 100)),
    ],
)
def test_every_mode_becomes_three_bytes(mode, value, expected, tmp_path):
    path = tmp_path / ("x.tif" if mode in ("CMYK", "I;16", "LA") else "x.png")
    Image.new(mode, (5, 4), value).save(path)
    pixels, colours = read_image(path)
    assert pixels.shape == (4, 5, 3) and tuple(pixels[0, 0].tolist()) == expected
    assert colours == (mode == "RGB" or expected == (10, 20, 30))


def test_pixels_without_a_range_are_refused(tmp_path):
    Image.new("F", (4, 4), 0.5).save(tmp_path / "x.tif")
    with pytest.raises(DataError, match="no range"):
        read_image(tmp_path / "x.tif")


def test_a_photograph_is_turned_as_it_was_taken(tmp_path):
    image = Image.new("RGB", (6, 3))
    exif = image.getexif()
    exif[0x0112] = 6  # the camera was held upright
    image.save(tmp_path / "x.jpg", exif=exif)
    assert read_image(tmp_path / "x.jpg")[0].shape == (6, 3, 3)


def test_grey_images_stay_grey_unless_some_have_colours(tmp_path):
    for name in ("a", "b"):
        for i in range(3):
            picture(tmp_path / "grey" / name / f"{i}.png", (50 * i, 50 * i, 50 * i), mode="L")
    config = ImagesConfig(path=str(tmp_path / "grey"), size=6)
    assert load_images(config, quiet).train.pixels.shape[1] == 1
    picture(tmp_path / "grey" / "b" / "red.png", (200, 0, 0))
    assert load_images(config, quiet).train.pixels.shape[1] == 3


def test_mean_and_spread_are_those_of_pixels_from_all_over():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (300, 2, 3, 3)).astype(np.uint8)
    pixels[150:, 0] //= 4  # as if sorted by class
    mean, std = spread_of(pixels)
    assert mean == pytest.approx((pixels / 255).mean((0, 2, 3)), abs=1e-4)
    assert std == pytest.approx((pixels / 255).std((0, 2, 3)), abs=1e-4)
    many = np.concatenate([np.full((12_000, 1, 1, 1), value, np.uint8) for value in (0, 51)])
    assert spread_of(many)[0] == pytest.approx((0.1,), abs=1e-3)


def test_equal_images_are_held_out_together():
    pixels = np.repeat(np.random.default_rng(0).integers(0, 256, (30, 1, 4, 4)).astype(np.uint8), 2, 0)
    train, valid = hold_out(Images(pixels, np.repeat(np.arange(30) % 2, 2)), ImagesConfig(held_out=0.2))
    seen = {x.tobytes() for x in train.pixels}
    assert len(valid) == 12 and not any(x.tobytes() in seen for x in valid.pixels)


def test_batch_holds_its_images_and_uses_the_loaders_seed():
    pixels = np.arange(40 * 16, dtype=np.int64).astype(np.uint8).reshape(40, 1, 4, 4)
    part = Images(pixels, np.arange(40) % 4)
    plain = ImageSource(part, 4)
    assert np.shares_memory(plain.pixels.numpy(), pixels), "what is in memory already is not copied"
    rows = np.array([3, 0, 39])
    actual = plain.batch(rows, np.random.default_rng(0))
    assert np.array_equal(actual.inputs[0].numpy(), pixels[rows]) and actual.targets.tolist() == [3, 0, 3]
    changing = ImageSource(part, 4, Augment(crop=0.25, flip=True, mixup=0.5))
    loaders = [Loader(changing, FixedSize(8), seed=5) for _ in range(2)]
    for _ in range(7):
        next(loaders[0])
    loaders[1].restore(loaders[0].state())
    one, two = (next(loader) for loader in loaders)
    assert torch.equal(one.inputs[0], two.inputs[0]) and torch.equal(one.targets, two.targets)


def test_own_images_stay_in_their_file_when_some_are_held_out(photos, monkeypatch):
    monkeypatch.setattr(images, "AT_ONCE", 5)
    data = load_images(ImagesConfig(path=str(photos), size=8), quiet)
    for part in (data.train, data.valid):
        (file,) = part.pixels.every.shards
        assert not file.flags.owndata and not file.flags.writeable, "a map, as it was opened"
        by_hand = np.stack([file[i] for i in part.pixels.rows])
        assert part.pixels.shape == by_hand.shape and part.pixels.nbytes == by_hand.nbytes
        assert np.array_equal(ImageSource(part, 3).pixels.numpy(), by_hand), "kept whole, some at a time"
    rows = np.sort(np.concatenate([data.train.pixels.rows, data.valid.pixels.rows]))
    assert rows.tolist() == list(range(len(file)))


def test_grey_as_colours_takes_no_memory_and_is_three_times_the_same():
    pixels = np.arange(32, dtype=np.uint8).reshape(2, 1, 4, 4)
    actual = grey(pixels, 3)
    assert np.shares_memory(actual, pixels) and np.array_equal(actual, np.repeat(pixels, 3, 1))
    part = Images(actual, np.arange(2))
    assert np.array_equal(ImageSource(part, 2).pixels.numpy(), np.repeat(pixels, 3, 1))


def test_images_that_do_not_fit_are_read_where_they_lie(monkeypatch):
    part = Images(np.arange(64, dtype=np.uint8).reshape(4, 1, 4, 4), np.arange(4))
    whole = ImageSource(part, 4).batch(np.array([2, 1]))
    monkeypatch.setattr(images, "ROOM", 0.0)
    lying = ImageSource(part, 4)
    assert lying.pixels is None
    assert torch.equal(lying.batch(np.array([2, 1])).inputs[0], whole.inputs[0])


# -- sets with a name ---------------------------------------------------------------------------------------------


def write_idx(path, array, zipped=False):
    head = b"\0\0\x08" + bytes([array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    data = head + array.astype(np.uint8).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if zipped else data)


@pytest.fixture
def fashion(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for i, count in ((0, 40), (2, 10)):
        write_idx(tmp_path / "fashion-mnist" / f"{image_sets.IDX[i]}.gz", rng.integers(0, 256, (count, 28, 28)), True)
        write_idx(tmp_path / "fashion-mnist" / f"{image_sets.IDX[i + 1]}.gz", np.arange(count) % 10, True)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    return tmp_path / "fashion-mnist"


def test_idx_files_of_ones_own(fashion):
    data = load_images(ImagesConfig(name="fashion-mnist", held_out=0.25), quiet)
    assert data.labels[0] == "T-shirt" and len(data.train) == 30 and len(data.valid) == 10 and len(data.test) == 10
    smaller = load_images(ImagesConfig(name="fashion-mnist", size=14, channels=3), quiet)
    assert smaller.test.pixels.shape == (10, 3, 14, 14)
    assert np.array_equal(smaller.test.labels, np.arange(10))


def test_idx_files_that_are_cut_short_or_missing(fashion):
    (fashion / f"{image_sets.IDX[3]}.gz").write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x05abc"))
    with pytest.raises(DataError, match="cut short"):
        load_images(ImagesConfig(name="fashion-mnist"), quiet)
    (fashion / f"{image_sets.IDX[3]}.gz").unlink()
    with pytest.raises(DataError, match="has no t10k-labels"):
        load_images(ImagesConfig(name="fashion-mnist"), quiet)


def test_cifar_sheets_hold_an_image_a_row(tmp_path, monkeypatch):
    sheet = np.random.default_rng(0).integers(0, 256, (3, 1024, 3)).astype(np.uint8)
    folder = tmp_path / "cifar10"
    folder.mkdir()
    for i in range(1, 6):
        Image.fromarray(sheet).save(folder / f"data_batch_{i}.png")
    Image.fromarray(sheet[:1]).save(folder / "test_batch.png")
    (folder / "train_lables.json").write_text(json.dumps([0, 1, 2] * 5))
    (folder / "test_lables.json").write_text("[9]")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    known = image_sets.read("cifar10", quiet)
    pixels, labels = known.parts["train"]
    assert pixels.shape == (15, 3, 32, 32) and labels.tolist() == [0, 1, 2] * 5 and known.labels[9] == "truck"
    assert pixels[4, 2, 7, 5] == sheet[1, 7 * 32 + 5, 2]
    (folder / "test_lables.json").write_text("[9, 1]")
    with pytest.raises(DataError, match="1 images but 2 labels"):
        image_sets.read("cifar10", quiet)


def test_digits_are_scikit_learns():
    from sklearn.datasets import load_digits

    known = image_sets.read("digits", quiet)
    pixels = np.concatenate([x for x, _ in known.parts.values()])
    loaded = load_digits()
    assert sorted(x.tobytes() for x in pixels) == sorted(
        (np.round(x * 255 / 16)).astype(np.uint8).tobytes() for x in loaded.images
    )
    assert len(known.parts["test"][1]) == 364


def test_a_set_that_is_not_here_says_where_to_put_it(monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    with pytest.raises(DataError, match="a folder cifar10"):
        load_images(ImagesConfig(name="cifar10"), quiet)


@pytest.mark.parametrize("column", ["image", "path", "file", "filename", "file_name", "image_path"])
def test_column_of_images_is_found_by_every_usual_name(tmp_path, column):
    (tmp_path / "x.csv").write_text(f"label,{column}\ncat,a.png\ndog,b.png\n")
    listed = [(str(row[0]), row[1]) for row in map(astuple, images.list_images(tmp_path / "x.csv"))]
    assert listed == [(str(tmp_path / "a.png"), "cat"), (str(tmp_path / "b.png"), "dog")]
