"""Images on the command line: one classified, many scored, a folder labelled."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.classes import judge_classes, write_rows
from regard.cli.common import show
from regard.cli.info import note
from regard.data.folders import user_path
from regard.errors import ConfigError, DataError
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.predictors import ImageClassifier
    from regard.predictors.labeller import Answer

CHUNK = 256  # images read at a time


def classify_image(model: "ImageClassifier", file: str, attention: str, flags: Console) -> "Answer":
    if attention:
        from regard.explain.picture import check_picture

        check_picture(attention)
    (answer,) = model.classify([file])
    if attention:
        from regard.data.pixels import read_image
        from regard.explain.rollout import draw

        seen = model.attention(file)
        title = f"{answer.label} {answer.probabilities[answer.label]:.0%}"
        flags.say(f"attention: {draw(read_image(Path(file))[0], seen.rollout, seen.heads, title, attention)}")
    return answer


def evaluate_images(model: "ImageClassifier", run: str, data: str, picture: str, json: bool, flags: Console) -> None:
    """Accuracy, F1, confusion and calibration: on images of yours, else on the set's test part or those held out."""
    import numpy as np

    if picture:
        from regard.explain.picture import check_picture

        check_picture(picture)
    what, pixels, true = image_set(model, run, data, flags)
    common = float(np.bincount(true).max() / len(true))
    beside = [f"commonest    {common:.2%} by always naming the commonest class"]
    with flags.progress("images", len(true)):
        likely = model.probabilities(pixels)
    found, text = judge_classes(likely, true, model.labels, beside, [], "images", picture, flags)
    noted = {"on": what, "majority": common, **found}
    note(Path(run), {k: v for k, v in noted.items() if isinstance(v, int | float | str)})
    if json:
        show({"run": run, "task": "image", **noted})
    else:
        print(f"{run} on {what}, {len(true):,} images\n{text}")


def image_set(model: "ImageClassifier", run: str, data: str, flags: Console) -> tuple[str, Any, Any]:
    """What to score on: its name, N C P P bytes, N classes."""
    import numpy as np

    from regard.data.images import ImagesConfig, list_images, load_images, own_pixels
    from regard.data.pixels import with_channels
    from regard.tasks.plan import read_run

    channels, side, _ = model.shape
    config = read_run(run).data if (Path(run) / "run.json").is_file() else ImagesConfig()
    assert isinstance(config, ImagesConfig)
    if not data:
        if not (config.name or config.path):
            raise ConfigError(f"{run} has no images of its own; type: regard evaluate {run} --data FOLDER")
        loaded = load_images(config, flags.say)
        part = loaded.test or loaded.valid
        what = "its test part" if loaded.test else "its own held-out images"
        return f"{what} of {config.name}" if config.name and loaded.test else what, part.pixels, part.labels
    images = list_images(user_path(data), config.label)
    at = {label: i for i, label in enumerate(model.labels)}
    for image in images:
        if image.label not in at:
            known = ", ".join(model.labels)
            raise DataError(f"{image.where}: the class {image.label!r} is not among those trained on: {known}")
    pixels, kept, skipped = own_pixels(images, side, channels, flags.say)
    for why, names in skipped:
        flags.say(f"passed over {len(names):,}: {why}; the first is {names[0]}")
    return data, with_channels(pixels, channels), np.array([at[images[i].label] for i in kept])


def predict_images(model: "ImageClassifier", file: Path, out: Path | None, json: bool, flags: Console) -> None:
    """Every image of a folder, or one, with its label and probabilities."""
    from regard.data.images import files_of

    if not file.exists():
        raise DataError(f"no file or folder {file}")
    files = list(files_of(file)) if file.is_dir() else [file]
    if not files:
        raise DataError(f"{file} holds no images")
    write_rows(labelled(model, files, flags), out, json, flags, "images", len(files))


def labelled(model: "ImageClassifier", files: list[Path], flags: Console) -> Iterator[dict[str, Any]]:
    """A row for each file, in order; one that cannot be read gets no label, and is told of."""
    import numpy as np

    for start in range(0, len(files), CHUNK):
        found: list[tuple[Path, Any]] = []
        for path in files[start : start + CHUNK]:
            try:
                found.append((path, model.read([path])))
            except DataError as e:
                flags.say(f"no label: {e}")
                found.append((path, None))
        read = [pixels for _, pixels in found if pixels is not None]
        likely = iter(model.probabilities(np.concatenate(read)).tolist() if read else [])
        for path, pixels in found:
            p = next(likely) if pixels is not None else None
            label = model.labels[max(range(len(p)), key=p.__getitem__)] if p else ""
            numbers = [round(x, 6) for x in p] if p else [""] * len(model.labels)
            columns = zip((f"probability_{label}" for label in model.labels), numbers, strict=True)
            yield {"file": str(path), "label": label, **dict(columns)}
