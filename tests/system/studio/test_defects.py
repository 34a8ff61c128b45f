"""The studio in a real browser: many tabs, runs that go, files that are opened again, and the way back."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest
import torch
from tests.system.studio import toy
from tests.system.studio.test_ways import saved
from tests.system.studio.toy import TEXTS, Tab
from tests.unit.serve.api.conftest import fake_engine, serving  # noqa: F401 - a fixture
from torch.testing import assert_close

from regard.serve.api.guard import Access
from regard.tasks.served import BEAM


def test_more_tabs_than_connections_work(browser, home):
    """A browser opens six connections to a server, for all of its tabs."""
    context = browser.new_context(reduced_motion="reduce")
    tabs = [Tab(context.new_page(), home) for _ in range(8)]
    where = f"{home}#model=runs/gpt&view=attention&text=the+cat&layer=0&head=0"
    for tab in tabs:
        tab.page.goto(where, wait_until="commit")
    for tab in tabs:
        tab.idle()
    before = tabs[-1].matrix("attention")
    tabs[-1].page.keyboard.press("]")
    assert tabs[-1].figure("attention").locator("h2").text_content() == "Layer 2, head 1"
    assert not torch.equal(tabs[-1].matrix("attention"), before)
    context.close()


def test_a_figure_waits_for_the_numbers_of_its_title(tab):
    tab.open("gpt", "attention", text=TEXTS["gpt"], layer=0, head=0)
    drawn = tab.figure("attention").get_by_role("application")
    drawn.wait_for()
    held = []
    tab.page.route("**/api/head*", lambda route: held.append(route))
    tab.page.keyboard.press("]")
    tab.page.locator('[data-figure="attention"][aria-busy=true]').wait_for()
    assert tab.figure("attention").locator("h2").text_content() == "Layer 2, head 1" and not drawn.count()
    while not held:  # until then the figure waits for no answer but this one
        tab.page.wait_for_timeout(10)
    held.pop().continue_()
    drawn.wait_for()


def test_runs_of_one_name_in_two_sweeps_are_told_apart(tab, place):
    for sweep in ("first", "second"):
        shutil.copytree(place / "runs" / "gpt", place / "runs" / sweep / "gpt-seed0")
    tab.open("second/gpt-seed0", "tokens", text="here")
    names = tab.page.locator("#model option").all_text_contents()
    assert {"first/gpt-seed0", "second/gpt-seed0"} <= set(names) and len(set(names)) == len(names)
    assert tab.page.title() == "second/gpt-seed0 · regard studio"
    for sweep in ("first", "second"):
        shutil.rmtree(place / "runs" / sweep)


def test_back_returns_to_the_view_before(tab):
    tab.open("gpt", "tokens", text=TEXTS["gpt"])
    tab.page.get_by_role("button", name="Attention", exact=True).click()
    tab.figure("attention").wait_for()
    tab.page.keyboard.press("]")
    tab.page.locator("#model").select_option("runs/classifier")
    tab.idle()
    tab.page.go_back()
    tab.figure("attention").wait_for()
    assert tab.state()["model"] == "runs/gpt" and tab.page.locator("#text").input_value() == TEXTS["gpt"]
    tab.page.go_back()
    tab.figure("tokens-text").wait_for()


def test_what_cannot_be_shown_leaves_no_figure_of_before(tab, place):
    tab.expected = ("Failed to load resource",)
    shutil.copytree(place / "runs" / "translator", place / "runs" / "leaving")
    tab.open("leaving", "translation", text=TEXTS["translator"])
    tab.page.locator("#text").fill("")
    tab.page.get_by_text("There is nothing to show").wait_for()
    assert "empty" in tab.page.get_by_role("alert").text_content()
    assert not tab.page.locator("[data-figure]").count()
    tab.page.locator("#text").fill("the dog")
    tab.idle()
    shutil.rmtree(place / "runs" / "leaving")  # the page notices by itself
    tab.page.get_by_text("There is nothing to show").wait_for()
    assert "leaving" in tab.page.get_by_role("alert").text_content()
    assert not tab.page.locator("[data-figure]").count()
    assert tab.page.locator("#model option:checked").text_content() == "runs/leaving: not there"


def test_beams_are_those_of_regard_translate(tab, model):
    with tab.page.expect_request("**/api/look") as asked:
        tab.open("translator", "translation", text=TEXTS["translator"])
    assert asked.value.post_data_json["beam"] == BEAM.default
    (best,) = model("translator").translate([TEXTS["translator"]])
    assert tab.table("hypotheses")[1][1] == best


def test_curves_are_saved_as_a_page_of_curves(tab, browser, tmp_path):
    tab.open("gpt", "training")
    shown = tab.table("training-loss")
    page = tmp_path / "loss.html"
    shutil.copy(saved(tab, "training-loss", "HTML"), page)
    other = Tab(browser.new_page(), page.as_uri())
    other.page.goto(page.as_uri())
    assert other.table("training-loss") == shown
    assert other.page.locator("nav [aria-current]").text_content() == "Training"
    other.page.close()
    other.check()


def test_a_saved_chart_stays_inside_its_frame(tab):
    tab.open("lstm", "recurrent", text=TEXTS["lstm"])
    tab.figure("gradients").locator("svg[role=img]").wait_for()
    drawing = ElementTree.parse(saved(tab, "gradients", "SVG")).getroot()
    charts = [node for node in drawing if node.tag.endswith("svg") and float(node.get("height")) > 100]
    assert len(charts) == 1 and charts[0].get("overflow") == "hidden"
    lines = [node.get("d") for node in charts[0].iter() if node.tag.endswith("path") and "L" in node.get("d")]
    ends = [float(point.split()[1]) for line in lines for point in line[1:].split("L")]
    assert len(lines) > 1 and max(ends) <= float(charts[0].get("height"))


def test_studio_of_a_training_opens_on_its_run(tab, place, home):
    tab.page.goto(f"{home}#view=training&runs=runs/new")
    tab.page.get_by_text("has written no numbers yet").wait_for()
    assert not tab.page.locator("[data-figure]").count(), "curves of another run"
    new = place / "runs" / "new"
    new.mkdir()
    (new / "run.json").write_text(json.dumps({"task": "lm", "model": {}}))
    (new / "metrics.jsonl").write_text(json.dumps({"step": 1, "loss": 2.5}) + "\n")
    tab.figure("training-loss").get_by_text("new: 2.5000 at step 1").wait_for()
    assert tab.page.get_by_role("checkbox", checked=True).count() == 1
    shutil.rmtree(new)


def test_a_training_ends_quietly_while_its_page_is_open(browser, place, tmp_path):
    """The page asks for news, and for what a model computes, to the end."""
    words = ["train", "lm", "--data", str(place / "my.txt"), "--name", "watched", "--studio", "--steps", "150"]
    command = [sys.executable, "-m", "regard", *words, "--set", "eval_every=20"]
    env = os.environ | {"REGARD_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        address = next(line.split()[1] for line in lines if line.startswith("studio: "))
        page = browser.new_page()
        page.goto(address)
        page.get_by_text("watched").first.wait_for()
        page.evaluate("""() => setInterval(async () => {
            for (const path of ["/api/runs", "/api/models"]) await fetch(path).catch(() => 0)
        }, 5)""")
        rest = "".join(lines)
        assert process.wait(120) == 0 and "Traceback" not in rest and "futures" not in rest, rest
        page.close()


@pytest.mark.parametrize("run", ["gpt", "sentences"])
def test_look_compares_with_a_second_text(browser, place, tmp_path, run):
    out: Path = tmp_path / "two.html"
    toy.works("look", place / "runs" / run, "the cat sat", "--second", "the dog sat", "--out", out)
    tab = Tab(browser.new_page(), out.as_uri())
    tab.page.goto(out.as_uri())
    tab.figure("pair-cosine").get_by_text("of “sat” in the first text and of “sat” in the second").wait_for()
    assert tab.page.locator("#second").input_value() == "the dog sat"
    if run == "sentences":
        tab.page.get_by_role("button", name="Answers").click()
        assert_close(float(tab.table("similarity")[1][2]), 1.0, rtol=0.0, atol=1.0)
    tab.page.close()
    tab.check()


def test_a_server_has_the_studio_at_home_and_a_form(browser, tab, place, fake_engine):  # noqa: F811
    where = dict(view="attention", text="the cat", layer=1, head=0)
    tab.open("gpt", **where)
    with serving(str(place / "runs" / "gpt")) as address:
        other = Tab(browser.new_page(), f"{address}/")
        other.page.goto(f"{address}/#{urlencode({'model': 'served/m', **where})}")
        assert_close(other.matrix("attention"), tab.matrix("attention"))
        other.page.goto(f"{address}/docs")
        other.page.locator("#path").select_option("/v1/completions")
        other.page.get_by_role("button", name="Send").click()
        other.page.get_by_text('"text": "The cat"').wait_for()  # this engine repeats its prompt
        other.check()
        other.page.close()


@pytest.mark.parametrize("allowed", [True, False])
def test_a_page_of_another_origin_needs_leave(browser, home, fake_engine, allowed):  # noqa: F811
    """The studio's own page stands for somebody's page elsewhere; it sends what OpenAI's client for browsers sends."""
    origin = home.rstrip("/")
    access = Access(keys=("sk-key",), allowed_origins=(origin,) if allowed else ())
    ask = """async ([address, key]) => {
        const headers = {"content-type": "application/json", "authorization": "Bearer " + key, "x-stainless-lang": "js"}
        const body = JSON.stringify({model: "m", prompt: "The cat"})
        try { return (await fetch(address + "/v1/completions", {method: "POST", headers, body})).status }
        catch { return 0 }
    }"""
    page = browser.new_context(bypass_csp=True).new_page()
    page.goto(home)
    with serving(access=access) as address:
        assert [page.evaluate(ask, [address, key]) for key in ("sk-key", "wrong")] == (
            [200, 401] if allowed else [0, 0]
        )
    page.context.close()
