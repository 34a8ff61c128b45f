"""BERT's pre-training: predict the masked tokens, and whether the second sentence follows (Devlin et al. 2019)."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.masking import MaskedBatch
from regard.models.bert import Bert
from regard.objectives.base import Objective, evaluating
from regard.objectives.losses import plain_cross_entropy_sum


class MaskedToken(Objective):
    """Cross-entropy of the masked tokens, the only positions the head sees, plus that of the next sentence.

    The two means are added, as in the paper. The loop divides by the number of masked tokens, so a pair is weighted by
    the number of masked tokens per pair in its batch.
    """

    name = "mlm"
    dynamic = False  # packed batches have one shape

    def __init__(self, smoothing: float = 0.0, entropy: float = 0.0):
        self.smoothing = smoothing
        self.entropy = entropy  # unigram entropy of the corpus, reported with the loss

    def count(self, batch: MaskedBatch) -> int:
        return batch.count

    def tokens(self, batch: MaskedBatch) -> int:
        return batch.tokens

    def loss_sum(self, model: Bert, batch: MaskedBatch) -> Tensor:
        text, follows = text_of(batch), batch.follows
        if follows is not None and text[-1] is None:
            follows = follows[: len(text[0])]  # of real rows: packed batches have room for more
        words, pairs = self.device_loss(model, *text, batch.chosen, batch.targets, follows)
        return words + batch.weight * pairs

    def device_loss(
        self,
        model: Bert,
        ids: Tensor,
        lengths: Tensor | None,
        sentences: Tensor,
        starts: Tensor | None,
        chosen: Tensor,
        targets: Tensor,
        follows: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """The two sums: over the masked tokens, and over the pairs."""
        x = model(ids, lengths, sentences, starts)  # B T D
        hidden = model.words(x.flatten(0, 1)[chosen])  # M D
        words = plain_cross_entropy_sum(
            hidden, model.head, targets, self.smoothing, bias=model.bias, vocab=model.config.vocab
        )
        if follows is None:
            return words, words.new_zeros(())
        scores = model.follows(firsts(x, starts)).float()
        return words, F.cross_entropy(scores, follows, reduction="sum", ignore_index=-1)

    def held_out(self, model: Bert, batches: Iterable[MaskedBatch]) -> dict[str, float]:
        """One pass, always with the same masks: "loss" per masked token, their accuracy, and as the baseline the
        corpus's unigram entropy."""
        sums = torch.zeros(5, dtype=torch.float64)  # token loss, correct tokens, pair loss, correct pairs, pairs
        count = 0
        with evaluating(model):
            for batch in batches:
                x = model(batch.ids, batch.lengths, batch.sentences, batch.starts)
                logits = model.logits(x.flatten(0, 1)[batch.chosen]).float()  # M V
                words = F.cross_entropy(logits, batch.targets, reduction="sum", ignore_index=-1)
                new = [words, (logits.argmax(-1) == batch.targets).sum()]
                if batch.follows is not None:
                    scores, real = model.follows(firsts(x, batch.starts)).float(), batch.follows >= 0
                    pair_loss = F.cross_entropy(scores, batch.follows, reduction="sum", ignore_index=-1)
                    new += [pair_loss, ((scores.argmax(-1) == batch.follows) & real).sum(), real.sum()]
                sums = sums.to(x.device)
                sums[: len(new)] += torch.stack([number.double() for number in new])
                count += batch.count
        loss, right, pair_loss, pairs_right, pairs = sums.tolist()
        metrics = {"loss": loss / max(1, count), "masked_accuracy": right / max(1, count)}
        if pairs:
            metrics |= {"next_sentence_loss": pair_loss / pairs, "next_sentence_accuracy": pairs_right / pairs}
        return metrics | ({"unigram_entropy": self.entropy} if self.entropy else {})


def text_of(batch: MaskedBatch) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """Ids, lengths, sentences and starts. Packed texts of one length become rows without padding, whose attention cuDNN
    computes in two thirds of the time."""
    length = int(batch.host_lengths[0])
    if batch.starts is None or (batch.host_lengths != length).any() or batch.tokens != batch.ids.numel():
        return batch.ids, batch.lengths, batch.sentences, batch.starts
    return batch.ids.view(-1, length), None, batch.sentences.view(-1, length), None


def firsts(hidden: Tensor, starts: Tensor | None) -> Tensor:
    """[CLS] of each row, padded or packed: B T D -> B D, or 1 T D -> R D. Undefined for an empty one."""
    if starts is None:
        return hidden[:, 0]
    return hidden[0, starts[:-1].clamp(max=hidden.size(1) - 1)]
