"""The letters of tensor shapes, and a check for public entry points.

B batch · T queries or target positions · S keys or source positions · D width · H heads · K head width ·
V vocabulary · L layers · N hypotheses · M chosen positions · C capacity of a cache · E embedding width ·
A width of additive attention ·
of images: C channels · P pixels a side (H and W where they differ) · N patches
"""

from torch import Tensor

from regard.errors import ShapeError


def check(tensor: Tensor, shape: str, **sizes: int) -> None:
    """Raise `ShapeError` unless `tensor` has the axes of `shape`: equal letters have equal sizes, as in `sizes`."""
    letters = shape.split()
    got = tuple(tensor.shape)
    if len(got) == len(letters):
        bound = dict(sizes)
        if all(bound.setdefault(letter, size) == size for letter, size in zip(letters, got, strict=True)):
            return
    fixed = ", ".join(f"{k}={v}" for k, v in sizes.items())
    raise ShapeError(
        f"got a tensor of shape {' '.join(map(str, got))}, expected {shape}" + (f" with {fixed}" if fixed else "")
    )
