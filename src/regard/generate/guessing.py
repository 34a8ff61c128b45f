"""One text at a time on a CPU, several tokens per pass where it repeats itself.

Every pass reads all weights, whether for one token or for a few. So what followed the last two tokens before is guessed
to follow again, and read along with them (Yang et al. 2023, "Inference with Reference"). At every position the model
chooses as it would have without guesses, with that position's own random number; guesses count up to the first that is
not its choice. The text is the same, greedy or sampled.
"""

import torch
from torch import Tensor

from regard.generate.request import Sampling
from regard.generate.rows import Rows
from regard.models.base import LanguageModel
from regard.nn.quantised import Int8Linear

RUN = 2  # tokens that must have occurred before; of 3 there are fewer guesses, and not many more are right
FEWEST, MOST = 2, 12  # guesses in a pass


class Repeats:
    """A text, and how it went on after the same `RUN` tokens the last time."""

    def __init__(self, ids: list[int]):
        self.ids: list[int] = []
        self.after: dict[tuple[int, ...], int] = {}
        self.again = 0  # where to copy from; 0: these tokens are new
        self.add(ids)

    def add(self, ids: list[int]) -> None:
        for id in ids:
            self.ids.append(id)
            if len(self.ids) >= RUN:
                run = tuple(self.ids[-RUN:])
                self.again = self.after.get(run, 0)
                self.after[run] = len(self.ids)

    def guess(self, most: int) -> list[int]:
        """What may follow, at most so many tokens; a repetition that has just begun goes on forever."""
        if not self.again or most < 1:
            return []
        since = self.ids[self.again : self.again + most]
        return (since * -(-most // len(since)))[:most]


class GuessingRows(Rows):
    """A single row that reads guesses along with its last token."""

    @staticmethod
    def takes(model: LanguageModel, settings: Sampling, rows: int) -> bool:
        """Whether choices depend on nothing but the logits, and the model can forget what it has read.

        In int8 a token read along with others is rounded differently, by enough to change a text.
        """
        able = rows == 1 and model.forgets and not settings.kind.penalty and not settings.kind.ngram
        return able and not any(isinstance(part, Int8Linear) for part in model.modules())

    def start(self, texts: list[list[int]], which: list[int], uniforms: list[Tensor]) -> None:
        super().start(texts, which, uniforms)
        self.repeats, self.most = Repeats([*texts[0], int(self.last)]), 2 * FEWEST

    def steps(self, count: int) -> int:
        """One pass; how many ids it gives, the text decides."""
        room = self.capacity - int(self.state.places[0]) - 1
        guesses = self.repeats.guess(min(self.most, room))
        tokens = torch.tensor([[*self.repeats.ids[-1:], *guesses]])
        logits = self.model.logits(self.model.read(tokens, self.state)[0])  # T V
        where = torch.arange(self.written, self.written + len(logits))
        ids = self.choice(logits, self.uniforms if self.kind.greedy else self.uniforms[0, where])
        chosen, right = ids.tolist(), 0
        while right < len(guesses) and guesses[right] == chosen[right]:
            right += 1
        if guesses:
            self.most = min(2 * self.most, MOST) if right == len(guesses) else max(right + 1, FEWEST)
        self.state.back(len(guesses) - right)
        count = right + 1
        self.repeats.add(chosen[:count])
        self.record(ids[None, :count], logits[None, :count], where[:count])
        self.written += count
        return count
