"""Names in posts: MiniLM fine-tuned on the 3,394 posts of WNUT-17, whose names are mostly new in dev. For a GPU.

    export REGARD_DATA=...     # a folder that holds wnut17/train.conll and wnut17/dev.conll
    regard train recipes/wnut17_minilm.py --seeds 3 --name wnut17
    regard evaluate runs/wnut17/wnut17_minilm-seed0
    regard tag runs/wnut17/wnut17_minilm-seed0 "Ada met Grace in Paris."

NOT MEASURED YET: strict F1 of entities on dev, the mean of three seeds, not lower than transformers' Trainer with the
same settings (python bench/labels.py wnut17).
"""

import dataclasses

from regard import Run
from regard.assemble import finetune_run
from regard.data.labelled import LabelledConfig
from regard.models.fetched import resolve


def recipe() -> Run:
    run = finetune_run(resolve("minilm"), "tag", LabelledConfig(name="wnut17", vocab=0))
    return dataclasses.replace(run, optim=dataclasses.replace(run.optim, lr=2e-4), epochs=5.0)
