"""The studio in a real browser: what the page shows is what PyTorch computes."""

import math

import pytest
import torch
from tests.system.studio.toy import NEAR, TEXTS
from torch.nn.functional import cross_entropy
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM

from regard.generate.sampling import narrowed


def test_next_token_probabilities_are_the_models(tab, model):
    tab.open("gpt", "next", text=TEXTS["gpt"])
    writer = model("gpt")
    ids = torch.tensor(writer.encode(TEXTS["gpt"]))
    with torch.inference_mode():
        every = writer.model.logits(writer.model(ids[None])[0])
    logits = every[-1]
    head, *rows = tab.table("next-token")
    assert head[:5] == ["rank", "token", "id", "logit", "probability"]
    shown = [int(row[2]) for row in rows]
    assert sorted(shown) == list(range(len(logits))), "the whole vocabulary"
    assert_close(torch.tensor([float(row[4]) for row in rows]), logits.softmax(-1)[shown], **NEAR)
    nats = [float(row[2]) for row in tab.table("surprisal")[2:]]
    assert_close(torch.tensor(nats), cross_entropy(every[:-1], ids[1:], reduction="none"), **NEAR)


def test_sliders_do_what_sampling_does(tab, model):
    tab.open("gpt", "next", text=TEXTS["gpt"], t=0.6, k=7, p=0.8)
    writer = model("gpt")
    with torch.inference_mode():
        logits = writer.model.logits(writer.model(torch.tensor([writer.encode(TEXTS["gpt"])]))[0, -1])
    expected = narrowed(logits, 0.6, 7, 0.8).softmax(-1)
    rows = tab.table("next-token")[1:]
    assert_close(torch.tensor([float(r[5]) for r in rows]), expected[[int(r[2]) for r in rows]], **NEAR)
    tab.page.get_by_label("Top-k").focus()
    for _ in range(6):
        tab.page.keyboard.press("ArrowLeft")
    assert [float(r[5]) for r in tab.table("next-token")[1:3]] == [1.0, 0.0], "one token is left"
    assert tab.state()["k"] == "1"


@pytest.mark.parametrize(("layer", "head"), [(0, 1), (1, 0)])
def test_a_heads_weights_are_those_of_another_implementation(tab, place, model, layer, head):
    tab.open("gpt", "attention", text=TEXTS["gpt"], layer=layer, head=head)
    ids = torch.tensor([model("gpt").encode(TEXTS["gpt"])])
    other = AutoModelForCausalLM.from_pretrained(place / "runs" / "gpt", attn_implementation="eager").eval()
    with torch.inference_mode():
        every = torch.cat(other(ids, output_attentions=True).attentions)  # L H T S
    expected = every[layer, head]
    assert_close(tab.matrix("attention"), expected, **NEAR)
    most = torch.tensor([float(row[2]) for row in tab.table("heads")[1:]])
    assert_close(most, every.amax(-1).mean(-1).flatten(), rtol=0.0, atol=1 / 255)  # thumbnails have eight bits
    stages = {}
    for stage in ("Scores q·k", "Scaled", "Masked"):
        tab.page.get_by_label(stage).check()
        stages[stage] = tab.matrix("attention")
    width = 32 // 2
    assert_close(stages["Scaled"], stages["Scores q·k"] / math.sqrt(width), rtol=1e-3, atol=1e-3)
    assert_close(stages["Masked"].nan_to_num(-math.inf).softmax(-1), expected, **NEAR)


def test_translation_shows_the_models_own(tab, place, model):
    tab.open("translator", "translation", text=TEXTS["translator"], layer=1, head=1, beam=4)
    translator = model("translator")
    best = translator.hypotheses([TEXTS["translator"]], beam=4, n_best=4)[0]
    assert [row[1] for row in tab.table("hypotheses")[1:]] == [h.text for h in best]
    look = translator.attention(TEXTS["translator"], best[0].text)
    assert_close(tab.matrix("translation"), torch.from_numpy(look.weights[1, 1]), **NEAR)
    other = AutoModelForSeq2SeqLM.from_pretrained(place / "runs" / "translator", attn_implementation="eager").eval()
    source, target = torch.tensor([look.source]), torch.tensor([look.target])
    with torch.inference_mode():
        out = other(source, decoder_input_ids=translator.shifted(target), output_attentions=True)
    assert_close(tab.matrix("translation"), out.cross_attentions[1][0, 1], **NEAR)
    steps = tab.table("steps")[1:]
    likely = out.logits[0].softmax(-1).topk(8).values.flatten()
    assert_close(torch.tensor([float(row[4]) for row in steps]), likely, **NEAR)


def test_additive_attention_and_an_edited_translation(tab, model):
    tab.open("bahdanau", "translation", text=TEXTS["bahdanau"], target="le chat voit .")
    look = model("bahdanau").attention(TEXTS["bahdanau"], "le chat voit .")
    assert_close(tab.matrix("translation"), torch.from_numpy(look.weights[0, 0]), **NEAR)
    tab.page.get_by_label("What if it were").fill("le chien")
    tab.page.get_by_label("What if it were").press("Enter")
    tab.idle()
    look = model("bahdanau").attention(TEXTS["bahdanau"], "le chien")
    assert_close(tab.matrix("translation"), torch.from_numpy(look.weights[0, 0]), **NEAR)


def test_recurrent_states_are_those_of_torchs_lstm(tab, model):
    tab.open("lstm", "recurrent", text=TEXTS["lstm"])
    writer = model("lstm")
    ids = torch.tensor([writer.encode(TEXTS["lstm"])])
    with torch.inference_mode():
        states = writer.model(ids)[0]
    head, *rows = tab.table("states")
    assert head[:2] == ["unit", "state h"]
    last = writer.model.config.layers - 1
    if last:
        tab.open("lstm", "recurrent", text=TEXTS["lstm"], layer=last)
        rows = tab.table("states")[1:]
    assert_close(torch.tensor([float(row[1]) for row in rows]), states[-1], **NEAR)
    assert len({row[0] for row in tab.table("gradients")[1:]}) == 4, "this model beside an RNN, an LSTM and a GPT"


def test_answers_are_the_predictors(tab, model):
    tab.open("classifier", "labels", text=TEXTS["classifier"])
    shown = {row[0]: float(row[1]) for row in tab.table("classes")[1:]}
    classifier = model("classifier")
    expected = dict(zip(classifier.labels, classifier.probabilities([TEXTS["classifier"]])[0].tolist(), strict=True))
    assert shown == pytest.approx(expected, abs=1e-3)

    tab.open("pair", "labels", text=TEXTS["pair"], second="a good film")
    shown = [float(row[1]) for row in tab.table("classes")[1:]]
    assert shown == pytest.approx(model("pair").probabilities([TEXTS["pair"]], ["a good film"])[0].tolist(), abs=1e-3)

    tab.open("tagger", "labels", text=TEXTS["tagger"])
    words = model("tagger").tag(TEXTS["tagger"])
    assert [row[1] for row in tab.table("tags")[1:]] == [w.label for w in words]

    tab.open("bert", "labels", text=TEXTS["bert"])
    rows = tab.table("fill-1")[1:]
    (gap,) = model("bert").fill(TEXTS["bert"], top=10)
    assert [row[1] for row in rows] == [w.piece for w in gap]
    assert [float(row[3]) for row in rows] == pytest.approx([w.probability for w in gap], abs=1e-3)

    tab.open("sentences", "labels", text="the cat sat", second="the dog ran")
    a, b = torch.from_numpy(model("sentences").embed(["the cat sat", "the dog ran"]))
    cosine = torch.cosine_similarity(a, b, dim=0).item()
    assert float(tab.table("similarity")[1][2]) == pytest.approx(cosine, abs=1e-3)


def test_embedding_search_and_pair_show_the_models_vectors(tab, place, model):
    tab.open("gpt", "embedding", text=TEXTS["gpt"], query=3)
    net = model("gpt").model
    ids = torch.tensor(model("gpt").encode(TEXTS["gpt"]))
    shown = tab.matrix("embedding")
    token = net.token(ids)[3].detach()
    assert_close(shown[:, 0], token, **NEAR)
    assert_close(shown[:, 0] + shown[:, 1], shown[:, 2], rtol=0.0, atol=1e-6)

    tab.open("gpt", "search", text=TEXTS["gpt"], layer=1, head=1, query=5)
    rows = tab.table("search")[1:]
    other = AutoModelForCausalLM.from_pretrained(place / "runs" / "gpt", attn_implementation="eager").eval()
    with torch.inference_mode():
        expected = other(ids[None], output_attentions=True).attentions[1][0, 1, 5]
    assert_close(torch.tensor([float(row[4]) for row in rows]), expected, **NEAR)

    tab.open("sentences", "pair", text="the cat sat", second="the dog sat")
    cosines = [float(row[1]) for row in tab.table("pair-cosine")[1:]]
    embedder = model("sentences")
    bert = AutoModel.from_pretrained(place / "runs" / "sentences").eval()
    states = [
        bert(torch.tensor([embedder.tokenizer.encode(t).ids]), output_hidden_states=True).hidden_states
        for t in ("the cat sat", "the dog sat")
    ]
    words = [embedder.tokenizer.encode(t).words for t in ("the cat sat", "the dog sat")]
    places = [[i for i, w in enumerate(each) if w == 2] for each in words]
    vectors = [[s[0, p].mean(0) for s in side] for side, p in zip(states, places, strict=True)]
    expected = [torch.cosine_similarity(a, b, dim=0).item() for a, b in zip(*vectors, strict=True)]
    assert cosines[1:] == pytest.approx(expected[1:], abs=1e-3)


def test_a_picture_is_shown_with_where_the_model_looked(tab, place, model):
    vit = model("vit")
    tab.open("vit", "input", layer=1, head=0)
    path = place / "photos" / "dark" / "1.png"
    tab.page.locator("#file").set_input_files(path)
    tab.figure("input").get_by_role("heading", name="What the model read").wait_for()
    seen = torch.tensor(vit.attention(path).heads[1, 0]).flatten()
    shown = tab.matrix("input")[:, 0]
    assert_close(shown / shown.sum(), seen, **NEAR)
    tab.page.get_by_role("button", name="Answers").click()
    expected = vit.classify([path])[0].probabilities
    assert {row[0]: pytest.approx(float(row[1]), abs=1e-3) for row in tab.table("classes")[1:]} == expected
    tab.page.get_by_role("button", name="Example after").click()
    tab.page.get_by_role("button", name="Input").click()
    tab.figure("input").get_by_role("heading", name="Example 2 of 2").wait_for()


def test_a_row_of_a_table_is_typed_or_an_example(tab, model):
    tab.open("students", "input")
    assert {row[0].split("=")[0] for row in tab.table("input")[1:]} == {"hours", "school"}
    tab.page.locator("#text").fill("hours=12, school=north")
    tab.figure("input").get_by_text("hours=12").first.wait_for()
    tab.page.get_by_role("button", name="Answers").click()
    expected = model("students").classify([{"hours": "12", "school": "north"}])[0].probabilities
    assert {row[0]: pytest.approx(float(row[1]), abs=1e-3) for row in tab.table("classes")[1:]} == expected
