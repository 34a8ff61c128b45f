"""`regard caption`, and how captioners are scored and run over folders."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.classes import write_rows
from regard.cli.common import Beam, Device, Json, Run, pick_device, show, write_lines
from regard.cli.info import note
from regard.errors import ConfigError, DataError
from regard.ticks import Console
from regard.words import table

if TYPE_CHECKING:
    from regard.predictors import ImageCaptioner

CHUNK = 128  # images read at a time


def caption(
    ctx: typer.Context,
    run: Run,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="The file of an image.", show_default=False)],
    beam: Beam = 5,
    n_best: Annotated[int, typer.Option(metavar="N", min=1, help="Show the N best captions.")] = 1,
    attention: Annotated[
        str, typer.Option(metavar="FILE", help="Draw where the model looked for each word.", show_default=False)
    ] = "",
    json: Json = False,
    device: Device = "auto",
) -> None:
    """Say what is in an image.

    \b
    Examples:
      regard caption runs/cap picture.jpg --beam 5
      regard caption runs/cap picture.jpg --attention words.png
      regard predict runs/cap photos/ --out captions.csv
    """
    from regard.predictors import ImageCaptioner
    from regard.tasks.load import load

    flags: Console = ctx.obj
    if attention:
        from regard.explain.picture import check_picture

        check_picture(attention)
    model = load(run, device=pick_device(device))
    if not isinstance(model, ImageCaptioner):
        raise ConfigError(f"{run} says nothing of images; train one: regard train caption --data captions.tsv")
    pixels = model.images([image])
    (found,) = model.hypotheses(pixels, beam=beam, n_best=n_best)  # pyrefly: ignore[bad-argument-type]
    if json:
        show([{"text": h.text, "score": h.score, "log_probability": h.log_probability} for h in found])
    elif n_best == 1:
        print(found[0].text)
    else:
        print(table([(f"{h.score:.3f}", h.text) for h in found]))
    if attention:
        from regard.data.pixels import read_image
        from regard.explain.rollout import draw_words

        looks = model.looks(pixels[0], found[0].ids)
        words, maps = [word for word, _ in looks], [seen for _, seen in looks]
        flags.say(f"attention: {draw_words(read_image(Path(image))[0], words, maps, attention)}")


def evaluate_captions(
    model: "ImageCaptioner", run: str, data: str, beam: int, json: bool, out: Path | None, flags: Console
) -> None:
    """BLEU-4 and CIDEr of the held-out images, and of the same captions given to other images."""
    from regard.data.captions import CaptionsConfig, captioned, load_captions
    from regard.evaluate.captions import score_captions
    from regard.tasks.plan import read_run

    _, side, _ = model.model.config.shape
    if data:
        path = Path(data)
        config = CaptionsConfig(path=data, size=side)
        part, notes = captioned(path, path.parent, config, flags.say)
        for line in notes:
            flags.say(line)
        what = data
    else:
        if not (Path(run) / "run.json").is_file():
            raise ConfigError(f"{run} has no images of its own; type: regard evaluate {run} --data captions.tsv")
        config = read_run(run).data
        assert isinstance(config, CaptionsConfig)
        part, what = load_captions(config, flags.say).valid, "its own held-out images"
    flags.say(f"captioning {len(part):,} images of {what}")
    with flags.progress("images", len(part)):
        made = [h.text for h in model.caption(part.pixels, beam=beam)]
    found = score_captions(made, part.captions)
    other = score_captions([*made[1:], made[0]], part.captions)  # the same words, to the wrong image
    if out is not None:
        write_lines((text + "\n" for text in made), out, flags)
    wrong = {"bleu_of_other_images": other.bleu, "cider_of_other_images": other.cider}
    noted: dict[str, Any] = {"on": what, "beam": beam, "pixels": side, **dataclasses.asdict(found), **wrong}
    note(Path(run), noted)
    if json:
        show({"run": run, "task": "caption", **noted})
    else:
        print(f"{run} on {what}, {len(part):,} of {side} x {side} pixels, beam {beam}\n{found}")
        print(f"given to other images: BLEU-4 {other.bleu:.1f}, CIDEr {other.cider:.3f}")


def predict_captions(
    model: "ImageCaptioner", file: Path, out: Path | None, beam: int, json: bool, flags: Console
) -> None:
    """Every image of a folder, or one, with its caption."""
    from regard.data.images import files_of

    if not file.exists():
        raise DataError(f"no file or folder {file}")
    files = list(files_of(file)) if file.is_dir() else [file]
    if not files:
        raise DataError(f"{file} holds no images")
    write_rows(captioned_rows(model, files, beam, flags), out, json, flags, "images", len(files))


def captioned_rows(model: "ImageCaptioner", files: list[Path], beam: int, flags: Console) -> Iterator[dict[str, Any]]:
    """A row for each file, in order; one that cannot be read gets no caption, and is told of."""
    import numpy as np

    for start in range(0, len(files), CHUNK):
        read: dict[Path, Any] = {}
        for path in files[start : start + CHUNK]:
            try:
                read[path] = model.images([path])[0]
            except DataError as e:
                flags.say(f"no caption: {e}")
        made = model.caption(np.stack(list(read.values())), beam=beam) if read else []
        said = dict(zip(read, (h.text for h in made), strict=True))
        yield from ({"file": str(path), "caption": said.get(path, "")} for path in files[start : start + CHUNK])
