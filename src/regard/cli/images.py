"""Images on the command line: one classified, many scored, a folder labelled."""

from pathlib import Path
from typing import TYPE_CHECKING

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
