"""Our CLIP is transformers' CLIPModel: same folder, scores and gradients; images sorted by the names of classes."""

import json

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tests.system.cli_toy import regard, works
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from regard.models import build
from regard.models.clip import CLIPConfig
from regard.models.published import from_published, load_model, published_weights, to_published, weights_bytes
from regard.nn.init import skip_init

WORDS = ["a photo of a cat dog truck."] * 9
START, END = "<|startoftext|>", "<|endoftext|>"


def clip_tokenizer():
    """Lower case, words that end in </w>, marks before and after: CLIP's own, in small."""
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=60, end_of_word_suffix="</w>", show_progress=False)
    tokenizer.train_from_iterator(WORDS, trainer)
    tokenizer.add_special_tokens([START, END])
    ids = [(token, tokenizer.token_to_id(token)) for token in (END, START)]
    tokenizer.post_processor = processors.RobertaProcessing(*ids, add_prefix_space=False)
    return tokenizer


TOKENIZER = clip_tokenizer()
CONFIG = CLIPConfig(
    vocab=TOKENIZER.get_vocab_size(), context=24, text_width=24, text_layers=2, text_heads=3, text_ffn=40, image=32,
    patch=8, width=16, layers=3, heads=2, ffn=24, shared=12,
)  # fmt: skip


@pytest.fixture
def ours(shake):
    model = shake(build(CONFIG), 3.0).eval()
    with torch.no_grad():
        model.first.normal_()
    return model


@pytest.fixture
def folder(ours, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(to_published(ours.config)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(ours))
    TOKENIZER.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.fixture
def theirs(folder):
    model, info = transformers.CLIPModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.double().eval()


@pytest.fixture
def batch():
    rows = [TOKENIZER.encode(text).ids for text in ("a photo of a cat.", "a dog", "a photo of a truck, a dog, a cat")]
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.tensor([row + [row[-1]] * (int(lengths.max()) - len(row)) for row in rows])
    return torch.randn(2, 3, 32, 32, dtype=torch.float64), ids, lengths


def test_scores_and_gradients_are_equal(ours, theirs, batch):
    pixels, ids, lengths = batch
    ours, real = ours.double(), torch.arange(ids.size(1)) < lengths[:, None]
    mine = ours(pixels, ids, lengths)
    other = theirs(input_ids=ids, pixel_values=pixels, attention_mask=real.long()).logits_per_image
    torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)
    mine.square().sum().backward()
    other.square().sum().backward()
    gradients = dict(theirs.named_parameters())
    for p in ours.parameters():
        p.data = p.grad
    for name, grad in published_weights(ours).items():
        torch.testing.assert_close(grad, gradients[name].grad.float(), rtol=1e-5, atol=1e-5, msg=name)


def test_a_folder_that_transformers_wrote_is_read(theirs, ours, tmp_path, batch):
    theirs.float().save_pretrained(tmp_path / "theirs")
    again = load_model(tmp_path / "theirs")
    pixels, ids, lengths = batch
    assert again.config == ours.config
    assert torch.equal(again(pixels.float(), ids, lengths), ours(pixels.float(), ids, lengths))


def test_an_image_is_sorted_by_the_names_of_classes(folder, theirs, tmp_path):
    """The probabilities are transformers' for the same pixels."""
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "x.png")
    answer = json.loads(works("classify", folder, tmp_path / "x.png", "--labels", "cat, dog,truck", "--json").out)
    texts = [TOKENIZER.encode(f"a photo of a {label}.").ids for label in ("cat", "dog", "truck")]
    mean, std = (torch.tensor(x)[:, None, None] for x in (CONFIG.mean, CONFIG.std))
    pixels = (torch.tensor(image).permute(2, 0, 1)[None] / 255 - mean) / std
    scores = [theirs(input_ids=torch.tensor([ids]), pixel_values=pixels.double()).logits_per_image for ids in texts]
    expected = torch.cat(scores, 1).softmax(-1)[0].tolist()
    assert list(answer["probabilities"]) == ["cat", "dog", "truck"]
    np.testing.assert_allclose(list(answer["probabilities"].values()), expected, rtol=1e-4)
    for labels in ((), ("--labels", "cat"), ("--labels", "cat,cat")):
        result = regard("classify", folder, tmp_path / "x.png", *labels)
        assert result.code == 2 and "expected two or more different labels" in result.err


def test_published_settings_give_the_published_size():
    """openai/clip-vit-base-patch32, whose file leaves out what is usual."""
    values = dict(
        model_type="clip", architectures=["CLIPModel"], projection_dim=512, logit_scale_init_value=2.6592,
        text_config=dict(model_type="clip_text_model", bos_token_id=0, eos_token_id=2),
        vision_config=dict(model_type="clip_vision_model"),
    )  # fmt: skip
    with torch.device("meta"), skip_init():
        assert sum(p.numel() for p in build(from_published(values)).parameters()) == 151_277_313
