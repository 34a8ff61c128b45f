"""Training a ViT: images per second vs. timm and transformers, same sizes, batch and optimiser.

python bench/vit_train.py        # B/16, 224 pixels, 256 images, bf16, all compiled on a GPU; tiny, fp32 on a CPU
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from _common import in_turn, report, training_step
from train_step import adam, step

from regard.data.batch import Samples
from regard.models import build, config_for
from regard.objectives.classify import ClassifyImages

CLASSES = 1000


def contenders(device: str) -> tuple[int, dict[str, Callable[[], Callable[[], Any]]]]:
    """Images per step, and by name what makes a step, for the packages that are installed."""
    cuda = device == "cuda"
    torch.set_float32_matmul_precision("high")
    size, side, patch, rows = ("b", 224, 16, 256) if cuda else ("tiny", 32, 4, 32)
    labels = tuple(map(str, range(CLASSES)))
    c = config_for("vit", size, task="image", image=side, patch=patch, labels=labels)
    pixels = torch.randn(rows, 3, side, side, device=device)
    targets = torch.randint(0, CLASSES, (rows,), device=device)

    def regard():
        torch.manual_seed(0)
        model, task = build(c).to(device).train(), ClassifyImages()
        batch = Samples((pixels,), targets, np.arange(rows))
        if cuda:
            task.compile()
            return training_step(model, task, batch, rows)
        return step(lambda: task.loss_sum(model, batch) / rows, adam(model), cuda)

    def other(model: torch.nn.Module, scores: Callable[[Any], torch.Tensor]):
        model = model.to(device).train()
        run = torch.compile(model) if cuda else model
        return step(lambda: F.cross_entropy(scores(run(pixels)).float(), targets), adam(model), cuda)

    def transformers():
        from transformers import ViTConfig, ViTForImageClassification

        config = ViTConfig(
            image_size=c.image, patch_size=c.patch, hidden_size=c.width, num_hidden_layers=c.layers,
            num_attention_heads=c.heads, intermediate_size=c.ffn, num_labels=CLASSES,
        )  # fmt: skip
        return other(ViTForImageClassification(config), lambda out: out.logits)

    def timm():
        from timm.models.vision_transformer import VisionTransformer

        sizes = dict(img_size=c.image, patch_size=c.patch, embed_dim=c.width, depth=c.layers, num_heads=c.heads)
        # B/16: vit_base_patch16_224
        return other(VisionTransformer(**sizes, mlp_ratio=c.ffn / c.width, num_classes=CLASSES), lambda out: out)

    builders = {"regard": regard, "transformers": transformers, "timm": timm}
    return rows, {name: make for name, make in builders.items() if name == "regard" or find_spec(name)}


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, builders = contenders(device)
    times = in_turn({name: make() for name, make in builders.items()})
    report(f"vit-{'b' if device == 'cuda' else 'tiny'}-train", device, "images/s", rows, **times)


if __name__ == "__main__":
    main()
