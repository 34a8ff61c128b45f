"""What BART and ModernBERT are asked: gaps, translations and summaries, as transformers answers them."""

import json
from itertools import pairwise

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.reference.parity import save
from tests.reference.test_subwords import SPECIAL, roberta
from tokenizers import AddedToken
from typer.testing import CliRunner

from regard.cli.common import open_for
from regard.cli.main import app
from regard.data.tokenizers.bart import BartPieces
from regard.errors import CheckpointError, ConfigError
from regard.models import build
from regard.models.bart import BartConfig
from regard.models.modernbert import ModernBertConfig
from regard.models.published import load_model
from regard.tasks.load import open_model

TEXT = "The cat drank the [MASK] because it was hungry."
small = dict(vocab=401, width=24, heads=4, ffn=40, max_length=48)
MODELS = {
    "bart": BartConfig(**small, encoder_layers=2, decoder_layers=2),
    "modernbert": ModernBertConfig(**small, layers=3, head="masked", window=4),
}


@pytest.fixture(params=MODELS)
def folder(request, shake, tmp_path):
    torch.manual_seed(1)
    model = shake(build(MODELS[request.param]), 8.0).eval()
    with torch.no_grad():
        model.token.weight.mul_(10.0)
    tokenizer = roberta()
    tokenizer.add_special_tokens([*SPECIAL, AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.save(str(save(model, tmp_path) / "tokenizer.json"))
    names = dict(cls="<s>", bos="<s>", pad="<pad>", sep="</s>", eos="</s>", unk="<unk>", mask="<mask>")
    config = {"tokenizer_class": "PreTrainedTokenizerFast"} | {f"{role}_token": name for role, name in names.items()}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.fixture
def theirs(folder):
    values = json.loads((folder / "config.json").read_text())
    return getattr(transformers, values["architectures"][0]).from_pretrained(folder).eval()


@pytest.fixture
def batch(folder):
    pieces = transformers.AutoTokenizer.from_pretrained(folder)
    return pieces(TEXT.replace("[MASK]", "<mask>"), return_tensors="pt")


@torch.inference_mode()
def test_gaps_are_filled_with_their_words(folder, theirs, batch):
    _, filler = open_model(folder, verb="fill")
    (answer,) = filler.predict([TEXT], top=4)
    gap = batch["input_ids"][0].tolist().index(filler.tokenizer.mask)
    likely, ids = theirs(batch["input_ids"]).logits[0, gap].softmax(-1).topk(4)
    assert [word.id for word in answer.masks[0]] == ids.tolist()
    assert [word.probability for word in answer.masks[0]] == pytest.approx(likely.tolist(), rel=1e-4)


@pytest.mark.parametrize("folder", ["bart"], indirect=True)
class TestBart:
    @pytest.mark.parametrize("ngram", [0, 2])
    def test_what_is_written_is_what_they_write(self, folder, theirs, batch, ngram):
        (folder / "generation_config.json").write_text(json.dumps({"no_repeat_ngram_size": ngram}))
        _, translator = open_model(folder, verb="translate")
        assert isinstance(translator.tokenizer, BartPieces)
        text = TEXT.replace("[MASK]", "<mask>")
        assert [*translator.tokenizer.encode_batch([text])[0], translator.tokenizer.eos] == batch["input_ids"][
            0
        ].tolist()
        how = dict(max_new_tokens=10, do_sample=False, num_beams=1, forced_bos_token_id=0, suppress_tokens=[1])
        how |= dict(no_repeat_ngram_size=ngram, forced_eos_token_id=None)
        written = theirs.generate(**batch, **how)[0, 1:].tolist()
        (best,) = translator.hypotheses([text], beam=1, max_length=11)
        assert best[0].ids[:-1] == [i for i in written if i != 2][: len(best[0].ids) - 1]
        assert written[0] == 0 and len(set(written)) > 2
        if ngram:  # unless asked otherwise, and where words are drawn
            assert best[0].ids != translator.hypotheses([text], beam=1, max_length=11, no_repeat_ngram=0)[0][0].ids
            for one in translator.sample([text] * 20, max_length=12, temperature=0.1):
                assert len(set(pairwise(one.ids))) == len(one.ids) - 1

    def test_a_size_that_is_not_a_number_is_refused(self, folder):
        (folder / "generation_config.json").write_text(json.dumps({"no_repeat_ngram_size": "3"}))
        with pytest.raises(CheckpointError, match="no_repeat_ngram_size must be a whole number"):
            open_model(folder, verb="translate")

    def test_it_is_fine_tuned_to_summaries(self, folder, tmp_path, monkeypatch):
        """Also of texts that are longer than it reads; transformers opens the result, and writes the same."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
        rows = [
            {"summary": b, "text": f"{a} {b}" + " milk" * 60 * (n % 2)} for n in range(10) for a in "xyz" for b in "xyz"
        ]
        (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        words = ["finetune", str(folder), "summarise", "--data=pairs.jsonl", "--steps=60", "--name=s", "--device=cpu"]
        result = CliRunner().invoke(app, [*words, "--set=optim.lr=0.003", "--set=smoothing=0"])
        assert result.exit_code == 0, result.stderr
        got = [CliRunner().invoke(app, ["summarise", "runs/s", text, "--device=cpu"]).stdout for text in ("x y", "y z")]
        assert got == ["y\n", "z\n"]
        pieces = transformers.AutoTokenizer.from_pretrained("runs/s")
        theirs = transformers.BartForConditionalGeneration.from_pretrained("runs/s")
        ids = theirs.generate(**pieces("x y", return_tensors="pt"), max_length=10)[0]
        assert pieces.decode(ids, skip_special_tokens=True).strip() == "y"
        result = CliRunner().invoke(app, ["evaluate", "runs/s", "--data=pairs.jsonl", "--device=cpu", "--json"])
        assert json.loads(result.stdout)["rougeL"]["f"] > 50, result.stderr  # a letter by chance: 33

    def test_its_verbs_are_found(self, folder):
        runner = CliRunner()
        for verb in ("translate", "summarise", "fill"):
            result = runner.invoke(app, [verb, str(folder), TEXT, "--device=cpu"])
            assert result.exit_code == 0 and result.stdout.strip(), result.stderr
        long = "the cat " * 60
        result = runner.invoke(app, ["summarise", str(folder), long, "--max-tokens=5", "--device=cpu"])
        assert result.exit_code == 0 and "this model reads the first 48" in result.stderr
        with pytest.raises(ConfigError, match="regard embed is not for"):
            open_for("embed", str(folder), "cpu")

    def test_files_without_a_head_are_read(self, folder):
        """As bart-base is published: no prefix, no bias, and the table of words three times."""
        model, path = load_model(folder), folder / "model.safetensors"
        state = {name.removeprefix("model."): tensor for name, tensor in load_file(path).items()}
        del state["final_logits_bias"]
        copies = {f"{side}.embed_tokens.weight": state["shared.weight"].clone() for side in ("encoder", "decoder")}
        save_file(state | copies, path)
        again = load_model(folder)
        assert again.config == model.config and all(map(torch.equal, again.parameters(), model.parameters()))

    def test_another_head_is_refused(self, folder):
        values = json.loads((folder / "config.json").read_text())
        values["architectures"] = ["BartForSequenceClassification"]
        (folder / "config.json").write_text(json.dumps(values))
        with pytest.raises(CheckpointError, match="BartForSequenceClassification is not one we read"):
            load_model(folder)


@pytest.mark.parametrize("folder", ["modernbert"], indirect=True)
@pytest.mark.parametrize("task", ["classify", "tag"])
def test_modernbert_is_fine_tuned(folder, task, tmp_path, monkeypatch):
    """The head's first layer goes along; transformers opens the result, with the same scores."""
    monkeypatch.chdir(tmp_path)
    if task == "classify":
        rows = [(f"{word} cats {n}", label) for word, label in (("good", "yes"), ("bad", "no")) for n in range(10)]
        (tmp_path / "data.csv").write_text("text,label\n" + "".join(f"{a},{b}\n" for a, b in rows))
    else:
        lines = "".join(f"{n}\tO\ncat\tB-ANIMAL\nmilk\tO\n\n" for n in range(20))
        (tmp_path / "data.conll").write_text(lines)
    data = next(tmp_path.glob("data.*"))
    words = ["finetune", str(folder), task, "--data", str(data), "--steps=2", "--name=m", "--device=cpu"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.stderr
    tuned = load_model(tmp_path / "runs/m")
    before = load_model(folder)
    assert torch.allclose(tuned.pooler.dense.weight, before.pooler.dense.weight, atol=1e-2)
    cls = {"classify": "ModernBertForSequenceClassification", "tag": "ModernBertForTokenClassification"}[task]
    theirs, info = getattr(transformers, cls).from_pretrained(tmp_path / "runs/m", output_loading_info=True)
    assert not any(info.values()), info
    ids = torch.randint(5, 400, (2, 9))
    hidden = tuned(ids)
    mine = tuned.scores(tuned.summary(hidden) if task == "classify" else hidden)
    torch.testing.assert_close(mine, theirs.eval()(ids).logits, rtol=1e-4, atol=1e-4)
