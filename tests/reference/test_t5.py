"""What T5 has of its own: buckets of distances, a unigram vocabulary, old files; test_layouts.py compares the rest."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.reference.parity import save
from tests.reference.test_layouts import CASES
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from regard.models import build
from regard.models.published import load_model, to_published, weights_bytes
from regard.models.t5 import T5Config
from regard.nn.positions import RelativeBias
from regard.tasks.load import open_model


@pytest.fixture(params=["t5", "flan-t5"])
def ours(request, shake):
    model = CASES[request.param].ours(shake)
    with torch.no_grad():
        model.token.weight.mul_(4.0)  # what is written depends on the last word most
    return model


@pytest.fixture
def folder(ours, tmp_path):
    return save(ours, tmp_path)


@pytest.mark.parametrize("both_ways", [True, False])
def test_distances_fall_into_their_buckets(both_ways):
    from transformers.models.t5.modeling_t5 import T5Attention

    ahead = torch.arange(-300, 300)
    expected = T5Attention._relative_position_bucket(ahead, both_ways, 32, 128)
    assert torch.equal(RelativeBias(2, 32, 128, both_ways).bucket(ahead), expected)


@pytest.fixture
def pieces(folder):
    """A unigram vocabulary as T5's, next to the model."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=58, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(["translate English to German: the cat sat on the mat", "be alert"] * 20, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | names))
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_copies_in_old_files_are_left_out(ours, folder):
    state = load_file(folder / "model.safetensors")
    state |= {f"{side}.embed_tokens.weight": state["shared.weight"].clone() for side in ("encoder", "decoder")}
    state["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.ones(8, 3)
    save_file(state, folder / "model.safetensors")
    assert load_model(folder).config == ours.config


def test_a_folder_answers_as_theirs(pieces, folder):
    """The same text through both: ids, and what is written greedily."""
    text = "translate English to German: the cat"
    task, translator = open_model(folder)
    batch = pieces([text], return_tensors="pt")
    assert task.name == "translate"
    assert [*translator.tokenizer.encode_batch([text])[0], translator.tokenizer.eos] == batch["input_ids"][0].tolist()
    how = dict(max_new_tokens=11, do_sample=False, num_beams=1, suppress_tokens=[0], eos_token_id=1, pad_token_id=0)
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()
    written = theirs.generate(**batch, **how)[0, 1:].tolist()
    (best,) = translator.hypotheses([text], beam=1, max_length=12)  # whose last piece is the end
    assert [i for i in best[0].ids if i > 1] == [i for i in written if i > 1]
    assert len({*written}) > 3 or translator.model.config.tied  # which repeats itself
    assert best[0].text == pieces.decode([i for i in written if i < pieces.vocab_size], skip_special_tokens=True)


def test_a_t5_is_fine_tuned_to_pairs(tmp_path, monkeypatch):
    """In its own pieces; transformers opens what comes of it, and translates the same."""
    from tests.system.cli_toy import works

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    words = ["one", "two", "three", "four", "five"]
    lines = [f"{a} {b}" for a in words for b in words]
    special = ["<pad>", "</s>", "<unk>"]
    pieces = [*special, *(f"▁{word}" for word in words)]  # a trainer's order would differ from process to process
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(special)
    end = ("</s>", tokenizer.token_to_id("</s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[end])
    base_folder = tmp_path / "t5"
    base_folder.mkdir()
    tokenizer.save(str(base_folder / "tokenizer.json"))
    sizes = dict(width=32, encoder_layers=1, decoder_layers=1, heads=2, head_width=16, ffn=64, dropout=0.0)
    model = build(T5Config(vocab=tokenizer.get_vocab_size(), **sizes))
    (base_folder / "config.json").write_text(json.dumps(to_published(model.config)))
    (base_folder / "model.safetensors").write_bytes(weights_bytes(model))
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines * 4))
    (tmp_path / "b.txt").write_text("".join(f"{' '.join(line.split()[::-1])}\n" for line in lines * 4))
    works("finetune", "t5", "translate", "--source=a.txt", "--target=b.txt", "--steps=150", "--name=turned",
          "--set=optim.lr=0.005", "--set=smoothing=0", "--device=cpu")  # fmt: skip
    assert works("translate", "runs/turned", "two five", "--beam=1").out.strip() == "five two"
    theirs = transformers.T5ForConditionalGeneration.from_pretrained("runs/turned")
    ids = torch.tensor([tokenizer.encode("two five").ids])
    assert tokenizer.decode(theirs.generate(ids, num_beams=1, max_length=10)[0].tolist()) == "five two"
    pairs = "".join(json.dumps({"text": line, "summary": line.split()[0]}) + "\n" for line in lines)
    (tmp_path / "pairs.jsonl").write_text(pairs)
    works("finetune", "t5", "summarise", "--data=pairs.jsonl", "--steps=1", "--name=short", "--device=cpu")
    assert works("summarise", "runs/short", "two five", "--max-tokens=4").code == 0
