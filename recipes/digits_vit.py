"""scikit-learn's digits with a ViT: 8 x 8 pixels, 16 patches.

    regard train recipes/digits_vit.py --name digits
    regard evaluate runs/digits

98.4 and 96.7 % of the 364 test images with seeds 0 and 1, 16 s each on two cores of an AMD EPYC (2026-11-15).
"""

from regard import Run
from regard.data.augment import Augment
from regard.data.images import ImagesConfig
from regard.models import config_for
from regard.training.settings import Optim, Schedule


def recipe() -> Run:
    return Run(
        task="image",
        data=ImagesConfig(name="digits", size=8, augment=Augment(crop=0.1)),
        model=config_for("vit", "tiny", task="image", image=8, channels=1, patch=2, width=64, ffn=128, pool="mean"),
        optim=Optim(name="muon", lr=0.01, adam_lr=2e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.02),
        schedule=Schedule(kind="linear", warmup=20),
        steps=600,
        batch=64,
        smoothing=0.0,
        eval_every=300,
        average=False,
        keep=1,
    )
