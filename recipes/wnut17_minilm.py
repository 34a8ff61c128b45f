"""Names in posts: MiniLM fine-tuned with R-Drop on the 3,394 posts of WNUT-17; most names in dev are new. For a GPU.

    regard train recipes/wnut17_minilm.py --seeds 3 --name wnut17 --device cuda
    regard evaluate runs/wnut17/wnut17_minilm-seed0
    regard tag runs/wnut17/wnut17_minilm-seed0 "Ada met Grace in Paris."

Strict F1 of entities on dev, 2026-11-19: 60.7 and 60.3 with seeds 0 and 1 in fp32, 15 minutes each on one core of an
AMD EPYC (--device cpu --set precision=fp32). With the training sentences written to a file eight times, with other
names each time, and read once: 61.6 and 61.1 on one H200 in bf16.

Names in the training sentences are replaced by others of their type, half of these new combinations of their words.
Without that (--set data.replace_mentions=0) 59.4 and 58.7 on the core, 59.9 and 58.8 on the H200; with names from the
data alone 59.8 and 60.5; with four of five names replaced, a third of them new combinations, 59.9 and 60.7. Without
segments that say how words are written, and the likeliest valid tags, 58.5 ± 0.5 over nine seeds; without R-Drop too,
56.3 ± 1.3 over five (--set consistency=0 --set tokens=1024 --set optim.lr=2e-4 --set epochs=5; both on an H200,
2026-11-18), where transformers' Trainer gave 55.6 ± 0.4 (python bench/labels.py wnut17, 2026-11-15).
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
