"""How an image becomes the square that a model reads, from preprocessor_config.json of a published folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import CheckpointError
from regard.jsonfile import read_json_if_any

if TYPE_CHECKING:
    from PIL.Image import Image

FILE = "preprocessor_config.json"
BILINEAR, BICUBIC = 2, 3  # as PIL numbers them
SHORTEST = ("CLIP", "Bit")  # processors whose single size is the shorter side; for others it is both


@dataclass(frozen=True)
class Framing:
    """Resize both sides, or the shorter one, to `resize` pixels, then crop `side` pixels from the centre."""

    side: int
    resize: int = 0  # 0: to `side`
    shorter: bool = False
    resample: int = BILINEAR

    def __call__(self, image: "Image") -> "Image":
        size = self.resize or self.side
        width, height = size, size
        if self.shorter:
            short = min(image.size)
            width, height = (size if x == short else int(size * x / short) for x in image.size)
        image = image.resize((width, height), self.resample)
        left, top = (width - self.side) // 2, (height - self.side) // 2
        return image.crop((left, top, left + self.side, top + self.side))

    @property
    def plain(self) -> bool:
        """Whether the image is only resized to a square, as in training."""
        return self == Framing(self.side)


def read_framing(folder: Path, side: int) -> Framing:
    """The framing of a model folder; by default images are resized to `side` pixels."""
    settings = read_json_if_any(folder / FILE)
    try:
        return framing_of(settings, side) if settings else Framing(side)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise CheckpointError(f"{folder / FILE}: cannot be read ({type(e).__name__}: {e})") from None


def framing_of(settings: dict[str, Any], side: int) -> Framing:
    processor = str(settings.get("image_processor_type") or settings.get("feature_extractor_type") or "")
    size, crop = settings.get("size", side), settings.get("crop_size", side)
    if not settings.get("do_resize", True):
        raise ValueError("do_resize is false; we read only images resized to one size")
    shorter = processor.startswith(SHORTEST) if isinstance(size, int) else "shortest_edge" in size
    resize = square(size)
    cut = square(crop) if settings.get("do_center_crop", False) else resize
    if cut > resize or (shorter and not settings.get("do_center_crop", False)):
        raise ValueError(f"size {size} and crop_size {crop} do not give a square; we read only squares")
    return Framing(cut, resize, shorter, int(settings.get("resample", BILINEAR)))


def square(size: Any) -> int:
    """Pixels a side: `size` is one number, or a dict of two equal ones."""
    sides = {size} if isinstance(size, int) else {size[name] for name in size if name != "longest_edge"}
    if len(sides) != 1:
        raise ValueError(f"a size of {size}; we read only squares")
    return int(sides.pop())


def read_range(folder: Path) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """The mean and standard deviation of the pixel scaling; None if the folder has none."""
    settings = read_json_if_any(folder / FILE)
    if not settings.get("image_mean") or not settings.get("do_normalize", True):
        return None
    try:
        mean, std = (tuple(map(float, settings[name])) for name in ("image_mean", "image_std"))
        return mean, std
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(f"{folder / FILE}: cannot be read ({type(e).__name__}: {e})") from None


def preprocessor(config: Any) -> dict[str, Any]:
    """preprocessor_config.json of our models: resized to a square, then scaled."""
    channels, side, _ = config.shape
    mean, std = (list(x) * (channels if len(x) == 1 else 1) for x in (config.mean, config.std))
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": side, "width": side},
        "resample": BILINEAR,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean,
        "image_std": std,
    }
