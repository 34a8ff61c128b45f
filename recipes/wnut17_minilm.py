"""Names in posts: MiniLM fine-tuned with R-Drop on the 3,394 posts of WNUT-17; most names in dev are new. For a GPU.

    regard train recipes/wnut17_minilm.py --seeds 3 --name wnut17 --device cuda
    regard evaluate runs/wnut17/wnut17_minilm-seed0
    regard tag runs/wnut17/wnut17_minilm-seed0 "Ada met Grace in Paris."

Measured on one H200, 2026-11-18, other models training on the same GPU: strict F1 of entities on dev 58.5 ± 0.5 over
nine seeds. Without R-Drop (--set consistency=0 --set tokens=1024 --set optim.lr=2e-4 --set epochs=5) 56.3 ± 1.3 over
five; that gave 58.0 ± 1.8 over three on 2026-11-15, and transformers' Trainer 55.6 ± 0.4 with the same weights and
settings (python bench/labels.py wnut17). Chosen on dev: twice the rate gave 57.0, ten epochs with batches of 1,024
tokens 58.6.

Since then segments say how words are written, and tags are the likeliest valid ones: 59.4 and 58.7 with seeds 0 and 1,
in fp32 on one core of an AMD EPYC, 2026-11-19; the likeliest tag of each word alone gives 59.0 and 58.3. Not measured
on a GPU yet. The defaults on a CPU (regard finetune minilm tag --data wnut17, three epochs without R-Drop, 2.5 minutes
on that core) give 57.6 and 58.8.
"""

import dataclasses

from regard import Run
from regard.data.labelled import LabelledConfig
from regard.models.fetched import resolve
from regard.tasks import finetune_run


def recipe() -> Run:
    run = finetune_run(resolve("minilm"), "tag", LabelledConfig(name="wnut17", vocab=0))
    optim = dataclasses.replace(run.optim, lr=1e-4)
    return dataclasses.replace(run, optim=optim, consistency=4.0, tokens=2048, epochs=8.0, precision="bf16")
