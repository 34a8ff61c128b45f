"""Our DeiT and DINOv2 are transformers': same folder, scores and gradients; the published names and counts."""

import json

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tests.reference.parity import compare_gradients
from tests.system.cli_toy import works

from regard.models import build
from regard.models.published import (
    from_published,
    layout_of,
    load_model,
    to_published,
    weights_bytes,
)
from regard.models.vit import ViTConfig
from regard.nn.init import skip_init
from regard.predictors import ImageClassifier
from regard.tasks.image import write_preprocessor

SIZES = dict(image=12, patch=4, width=16, layers=2, heads=2, labels=("a", "b", "c"))
CASES = {
    "deit": (ViTConfig(**SIZES, ffn=24, distilled="head"), "DeiTForImageClassificationWithTeacher"),
    "deit-one-head": (ViTConfig(**SIZES, ffn=24, distilled="token"), "DeiTForImageClassification"),
    "dinov2": (ViTConfig(**SIZES, ffn=64, pool="both", layer_scale=0.7), "Dinov2ForImageClassification"),
    "dinov2-giant": (
        ViTConfig(**SIZES, ffn=48, pool="both", layer_scale=0.7, forward="swiglu"),
        "Dinov2ForImageClassification",
    ),
    "dinov2-alone": (ViTConfig(**SIZES | {"labels": ()}, ffn=64, pool="both", layer_scale=1.0), "Dinov2Model"),
}


@pytest.fixture(params=CASES)
def case(request, shake, tmp_path):
    """Our model, and transformers' of the folder that we wrote."""
    config, name = CASES[request.param]
    ours = shake(build(config), 3.0).eval()
    with torch.no_grad():
        for p in ours.parameters():
            p.add_(torch.randn_like(p), alpha=0.2 if p.ndim == 1 else 0.0)
    (tmp_path / "config.json").write_text(json.dumps(to_published(config)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(ours))
    assert to_published(config)["architectures"] == [name]
    theirs, info = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    return ours.double(), theirs.eval().double()


def outputs(ours, theirs, pixels, **options):
    if ours.classifier is None:
        return ours(pixels), theirs(pixels, **options).last_hidden_state
    return ours.scores(ours(pixels)), theirs(pixels, **options).logits


def test_scores_and_gradients_are_equal(case):
    ours, theirs = case
    pixels = torch.randn(3, 3, 12, 12, dtype=torch.float64)
    mine, other = outputs(ours, theirs, pixels)
    torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)
    mine.square().sum().backward()
    other.square().sum().backward()
    compare_gradients(ours, theirs)


def test_a_folder_that_transformers_wrote_is_read(case, tmp_path):
    ours, theirs = case
    theirs.float().save_pretrained(tmp_path / "theirs")
    again, pixels = load_model(tmp_path / "theirs"), torch.randn(2, 3, 12, 12)
    assert again.config == ours.config
    assert torch.equal(again(pixels), ours.float()(pixels))


def test_places_of_larger_images_are_interpolated(case):
    """DINOv2 always does, the others when told; transformers does so in float32."""
    ours, theirs = case
    pixels = torch.randn(2, 3, 20, 20, dtype=torch.float64)
    told = {} if ours.config.layer_scale else {"interpolate_pos_encoding": True}
    mine, other = outputs(ours, theirs, pixels, **told)
    torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


def test_the_exported_vit_opens_in_a_pipeline(shake, tmp_path):
    config = ViTConfig(**SIZES, ffn=24, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    (tmp_path / "vit").mkdir()
    (tmp_path / "vit/config.json").write_text(json.dumps(to_published(config)))
    (tmp_path / "vit/model.safetensors").write_bytes(weights_bytes(shake(build(config), 3.0)))
    write_preprocessor(tmp_path / "vit", config)
    works("export", tmp_path / "vit", "--out", tmp_path / "out")
    photograph = Image.fromarray(np.random.default_rng(0).integers(0, 256, (37, 50, 3), dtype=np.uint8))
    photograph.save(tmp_path / "x.png")
    theirs = transformers.pipeline("image-classification", str(tmp_path / "out"))(photograph)
    ours = json.loads(works("classify", tmp_path / "vit", tmp_path / "x.png", "--json").out)["probabilities"]
    assert {answer["label"]: answer["score"] for answer in theirs} == pytest.approx(ours, abs=1e-5)


PUBLISHED = {  # settings of published files; parameters and some names as transformers has them
    "facebook/deit-base-distilled-patch16-224": (
        dict(model_type="deit", architectures=["DeiTForImageClassificationWithTeacher"], num_labels=1000),
        87_338_192,
        ("deit.embeddings.distillation_token", "cls_classifier.weight", "distillation_classifier.bias"),
    ),
    "facebook/dinov2-base": (
        dict(model_type="dinov2", architectures=["Dinov2Model"], image_size=518, patch_size=14, mlp_ratio=4),
        86_579_712,
        ("embeddings.cls_token", "encoder.layer.11.layer_scale2.lambda1", "encoder.layer.0.mlp.fc1.weight"),
    ),
    "facebook/dinov2-giant": (
        dict(model_type="dinov2", architectures=["Dinov2Model"], image_size=518, patch_size=14, mlp_ratio=4,
             hidden_size=1536, num_hidden_layers=40, num_attention_heads=24, use_swiglu_ffn=True),
        1_136_479_232,
        ("encoder.layer.39.mlp.weights_in.bias", "encoder.layer.0.mlp.weights_out.weight", "layernorm.weight"),
    ),
}  # fmt: skip


PROCESSORS = {
    "vit": dict(image_processor_type="ViTImageProcessor", size={"height": 12, "width": 12}, resample=2),
    "vit-old": dict(feature_extractor_type="ViTFeatureExtractor", size=12, resample=2, do_normalize=True),
    "deit": dict(image_processor_type="DeiTImageProcessor", size={"height": 16, "width": 16}, resample=3,
                 do_center_crop=True, crop_size={"height": 12, "width": 12}),
    "dinov2": dict(image_processor_type="BitImageProcessor", size={"shortest_edge": 17}, resample=3,
                   do_center_crop=True, crop_size={"height": 12, "width": 12}),
    "clip-old": dict(feature_extractor_type="CLIPFeatureExtractor", size=12, crop_size=12, do_center_crop=True,
                     resample=3),
}  # fmt: skip


@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_equal_those_of_the_processor(name, tmp_path):
    settings = PROCESSORS[name] | dict(image_mean=[0.1, 0.2, 0.3], image_std=[0.5, 0.6, 0.7])
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    photograph = Image.fromarray(np.random.default_rng(0).integers(0, 256, (37, 50, 3), dtype=np.uint8))
    photograph.save(tmp_path / "x.png")
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    expected = processor(photograph, return_tensors="pt")["pixel_values"]
    predictor = ImageClassifier(build(ViTConfig(**SIZES, ffn=24)), folder=tmp_path)
    mine = predictor.model.scale(torch.from_numpy(predictor.read([tmp_path / "x.png"])))
    torch.testing.assert_close(mine, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_settings_give_published_names(name):
    values, count, names = PUBLISHED[name]
    with torch.device("meta"), skip_init():
        model = build(from_published(values))
        theirs = getattr(transformers, values["architectures"][0])(
            transformers.AutoConfig.for_model(**{k: v for k, v in values.items() if k != "architectures"})
        )
    assert sum(p.numel() for p in model.parameters()) == count
    unused = sum(p.numel() for n, p in theirs.named_parameters() if "mask_token" in n or "pooler" in n)
    assert sum(p.numel() for p in theirs.parameters()) - unused == count
    assert set(names) <= set(published_names(model))


def published_names(model):
    layout = layout_of(model.config)
    for name in model.state_dict():
        yield from (layout.prefixed(their, model.config) for their in layout.names(name, model.config))
