"""The studio in a real browser, whoever looks and however: by keys, by address, on a narrow screen, with odd texts."""

import csv
import gzip
import io
import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image
from tests.system.studio import toy
from tests.system.studio.toy import NEAR, PAGE, TEXTS, Tab
from torch.testing import assert_close

from regard.inside import look as looking
from regard.inside.looked import Question
from regard.serve import saved as carried

AXE = Path(__file__).parents[3] / "studio" / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = {
    "gpt": ["tokens", "embedding", "search", "attention", "pair", "next", "training"],
    "translator": ["attention", "translation"],
    "lstm": ["recurrent"],
    "bert": ["labels"],
    "sentences": ["labels"],
    "tagger": ["labels"],
    "classifier": ["labels"],
    "vit": ["input"],
    "students": ["input"],
}
EVERY = [(run, view) for run, views in VIEWS.items() for view in views]


def test_by_keyboard_alone(tab):
    tab.open("gpt", "attention", text=TEXTS["gpt"], layer=0, head=0, query=0)
    press = tab.page.keyboard.press
    title = tab.figure("attention").locator("h2")
    for key, expected in (
        ("]", "Layer 2, head 1"),
        (".", "Layer 2, head 2"),
        ("[", "Layer 1, head 2"),
        (",", "Layer 1, head 1"),
    ):
        press(key)
        assert title.text_content() == expected
    tab.page.locator("[role=radio][aria-checked=true]").focus()
    press("ArrowDown")
    press("ArrowRight")
    assert title.text_content() == "Layer 2, head 2"
    tab.page.get_by_role("application").focus()
    for _ in range(3):
        press("ArrowDown")
    press("ArrowRight")
    assert tab.state()["query"] == "3"
    assert "→" in tab.figure("attention").locator("[aria-live]").text_content()
    press("?")
    assert tab.page.get_by_role("dialog").is_visible()
    press("Escape")
    assert not tab.page.get_by_role("dialog").is_visible()
    press("/")
    press("Control+A")
    tab.page.keyboard.type("a dog?")
    press("Enter")
    tab.page.locator("[role=option]").nth(6).wait_for(state="detached")  # six tokens are left
    assert "".join(tab.page.locator("[role=option]").all_text_contents()).replace(" ", "") == "a␣dog?"
    seen = set()
    for _ in range(60):  # Tab goes everywhere and is caught nowhere
        press("Tab")
        seen.add(tab.page.evaluate("document.activeElement.outerHTML.slice(0, 90)"))
    assert len(seen) > 15
    press("1")
    tab.figure("tokens-text").wait_for()


def test_the_address_restores_the_state(tab, browser, home):
    tab.open("gpt", "attention", text="the dog ran", layer=1, head=0, query=4)
    tab.page.get_by_label("Scaled").check()
    tab.page.get_by_label("Links").check()
    tab.page.locator("[role=option]").nth(7).click()
    before = tab.matrix("attention")
    other = Tab(browser.new_page(), home)
    other.page.goto(tab.page.url)
    other.idle()
    assert_close(other.matrix("attention"), before, equal_nan=True)
    assert other.state() == tab.state() and other.state()["query"] == "7"
    assert other.page.get_by_label("Scaled").is_checked() and other.page.get_by_label("Links").is_checked()
    assert other.page.locator("#text").input_value() == "the dog ran"
    other.page.close()
    other.check()


def test_choosing_a_token_branches_and_back_returns(tab, model):
    tab.open("gpt", "next", text=TEXTS["gpt"])
    first = tab.figure("next-token").locator("button.word").first
    word = first.text_content().replace("␣", " ").replace("⏎", "\n")
    first.click()
    tab.page.get_by_role("button", name="Back").wait_for()
    assert tab.page.locator("#text").input_value() == TEXTS["gpt"] + word
    tab.page.get_by_role("button", name="Back").click()
    tab.idle()
    assert tab.page.locator("#text").input_value() == TEXTS["gpt"]


def saved(tab: Tab, figure: str, kind: str) -> Path:
    with tab.page.expect_download() as waiting:
        tab.figure(figure).get_by_role("button", name=kind).click()
    assert waiting.value.suggested_filename == f"{figure}.{kind.lower()}"
    return Path(waiting.value.path())


def test_a_figure_is_saved_as_csv_svg_png_and_html(tab, browser, home, tmp_path):
    tab.open("gpt", "attention", text=TEXTS["gpt"], layer=1, head=1)
    shown = tab.matrix("attention")
    rows = list(csv.reader(io.StringIO(saved(tab, "attention", "CSV").read_text("utf-8-sig"))))
    assert_close(torch.tensor([[float(x) for x in row[1:]] for row in rows[1:]]), shown)

    drawing = ElementTree.parse(saved(tab, "attention", "SVG")).getroot()
    texts = ["".join(node.itertext()) for node in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert "Layer 2, head 2" in " ".join(texts) and "␣" in texts
    assert not [n for n in drawing.iter() if n.tag.endswith(("script", "foreignObject"))]

    picture = Image.open(saved(tab, "attention", "PNG")).convert("RGB")
    assert picture.width > 800 and len(picture.getcolors(1 << 24)) > 50

    page = tmp_path / "attention.html"
    shutil.copy(saved(tab, "attention", "HTML"), page)
    other = Tab(browser.new_page(), page.as_uri())
    other.page.goto(page.as_uri())
    assert other.page.evaluate("performance.getEntriesByType('resource').length") == 0
    assert_close(other.matrix("attention"), shown)
    other.page.get_by_role("button", name="Next token").click()
    assert len(other.table("next-token")) > 100
    other.page.close()
    other.check()


def test_regard_look_writes_the_same_page(tab, browser, place, tmp_path, model):
    out = tmp_path / "look.html"
    toy.works("look", place / "runs" / "gpt", "</script><b>the cat", "--out", out)
    other = Tab(browser.new_page(), out.as_uri())
    other.page.goto(out.as_uri())
    writer = model("gpt")
    assert other.page.locator("#text").input_value() == "</script><b>the cat"
    other.page.get_by_role("button", name="Next token").click()
    with torch.inference_mode():
        expected = writer.model.logits(writer.hidden(writer.encode("</script><b>the cat"))[-1]).softmax(-1)
    rows = other.table("next-token")[1:]
    assert_close(torch.tensor([float(r[4]) for r in rows]), expected[[int(r[2]) for r in rows]], **NEAR)
    other.page.close()
    other.check()


def test_what_is_shown_belongs_to_the_text_that_stands_there(tab):
    tab.open("gpt", "tokens", text="the cat")
    held = []
    tab.page.route("**/api/look", lambda route: held.append(route))
    tab.page.locator("#text").fill("the cat sat")
    tab.page.locator("#view[aria-busy=true]").wait_for()
    tab.page.locator("#text").fill("the cat")  # as it was, before the other one is answered
    tab.idle()
    with tab.page.expect_response("**/api/look"):
        held.pop().continue_()
    tab.page.wait_for_timeout(200)
    assert "".join(tab.page.locator("[role=option] .text").all_text_contents()) == "the␣cat"

    tab.page.unroute("**/api/look")
    tab.open("tagger", "labels", text=TEXTS["tagger"])
    tab.page.route("**/api/look", lambda route: held.append(route))
    tab.page.locator("#text").fill("Oh, " + TEXTS["tagger"])
    tab.page.locator("#view[aria-busy=true]").wait_for()
    shown = tab.page.locator(".tagged > *").evaluate_all("all => all.map(e => (e.children[0] ?? e).textContent)")
    assert "".join(shown) == TEXTS["tagger"], "the tags are of this text still"
    held.pop().continue_()
    tab.idle()


def test_a_question_beside_the_look_does_not_stop_it(tab):
    tab.open("gpt", "embedding", text="the cat")
    held = []
    tab.page.route("**/api/look", lambda route: held.append(route))
    tab.page.locator("#text").fill("the cat sat")
    tab.page.locator("#view[aria-busy=true]").wait_for()
    tab.page.get_by_role("button", name="Shuffle and compare").click()
    tab.page.wait_for_timeout(200)
    held.pop().continue_()
    tab.idle()
    assert len(tab.table("permute")) == 1 + tab.page.locator("[role=option]").count()


def test_a_shorter_text_leaves_no_word_behind(tab):
    tab.open("sentences", "pair", text="the cat sat", second="the dog sat")
    tab.page.get_by_role("group", name="Words of the first text").get_by_text("sat").click()
    tab.page.locator("#text").fill("cat")
    tab.page.locator("#second").fill("a cat")
    tab.figure("pair-cosine").get_by_text("of “cat” in the first text and of “cat” in the second").wait_for()


def test_a_word_that_nothing_changes_is_not_said_to_change(tab):
    tab.open("gpt", "pair", text="the cat sat", second="the dog sat", wordA=0, wordB=0)
    tab.figure("pair-occlusion").wait_for()
    assert "changes most" not in tab.figure("pair-occlusion").text_content(), "nothing stands before the first word"
    tab.page.get_by_role("group", name="Words of the first text").get_by_text("sat").click()
    tab.page.get_by_role("group", name="Words of the second text").get_by_text("sat").click()
    tab.figure("pair-occlusion").get_by_text("changes most when").wait_for()


def test_states_of_the_text_before_are_not_drawn_for_this_one(tab):
    tab.open("lstm", "recurrent", text="the cat sat on the mat")
    held = []
    tab.page.route("**/api/recurrent*", lambda route: held.append(route))
    with tab.page.expect_request("**/api/recurrent*"):
        tab.page.locator("#text").fill("the cat")
    tab.page.wait_for_timeout(200)  # an error of the page would be noticed when the tab is checked
    held.pop().continue_()
    assert len(tab.table("unrolled")) == 1 + tab.page.locator("[role=option]").count()


def test_keys_reach_every_matrix_and_leave_the_browsers_alone(tab):
    tab.open("gpt", "embedding", text=TEXTS["gpt"])
    press = tab.page.keyboard.press
    for name, said in (("similarity-of-places", "places 1 and 1: "), ("positions", "place 1, dimension 1: ")):
        tab.figure(name).get_by_role("application").focus()
        press("ArrowDown")
        press("ArrowRight")
        assert tab.figure(name).locator(".said").text_content().startswith(said)
    tab.open("gpt", "attention", text=TEXTS["gpt"], layer=0, head=0)
    tab.page.get_by_label("Scaled").focus()
    press("Control+]")
    assert tab.figure("attention").locator("h2").text_content() == "Layer 1, head 1"
    # as a keyboard types it that has ] on AltGr
    how = "{key: ']', ctrlKey: true, altKey: true, modifierAltGraph: true, bubbles: true}"
    tab.page.evaluate(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {how}))")
    assert tab.figure("attention").locator("h2").text_content() == "Layer 2, head 1"


def test_hidden_weight_is_told_of_weights_alone(tab):
    tab.open("sentences", "attention", text="the cat sat", hide="true")
    tab.figure("attention").get_by_text("Hidden: on average").wait_for()
    tab.page.get_by_label("Scores q·k").check()
    tab.figure("attention").get_by_text("Hidden: on average").wait_for(state="detached")


def test_an_address_of_nonsense_opens(tab, home):
    tab.page.goto(home + "#model=runs/gpt&view=training&runs=%25&layer=x&query=1e9")
    tab.page.get_by_role("checkbox", name="gpt").wait_for()


def test_blocks_of_weights_are_not_taken_for_weights(browser, tmp_path, model, monkeypatch, place):
    monkeypatch.setattr(carried, "ROOM", 0)  # no head came along, but as a thumbnail
    question = Question(text=TEXTS["bahdanau"] * 20, target="le chat voit .")
    page = tmp_path / "long.html"
    page.write_text(
        carried.html(looking.look(model("bahdanau"), question), place / "runs" / "bahdanau", question), "utf-8"
    )
    tab = Tab(browser.new_page(), page.as_uri())
    tab.page.goto(page.as_uri())
    tab.page.get_by_role("button", name="Translation", exact=True).click()
    tab.figure("translation").get_by_text("in blocks only").wait_for()
    tab.figure("translation").locator("summary").click()
    assert tab.figure("translation").locator("tbody tr").count() == 0
    tab.page.close()
    tab.check()


# ---- everybody's page ----------------------------------------------------------------------------------------------


def violations(tab: Tab, **options: object) -> list[str]:
    """What axe-core finds in the page as it is."""
    tab.settle()
    tab.page.evaluate(AXE.read_text("utf-8"))
    report = tab.page.evaluate("options => axe.run(options)", {"resultTypes": ["violations"], **options})
    return [
        f"{tab.state()}: {rule['id']}: {rule['help']} {[node['html'][:120] for node in rule['nodes'][:3]]}"
        for rule in report["violations"]
    ]


def test_every_view_is_accessible_and_every_figure_drawn(browser, home):
    context = browser.new_context(color_scheme="light", bypass_csp=True, reduced_motion="reduce")
    tab = Tab(context.new_page(), home)
    problems = []
    for run, view in EVERY:
        tab.open(run, view, text=TEXTS[run], second="the dog ran")
        assert tab.page.evaluate("document.documentElement.dataset.theme") == "light"
        for figure in tab.page.locator("[data-figure]").all():
            name = figure.get_attribute("data-figure")
            assert ElementTree.parse(saved(tab, name, "SVG")).getroot().tag.endswith("svg")
        if view in ("tokens", "labels"):  # a table is a table: small ones speak for all
            tab.page.locator("summary").first.click()
        problems += violations(tab)
    context.close()
    tab.check()
    assert not problems, "\n".join(problems)


def test_every_view_has_contrast_in_the_dark_and_fits_320_pixels(browser, home):
    """What the theme and the width can change: colours, and whether the page must be scrolled sideways."""
    context = browser.new_context(
        viewport={"width": 320, "height": 800}, color_scheme="dark", bypass_csp=True, reduced_motion="reduce"
    )
    tab = Tab(context.new_page(), home)
    problems = []
    for run, view in EVERY:
        tab.open(run, view, text=TEXTS[run], second="the dog ran")
        assert tab.page.evaluate("document.documentElement.dataset.theme") == "dark"
        tab.settle()
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 320, (run, view)
        if view in ("tokens", "labels"):
            tab.page.locator("summary").first.click()
        problems += violations(tab, runOnly=["color-contrast"])
    context.close()
    tab.check()
    assert not problems, "\n".join(problems)


def test_strange_input_is_answered_in_words(tab, place):
    tab.expected = ("Failed to load resource",)
    tab.open("gpt", "tokens", text='<img src=x onerror="document.title=1">')
    assert "<" in tab.page.locator("[role=option]").first.text_content()
    assert tab.page.title() == "gpt · regard studio"
    tab.page.locator("#text").fill("👩‍👩‍👧‍👦🏳️‍🌈" * 200)
    tab.page.get_by_role("button", name="Look").click()
    tab.page.get_by_text("cut").first.wait_for()
    tab.page.locator("#text").fill("x" * 300_000)
    tab.page.get_by_role("button", name="Look").click()
    assert "too long" in tab.page.get_by_role("alert").text_content()
    shutil.copytree(place / "runs" / "gpt", place / "runs" / "gone")
    tab.open("gone", "tokens", text="here")
    shutil.rmtree(place / "runs" / "gone")
    tab.page.locator("#text").fill("and gone")
    tab.page.get_by_role("button", name="Look").click()
    assert "gone" in tab.page.get_by_role("alert").text_content()
    tab.open("gpt", "next", text="still here")
    assert len(tab.table("next-token")) > 100


def test_a_damaged_model_is_named_and_hides_no_other(tab, place):
    damaged = Path(shutil.copytree(place / "runs" / "gpt", place / "runs" / "damaged"))
    (damaged / "config.json").write_text("[]")
    tab.open("gpt", "tokens", text="here")
    tab.page.get_by_text("1 model folder cannot be read").click()
    assert "damaged: " in tab.page.locator("[data-name=unreadable] li").text_content()
    assert tab.page.locator("#model option").count() > 3
    shutil.rmtree(damaged)


def test_two_tabs_and_one_closed_in_the_middle(tab, browser, home):
    other = Tab(browser.new_page(), home)
    other.page.goto(home + "#model=runs/translator&view=translation&text=the+dog&beam=10")
    other.page.close()
    tab.open("gpt", "tokens", text="one")
    third = Tab(browser.new_page(), home)
    third.open("classifier", "labels", text="a good film")
    assert len(third.table("classes")) == 3 and len(tab.table("tokens-text")) == 4
    third.page.close()


def test_a_running_training_draws_itself(tab, place):
    tab.open("gpt", "training")
    before = len(tab.table("training-loss"))
    events = [json.loads(line) for line in (place / "runs" / "gpt" / "metrics.jsonl").read_text().splitlines()]
    known = [e for e in events if "loss" in e and not e.get("final")]
    assert before == 1 + len(known)
    shown = [float(row[2]) for row in tab.table("training-loss")[1:]]
    assert shown == pytest.approx([e["loss"] for e in known])
    with (place / "runs" / "gpt" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({**known[-1], "step": 999, "loss": 0.125}) + "\n")
    tab.figure("training-loss").get_by_text("0.1250 at step 999").wait_for()


def test_the_page_is_small():
    toy.wanted()
    sizes = [len(gzip.compress(f.read_bytes())) for f in PAGE.rglob("*") if f.is_file()]
    assert len(sizes) >= 4 and sum(sizes) <= 150_000
