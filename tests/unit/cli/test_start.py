"""`regard start`: which tasks fit a file or folder, and the commands it prints."""

import json
import shlex

import pytest
import typer.core
from tests.system.cli_toy import regard, works

TEXT = "a long film about number {}"
TABLES = {
    "reviews.csv": ("id,review,sentiment,stars", [f"{i},{TEXT.format(i)},{'pn'[i % 2]},{i % 5}" for i in range(40)]),
    "houses.csv": ("rooms,area,city,price", [f"{i % 9},{i}.5,{'AB'[i % 2]},{i * 1001}" for i in range(40)]),
    "sales.csv": ("date,sales", [f"2026-01-{i + 1:02d},{i}.5" for i in range(28)]),
    "stores.csv": ("date,store,sold", [f"2026-01-{i // 2 + 1:02d},{'AB'[i % 2]},{i}.5" for i in range(60)]),
    "faq.csv": ("question,answer", [f"{TEXT.format(i)},{TEXT.format(i + 1)}" for i in range(40)]),
    "sentences.csv": ("source;target", [f"{TEXT.format(i)};{TEXT.format(i + 1)}" for i in range(40)]),
    "offers.csv": ("price;size", [f"€ {i + 90}.500;{i},5" for i in range(40)]),
    "pairs.csv": ("first,second,same", [f"{TEXT.format(i)},{TEXT.format(i + 1)},{'yn'[i % 2]}" for i in range(40)]),
    "films.csv": ("plot,genres", [f"{TEXT.format(i)},{'drama|war' if i % 2 else 'war'}" for i in range(40)]),
    "curves.csv": ("object,mjd,flux,class", [f"{i // 9},{i}.5,{i}.25,{'ab'[i // 20]}" for i in range(40)]),
    "clips.csv": ("file,label", [f"{i}.wav,{'yn'[i % 2]}" for i in range(40)]),
    "captions.tsv": ("file\tcaption", [f"{i}.png\t{TEXT.format(i)}" for i in range(40)]),
}
FILES = {
    "chat.jsonl": json.dumps({"prompt": "Who wrote this?", "completion": "Somebody."}) + "\n",
    "sharegpt.json": json.dumps(
        [{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]}]
    ),
    "news.jsonl": json.dumps({"text": "A long report on it.", "summary": "A report."}) + "\n",
    "book.txt": "Once upon a time.\n",
    "train.en": "a cat\n",
    "train.de": "eine Katze\n",
    "words.conll": "Ada B-PER\n",
    "photos/cat/1.png": "",
    "photos/dog/1.png": "",
    "speech/1.wav": "",
    "words/yes/1.mp3": "",
    "words/no/1.mp3": "",
    "words/notes.txt": "recorded at home\n",
}
EXPECTED = {
    "reviews.csv": ["classify", "regress", "embed"],
    "houses.csv": ["table", "regress-table"],
    "sales.csv": ["forecast"],
    "stores.csv": ["forecast"],
    "faq.csv": ["embed"],
    "sentences.csv": ["translate", "embed"],
    "sharegpt.json": ["lm"],
    "words": ["audio", "transcribe"],
    "pairs.csv": ["pair", "embed"],
    "films.csv": ["multilabel", "embed"],
    "curves.csv": ["series", "fill-series"],
    "clips.csv": ["audio"],
    "captions.tsv": ["caption", "embed"],
    "chat.jsonl": ["lm", "embed"],
    "news.jsonl": ["lm", "summarise", "embed"],
    "book.txt": ["lm", "mlm", "embed"],
    "train.en": ["translate"],
    "words.conll": ["tag"],
    "photos": ["image"],
    "speech": ["transcribe"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("place")
    for name, (head, rows) in TABLES.items():
        (folder / name).write_text("\n".join([head, *rows]) + "\n")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.mark.parametrize("name", EXPECTED)
def test_start_lists_the_tasks_that_fit_and_commands_that_parse(name, place, monkeypatch):
    fits = json.loads(works("start", name, "--json").out)
    assert sorted(fit["task"] for fit in fits) == sorted(EXPECTED[name])
    monkeypatch.setattr(typer.core.TyperCommand, "invoke", lambda self, ctx: None)
    for command in (command for fit in fits for command in fit["commands"]):
        works(*shlex.split(command)[1:])


def test_command_of_start_trains_on_the_right_columns(place):
    command = works("start", "houses.csv").lines[-1].split()
    assert command == ["regard", "train", "regress-table", "--data", "houses.csv", "--label", "price"]
    assert "houses.csv" in works(*command[1:], "--dry-run", "--device=cpu").out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stores.csv", "--target sold --series store --horizon 1"),
        ("faq.csv", "finetune minilm embed --data faq.csv --text question --second answer"),
        ("sentences.csv", "--source sentences.csv --target sentences.csv"),
        ("offers.csv", "regress-table --data offers.csv --label price"),
    ],
)
def test_start_names_the_columns_of_a_table(name, words, place):
    assert words in works("start", name).out


def test_nothing_runs_without_a_choice_at_a_terminal(place):
    assert works("start", "houses.csv", typed="1\n").out.endswith("--label price\n")
    assert "none: " in works("start", "houses.csv", typed="\n", terminal=True).out
    result = regard("start", "houses.csv", typed="7\n", terminal=True)
    assert result.code == 2 and "7 is not in the list" in result.err


def test_the_chosen_command_is_run(place, monkeypatch):
    calls = []
    monkeypatch.setattr("regard.cli.train.train_runs", lambda ctx, *words, **values: calls.append(words))
    works("start", "houses.csv", typed="2\n", terminal=True)
    assert [words[:2] for words in calls] == [("regress-table", "houses.csv")] and calls[0][2]["label"] == "price"


def test_start_asks_for_a_file_at_a_terminal(place):
    assert "sales.csv --target sales" in works("start", typed="sales.csv\n\n", terminal=True).out
    assert "Usage: regard" in works("start", typed="\n", terminal=True).out
    assert "Usage: regard" in works("start").out


def test_files_that_fit_no_task_are_an_error(place):
    (place / "odd.csv").write_text("a,b\nx1,y1\nx2,y2\nx3,y3\n")
    result = regard("start", "odd.csv")
    assert result.code == 2 and "no task fits odd.csv (columns: a (words), b (words))" in result.err
    assert "no file or folder nowhere" in regard("start", "nowhere").err


def test_unknown_models_name_the_list_of_models(place):
    assert "regard model list" in regard("embed", "minilmm", "book.txt", "--out=x.npy").err
    assert "regard model list" in regard("embed", "nowhere", "book.txt", "--out=x.npy").err
