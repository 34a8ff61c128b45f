"""BERT's pre-training: find the hidden words, and say whether the second sentence follows (Devlin et al. 2019)."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.masking import MaskedBatch
from regard.models.bert import Bert
from regard.objectives.losses import plain_cross_entropy_sum


class MaskedToken:
    """Cross-entropy of the hidden words, the only places the head sees, plus that of the next sentence.

    Both have a mean of their own and the two means are added, as the paper does. The loop divides by the number of
    hidden words, so a pair comes in weighted by how many of these there are for each pair in its batch.
    """

    name = "mlm"

    def __init__(self, smoothing: float = 0.0, entropy: float = 0.0):
        self.smoothing = smoothing
        self.entropy = entropy  # of the corpus's words, reported beside the loss
        self.compiled = False

    def count(self, batch: MaskedBatch) -> int:
        return batch.count

    def tokens(self, batch: MaskedBatch) -> int:
        return batch.tokens

    def loss_sum(self, model: Bert, batch: MaskedBatch) -> Tensor:
        asked = batch.ids, batch.lengths, batch.sentences, batch.starts, batch.chosen, batch.targets, batch.follows
        words, pairs = self.device_loss(model, *asked)
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
        """The two sums: over the hidden words, and over the pairs."""
        x = model(ids, lengths, sentences, starts)  # B T D
        hidden = model.words(x.flatten(0, 1)[chosen])  # M D
        words = plain_cross_entropy_sum(
            hidden, model.head, targets, self.smoothing, bias=model.bias, vocab=model.config.vocab
        )
        if follows is None:
            return words, words.new_zeros(())
        scores = model.follows(firsts(x, starts)).float()
        return words, F.cross_entropy(scores, follows, reduction="sum", ignore_index=-1)

    def compile(self) -> None:
        """From now on model, heads and losses run as one compiled graph; packed batches are all of one shape."""
        self.compiled = True
        self.device_loss = torch.compile(self.device_loss, dynamic=False)

    @torch.no_grad()
    def held_out(self, model: Bert, batches: Iterable[MaskedBatch]) -> dict[str, float]:
        """One pass, the same words hidden always: "loss" per hidden word, and how many of them are found.

        Beside it stands what knowing only how frequent words are would give: the corpus's unigram entropy.
        """
        training = model.training
        model.eval()
        sums = torch.zeros(5, dtype=torch.float64)  # loss of words, words found, loss of pairs, pairs right, pairs
        count = 0
        for batch in batches:
            x = model(batch.ids, batch.lengths, batch.sentences, batch.starts)
            logits = model.logits(x.flatten(0, 1)[batch.chosen]).float()  # M V
            found = [
                F.cross_entropy(logits, batch.targets, reduction="sum", ignore_index=-1),
                (logits.argmax(-1) == batch.targets).sum(),
            ]
            if batch.follows is not None:
                scores, real = model.follows(firsts(x, batch.starts)).float(), batch.follows >= 0
                pair_loss = F.cross_entropy(scores, batch.follows, reduction="sum", ignore_index=-1)
                found += [pair_loss, ((scores.argmax(-1) == batch.follows) & real).sum(), real.sum()]
            sums = sums.to(x.device)
            sums[: len(found)] += torch.stack([f.double() for f in found])
            count += batch.count
        model.train(training)
        loss, right, pair_loss, pairs_right, pairs = sums.tolist()
        metrics = {"loss": loss / max(1, count), "masked_accuracy": right / max(1, count)}
        if pairs:
            metrics |= {"next_sentence_loss": pair_loss / pairs, "next_sentence_accuracy": pairs_right / pairs}
        return metrics | ({"unigram_entropy": self.entropy} if self.entropy else {})


def firsts(hidden: Tensor, starts: Tensor | None) -> Tensor:
    """[CLS] of each row, padded or packed: B T D -> B D, or 1 T D -> R D. Of an empty one, any."""
    if starts is None:
        return hidden[:, 0]
    return hidden[0, starts[:-1].clamp(max=hidden.size(1) - 1)]
