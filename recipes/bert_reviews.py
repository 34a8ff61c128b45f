"""BERT on film reviews, from raw text: a vocabulary, hidden words and next sentences. For a GPU.

    regard train recipes/bert_reviews.py --name bert
    regard fill runs/bert "This film is one of the [MASK] I have ever seen."

NOT MEASURED YET: wanted on one H200 in 10 minutes are a held-out loss of at most half the corpus's unigram entropy
and a masked accuracy of 35 %; the three stand in the last line of runs/bert/metrics.jsonl. On two CPU cores the same
text takes the smaller preset: regard train mlm --data movie-reviews.
"""

from regard import Run
from regard.data.masked import MaskedConfig
from regard.models import config_for
from regard.train.optim import Optim
from regard.train.schedule import Schedule

VOCAB, LENGTH = 8000, 128


def recipe() -> Run:
    return Run(
        task="mlm",
        data=MaskedConfig(name="movie-reviews", vocab=VOCAB, max_length=LENGTH),
        model=config_for("bert", "small", VOCAB, task="mlm", max_length=LENGTH, head="pretraining"),
        optim=Optim(name="muon", lr=0.01, adam_lr=2e-3, eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=200),
        minutes=10.0,
        tokens=32768,
        precision="bf16",
        compile=True,
        smoothing=0.0,
        average=False,
    )
