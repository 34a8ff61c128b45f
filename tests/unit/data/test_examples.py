"""Tables and CoNLL files as people keep them, and what is said of broken ones."""

import gzip
import json

import pytest

from regard.data.examples import read_examples, read_tagged
from regard.data.tables import read_table
from regard.data.targets import TARGETS
from regard.errors import DataError

HEADER = "id,review,sentiment\n"


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


def found(path, **columns):
    return [(e.text, e.label) for e in read_examples(path, **columns)]


def test_csv_columns_go_by_name_whatever_their_order_and_quotes(write):
    path = write("r.csv", HEADER + '1,"good, very",pos\n2,"two\nlines",neg\n')
    assert found(path, text="review", label="sentiment") == [("good, very", "pos"), ("two\nlines", "neg")]
    assert found(path, text="Review", label="SENTIMENT") == found(path)  # usual names are found unasked
    assert found(path, text="2", label="3") == found(path)


def test_a_tsv_without_header_is_text_then_label(write):
    """As SST-2 comes: quotes are letters, and no line is lost."""
    assert found(write("s.tsv.gz", 'a "fine" film\t1\ndull\t0\nbetter\t1\n')) == [
        ('a "fine" film', "1"),
        ("dull", "0"),
        ("better", "1"),
    ]


def test_a_header_of_unusual_names_is_told_by_what_never_comes_again(write):
    path = write("r.csv", "utterance,stars\ngood,5\nbad,1\nfine,5\n")
    assert read_table(path).columns == ["utterance", "stars"]
    assert found(path) == [("good", "5"), ("bad", "1"), ("fine", "5")]


def test_jsonl_and_pairs(write):
    rows = [{"premise": "a", "hypothesis": "b", "label": 1}, {"premise": "c", "hypothesis": "d", "label": 0}]
    path = write("p.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
    assert [(e.text, e.second, e.label) for e in read_examples(path, pairs=True)] == [("a", "b", "1"), ("c", "d", "0")]
    path = write("p.tsv", "a\tb\tyes\nc\td\tno\ne\tf\tyes\n")
    assert next((e.text, e.second, e.label) for e in read_examples(path, pairs=True)) == ("a", "b", "yes")


@pytest.mark.parametrize(
    ("name", "text", "columns", "message"),
    [
        ("r.csv", HEADER + "1,a,b\n", dict(text="body"), "no column 'body'; there are: id, review, sentiment"),
        (
            "r.csv",
            "a,b,c\n1,x,y\n2,z,w\n",
            {},
            "there are: a, b, c; call it 'text', or type --text NAME",
        ),
        ("r.csv", HEADER + "1,good\n", {}, "line 2: 2 columns, expected 3"),
        ("r.csv", HEADER + "1,good,\n", {}, "line 2: no label"),
        ("r.csv", "avis\nbon\nbof\n", {}, "1 column, expected 2: text and label, separated by commas"),
        (
            "r.csv",
            "avis;note\nbon;1;2\nbof;0\n",
            {},
            "expected 2 as in the first row, separated by a semicolon",
        ),
        ("r.csv", HEADER + '1,"open,pos\n', {}, "line 2: not CSV"),
        ("r.csv", "", {}, "empty"),
        ("r.jsonl", '{"text": "a", "label": "b"}\n{"text"\n', {}, "line 2: not JSON"),
        ("r.jsonl", "[1]\n", {}, "line 1: expected an object"),
        ("r.csv", HEADER + "1,a,b\n", dict(text="review", label="review"), "different columns"),
    ],
)
def test_broken_tables_are_named_by_file_and_line(write, name, text, columns, message):
    with pytest.raises(DataError) as e:
        read_examples(write(name, text), **columns)
    assert message in str(e.value) and name in str(e.value)


def test_conll_sentences_end_at_white_space(write):
    """WNUT-17 ends them by a line with a lone tab; a hash opens a word there and not a remark."""
    path = write("w.conll", "Ada\tB-person\n#met\tO\n\t\nParis\tB-location\n\n\n")
    assert [(s.words, s.tags, s.line) for s in read_tagged(path)] == [
        (("Ada", "#met"), ("B-person", "O"), 1),
        (("Paris",), ("B-location",), 4),
    ]
    path = write("four.conll", "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nsays VBZ I-VP O\n")
    assert read_tagged(path)[0].tags == ("B-ORG", "O")
    assert read_tagged(path, label="2")[0].tags == ("NNP", "VBZ")


def test_conllu_gives_the_universal_tag_of_each_word(write):
    rest = "\t_" * 4
    lines = ["# text = don't", f"1-2\tdon't\t_\t_\t_\t_{rest}", f"1\tdo\tdo\tAUX\tVBP\t_{rest}"]
    lines += [f"2\tn't\tnot\tPART\tRB\t_{rest}", f"2.1\tgone\t_\t_\t_\t_{rest}", ""]
    path = write("u.conllu.gz", "\n".join(lines))
    (sentence,) = read_tagged(path)
    assert sentence.words == ("do", "n't") and sentence.tags == ("AUX", "PART")
    assert read_tagged(path, label="xpos")[0].tags == ("VBP", "RB")


def test_tagged_jsonl(write):
    path = write("t.jsonl", json.dumps({"tokens": ["Ada", "met"], "ner_tags": ["B-PER", "O"]}) + "\n")
    assert read_tagged(path)[0].tags == ("B-PER", "O")
    path = write("t.json", json.dumps([{"tokens": ["Ada", "met"], "ner_tags": ["B-PER", "O"]}], indent=1))
    assert [(s.words, s.tags, s.line) for s in read_tagged(path)] == [(("Ada", "met"), ("B-PER", "O"), 2)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("w.conll", "Ada\tB-person\nmet\n", "line 2: malformed CoNLL line, expected 2 columns, got 'met'"),
        ("w.conll", "Ada\tB-person\nmet\t\n", "line 2"),
        ("w.conll", "Ada\n", "line 1: malformed CoNLL line, expected a word and its tag"),
        ("w.conll", "\n\n", "no sentence"),
        ("u.conllu", "Ada\tPROPN\n", "line 1: expected a CoNLL-U line"),
        ("t.jsonl", '{"tokens": ["a"], "tags": []}\n', "line 1: 1 words but 0 tags"),
        ("t.jsonl", '{"tokens": "a", "tags": []}\n', "expects a list"),
        ("t.jsonl", '{"x": "a"}\n', "which column holds the texts? there are: x"),
    ],
)
def test_broken_tags_are_named_by_file_and_line(write, name, text, message):
    with pytest.raises(DataError) as e:
        read_tagged(write(name, text))
    assert message in str(e.value) and name in str(e.value)


def test_columns_chosen_by_their_names_are_reported(tmp_path):
    path, messages = tmp_path / "x.csv", []
    path.write_text("id,review,sentiment\n1,good,pos\n2,bad,neg\n")
    read_examples(path, say=messages.append)
    read_examples(path, text="review", label="sentiment", say=messages.append)
    assert messages == [f"{path}: text from 'review', label from 'sentiment'"]


def test_numbers_of_texts_are_written_plainly(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("text\tstars\ngood\t4,5\nbad\t1,25\n")
    rows = read_examples(path, label="stars", check=TARGETS["numbers"].fault, numbers=True)
    assert [row.label for row in rows] == ["4.5", "1.25"]
