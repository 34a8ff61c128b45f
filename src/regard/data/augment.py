"""Random image augmentation of a batch, on its device: bytes in, bytes out, without synchronising."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.settings import COLOURS, SHAPES, Augment

GREY = (0.299, 0.587, 0.114)  # luminance of red, green and blue (ITU-R BT.601)


def augmented(
    pixels: Tensor, labels: Tensor, classes: int, how: Augment, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """B C H W bytes and B labels, augmented; if images are mixed, labels are B L, the share of each class.

    All randomness comes from `rng`, which also seeds the device's generator.
    """
    generator = torch.Generator(pixels.device).manual_seed(int(rng.integers(2**62)))
    if how.crop:
        pixels = cropped(pixels, max(1, round(how.crop * pixels.size(3))), generator)
    if how.flip:
        mirrored = torch.rand(len(pixels), 1, 1, 1, generator=generator, device=pixels.device) < 0.5
        pixels = torch.where(mirrored, pixels.flip(3), pixels)
    if how.operations:
        pixels = operated(pixels, how.operations, how.strength, generator)
    if how.erase:
        pixels = erased(pixels, how.erase, generator)
    if not (how.mixup or how.cutmix):
        return pixels, labels
    shares = F.one_hot(labels, classes).float()  # B L
    cut = how.cutmix > 0 and (how.mixup == 0 or rng.random() < 0.5)
    alpha = how.cutmix if cut else how.mixup
    keep = float(rng.beta(alpha, alpha))
    if cut:
        pixels, keep = cut_in(pixels, keep, rng)
    else:
        pixels = bytes_of(pixels.float().lerp(pixels.flip(0).float(), 1 - keep))
    return pixels, shares.lerp(shares.flip(0), 1 - keep)


def bytes_of(x: Tensor) -> Tensor:
    return x.round().clamp(0, 255).to(torch.uint8)


def cropped(pixels: Tensor, margin: int, generator: torch.Generator) -> Tensor:
    """Each image shifted by up to `margin` pixels either way, filled with black."""
    B, C, H, W = pixels.shape
    device = pixels.device
    wide = F.pad(pixels, (margin,) * 4)
    start = torch.randint(0, 2 * margin + 1, (2, B, 1), generator=generator, device=device)
    y, x = (start[i] + torch.arange(n, device=device) for i, n in ((0, H), (1, W)))  # B H, B W
    rows, channels = torch.arange(B, device=device), torch.arange(C, device=device)
    return wide[rows[:, None, None, None], channels[:, None, None], y[:, None, :, None], x[:, None, None, :]]


def erased(pixels: Tensor, often: float, generator: torch.Generator) -> Tensor:
    """Noise in a rectangle of 2 % to 33 % of the image, with an aspect ratio of 1:3 to 3:1."""
    B, _, H, W = pixels.shape
    device = pixels.device
    u = torch.rand(5, B, generator=generator, device=device)
    area, ratio = (0.02 + 0.31 * u[0]) * H * W, torch.exp((2 * u[1] - 1) * np.log(3.0))
    high, wide = (area * ratio).sqrt().clamp(max=H), (area / ratio).sqrt().clamp(max=W)
    top, left = u[2] * (H - high), u[3] * (W - wide)
    y, x = torch.arange(H, device=device)[:, None], torch.arange(W, device=device)
    box = [t[:, None, None] for t in (top, top + high, left, left + wide)]
    inside = (y >= box[0]) & (y < box[1]) & (x >= box[2]) & (x < box[3]) & (u[4] < often)[:, None, None]  # B H W
    noise = torch.randint(0, 256, pixels.shape, generator=generator, device=device, dtype=torch.uint8)
    return torch.where(inside[:, None], noise, pixels)


def cut_in(pixels: Tensor, keep: float, rng: np.random.Generator) -> tuple[Tensor, float]:
    """A rectangle of about 1 - `keep` of each image replaced from its partner, and the share actually kept."""
    _, _, H, W = pixels.shape
    side = (1 - keep) ** 0.5
    y, x = rng.integers(H), rng.integers(W)
    top, bottom = max(0, int(y - side * H / 2)), min(H, int(y + side * H / 2))
    left, right = max(0, int(x - side * W / 2)), min(W, int(x + side * W / 2))
    pixels, partner = pixels.clone(), pixels.flip(0)
    pixels[:, :, top:bottom, left:right] = partner[:, :, top:bottom, left:right]
    return pixels, 1 - (bottom - top) * (right - left) / (H * W)


# -- RandAugment --------------------------------------------------------------------------------------------------


def operated(pixels: Tensor, count: int, strength: float, generator: torch.Generator) -> Tensor:
    """`count` random operations on each image: all run on all images, with no effect where not chosen."""
    B, device = len(pixels), pixels.device
    names = SHAPES + COLOURS
    chosen = torch.rand(B, len(names), generator=generator, device=device).argsort(1).argsort(1) < count  # B O
    sign = torch.randint(0, 2, (B, len(names)), generator=generator, device=device) * 2 - 1
    amount = chosen * sign * strength  # B O, -1 to 1
    by_name = dict(zip(names, amount.unbind(1), strict=True))
    x = warped(pixels.float(), {name: by_name[name] for name in SHAPES})
    return bytes_of(recoloured(x, {name: by_name[name][:, None, None, None] for name in COLOURS}))


def warped(x: Tensor, amount: dict[str, Tensor]) -> Tensor:
    """Sheared by up to 0.3, shifted by up to 0.3 of the side, rotated by up to 30°, each B; filled with black."""
    angle = amount["turn"] * (np.pi / 6)
    cos, sin, zero, one = angle.cos(), angle.sin(), torch.zeros_like(angle), torch.ones_like(angle)
    turn = torch.stack([cos, -sin, zero, sin, cos, zero], 1).view(-1, 2, 3)
    shear_x, shear_y, shift_x, shift_y = (0.3 * amount[name] for name in SHAPES[:4])
    shear = torch.stack([one, shear_x, shear_y, one], 1).view(-1, 2, 2)
    where = shear @ turn + torch.stack([zero, zero, 2 * shift_x, zero, zero, 2 * shift_y], 1).view(-1, 2, 3)
    grid = F.affine_grid(where, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def recoloured(x: Tensor, amount: dict[str, Tensor]) -> Tensor:
    """B C H W in [0, 255]; amounts are B 1 1 1, 0 for no effect."""
    x = x * (1 + 0.9 * amount["brightness"])
    middle = greys(x).mean((2, 3), keepdim=True)
    x = middle + (x - middle) * (1 + 0.9 * amount["contrast"])
    grey = greys(x)
    x = (grey + (x - grey) * (1 + 0.9 * amount["colour"])).clamp(0, 255)
    x = torch.where(x >= 256 * (1 - amount["solarise"].abs()), 255 - x, x)
    step = torch.exp2((4 * amount["posterise"].abs()).round())  # up to 4 of 8 bits are lost
    x = torch.where(amount["posterise"] == 0, x, (x / step).floor() * step)
    blurred = F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
    return blurred + (x - blurred) * (1 + 0.9 * amount["sharpness"])


def greys(x: Tensor) -> Tensor:
    """The luminance of each pixel: B C H W -> B 1 H W."""
    if x.size(1) != 3:
        return x.mean(1, keepdim=True)
    red, green, blue = x.split(1, 1)
    return GREY[0] * red + GREY[1] * green + GREY[2] * blue  # host numbers: nothing is copied to the device
