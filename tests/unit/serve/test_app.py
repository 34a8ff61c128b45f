"""Every address: what it answers, and how it refuses."""

import gc
import json
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.packed import unpack
from tests.unit.inside.tiny import CONFIGS

import regard
from regard.inside.attention import stages
from regard.inside.look import look
from regard.inside.looked import Question
from regard.models.plain import MLPConfig
from regard.models.published import to_published
from regard.serve import app

TEXT = "The cat drank the milk because it was hungry."


def test_models_are_listed_newest_first(client, runs):
    models = client.get("/api/models").json()["models"]
    assert {m["id"]: m["family"] for m in models} == {
        "runs/gpt": "language", "runs/lstm": "recurrent-language", "runs/masked": "masked", "runs/pair": "pair",
        "runs/tagger": "tagger", "runs/transformer": "translator",
    }  # fmt: skip
    assert [m["modified"] for m in models] == sorted((m["modified"] for m in models), reverse=True)
    gpt = next(m for m in models if m["id"] == "runs/gpt")
    assert gpt["parameters"] == regard.load(runs / "gpt").model.size()
    assert (gpt["layers"], gpt["heads"], gpt["kind"], gpt["metrics"]) == (2, 4, "run", False)
    shutil.copytree(runs / "gpt", runs / "several" / "gpt-seed0")
    (runs / "broken").mkdir()
    (runs / "broken" / "config.json").write_text("{")
    (runs / "broken" / "model.safetensors").write_bytes(b"x")
    image = MLPConfig(labels=("a", "b"))
    shutil.copytree(runs / "gpt", runs / "image")
    (runs / "image" / "config.json").write_text(json.dumps(to_published(image)))
    ids = [m["id"] for m in client.get("/api/models").json()["models"]]
    assert {"runs/several/gpt-seed0", "runs/image"} <= set(ids) and "runs/broken" not in ids


@pytest.mark.parametrize("name", ["gpt", "masked", "tagger", "transformer"])
def test_a_look_and_its_heads_are_the_models_own(client, ask, runs, name):
    answer = ask("/api/look", model=f"runs/{name}", text=TEXT, second=None, target="Ein Mann", beam=3)
    assert answer.headers["content-type"] == "application/octet-stream"
    header, tensors = unpack(answer.content)
    own = look(regard.load(runs / name), Question(text=TEXT, target="Ein Mann"))
    assert header["streams"] == {k: {"tokens": v} for k, v in own.streams.items()}
    assert header["model"]["id"] == f"runs/{name}"
    for kind, attention in own.attention.items():
        for stage in ("scores", "scaled", "masked", "weights"):
            where = f"look={header['look']}&kind={kind}&layer=1&head=1"
            _, got = unpack(client.get(f"/api/head?{where}&stage={stage}").content)
            expected = stages(attention.layers[1], 1)[stage].numpy()
            np.testing.assert_allclose(got["matrix"], expected, atol=1e-5)
        _, got = unpack(client.get(f"/api/row?{where}&query=2").content)
        np.testing.assert_allclose(got["weights"], expected[2], atol=1e-6)
    if "logits" in tensors:
        np.testing.assert_allclose(tensors["logits"], own.tensors["logits"].numpy(), atol=1e-5)
    for stream, e in own.embeddings.items():
        about, got = unpack(client.get(f"/api/embedding?look={header['look']}&stream={stream}&from=1&to=3").content)
        np.testing.assert_allclose(got["input"], e.input[1:3].numpy(), atol=1e-6)
        assert (about["rows_from"], about["rows"], about["scheme"]) == (1, len(e.token), e.scheme)


def test_other_addresses_answer(client, ask, runs):
    words = client.get("/api/vocab?model=runs/gpt").json()
    assert len(words["texts"]) == regard.load(runs / "gpt").model.config.vocab and words["texts"][65] == "A"
    assert 65 not in words["untypable"] and 200 in words["untypable"], "half a character cannot be typed"
    header, _ = unpack(client.get("/api/positions?model=runs/transformer&n=12").content)
    assert (header["scheme"], header["n"]) == ("sinusoidal", 12)
    assert set(ask("/api/permute", model="runs/gpt", text=TEXT).json()) >= {"with", "without", "finding", "shuffled"}
    header, got = unpack(ask("/api/pair", model="runs/masked", a=TEXT, b=TEXT, word_a=6, word_b=6).content)
    np.testing.assert_array_equal(got["row_a"], got["row_b"])
    header, _ = unpack(ask("/api/look", model="runs/lstm", text=TEXT).content)
    about, got = unpack(client.get(f"/api/recurrent?look={header['look']}").content)
    assert about["cell"] == "lstm" and got["forget"].shape == got["states"].shape
    actual = client.get("/api/gradients?model=runs/lstm&length=5&compare=runs/gpt,rnn").json()
    assert [c["name"] for c in actual["curves"]] == ["runs/lstm", "runs/gpt", "rnn, untrained"]
    assert all(len(c["norms"]) == 6 for c in actual["curves"])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/head?look=none&kind=self&layer=0&head=0", 410),
        ("/api/head?look={look}&kind=cross&layer=0&head=0", 400),
        ("/api/head?look={look}&kind=self&layer=9&head=0", 400),
        ("/api/head?look={look}&kind=self&layer=0&head=-1", 400),
        ("/api/head?look={look}&kind=self&layer=x&head=0", 400),
        ("/api/head?look={look}&kind=self&layer=0&head=0&stage=raw", 400),
        ("/api/row?look={look}&kind=self&layer=0&head=0&query=99", 400),
        ("/api/embedding?look={look}&stream=source", 400),
        ("/api/recurrent?look={look}", 400),
        ("/api/vocab?model=runs/none", 404),
        ("/api/metrics?run=runs/gpt", 404),
        ("/api/nothing", 404),
    ],
)
def test_refusals_are_sentences(client, ask, path, status):
    header, _ = unpack(ask("/api/look", model="runs/gpt", text=TEXT).content)
    answer = client.get(path.format(look=header["look"]))
    assert answer.status_code == status
    said = answer.json()
    assert set(said) == {"error", "hint"} and len(said["error"]["message"]) > 10 and said["hint"]
    assert set(said["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1]", b"null", b'"x"', b"[" * 100_000, b"\xff\xfe", b'{"tab":1}', b'{"tab":"a","seq":"1"}',
     b'{"tab":"a","seq":1,"model":"runs/gpt","text":["a"]}', b'{"tab":"a","seq":true}', b'{"tab":"a","seq":1e400}',
     b'{"tab":"a","seq":1,"model":"runs/transformer","text":"a","beam":1000}'],
)  # fmt: skip
def test_junk_is_refused_kindly(client, body):
    answer = client.post("/api/look", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400 and set(answer.json()) == {"error", "hint"}


@pytest.mark.parametrize("text", ["😀" * 5000, "<script>alert(1)</script>", "\x00", "\ud800 half", "a" * 100_000, ""])
@pytest.mark.parametrize("model", ["runs/gpt", "runs/masked", "runs/transformer", "runs/tagger"])
def test_any_text_gets_an_answer_or_a_reason(client, model, text):
    body = json.dumps({"tab": "a", "seq": 1, "model": model, "text": text, "target": "x"})
    answer = client.post("/api/look", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400)
    assert answer.headers["content-type"] != "text/html"
    if answer.status_code == 400:
        assert answer.json()["error"]["message"]
    else:
        assert len(answer.content) < 1 << 20
        header, _ = unpack(answer.content)
        if len(text) > 1000 and model in ("runs/gpt", "runs/transformer"):  # to others it is one unknown word
            assert header["notes"]


def test_three_megabytes_are_too_much(client, ask, monkeypatch):
    answer = ask("/api/look", model="runs/gpt", text="a" * 3_000_000)
    assert answer.status_code == 400 and "256 K" in answer.json()["error"]["message"]
    parts = (b"x" * 1_000_000 for _ in range(18))  # of a length nobody said
    answer = client.post("/api/look", content=parts, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert ask("/api/look", model="runs/gpt", text="a").status_code == 200


# -- strangers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1:1", "127.0.0.1", "localhost.evil.example:7347", "0.0.0.0:7347", ""]
)
def test_other_hosts_are_refused(client, host):
    for path in ("/", "/api/models"):
        answer = client.get(path, headers={"host": host})
        assert answer.status_code == 403 and "127.0.0.1:7347" in answer.json()["hint"]


@pytest.mark.parametrize("host", ["127.0.0.1:7347", "localhost:7347", "[::1]:7347", "LOCALHOST:7347"])
def test_our_own_names_are_welcome(client, host):
    assert client.get("/api/models", headers={"host": host}).status_code == 200
    assert client.get("/api/models", headers={"origin": f"http://{host}"}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1:7347", "null", "http://127.0.0.1:1", ""])
def test_other_sites_are_refused(client, origin):
    assert client.get("/api/models", headers={"origin": origin}).status_code == 403
    assert client.post("/api/look", json={}, headers={"origin": origin}).status_code == 403


@pytest.mark.parametrize(("site", "dest", "status"), [
    ("cross-site", "image", 403), ("same-site", "script", 403), ("cross-site", "iframe", 403),
    ("same-origin", "empty", 200), ("none", "document", 200), ("cross-site", "document", 200),
])  # fmt: skip
def test_a_picture_on_another_site_starts_no_work(client, site, dest, status):
    """Fetch Metadata (W3C): what browsers say of every request, also of those without an Origin."""
    headers = {"sec-fetch-site": site, "sec-fetch-dest": dest}
    assert client.get("/api/models", headers=headers).status_code == status


def test_a_form_of_another_site_is_no_question(client):
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = client.post("/api/look", content=b"{}", headers={"content-type": kind})
        assert answer.status_code == 415
    for method in ("PUT", "DELETE", "OPTIONS"):
        assert client.request(method, "/api/models").status_code in (405, 415)


@pytest.mark.parametrize("path", ["/api/look", "/api/permute", "/api/pair", "/api/none"])
def test_a_question_without_a_content_type_is_refused(client, path):
    """As a page elsewhere may send it without asking first; `application/json` it may not."""
    body = json.dumps({"tab": "a", "seq": 1, "model": "runs/gpt", "text": TEXT}).encode()
    bare = client.post(path, content=body)
    assert "content-type" not in bare.request.headers and bare.status_code == 415
    for kind in ("application/jsonx", "text/json", "application/json, text/plain", "multipart/form-data"):
        assert client.post(path, content=body, headers={"content-type": kind}).status_code == 415
    for kind in ("application/json", "Application/JSON; charset=utf-8", " application/json "):
        assert client.post(path, content=body, headers={"content-type": kind}).status_code != 415


def test_every_answer_says_what_a_page_may_load(client):
    for path in ("/", "/api/models", "/api/none", "/none"):
        answer = client.get(path)
        assert answer.headers["content-security-policy"].startswith("default-src 'self'; ")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert "content-security-policy" in client.get("/", headers={"host": "evil.example"}).headers


def test_nothing_outside_the_page_is_served(client, monkeypatch, tmp_path):
    page = tmp_path / "page"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text("<!doctype html><title>studio</title>")
    (page / "assets" / "a.js").write_text("1")
    (tmp_path / "secret.txt").write_text("secret")
    (page / "link").symlink_to(tmp_path / "secret.txt")
    monkeypatch.setattr(app, "PAGE", page)
    assert "studio" in client.get("/").text and client.get("/assets/a.js").text == "1"
    for path in ("/../secret.txt", "/%2e%2e/secret.txt", "/assets/..%2f..%2fsecret.txt", "/link", "/assets",
                 "/..%5csecret.txt", f"/{tmp_path}/secret.txt", "/assets/%00"):  # fmt: skip
        answer = client.get(path)
        assert answer.status_code == 404 and "secret" not in answer.text


def test_without_a_page_there_is_a_sentence(client, monkeypatch, tmp_path):
    monkeypatch.setattr(app, "PAGE", tmp_path / "none")
    assert "make page" in client.get("/").text
    assert client.get("/assets/a.js").status_code == 404


@pytest.mark.parametrize("id", ["runs/../runs/gpt", "/etc", "runs", "runs/gpt/", "../gpt", "cache/gpt", "runs/.x", ""])
def test_models_come_from_the_folders_given_only(ask, runs, id):
    shutil.copytree(runs / "gpt", runs / ".x")
    answer = ask("/api/look", model=id, text=TEXT)
    assert answer.status_code == 404 and "no longer exists" in answer.json()["error"]["message"]


# -- what is kept -------------------------------------------------------------------------------------------------


def test_few_looks_and_two_models_are_kept(client, ask, studio, monkeypatch):
    monkeypatch.setattr("regard.serve.studio.LOOKS", 4)
    looks, alive = [], []
    for name in ["gpt"] * 5:
        header, _ = unpack(ask("/api/look", model=f"runs/{name}", text=TEXT).content)
        looks.append(header["look"])
        alive.append(weakref.ref(studio.looked(header["look"])))
    where = "kind=self&layer=0&head=0"
    assert client.get(f"/api/head?look={looks[0]}&{where}").status_code == 410
    assert all(client.get(f"/api/head?look={name}&{where}").status_code == 200 for name in looks[1:])
    model = weakref.ref(studio.models["runs/gpt"][1].model)
    for name in ("lstm", "masked"):
        ask("/api/look", model=f"runs/{name}", text=TEXT)
    assert set(studio.models) == {"runs/lstm", "runs/masked"}
    assert client.get(f"/api/head?look={looks[-1]}&{where}").status_code == 410, "a look holds on to its model"
    gc.collect()
    assert model() is None and [ref() for ref in alive] == [None] * 5


def test_looks_are_bounded_by_their_bytes(client, ask, studio, monkeypatch):
    headers = [unpack(ask("/api/look", model="runs/gpt", text=TEXT).content)[0]]
    c = studio.models["runs/gpt"][1].model.config
    size = studio.looked(headers[0]["look"]).size
    assert size == 3 * 4 * c.layers * c.width * len(headers[0]["streams"]["text"]["tokens"]), "q, k, v in float32"
    monkeypatch.setattr("regard.serve.studio.ROOM", 2 * size)
    headers += [unpack(ask("/api/look", model="runs/gpt", text=TEXT).content)[0] for _ in range(2)]
    where = "kind=self&layer=0&head=0"
    statuses = [client.get(f"/api/head?look={header['look']}&{where}").status_code for header in headers]
    assert statuses == [410, 200, 200]


def test_a_hundred_looks_hold_no_more_tensors_than_ten(ask, studio, monkeypatch):
    monkeypatch.setattr("regard.serve.studio.LOOKS", 4)

    def held() -> int:
        gc.collect()
        return sum(type(o) is torch.Tensor for o in gc.get_objects())

    counts = []
    for n in (10, 90):
        for i in range(n):
            assert ask("/api/look", model="runs/gpt", text=TEXT[: 10 + i % 7]).status_code == 200
        counts.append(held())
    assert counts[1] <= counts[0]


def test_a_model_that_is_trained_on_is_read_again(ask, runs):
    _, before = unpack(ask("/api/look", model="runs/gpt", text=TEXT).content)
    data = (runs / "gpt" / "model.safetensors").read_bytes()
    (runs / "gpt" / "model.safetensors").write_bytes(data[:-4000] + bytes(4000))
    _, after = unpack(ask("/api/look", model="runs/gpt", text=TEXT).content)
    assert not np.array_equal(before["logits"], after["logits"])


@pytest.mark.parametrize("gone", ["folder", "weights", "config"])
def test_missing_folder_is_an_error_and_others_still_answer(client, ask, runs, gone):
    assert ask("/api/look", model="runs/gpt", text=TEXT).status_code == 200
    if gone == "folder":
        shutil.rmtree(runs / "gpt")
    else:
        (runs / "gpt" / {"weights": "model.safetensors", "config": "config.json"}[gone]).unlink()
    answer = ask("/api/look", model="runs/gpt", text=TEXT)
    assert answer.status_code == 404 and answer.json()["hint"], answer.text
    assert ask("/api/look", model="runs/masked", text=TEXT).status_code == 200
    assert "runs/gpt" not in [m["id"] for m in client.get("/api/models").json()["models"]]


def test_a_failure_nobody_foresaw_is_a_sentence_too(client, monkeypatch):
    monkeypatch.setattr("regard.serve.shelf.Shelf.runs", lambda _: 1 / 0)
    answer = client.get("/api/runs")
    assert answer.status_code == 500 and "ZeroDivisionError" in answer.json()["error"]["message"]


def test_every_tiny_family_has_views(runs, client):
    from tests.unit.inside import tiny

    for name in CONFIGS:
        if not (runs / name).exists():
            tiny.write(runs / name, name)
    models = client.get("/api/models").json()["models"]
    assert len(models) == len(CONFIGS)
    for model in models:
        assert model["views"][0] == "tokens" and model["example"]
        recurrent = CONFIGS[model["name"]][1].__class__.__name__.startswith(("Recurrent", "Seq2Seq"))
        assert ("recurrent" in model["views"]) == recurrent
        assert ("attention" in model["views"]) == (not recurrent or model["name"] in ("lstm-translator", "two-readers"))


# -- models from strangers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["[]", "{", "null", "[" * 100_000, '{"model_type": "gpt2"}', '{"model_type": []}', ""])
def test_one_damaged_folder_does_not_hide_the_others(runs, client, text):
    before = {m["id"] for m in client.get("/api/models").json()["models"]}
    for file in ("config.json", "regard.json"):
        (runs / "gpt" / file).write_text(text)
    answer = client.get("/api/models").json()
    assert {m["id"] for m in answer["models"]} == before - {"runs/gpt"}
    (damaged,) = answer["unreadable"]
    assert damaged["id"] == "runs/gpt" and str(runs / "gpt") in damaged["error"] and "\n" not in damaged["error"]


def test_damaged_weights_are_reported_and_hide_no_other_model(runs, client):
    (runs / "lstm" / "model.safetensors").write_bytes(b"\xff" * 99)
    shutil.copytree(Path(__file__).parents[2] / "fixtures" / "runs" / "image-vit", runs / "vit")
    answer = client.get("/api/models").json()
    assert [m["id"] for m in answer["unreadable"]] == ["runs/lstm"]
    (vit,) = [m for m in answer["models"] if m["id"] == "runs/vit"]
    assert (vit["family"], vit["reads"]) == ("image", "images") and "input" in vit["views"]


@pytest.mark.parametrize("text", ["[]", "{", '{"model": 1, "seed": []}', "[" * 100_000])
def test_one_damaged_run_does_not_hide_the_others(runs, client, text):
    for name in ("gpt", "lstm"):
        (runs / name / "metrics.jsonl").write_text('{"step": 1}\n[1]\nnothing\n' + "[" * 10_000 + "\n")
        (runs / name / "run.json").write_text(text if name == "gpt" else '{"task": "lm"}')
    assert "runs/lstm" in [run["id"] for run in client.get("/api/runs").json()["runs"]]
    assert client.get("/api/metrics", params={"run": "runs/gpt"}).json()["events"][0] == {"step": 1}
