"""IOB2, the tags of entities: B-X begins an X, I-X continues it, O is outside."""

from collections.abc import Iterable, Sequence

import numpy as np

NEVER = -1e9  # the log-probability of a tag that may not follow
MISTAKES = 0.1  # of the I-X; in older schemes more than half of them begin an X


def is_iob(labels: Sequence[str]) -> bool:
    """Whether these tags mark entities: O, B-X and I-X only."""
    return any(x.startswith("B-") for x in labels) and all(x == "O" or x[:2] in ("B-", "I-") for x in labels)


def may_follow(tag: str, before: str) -> bool:
    return not tag.startswith("I-") or before in (tag, f"B-{tag[2:]}")


def is_iob2(labels: Sequence[str], sentences: Iterable[np.ndarray]) -> bool:
    """Whether tags, as numbers by sentence, are IOB2, and not of an older scheme in which I-X also begins an X."""
    if not is_iob(labels):
        return False
    inside, rules = np.array([tag.startswith("I-") for tag in labels]), BestTags(labels)
    tags = [x for x in sentences if len(x)]
    wrong = sum(int((~rules.allowed[x[:-1], x[1:]]).sum()) + int(not rules.first[x[0]]) for x in tags)
    return wrong <= MISTAKES * sum(int(inside[x].sum()) for x in tags)


class BestTags:
    """The likeliest tags of a sentence of which each word has probabilities. In IOB2 I-X only follows B-X or I-X, so
    all words are decided together (Viterbi 1967); other tags are each the likeliest of their word. So are those of
    older schemes in which I-X begins entities, as long as some X has no B-X."""

    def __init__(self, labels: Sequence[str]):
        self.constrained = is_iob(labels) and all(f"B-{tag[2:]}" in labels for tag in labels if tag.startswith("I-"))
        self.allowed = np.array([[may_follow(tag, before) for tag in labels] for before in labels], bool)  # L L
        self.first = np.array([may_follow(tag, "O") for tag in labels], bool)  # L

    def __call__(self, log_p: np.ndarray) -> np.ndarray:
        """W L log-probabilities, or logits -> W numbers of tags."""
        best = log_p.argmax(-1)
        if not self.constrained or not len(best) or (self.first[best[0]] and self.allowed[best[:-1], best[1:]].all()):
            return best
        score, ways = np.where(self.first, log_p[0], NEVER), []  # L: of the best tags up to here, by the last one
        barred = np.where(self.allowed, 0.0, NEVER)
        for row in log_p[1:]:
            each = score[:, None] + barred
            ways.append(each.argmax(0))
            score = each.max(0) + row
        best[-1] = score.argmax()
        for word in range(len(ways), 0, -1):
            best[word - 1] = ways[word - 1][best[word]]
        return best
