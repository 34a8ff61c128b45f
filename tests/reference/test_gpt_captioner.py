"""A ViT with GPT-2 is transformers' VisionEncoderDecoderModel: same folder, logits, gradients and greedy captions."""

import json

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tests.reference.parity import compare_gradients
from tests.system.cli_toy import works

from regard.data.tokenizers.bytelevel import ByteLevel
from regard.models import build
from regard.models.captioner import GPTCaptionerConfig
from regard.models.published import load_model, published_weights, to_published, weights_bytes

TOKENIZER = ByteLevel.train(["a cat sat on a mat and a dog ran"] * 9, 270)
SIZES = dict(width=16, heads=2, ffn=24, image=12, patch=4, encoder_layers=2, decoder_layers=2, max_length=16)
CONFIG = GPTCaptionerConfig(vocab=TOKENIZER.size + 1, start=TOKENIZER.eos, dropout=0.1, **SIZES)


@pytest.fixture
def ours(shake):
    model = shake(build(CONFIG), 4.0).eval()
    with torch.no_grad():
        model.vision.first.normal_()
        model.token.weight.normal_(std=0.5)
    return model


@pytest.fixture
def folder(ours, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(to_published(CONFIG)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(ours))
    TOKENIZER.save(tmp_path)
    return tmp_path


@pytest.fixture
def theirs(folder):
    model, info = transformers.VisionEncoderDecoderModel.from_pretrained(folder, output_loading_info=True)
    missing = {key for key in info["missing_keys"] if "pooler" not in key}  # an encoder alone makes one, and ignores it
    assert not missing and not info["unexpected_keys"] and not info["mismatched_keys"], info
    return model.double().eval()


def test_logits_and_gradients_are_equal(ours, theirs):
    ours = ours.double()
    pixels = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    words = torch.randint(0, 250, (2, 5), generator=torch.Generator().manual_seed(0))
    pad, end = torch.full((2, 1), CONFIG.vocab - 1), torch.full((2, 1), CONFIG.start)
    mine = ours.logits(ours(pixels, None, torch.cat((pad, words), 1)))[..., :-1]
    other = theirs(pixel_values=pixels, decoder_input_ids=torch.cat((end, words), 1)).logits
    torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)
    mine.square().sum().backward()
    other.square().sum().backward()
    compare_gradients(ours, theirs)


def test_a_folder_that_transformers_wrote_is_read(ours, theirs, tmp_path):
    theirs.float().save_pretrained(tmp_path / "theirs")
    again = load_model(tmp_path / "theirs")
    pixels, words = torch.randn(2, 3, 12, 12), torch.randint(0, 250, (2, 5))
    assert again.config == CONFIG
    assert torch.equal(again(pixels, None, words), ours(pixels, None, words))


def test_greedy_captions_are_those_of_generate(folder, theirs):
    image = np.random.default_rng(1).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    Image.fromarray(image).save(folder / "x.png")
    answer = json.loads(works("caption", folder, folder / "x.png", "--beam=1", "--json").out)
    pixels = torch.tensor(image).permute(2, 0, 1)[None] / 255 * 2 - 1
    ids = theirs.generate(pixels.double(), do_sample=False, max_length=16, num_beams=1)[0].tolist()
    text = json.dumps(answer)
    assert json.dumps(TOKENIZER.decode([i for i in ids if i != TOKENIZER.eos]).strip())[1:-1] in text


def test_names_are_those_of_the_published_file():
    """nlpconnect/vit-gpt2-image-captioning."""
    names = set(published_weights(build(CONFIG)))
    assert {
        "encoder.embeddings.cls_token",
        "encoder.encoder.layer.1.attention.attention.query.weight",
        "decoder.transformer.h.0.crossattention.q_attn.weight",
        "decoder.transformer.h.1.ln_cross_attn.bias",
        "decoder.transformer.ln_f.weight",
    } <= names
