"""Our Transformer is transformers' MarianMTModel: same folder, same logits, same gradients, same beams."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from tests.system.cli_toy import regard, works

from regard.models import build
from regard.models.published import load_model, to_published, weights_bytes
from regard.models.transformer import Transformer, TransformerConfig
from regard.predictors import Translator


@pytest.fixture
def ours(shake) -> Transformer:
    config = TransformerConfig(
        vocab=53, width=32, heads=4, ffn=48, encoder_layers=2, decoder_layers=3, dropout=0.0, max_length=40
    )
    return shake(build(config), 3.0)


@pytest.fixture
def folder(ours, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(to_published(ours.config)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(ours))
    return tmp_path


@pytest.fixture
def theirs(folder):
    model, info = transformers.MarianMTModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    return model


@pytest.fixture
def batch():
    lengths = torch.tensor([9, 5, 2])
    source = torch.randint(2, 52, (3, 9))
    source[torch.arange(9) >= lengths[:, None]] = 52
    return source, lengths, torch.randint(2, 52, (3, 7))


def test_transformers_loads_our_folder_with_equal_gradients(ours, theirs, batch):
    source, lengths, inputs = batch
    ours, theirs = ours.double(), theirs.double()
    mine = ours.logits(ours(source, lengths, inputs))
    other = theirs(input_ids=source, attention_mask=source != 52, decoder_input_ids=inputs).logits
    torch.testing.assert_close(mine, other)

    mine.square().mean().backward()
    other.square().mean().backward()
    torch.testing.assert_close(
        ours.encoder[1].attention.qkv.weight.grad,
        torch.cat(
            [getattr(theirs.model.encoder.layers[1].self_attn, f"{n}_proj").weight.grad for n in ("q", "k", "v")]
        ),
    )
    torch.testing.assert_close(ours.decoder[0].mlp.up.weight.grad, theirs.model.decoder.layers[0].fc1.weight.grad)
    real = slice(0, 52)  # transformers never trains the embedding of padding, which we use as start symbol
    torch.testing.assert_close(ours.token.weight.grad[real], theirs.model.shared.weight.grad[real])


def test_ours_loads_a_folder_that_transformers_wrote(theirs, ours, tmp_path, batch):
    theirs.save_pretrained(tmp_path / "theirs")
    again = load_model(tmp_path / "theirs")
    source, lengths, inputs = batch
    torch.testing.assert_close(
        again.logits(again(source, lengths, inputs)), ours.eval().logits(ours(source, lengths, inputs))
    )


def test_swish_models_are_read_too(tmp_path, batch):
    """The public OPUS models use swish instead of relu, and add a bias to their logits."""
    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=53, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=24, decoder_ffn_dim=24,
        encoder_attention_heads=2, decoder_attention_heads=2, activation_function="swish", scale_embedding=True,
        max_position_embeddings=40, pad_token_id=52, eos_token_id=0, decoder_start_token_id=52,
    )  # fmt: skip
    theirs = transformers.MarianMTModel(config).eval()
    theirs.final_logits_bias.normal_()
    theirs.save_pretrained(tmp_path)
    source, lengths, inputs = batch
    ours = load_model(tmp_path)
    torch.testing.assert_close(
        ours.logits(ours(source, lengths, inputs)),
        theirs(input_ids=source, attention_mask=source != 52, decoder_input_ids=inputs).logits,
    )


def test_a_bias_of_the_logits_comes_through_the_loss_and_out_again(tmp_path, batch):
    from regard.data.batch import collate
    from regard.objectives.translate import TranslateLoss

    torch.manual_seed(0)
    settings = dict(vocab=53, width=16, heads=2, ffn=24, encoder_layers=1, decoder_layers=1, max_length=40)
    model = build(TransformerConfig(**settings, output_bias=True)).eval()
    torch.nn.init.normal_(model.bias)
    (tmp_path / "config.json").write_text(json.dumps(to_published(model.config)))
    (tmp_path / "model.safetensors").write_bytes(weights_bytes(model))
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path)
    pairs = collate([[5, 6, 7], [8]], [[9, 10], [11, 12, 13]], eos=0, pad=52)
    labels = pairs.target.masked_fill(pairs.target == 52, -100)
    loss = theirs(
        input_ids=pairs.source, attention_mask=pairs.source != 52, decoder_input_ids=pairs.inputs, labels=labels
    ).loss
    torch.testing.assert_close(TranslateLoss(0.0).loss_sum(model, pairs) / 7, loss)
    assert load_model(tmp_path).config == model.config


class Ids:
    """A tokenizer whose texts are numbers."""

    eos, pad = 0, 52

    def encode_batch(self, texts):
        return [[int(w) for w in text.split()] for text in texts]

    encode_targets = encode_batch

    def decode(self, ids):
        return " ".join(str(i) for i in ids if i not in (self.eos, self.pad))


def test_greedy_equals_generate(ours, theirs, batch):
    source, lengths, _ = batch
    texts = [" ".join(map(str, row[: n - 1].tolist())) for row, n in zip(source, lengths, strict=True)]
    source[torch.arange(3), lengths - 1] = 0  # our translator ends every source in </s>
    made = theirs.generate(
        input_ids=source,
        attention_mask=source != 52,
        num_beams=1,
        do_sample=False,
        max_length=13,
        bad_words_ids=[[52]],
        forced_eos_token_id=0,
    )
    ids = Ids()
    assert Translator(ours, ids).translate(texts, beam=1, max_length=12) == [ids.decode(row.tolist()) for row in made]


def test_a_translator_is_fine_tuned_to_summaries(tmp_path, monkeypatch):
    """A run of two steps: it is a summariser then, and transformers opens it as before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    rows = [{"text": f"I see {n} cats and {n} dogs.", "summary": f"{n} cats"} for n in range(120)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    start = Path(__file__).parents[1] / "fixtures/runs/translate-transformer"
    works("finetune", start, "summarise", "--data=pairs.jsonl", "--steps=2", "--name=s", "--device=cpu")
    assert works("summarise", "runs/s", "I see two cats.", "--max-tokens=5").code == 0
    assert "shorten" in json.loads((tmp_path / "runs/s/regard.json").read_text())["task"]
    refused = regard("summarise", start, "I see two cats.")
    assert refused.code == 2 and "regard translate" in refused.err
    _, info = transformers.MarianMTModel.from_pretrained("runs/s", output_loading_info=True)
    assert not any(info.values()), info
