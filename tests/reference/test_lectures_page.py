"""docs/lectures.md keeps its word: its code runs and prints what it says, its tables, figures and links are true."""

import doctest
import re
from pathlib import Path

import pytest
import torch

from regard.models import build
from regard.nn.masks import Causal
from regard.tasks.plan import load_recipe
from regard.training.schedule import lr_at

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "lectures.md"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text("utf-8")


@pytest.fixture
def _usual_printing():
    yield
    torch.set_printoptions(profile="default")


@pytest.mark.usefixtures("_usual_printing")
def test_the_code_prints_what_the_page_says(page):
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.M | re.S))
    examples = doctest.DocTestParser().get_doctest(code, {}, PAGE.name, str(PAGE), 0)
    messages: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(examples, out=messages.append)
    assert result.attempted > 40
    assert not result.failed, "".join(messages)


def test_the_causal_table_is_the_mask(page):
    rows = re.findall(r"^\| \*\*(\w+)\*\* \|(.*)\|$", page, re.M)
    assert [word for word, _ in rows] == ["Lass", "uns", "diesen", "Satz", "uebersetzen"]
    drawn = [[mark.strip() == "x" for mark in marks.split("|")] for _, marks in rows]
    assert drawn == Causal(5).dense().tolist()


def test_figures_exist_are_small_and_are_all_shown(page):
    shown = {PAGE.parent / path for path in re.findall(r"!\[[^]]+\]\((figures/[^)]+)\)", page)}
    drawn = re.findall(r'FOLDER / "(\w+\.png)"', (PAGE.parent / "figures.py").read_text("utf-8"))
    assert {path.name for path in shown} >= set(drawn) and len(drawn) >= 4
    for path in shown:
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size < 60_000, path.name


def test_links_tests_and_modules_on_the_page_exist(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page):
        assert (PAGE.parent / link).exists(), link
    headings = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^## (.+)$", page, re.M)}
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= headings
    for path in re.findall(r"`((?:nn|models|explain|tests|recipes|docs)/[\w/.]*)`", page):
        assert (ROOT / path).exists() or (ROOT / "src" / "regard" / path).exists(), path
    tests = "\n".join(f.read_text("utf-8") for f in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", page):
        assert f"def {name}(" in tests, name


def test_the_preset_has_the_papers_settings():
    """Sections 5.1 to 5.4 and table 3; the rate of equation 3 peaks at the end of warm-up."""
    run = load_recipe(ROOT / "recipes" / "vaswani2017.py")["vaswani2017"]
    m, o = run.model, run.optim
    assert (m.width, m.ffn, m.heads, m.encoder_layers, m.decoder_layers) == (512, 2048, 8, 6, 6)
    assert (m.vocab, run.data.vocab, m.dropout, m.norm, m.activation) == (37_000, 37_000, 0.1, "post", "relu")
    assert (o.name, o.betas, o.eps, o.weight_decay, run.smoothing) == ("adam", (0.9, 0.98), 1e-9, 0.0, 0.1)
    assert (run.steps, run.schedule.warmup, run.tokens * run.accumulate) == (100_000, 4000, 25_000)
    for step in (1, 3999, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert lr_at(run.schedule, step, run.steps, m.width, o.lr) == pytest.approx(expected)
    with torch.device("meta"):
        count = sum(p.numel() for p in build(m).parameters())
    assert count == pytest.approx(65e6, rel=0.03)
