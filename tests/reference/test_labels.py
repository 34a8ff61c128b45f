"""Fine-tuned folders are transformers' own: AutoModelFor… opens them with their labels, and gives the same logits."""

import dataclasses
import json
import shutil

import pytest
import torch
import transformers

import regard
from regard.data.labelled import LabelledConfig
from regard.data.tokenizers.wordpiece import WordPiece
from regard.errors import ConfigError
from regard.models.bert import Bert, BertConfig
from regard.models.published import published_weights, to_published
from regard.predictors.embedder import Embedder
from regard.tasks import assemble, finetune_run, get, train_run
from regard.tasks.plan import run_from_dict

WORDS = ["the", "film", "was", "good", "bad", "and", "plot", "cast", "ada", "met", "grace", "in", "paris"]
close = torch.testing.assert_close


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def encoder(tmp_path):
    """A folder as MiniLM's: an encoder with a pooler, no task."""
    torch.manual_seed(0)
    pieces = WordPiece.train([" ".join(WORDS)] * 3, 90)
    config = BertConfig(vocab=pieces.size, width=32, layers=2, heads=2, ffn=64, max_length=40)
    Embedder(Bert(config), pieces).save(tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.fixture
def data(tmp_path):
    reviews = [f"the film was {w} {x},{w}\n" for w in ("good", "bad") for x in WORDS]
    pairs = [f"the {a}\tthe {b}\t{'same' if a == b else 'other'}\n" for a in WORDS[:6] for b in WORDS[:6]]
    (tmp_path / "r.csv").write_text("text,label\n" + "".join(reviews))
    (tmp_path / "p.tsv").write_text("".join(pairs))
    (tmp_path / "t.conll").write_text("Ada\tB-PER\nmet\tO\nGrace\tB-PER\n\nParis\tB-LOC\nwas\tO\ngood\tO\n\n" * 4)
    return {"classify": tmp_path / "r.csv", "pair": tmp_path / "p.tsv", "tag": tmp_path / "t.conll"}


def run_of(task, encoder, data, **settings):
    valid = str(data[task]) if task == "tag" else ""
    run = finetune_run(encoder, task, LabelledConfig(path=str(data[task]), valid=valid))
    return run_from_dict(run.to_dict() | {"steps": 6, "epochs": 0.0, **settings})


@pytest.mark.parametrize("task", ["classify", "pair", "tag"])
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_transformers_opens_the_folder_with_equal_logits(task, packed, encoder, data, tmp_path):
    train_run(run_of(task, encoder, data), tmp_path / "run", quiet=True)
    auto = (
        transformers.AutoModelForTokenClassification
        if task == "tag"
        else transformers.AutoModelForSequenceClassification
    )
    theirs, info = auto.from_pretrained(tmp_path / "run", output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    ours = regard.load(tmp_path / "run")
    assert list(ours.labels) == [theirs.config.id2label[i] for i in range(len(ours.labels))] == sorted(ours.labels)
    assert theirs.config.label2id[ours.labels[1]] == 1
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "run")
    ours.packs = packed  # the way of a GPU, taken on a CPU
    if task == "tag":
        text = "Ada met Grace in Paris"
        batch = tokenizer(text.split(), is_split_into_words=True, return_tensors="pt")
        words = batch.word_ids()
        written = {0: 1, 2: 1, 4: 1}  # Ada, Grace and Paris begin with a capital
        batch["token_type_ids"] = torch.tensor([[written.get(w, 0) for w in words]])
        assert "token_type_ids" in (tmp_path / "run" / "README.md").read_text()
        with torch.no_grad():
            likely = theirs.eval()(**batch).logits[0].softmax(-1)
        first = [words.index(w) for w in range(5)]
        mine = ours.tag(text)
        (labels, sure), _ = ours.tag_words([text.split(), ["Paris"]])
        assert (labels, sure) == ([w.label for w in mine], pytest.approx([w.probability for w in mine]))
        close(torch.tensor([w.probability for w in mine]), likely[first].amax(-1), atol=1e-4, rtol=1e-4)
        assert [w.label for w in mine] == [theirs.config.id2label[int(i)] for i in likely[first].argmax(-1)]
        return
    texts, seconds = ["the film was good", "plot"], ["the cast", "the plot was bad"] if task == "pair" else None
    batch = tokenizer(texts, seconds, padding=True, return_tensors="pt")
    with torch.no_grad():
        likely = theirs.eval()(**batch).logits.softmax(-1)
    close(torch.from_numpy(ours.probabilities(texts, seconds)).float(), likely, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_the_training_loss_is_transformers(task, encoder, data):
    """Loss and gradients of a ragged batch, from the same weights."""
    parts = assemble(run_of(task, encoder, data, tokens=64), say=lambda _: None)
    batch, model = next(parts.loader), parts.model.eval()
    auto = transformers.BertForTokenClassification if task == "tag" else transformers.BertForSequenceClassification
    theirs = auto(
        transformers.BertConfig(**{k: v for k, v in to_published(model.config).items() if k != "model_type"})
    ).eval()
    theirs.load_state_dict(published_weights(model))
    lengths = torch.full((len(batch),), batch.ids.size(1)) if batch.lengths is None else batch.lengths
    mask = (torch.arange(batch.ids.size(1)) < lengths[:, None]).long()
    labels = batch.labels.masked_fill(batch.labels < 0, -100)
    expected = theirs(input_ids=batch.ids, attention_mask=mask, token_type_ids=batch.sentences, labels=labels).loss
    loss = parts.objective.loss_sum(model, batch) / batch.count
    close(loss, expected, atol=1e-5, rtol=1e-5)
    loss.backward()
    expected.backward()
    close(model.classifier.weight.grad, theirs.classifier.weight.grad, atol=1e-5, rtol=1e-4)


def test_fine_tuning_begins_with_the_encoder_and_goes_on_with_a_head(encoder, data, tmp_path):
    messages = []
    run = run_of("classify", encoder, data)
    parts = assemble(run, say=messages.append)
    start = regard.load(encoder).model
    close(parts.model.layers[0].attention.qkv.weight, start.layers[0].attention.qkv.weight)
    close(parts.model.pooler.weight, start.pooler.weight)
    assert "randomly initialised: classifier" in messages
    train_run(run, tmp_path / "first", quiet=True)
    parts = assemble(run_of("classify", tmp_path / "first", data), say=messages.append)
    close(parts.model.classifier.weight, regard.load(tmp_path / "first").model.classifier.weight)
    assert any("all weights come from the model" in line for line in messages)


def test_a_tagger_is_told_how_words_are_written(encoder, data, tmp_path):
    run = run_of("tag", encoder, data, batch=4)
    start, model = regard.load(encoder).model, assemble(run, say=lambda _: None).model
    assert run.data.case and start.config.types == 2
    close(model.sentence.weight, start.sentence.weight[:1].expand(4, -1))  # so it begins as the encoder it was
    train_run(run, tmp_path / "run", quiet=True)
    tagger = regard.load(tmp_path / "run")
    upper, lower = (tagger.tag_words([words])[0][1] for words in (["Ada", "met", "GRACE"], ["ada", "met", "grace"]))
    assert upper != lower
    again = run_of("tag", tmp_path / "run", data)
    close(assemble(again, say=lambda _: None).model.sentence.weight, tagger.model.sentence.weight)
    texts = run_of("classify", tmp_path / "run", data)
    assert not texts.data.case and texts.model.types == 4
    plain = dataclasses.replace(run, data=dataclasses.replace(run.data, case=False))
    for other in (plain, get("tag").probe(run)):
        parts = assemble(other, say=lambda _: None)
        assert parts.model.config.types == 2 and next(parts.loader).sentences is None
    lora = finetune_run(encoder, "tag", LabelledConfig(path=str(data["tag"])), lora=2)
    assert not lora.data.case  # it would not train the segments


@pytest.mark.parametrize(("first", "constrained"), [("B", True), ("I", False)], ids=["IOB2", "IOB1"])
def test_only_a_model_of_iob2_tags_keeps_to_their_rules(first, constrained, encoder, tmp_path):
    """In IOB1 an entity begins with I-X, and with B-X only right after another X."""
    sentence = (
        f"Ada\t{first}-PER\nGood\tI-PER\nmet\tO\n\nParis\t{first}-LOC\nwas\tO\n\nAda\t{first}-PER\nGrace\tB-PER\n\n"
    )
    (tmp_path / "t.conll").write_text(sentence * 4)
    file = str(tmp_path / "t.conll")
    run = finetune_run(encoder, "tag", LabelledConfig(path=file, valid=file))
    parts = assemble(run, say=lambda _: None)
    train_run(run_from_dict(run.to_dict() | {"steps": 2, "epochs": 0.0}), tmp_path / "run", quiet=True)
    tagger = regard.load(tmp_path / "run")
    assert parts.objective.best_tags.constrained == tagger.best_tags.constrained == constrained


def test_lora_trains_the_head_too_and_leaves_a_whole_model(encoder, data, tmp_path):
    run = dataclasses.replace(run_of("classify", encoder, data, lora=2), merge=True)
    train_run(run, tmp_path / "run", quiet=True)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")
    before = regard.load(encoder).model
    assert torch.equal(theirs.bert.embeddings.word_embeddings.weight, before.token.weight[: before.config.vocab])
    assert not torch.equal(theirs.bert.pooler.dense.weight, before.pooler.weight)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["lora"] == 2


@pytest.mark.parametrize("task", ["classify", "pair", "tag"])
def test_a_probe_is_a_linear_map_of_their_states(task, encoder, data, tmp_path):
    run = get(task).probe(run_of(task, encoder, data))
    train_run(run_from_dict(run.to_dict() | {"epochs": 0.0, "steps": 4}), tmp_path / "run", quiet=True)
    ours = regard.load(tmp_path / "run")
    before = regard.load(encoder).model.state_dict()
    same = {name for name, p in ours.model.state_dict().items() if name in before and torch.equal(p, before[name])}
    assert {name.split(".")[0] for name in ours.model.state_dict() if name not in same} == {"classifier"}
    theirs = transformers.BertModel.from_pretrained(encoder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    texts, seconds = ["the film was good", "plot"], ["the cast", "the plot was bad"] if task == "pair" else None
    w, b = ours.model.classifier.weight, ours.model.classifier.bias
    for i, text in enumerate(texts):
        pieces = tokenizer(text, seconds and seconds[i], return_tensors="pt")
        with torch.no_grad():
            states = theirs(**pieces).last_hidden_state[0]
            likely = ((states if task == "tag" else states.mean(0)) @ w.T + b).softmax(-1)
        if task == "tag":
            actual = torch.tensor([word.probability for word in ours.tag(text)])
            close(actual, likely.amax(-1)[1:-1], atol=1e-5, rtol=1e-4)
        else:
            actual = torch.from_numpy(ours.probabilities(texts, seconds))[i].float()
            close(actual, likely, atol=1e-5, rtol=1e-4)
    if task == "tag":
        return
    with pytest.raises(ValueError, match="regard-bert"):  # nobody else reads a mean of states
        transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run")


def test_a_fine_tuned_run_goes_on_when_what_it_began_with_is_gone(encoder, data, tmp_path):
    run = dataclasses.replace(run_of("classify", encoder, data), keep_state=True)
    train_run(run, tmp_path / "run", quiet=True)
    shutil.rmtree(encoder)
    train_run(run, tmp_path / "run", resume=True, quiet=True)  # nothing is left to do, and nothing is missing
    assert regard.load(tmp_path / "run").labels == ("bad", "good")


def test_epochs_become_steps(encoder, data):
    run = finetune_run(encoder, "classify", LabelledConfig(path=str(data["classify"])))
    parts = assemble(run_from_dict(run.to_dict() | {"epochs": 50.0, "tokens": 64}), say=lambda _: None)
    assert parts.run.steps == 50 * parts.loader.batches_per_epoch > 100


def test_what_is_no_encoder_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "regard-rnn_lm", "vocab": 9}))
    with pytest.raises(
        ConfigError,
        match="is of the type rnn_lm, which cannot be fine-tuned to tag; it can be fine-tuned to: lm, summarise",
    ):
        finetune_run(tmp_path, "tag", LabelledConfig(path="x"))
