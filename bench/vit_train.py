"""Training a ViT: images per second beside timm's and transformers', same sizes, batch and optimiser.

python bench/vit_train.py        # B/16, 224 pixels, 256 images, bf16, all compiled on a GPU; tiny, fp32 on a CPU
"""

import numpy as np
import torch
import torch.nn.functional as F
from _common import recorded, report, seconds
from train_step import step

from regard.data.batch import Samples
from regard.models import build, config_for
from regard.objectives.classify import ClassifyImages

CLASSES = 1000


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cuda = device == "cuda"
    torch.set_float32_matmul_precision("high")
    size, side, patch, rows = ("b", 224, 16, 256) if cuda else ("tiny", 32, 4, 32)
    torch.manual_seed(0)
    labels = tuple(map(str, range(CLASSES)))
    ours = build(config_for("vit", size, task="image", image=side, patch=patch, labels=labels)).to(device).train()
    pixels = torch.randn(rows, 3, side, side, device=device)
    targets = torch.randint(0, CLASSES, (rows,), device=device)
    batch, task = Samples((pixels,), targets, np.arange(rows)), ClassifyImages()
    if cuda:
        task.compile()
    losses = {} if cuda else {"regard": (lambda: task.loss_sum(ours, batch) / rows, ours)}
    steps = {"regard": recorded(ours, task, batch, rows)} if cuda else {}
    for name, model, scores in others(ours.config, device):
        run = torch.compile(model) if cuda else model
        losses[name] = ((lambda run=run, scores=scores: F.cross_entropy(scores(run(pixels)).float(), targets)), model)
    for name, (loss, model) in losses.items():
        steps[name] = step(loss, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), cuda)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for work in steps.values():
        seconds(work, repeat=0, warm=5)
    for _ in range(10):  # in turn, so that a slow minute of the machine falls on all
        for name, work in steps.items():
            times[name] += seconds(work, repeat=3 if cuda else 1, warm=0)
    report(f"vit-{size}-train", device, "images/s", rows, **times)


def others(c, device: str):
    """Name, model and what to make of its output; those of which the package is here."""
    import transformers

    config = transformers.ViTConfig(
        image_size=c.image, patch_size=c.patch, hidden_size=c.width, num_hidden_layers=c.layers,
        num_attention_heads=c.heads, intermediate_size=c.ffn, num_labels=CLASSES,
    )  # fmt: skip
    yield (
        "transformers",
        transformers.ViTForImageClassification(config).to(device).train(),
        lambda out: out.logits,
    )
    try:
        from timm.models.vision_transformer import VisionTransformer
    except ImportError:
        return
    sizes = dict(img_size=c.image, patch_size=c.patch, embed_dim=c.width, depth=c.layers, num_heads=c.heads)
    model = VisionTransformer(**sizes, mlp_ratio=c.ffn / c.width, num_classes=CLASSES)  # B/16: vit_base_patch16_224
    yield "timm", model.to(device).train(), lambda out: out


if __name__ == "__main__":
    main()
