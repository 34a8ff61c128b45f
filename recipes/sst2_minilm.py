"""Sentiment: MiniLM fine-tuned on the 6,920 sentences of SST-2. For a GPU; on two CPU cores about ten minutes.

    export REGARD_DATA=...     # a folder that holds sst2/train.tsv and sst2/dev.tsv
    regard train recipes/sst2_minilm.py --seeds 3 --name sst2
    regard evaluate runs/sst2/sst2_minilm-seed0
    regard classify runs/sst2/sst2_minilm-seed0 "A stirring, funny film."

NOT MEASURED YET: wanted is an accuracy of 88.0 on dev, the mean of three seeds. A bag of words gets 80.4. The same
encoder left as it is, with a linear map of its states: regard finetune minilm classify --data sst2 --probe
"""

import dataclasses

from regard import Run
from regard.assemble import finetune_run
from regard.data.labelled import LabelledConfig
from regard.models.fetched import resolve


def recipe() -> Run:
    run = finetune_run(resolve("minilm"), "classify", LabelledConfig(name="sst2", vocab=0))
    return dataclasses.replace(run, optim=dataclasses.replace(run.optim, lr=2e-4), epochs=3.0)
