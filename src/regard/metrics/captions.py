"""Scores of captions against several references each: BLEU-4 and CIDEr."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import DataError
from regard.metrics.bleu import corpus_score

WORD = re.compile(r"[a-z0-9']+")
LONGEST = 4  # words of an n-gram
SIGMA = 6.0  # of the length penalty, in words


@dataclass(frozen=True)
class CaptionScore:
    bleu: float  # BLEU-4, lower-cased, over all references
    cider: float  # CIDEr-D
    images: int
    signature: str

    def __str__(self) -> str:
        return f"BLEU-4 {self.bleu:5.1f}   {self.signature}\nCIDEr  {self.cider:5.3f}   CIDEr-D, words lower-cased"


def score_captions(captions: Sequence[str], references: Sequence[Sequence[str]]) -> CaptionScore:
    """Score captions against all references of their images."""
    from sacrebleu.metrics.bleu import BLEU

    if len(captions) != len(references) or not captions or not all(references):
        raise DataError(
            f"{len(captions)} captions and {len(references)} lists of references, none of which may be empty"
        )
    most = max(map(len, references))
    streams = [[refs[i] if i < len(refs) else refs[0] for refs in references] for i in range(most)]
    bleu = BLEU(lowercase=True)
    result = corpus_score(bleu, list(captions), streams)
    return CaptionScore(result.score, cider(captions, references), len(captions), str(bleu.get_signature()))


def cider(captions: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """The mean of `ciders`."""
    return sum(ciders(captions, references)) / len(captions)


def ciders(captions: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """CIDEr-D of each image (Vedantam et al. 2015, section 3 and its appendix).

    For n up to 4, n-gram counts are weighted by inverse document frequency over images; the caption's, clipped to the
    reference's, are compared with it by cosine, times a penalty for different lengths. The result is the mean over
    references and n, times 10.
    """
    counted = [[grams(r) for r in refs] for refs in references]
    seen = Counter(gram for refs in counted for gram in {g for counts in refs for g in counts})
    images = math.log(len(references))

    def weighed(counts: Counter[tuple[str, ...]]) -> list[dict[tuple[str, ...], float]]:
        parts: list[dict[tuple[str, ...], float]] = [{} for _ in range(LONGEST)]
        for gram, n in counts.items():
            parts[len(gram) - 1][gram] = n * (images - math.log(max(1, seen[gram])))
        return parts

    scores = []
    for caption, refs in zip(captions, counted, strict=True):
        counts, total = grams(caption), 0.0
        mine = weighed(counts)
        for ref in refs:
            apart = length(counts) - length(ref)
            near = math.exp(-(apart**2) / (2 * SIGMA**2))
            likeness = sum(angle(a, b) for a, b in zip(mine, weighed(ref), strict=True)) / LONGEST
            total += 10 * near * likeness / len(refs)
        scores.append(total)
    return scores


def grams(text: str) -> Counter[tuple[str, ...]]:
    """All n-grams of a text, n up to 4."""
    words = WORD.findall(text.lower())
    return Counter(tuple(words[i : i + n]) for n in range(1, LONGEST + 1) for i in range(len(words) - n + 1))


def length(counts: Counter[tuple[str, ...]]) -> int:
    return sum(n for gram, n in counts.items() if len(gram) == 1)


def angle(mine: dict[tuple[str, ...], float], theirs: dict[tuple[str, ...], float]) -> float:
    """The cosine, with the caption's counts clipped to the reference's in the numerator."""
    product = sum(min(x, theirs[gram]) * theirs[gram] for gram, x in mine.items() if gram in theirs)
    sizes = math.sqrt(sum(x * x for x in mine.values()) * sum(x * x for x in theirs.values()))
    return product / sizes if sizes else 0.0
