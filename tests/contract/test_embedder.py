"""An encoder at work: vectors do not depend on company, follow the folder's settings, and come back from disk."""

import json

import numpy as np
import pytest
import torch

import regard
from regard.data.tokenizers.wordpiece import WordPiece
from regard.errors import CheckpointError, ConfigError, DataError
from regard.models import build
from regard.models.bert import BertConfig
from regard.models.published.sentence import Sentences
from regard.nn.stored import store_
from regard.predictors import Embedder, Filler

TEXTS = ["A cat sits on the mat.", "dogs", "", "The curious kitten deftly climbed the bookshelf, twice!", "a dog sits"]
LONG = "the cat sat on " * 30


@pytest.fixture(scope="module")
def pieces():
    return WordPiece.train([*TEXTS, LONG], 120)


def make(pieces, shake, head="pooler", cls=Embedder, **settings):
    torch.manual_seed(0)
    config = BertConfig(vocab=pieces.size, width=32, layers=5, heads=4, ffn=48, max_length=40, head=head)
    return cls(shake(build(config), 4.0), pieces, settings=Sentences(**settings))


@pytest.fixture
def embedder(pieces, shake):
    return make(pieces, shake)


def by_hand(embedder, text, pooling, layer):
    ids, _ = embedder.encode([text])
    kept = []
    with torch.no_grad():
        embedder.model(torch.tensor(ids), kept=kept)
    x = torch.cat(kept[-4:], -1)[0] if layer == "last4" else kept[layer][0]  # T D
    return {"mean": x.mean(0), "cls": x[0], "max": x.amax(0)}[pooling].numpy()


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("layer", [-1, 0, 2, -3, "last4"])
def test_vectors_are_those_worked_out_by_hand_in_any_company(embedder, pooling, layer):
    for batch in (1, 2, 32):
        found = embedder.embed(TEXTS, pooling=pooling, layer=layer, normalise=False, batch=batch)
        assert found.dtype == np.float32 and found.shape == (5, 128 if layer == "last4" else 32)
        for text, vector in zip(TEXTS, found, strict=True):
            np.testing.assert_allclose(vector, by_hand(embedder, text, pooling, layer), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("layer", [-1, 2, "last4"])
def test_packed_texts_have_the_same_vectors(embedder, pooling, layer):
    """The way of a GPU, taken on a CPU."""
    how = dict(pooling=pooling, layer=layer, normalise=False)
    want = embedder.embed(TEXTS, **how)
    embedder.packs = True
    for batch in (1, 3, 32):
        found = embedder.features(TEXTS, batch=batch, **how)
        np.testing.assert_allclose(found.vectors, want, rtol=1e-4, atol=1e-5)
        assert found.padding == 0


def test_vectors_have_length_one_unless_told_otherwise(embedder):
    np.testing.assert_allclose(np.linalg.norm(embedder.embed(TEXTS), axis=1), 1.0, rtol=1e-5)
    plain = embedder.embed(TEXTS, normalise=False)
    assert np.linalg.norm(plain, axis=1).min() > 1.1
    np.testing.assert_allclose(plain / np.linalg.norm(plain, axis=1)[:, None], embedder.embed(TEXTS), rtol=1e-5)


def test_padding_is_no_more_than_the_longest_of_a_batch_asks_for(embedder):
    sizes = sorted(len(i) for i in embedder.encode(TEXTS)[0])
    alone, together = embedder.features(TEXTS, batch=1), embedder.features(TEXTS, batch=32)
    assert alone.padding == 0 and together.padding == 5 * sizes[-1] - sum(sizes)
    assert alone.tokens == together.tokens == sum(sizes)
    pairs = embedder.features(TEXTS, batch=2).padding  # sorted: neighbours in length share a batch
    assert pairs == (sizes[4] - sizes[3]) + (sizes[2] - sizes[1])


def test_a_batch_that_is_large_enough_ends_with_its_length(embedder, monkeypatch):
    texts = ["dogs"] * 3 + ["a dog sits on the mat"] * 3 + ["a"] * 2
    want = embedder.embed(texts)
    monkeypatch.setattr("regard.predictors.embedder.ENOUGH", 4)
    found = embedder.features(texts)
    assert found.padding == 0
    np.testing.assert_allclose(found.vectors, want, rtol=1e-4, atol=1e-6)
    rows = [row for rows, _, _ in embedder.batches(embedder.encode(texts)[0], 2) for row in rows]
    assert sorted(rows) == list(range(8))


def test_texts_over_the_limit_are_cut_and_counted(pieces, shake):
    embedder = make(pieces, shake, max_length=12)
    found = embedder.features([LONG, "dogs", LONG])
    assert found.cut == 2 and found.tokens == 2 * 12 + len(embedder.encode(["dogs"])[0][0])
    assert make(pieces, shake, max_length=4000).settings.max_length == 40  # no more than the model reads
    assert make(pieces, shake).features([LONG]).tokens == 40


def test_the_nearest_come_first(embedder):
    found = embedder.similar("A cat sits on the mat.", TEXTS, top=3)
    assert [found[0].index, len(found)] == [0, 3] and found[0].score == pytest.approx(1.0, abs=1e-5)
    assert found[0].score >= found[1].score >= found[2].score and found[1].text == TEXTS[found[1].index]


def test_nothing_is_kept_and_no_texts_give_no_vectors(embedder):
    assert embedder.embed([]).shape == (0, 32)
    assert not embedder.model.training and all(p.grad is None for p in embedder.model.parameters())


@pytest.mark.parametrize(("weights", "least"), [("fp16", 0.99999), ("int8", 0.98)])
def test_stored_weights_are_close_and_are_not_saved(pieces, shake, tmp_path, weights, least):
    plain, small = make(pieces, shake), make(pieces, shake)
    store_(small.model, weights)
    cosine = (plain.embed(TEXTS) * small.embed(TEXTS)).sum(1)
    assert cosine.min() > least and not np.array_equal(plain.embed(TEXTS), small.embed(TEXTS))
    with pytest.raises(ConfigError, match="cannot be saved"):
        small.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


# -- the folder -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, dict(pooling="cls", normalise=False, max_length=16), dict(pooling="max")])
def test_a_saved_folder_makes_the_same_vectors(pieces, shake, tmp_path, settings):
    embedder = make(pieces, shake, **settings)
    embedder.save(tmp_path / "m")
    again = regard.load(tmp_path / "m")
    assert type(again) is Embedder and again.settings == embedder.settings
    assert np.array_equal(again.embed([*TEXTS, LONG]), embedder.embed([*TEXTS, LONG]))
    kinds = [m["type"].split(".")[-1] for m in json.loads((tmp_path / "m/modules.json").read_text())]
    assert kinds == ["Transformer", "Pooling", "Normalize"][: 2 + embedder.settings.normalise]
    assert not list((tmp_path / "m").glob(".*"))


def test_the_newer_way_to_write_settings_is_read(embedder, tmp_path):
    embedder.save(tmp_path)
    for name, value in {
        "1_Pooling/config.json": {"embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": True},
        "sentence_bert_config.json": {"transformer_task": "feature-extraction"},
        "tokenizer_config.json": {"do_lower_case": True, "model_max_length": 20},
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.x.modules.pooling.Pooling"},
        ],
    }.items():
        (tmp_path / name).write_text(json.dumps(value))
    assert Sentences.load(tmp_path) == Sentences(pooling="cls", normalise=False, max_length=20)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("1_Pooling/config.json", {"pooling_mode_mean_sqrt_len_tokens": True}, "mean_sqrt_len_tokens pooling"),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": 1, "pooling_mode_cls_token": 1}, r"mean\+cls pooling"),
        ("config_sentence_transformers.json", {"default_prompt_name": "query"}, "the prompt 'query'"),
        ("modules.json", [{"path": "", "type": "x.Transformer"}, {"path": "", "type": "x.Dense"}], "a Dense layer"),
        ("modules.json", {"no": "list"}, r"modules\.json cannot be read"),
    ],
)
def test_settings_we_do_not_follow_are_refused(embedder, tmp_path, name, value, says):
    embedder.save(tmp_path)
    (tmp_path / name).write_text(json.dumps(value))
    with pytest.raises(CheckpointError, match=says):
        regard.load(tmp_path)


def test_a_folder_without_settings_takes_the_mean(embedder, tmp_path):
    embedder.save(tmp_path)
    (tmp_path / "modules.json").unlink()
    assert regard.load(tmp_path).settings == Sentences(max_length=40)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (dict(pooling="median"), "no pooling 'median'; there are: mean, cls, max"),
        (dict(layer=6), r"no layer 6; there are 0 \(the embeddings\) to 5"),
        (dict(layer=-7), "no layer -7"),
        (dict(layer="first"), "no layer 'first'"),
        (dict(batch=0), "at least 1 text"),
    ],
)
def test_wishes_that_cannot_be_met_are_explained(embedder, settings, says):
    with pytest.raises(ConfigError, match=says):
        embedder.embed(TEXTS, **settings)


def test_one_text_is_not_a_list_of_letters(embedder):
    with pytest.raises(ConfigError, match="in brackets"):
        embedder.embed("text")
    with pytest.raises(DataError, match="no texts"):
        embedder.similar("x", [])


# -- gaps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["masked", "pretraining"])
def test_gaps_are_filled_with_the_words_of_the_head(pieces, shake, tmp_path, head):
    filler = make(pieces, shake, head, Filler)
    filler.save(tmp_path)
    filler = regard.load(tmp_path)
    assert type(filler) is Filler
    found = filler.fill("The [MASK] kitten climbed the [MASK].", top=pieces.size)
    assert len(found) == 2
    (ids,), _ = filler.encode(["The [MASK] kitten climbed the [MASK]."])
    with torch.no_grad():
        likely = filler.model.logits(filler.model(torch.tensor([ids]))[0]).softmax(-1)  # T V
    for gap, place in zip(found, [i for i, id in enumerate(ids) if id == pieces.mask], strict=True):
        assert sum(w.probability for w in gap) == pytest.approx(1.0)
        assert [w.id for w in gap[:3]] == likely[place].topk(3).indices.tolist()
        assert gap[0].piece == pieces.piece(gap[0].id) and gap[0].probability >= gap[1].probability
    with pytest.raises(DataError, match=r"no \[MASK\] in the text"):
        filler.fill("no gap")
    with pytest.raises(DataError, match="shorten"):
        filler.fill(LONG + "[MASK]")
