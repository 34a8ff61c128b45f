"""MNIST as 784 inputs, to compare with mnist_vit.py: the plain network of the first lectures, and a convolution.

    regard train recipes/mnist_mlp.py --name plain
    regard evaluate runs/plain/mlp-seed0 ; regard evaluate runs/plain/conv-seed0

Of the 10,000 test images, with seed 0: the plain network (669,706 parameters) 99.07 % after 2 min 4 s, the convolution
(20,490) 99.12 % after 3 min 48 s, on two CPU cores busy with other work (2026-11-15).
"""

from regard import Run
from regard.data.augment import Augment
from regard.data.images import ImagesConfig
from regard.models import ImageConfig, config_for
from regard.training.settings import Optim, Schedule


def plain(model: ImageConfig, batch: int) -> Run:
    return Run(
        task="image",
        data=ImagesConfig(name="mnist", size=28, held_out=0.05, augment=Augment(crop=0.07)),
        model=model,
        optim=Optim(name="adamw", lr=2e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.01),
        schedule=Schedule(kind="linear", warmup=100),
        steps=4000,
        batch=batch,
        smoothing=0.0,
        eval_every=1000,
        average=False,
        keep=1,
    )


def recipe() -> dict[str, Run]:
    return {
        "mlp": plain(config_for("mlp", "small", task="image", shape=(1, 28, 28), dropout=0.1), 256),
        "conv": plain(config_for("conv", "tiny", task="image", image=28, channels=1, dropout=0.1), 128),
    }
