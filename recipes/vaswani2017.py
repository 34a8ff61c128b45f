r"""Transformer base as in "Attention Is All You Need" (Vaswani et al. 2017), for your own WMT 2014 files.

NOT run by us: no figure below was measured with this code. The paper reports (table 2, newstest2014, en-de / en-fr):

    base   27.3 / 38.1 BLEU   100,000 steps, 12 hours on eight P100 GPUs      (section 5.2)
    big    28.4 / 41.8 BLEU   300,000 steps, 3.5 days on eight P100 GPUs      (section 5.2)

    regard train recipes/vaswani2017.py --name wmt --set data.source=train.en --set data.target=train.de \
        --set data.valid_source=newstest2013.en --set data.valid_target=newstest2013.de
    regard evaluate runs/wmt --source newstest2014.en --target newstest2014.de --beam 4 --length-penalty 0.6

See what it needs before it starts with --dry-run. A smaller GPU accumulates the same batch:
--set tokens=6250 --set accumulate=4; a newer one is faster with --set precision=bf16.

Where this differs from the paper: it averages the five best checkpoints by dev BLEU, the paper the last five
(section 6.1); sines and cosines are in separate halves, as in Marian's files, where the paper interleaves them, which
makes no difference to the layers; 256 of the 37,000 pieces are bytes, so no text is unknown.
"""

from regard import Run
from regard.data.prepare import PairsConfig
from regard.models import config_for
from regard.training.settings import Optim, Schedule

VOCAB = 37_000  # section 5.1: byte-pair pieces shared by both languages


def recipe() -> Run:
    return Run(
        model=config_for("transformer", "base", VOCAB, dropout=0.1),  # table 3: N=6, 512, 2048, h=8; section 5.4
        data=PairsConfig(vocab=VOCAB),
        optim=Optim(name="adam", lr=1.0, betas=(0.9, 0.98), eps=1e-9, clip=0.0),  # section 5.3; it mentions no clipping
        schedule=Schedule(kind="noam", warmup=4000),  # section 5.3, equation 3
        steps=100_000,  # section 5.2
        tokens=25_000,  # section 5.1: about 25,000 source and 25,000 target tokens; ours count padding too
        smoothing=0.1,  # section 5.4
        eval_every=1_500,  # 10 minutes at the paper's 0.4 s a step, which is how often it kept a checkpoint
        keep=5,  # section 6.1: the average of five
    )
