"""Whisper's rules for timestamps (Radford et al. 2022, section 2.3, as in OpenAI's decoder)."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TimestampRules:
    """A transcript begins with a timestamp; later ones come in pairs, where a passage ends and the next begins, and
    never decrease. A timestamp is forced when all of them together are likelier than any text token."""

    first: int  # the id of <|0.00|>; this and all ids after it are times
    none: int  # <|notimestamps|>
    eos: int
    latest: int | None = None  # the latest start of a transcript, in steps after 0.00

    def apply(self, words: Tensor, ids: Tensor, time: Tensor, begin: int) -> Tensor:
        """Log-probabilities of the next token, B N V, with -inf for those not allowed after `ids`, B N T, of which
        `time` are written; those before `begin` belong to the prompt."""
        places = torch.arange(ids.size(2), device=ids.device)
        times = (ids >= self.first) & (places >= begin) & (places < time)  # B N T
        last, before = (times.index_select(2, (time - n).clamp(min=0))[:, :, 0] for n in (1, 2))  # B N
        before = before | (time - begin < 2)
        opens, closes = last & before, last & ~before
        newest = torch.where(times, ids, self.first - 1).amax(2)
        least = torch.where(closes, newest, newest + 1)  # B N
        word = torch.arange(words.size(2), device=words.device)
        is_time = word >= self.first
        never = (word == self.none) | (is_time & (word < least[:, :, None]))
        never |= (opens[:, :, None] & is_time) | (closes[:, :, None] & (word < self.eos))
        late = is_time.new_zeros(()) if self.latest is None else word > self.first + self.latest
        never |= (time == begin) & (~is_time | late)
        words = words.masked_fill(never, -torch.inf)
        rather = words[..., self.first :].logsumexp(-1) > words[..., : self.first].amax(-1)  # B N
        return words.masked_fill(rather[:, :, None] & ~is_time, -torch.inf)
