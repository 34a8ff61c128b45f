"""BLEU and chrF by sacreBLEU: signature, bootstrap interval, and BLEU by source length."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.config import unknown
from regard.errors import DataError

# sacreBLEU's tokenisers that need no other package. "none" is for text that is tokenised already.
TOKENIZERS = ("13a", "none", "intl", "char", "zh")

# Upper bounds of the source-length buckets, in words; the last bucket is open.
EDGES = (4, 8, 12, 16, 20, 30, 40, 60)


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """The sentences whose source has `low` to `high` words (`high` 0: no upper bound), scored together."""

    low: int
    high: int
    sentences: int
    bleu: float

    @property
    def words(self) -> str:
        return f"{self.low}–{self.high}" if self.high else f"{self.low}+"


@dataclass(frozen=True, kw_only=True)
class BleuScore:
    """Corpus scores of one system, with intervals that hold 95 % of the bootstrap resamples."""

    bleu: float
    bleu_low: float
    bleu_high: float
    chrf: float
    chrf_low: float
    chrf_high: float
    sentences: int
    length_ratio: float  # output words over reference words: below 1 the brevity penalty applies
    signature: str
    chrf_signature: str
    buckets: tuple[Bucket, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"BLEU  {self.bleu:5.1f}   95 % interval {self.bleu_low:.1f} to {self.bleu_high:.1f}   {self.signature}",
            f"chrF  {self.chrf:5.1f}   95 % interval {self.chrf_low:.1f} to {self.chrf_high:.1f}   "
            + self.chrf_signature,
            f"{self.sentences:,} sentences; output is {self.length_ratio:.2f} times as long as the reference",
        ]
        if self.buckets:
            lines += ["", "source words  sentences   BLEU"]
            lines += [f"{b.words:>12}  {b.sentences:>9,}  {b.bleu:5.1f}" for b in self.buckets]
        return "\n".join(lines)


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    sources: Sequence[str] = (),
    tokenize: str = "13a",
    samples: int = 1000,
) -> BleuScore:
    """Corpus BLEU and chrF with bootstrap intervals; with `sources`, also BLEU by source length."""
    check_equal(hypotheses, references)
    bleu, chrf = bleu_metric(tokenize), chrf_metric()
    b = corpus_score(bleu, hypotheses, [references], n_bootstrap=samples)
    c = corpus_score(chrf, hypotheses, [references], n_bootstrap=samples)
    return BleuScore(
        bleu=float(b.score),
        bleu_low=float(b._mean - b._ci),
        bleu_high=float(b._mean + b._ci),
        chrf=float(c.score),
        chrf_low=float(c._mean - c._ci),
        chrf_high=float(c._mean + c._ci),
        sentences=len(references),
        length_ratio=b.sys_len / max(1, b.ref_len),
        signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
        buckets=by_length(sources, hypotheses, references, tokenize=tokenize) if sources else (),
    )


def quick(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> dict[str, float]:
    """BLEU and chrF without intervals, for evaluations during training."""
    check_equal(hypotheses, references)
    return {
        "bleu": float(corpus_score(bleu_metric(tokenize), hypotheses, [references]).score),
        "chrf": float(corpus_score(chrf_metric(), hypotheses, [references]).score),
    }


def by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    edges: Sequence[int] = EDGES,
    tokenize: str = "13a",
) -> tuple[Bucket, ...]:
    """Corpus BLEU of sentences grouped by the number of source words; empty groups are left out."""
    check_equal(hypotheses, references)
    check_equal(sources, references)
    bleu = bleu_metric(tokenize)
    lengths = [len(s.split()) for s in sources]
    buckets = []
    for low, high in zip((0, *edges), (*edges, 0), strict=True):
        rows = [i for i, n in enumerate(lengths) if (n > low or not low) and (n <= high or not high)]
        if rows:
            value = corpus_score(bleu, [hypotheses[i] for i in rows], [[references[i] for i in rows]]).score
            buckets.append(Bucket(low=low + 1, high=high, sentences=len(rows), bleu=float(value)))
    return tuple(buckets)


def bleu_metric(tokenize: str) -> Any:
    """sacreBLEU's metric object; imported here to keep the start of other verbs fast."""
    if tokenize not in TOKENIZERS:
        raise unknown("BLEU tokeniser", tokenize, TOKENIZERS)
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize=tokenize, force=True)  # force: no warning about text that looks tokenised; the user chose


def chrf_metric() -> Any:
    from sacrebleu.metrics import CHRF

    return CHRF()


def corpus_score(metric: Any, hypotheses: Sequence[str], streams: Sequence[Sequence[str]], **settings: Any) -> Any:
    """sacreBLEU's corpus_score. Its tokenisers cache the last 65,536 lines; the caches are cleared, or memory would
    grow at every evaluation during training."""
    from sacrebleu.tokenizers.tokenizer_base import BaseTokenizer

    result = metric.corpus_score(hypotheses, streams, **settings)
    for tokenizer in BaseTokenizer.__subclasses__():
        if clear := getattr(tokenizer.__call__, "cache_clear", None):
            clear()
    return result


def check_equal(hypotheses: Sequence[str], references: Sequence[Any]) -> None:
    if len(hypotheses) != len(references):
        raise DataError(
            f"{len(hypotheses)} lines against {len(references)}; line n of one belongs to line n of the other"
        )
    if not references:
        raise DataError("nothing to score: the files hold no sentence")
    if empty_references(references) == len(references):
        raise DataError(f"all {len(references):,} references are empty; is that the right file?")


def empty_references(references: Sequence[Any]) -> int:
    """The number of sentences whose references are all blank."""
    return sum(not any(one.strip() for one in ([r] if isinstance(r, str) else r)) for r in references)
