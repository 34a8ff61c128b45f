"""What is at `/` of a server: the studio on its models, or the form."""

import base64

import httpx2
import numpy as np
import pytest
from tests.packed import unpack
from tests.unit.inside import tiny
from tests.unit.serve.api.conftest import serving
from tests.unit.serve.api.raw import SHAPE

import regard
from regard.inside.look import look
from regard.inside.looked import Question
from regard.serve import app
from regard.serve.api.guard import Access


@pytest.fixture
def page(monkeypatch, tmp_path):
    (tmp_path / "page" / "assets").mkdir(parents=True)
    (tmp_path / "page" / "index.html").write_text("the page")
    (tmp_path / "page" / "assets" / "a.js").write_text("its script")
    monkeypatch.setattr(app, "PAGE", tmp_path / "page")


def test_the_studio_at_home_shows_the_served_models(fake_engine, page, tmp_path):
    folder = tiny.write(tmp_path / "gpt", "gpt")
    with serving(str(folder)) as address, httpx2.Client(base_url=address, timeout=30) as http:
        home = http.get("/")
        assert home.text == "the page" and "frame-ancestors 'none'" in home.headers["content-security-policy"]
        assert http.get("/assets/a.js").text == "its script"
        (model,) = http.get("/api/models").json()["models"]
        assert (model["id"], model["name"]) == ("served/m", "m")
        ask = {"tab": "a", "seq": 1, "model": "served/m", "text": "The cat"}
        _, tensors = unpack(http.post("/api/look", json=ask).content)
        expected = look(regard.load(folder), Question(text="The cat")).tensors["logits"]
        np.testing.assert_allclose(tensors["logits"], expected.numpy(), atol=1e-5)
        for status, answer in (
            (400, http.post("/api/look", json=ask | {"seq": "one"})),
            (404, http.post("/api/look", json=ask | {"model": "served/x"})),
            (404, http.get("/api/nothing")),
            (404, http.get("/assets/b.js")),
            (404, http.get("/assets/..%2f..%2fapp.py")),
            (405, http.put("/api/look", json=ask)),
            (410, http.get("/api/head?look=x&kind=self&layer=0&head=0")),
            (403, http.get("/api/models", headers={"origin": "http://evil.example"})),
        ):
            assert answer.status_code == status and set(answer.json()["error"]) == SHAPE, answer.text


def test_the_form_is_at_home_for_others(fake_engine, page):
    key = {"authorization": f"Basic {base64.b64encode(b':secret').decode()}"}
    with serving(access=Access(host="0.0.0.0", keys=("secret",))) as address:
        home = httpx2.get(address, headers=key, follow_redirects=True)
        assert "<title>regard serve</title>" in home.text
        assert httpx2.get(f"{address}/api/models", headers=key).status_code == 404


def test_the_form_is_at_home_where_no_page_is_built(fake_engine, monkeypatch, tmp_path):
    monkeypatch.setattr(app, "PAGE", tmp_path / "nothing")
    with serving() as address:
        assert "<title>regard serve</title>" in httpx2.get(address, follow_redirects=True).text
