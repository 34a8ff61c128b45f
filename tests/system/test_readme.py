"""README.md and the pages under docs/ keep their word: commands parse, the Python runs, links and pictures exist."""

import re
import shlex
from pathlib import Path

import pytest
import typer.core
from tests.system.cli_toy import works

from regard import api
from regard.tasks.registry import TASKS

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]


def text_of(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def commands(page: str) -> list[str]:
    """Every `regard …` of the page: lines of code blocks without their comments, and code in running text."""
    text = text_of(page)
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    inline = re.findall(r"`(regard [^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    code = [part for line in lines for part in line.removeprefix("$ ").split(" ; ")]
    code = [re.sub(r"^(srun )?torchrun .* -m regard ", "regard ", line) for line in code]
    return [c for c in (*code, *inline) if re.match(r"regard [a-z]", c) and "…" not in c]


def words_of(command: str) -> list[str]:
    words = shlex.split(command, comments=True)[1:]
    return [w for i, w in enumerate(words) if w not in "<>" and (i == 0 or words[i - 1] not in "<>")]


def bare(command: str) -> bool:
    """A verb that is only mentioned: no option and no argument."""
    return len(words_of(command)) < 2 or command in ("regard data get", "regard model get")


@pytest.mark.parametrize("page", PAGES)
def test_commands_on_a_page_parse(page, monkeypatch):
    """Verbs, tasks, options and values are those of the command line; nothing is run."""
    monkeypatch.setattr(typer.core.TyperCommand, "invoke", lambda self, ctx: None)
    written = [c for c in commands(page) if not (bare(c) or re.search(r"\bRUN\b|translate --alignment$", c))]
    for command in written:
        works(*words_of(command))
    for command in filter(bare, commands(page)):
        works(*words_of(command), "--help")
    assert len(written) >= {"README.md": 25, "docs/tour.md": 60, "docs/lectures.md": 60}.get(page, 1)


@pytest.mark.parametrize("page", PAGES)
def test_links_and_pictures_of_a_page_exist(page):
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text_of(page)):
        assert link.startswith("https://") or (ROOT / page).parent.joinpath(link).exists(), link
    for other, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", text_of(page)):
        target = (ROOT / page).parent / other if other else ROOT / page
        headings = re.findall(r"^##+ (.+)$", target.read_text("utf-8"), re.M)
        assert anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}, anchor


def test_readme_names_every_task_in_its_table():
    trained = set(re.findall(r"`regard (?:train|finetune \S+) ([a-z-]+) ", text_of("README.md")))
    media = {name for name in TASKS if name.split("-")[0] in ("regress", "multilabel") and "-" in name}
    assert trained >= {name for name, task in TASKS.items() if task.archs or task.can_finetune} - media
    for verb in ("embed", "transcribe"):
        assert f"`regard {verb}`" in text_of("README.md")


def test_readme_names_the_test_command_that_ci_runs():
    assert re.search(r"^make test\b", text_of("README.md"), re.M)
    assert "exec make test" in (ROOT / ".ci" / "run").read_text()


def test_readme_python_trains_loads_predicts_and_draws(tmp_path, monkeypatch, capsys):
    words = [("good", "pos"), ("bad", "neg")]
    rows = [f"a {word} film about number {i},{label}" for word, label in words for i in range(20)]
    (tmp_path / "reviews.csv").write_text("\n".join(["review,sentiment", *rows]))
    full = api.train

    def short(*words, **how):
        return full(*words, **how, steps=2, settings={"schedule.warmup": 1}, quiet=True)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(api, "train", short)
    (code,) = re.findall(r"^```python\n(.*?)^```", text_of("README.md"), re.M | re.S)
    exec(compile(code, "README.md", "exec"), {})
    answers = capsys.readouterr().out.splitlines()
    assert all(re.match(r"(pos|neg) \{'neg': 0\.\d+, 'pos': 0\.\d+\}", a) for a in answers[:2])
    assert answers[2] == "on its own validation set, 4 texts"
    assert (tmp_path / "film.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "wrong", ["regard train poem --data x", "regard look runs/x text", "regard predict a b --ou c"]
)
def test_a_command_that_does_not_exist_would_be_noticed(wrong, monkeypatch):
    monkeypatch.setattr(typer.core.TyperCommand, "invoke", lambda self, ctx: None)
    with pytest.raises(AssertionError):
        works(*words_of(wrong))
