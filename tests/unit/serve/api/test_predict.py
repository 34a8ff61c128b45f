"""Every task through one endpoint, against `predict` without a server."""

import base64
import csv
import io

import pytest
from PIL import Image

import regard
from regard.tasks.load import open_model
from regard.ticks import Console

INPUTS = {
    "classifier": ["A film worth seeing twice.", "The cat"],
    "pair": [["The cat drank the milk.", "It was hungry."]],
    "tagger": ["Ada met Grace in Paris.", "Server"],
    "transformer": ["The cat drank the milk.", "Server, can I have the check?"],
    "masked": ["The [MASK] drank the [MASK].", "[MASK]"],
    "encoder": ["The cat"],
}


@pytest.mark.parametrize("name", INPUTS)
def test_outputs_are_those_of_the_predictor(http, folders, name):
    task, predictor = open_model(folders / name)
    inputs = [tuple(x) if isinstance(x, list) else x for x in INPUTS[name]]
    expected = [task.to_json(answer) for answer in predictor.predict(inputs)]
    answer = http.post(f"/v1/predict/{name}", json={"inputs": INPUTS[name]}).json()
    assert (answer["model"], answer["task"]) == (name, task.name)
    assert flat(answer["outputs"]) == pytest.approx(flat(expected), abs=1e-5)


def flat(value) -> list:
    """All texts and numbers, in order."""
    if isinstance(value, dict | list):
        return [x for one in (value.values() if isinstance(value, dict) else value) for x in flat(one)]
    return [value]


def test_language_models_answer_greedily(http, folders):
    answer = http.post("/v1/predict/gpt", json={"inputs": ["The cat", "Server"], "options": {"max_tokens": 7}}).json()
    written = regard.load(folders / "gpt").predict(["The cat", "Server"], max_tokens=7, temperature=0)
    assert answer["outputs"] == [{"text": one.text, "finish": one.finish} for one in written]


def test_options_reach_the_predictor(http, folders):
    body = {"inputs": ["The cat drank the milk."], "options": {"beam": 4, "n_best": 3, "length_penalty": 1}}
    output = http.post("/v1/predict/transformer", json=body).json()["outputs"][0]
    (expected,) = regard.load(folders / "transformer").hypotheses(body["inputs"], **body["options"])
    assert [c["text"] for c in output["candidates"]] == [h.text for h in expected]


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("classifier", {"inputs": ["good", " "]}, "inputs[1]: expected a text, got an empty text"),
        ("classifier", {"inputs": [["a", "b"]]}, "inputs[0]: this model was trained on single texts"),
        ("pair", {"inputs": ["one text"]}, "inputs[0]: this model was trained on pairs"),
        ("transformer", {"inputs": ["x"], "options": {"beams": 2}}, "no option 'beams'; did you mean 'beam'?"),
        ("transformer", {"inputs": ["x"], "options": {"beam": 0}}, "beam is 0; must be between 1 and 32"),
        ("transformer", {"inputs": ["x"], "options": {"beam": "2"}}, "beam is '2'; expected a whole number"),
        ("transformer", {"inputs": []}, "inputs: List should have at least 1 item"),
        ("transformer", {"input": ["x"]}, "no field 'input'; did you mean 'inputs'?"),
        ("masked", {"inputs": ["no gap"]}, "no [MASK] in the text"),
        ("series", {"inputs": [{"file": "AAAA", "rows": []}]}, "inputs[0]: rows stands alone; leave out file"),
        ("series", {"inputs": [{"file": "UEsDBA==", "name": "x.npz"}]}, "a .npz file may hold a table of any size"),
        (
            "series",
            {"inputs": [{"file": "H4sIAA==", "name": "x.csv"}]},
            "the file is compressed, so its size is unbounded",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_bad_inputs_are_named_by_their_place(http, name, body, message):
    answer = http.post(f"/v1/predict/{name}", json=body)
    assert answer.status_code == 400 and message in answer.json()["error"]["message"]


def test_explanations_are_alignments_of_translations(http, folders):
    from regard.explain.alignment import align_pieces, choose

    body = {"inputs": ["The cat drank the milk.", "Server"], "options": {"beam": 1}, "explain": True}
    answer = http.post("/v1/predict/transformer", json=body).json()
    translator = regard.load(folders / "transformer")
    for source, output, alignment in zip(body["inputs"], answer["outputs"], answer["explanations"], strict=True):
        look = translator.attention(source, output["text"])
        expected = align_pieces(choose(look.weights), look.source, look.target, translator.tokenizer)
        assert alignment["source"] == list(expected.source) and alignment["links"] == expected.pharaoh()
        assert [sum(row) for row in alignment["weights"]] == pytest.approx([1] * len(expected.target), abs=1e-2)
    for name in ("classifier", "gpt"):
        refused = http.post(f"/v1/predict/{name}", json={"inputs": ["x"], "explain": True})
        assert refused.status_code == 400 and "explain is not for" in refused.json()["error"]["message"]


# Of models that read files: a file that holds one input.
ONE = {
    "vit": ("x.png", lambda data: (data / "photos/light/1.png").read_bytes()),
    "captioner": ("x.png", lambda data: (data / "photos/dark/0.png").read_bytes()),
    "series": ("x.csv", lambda data: b"".join((data / "curves.csv").read_bytes().splitlines(True)[:7])),
    "forecaster": ("x.csv", lambda data: (data / "prices.csv").read_bytes()),
}


@pytest.mark.parametrize("name", ONE)
def test_files_are_read_from_base64_and_from_forms(http, folders, tmp_path, name):
    file, read = ONE[name]
    content = read(folders / "data")
    (tmp_path / file).write_bytes(content)
    task, predictor = open_model(folders / name)
    inputs = task.parse_inputs(predictor, [str(tmp_path / file)], Console(quiet=True))
    expected = flat([task.to_json(answer) for answer in predictor.predict(inputs)])
    body = {"inputs": [{"file": base64.b64encode(content).decode(), "name": file}]}
    for answer in (
        http.post(f"/v1/predict/{name}", json=body),
        http.post(f"/v1/predict/{name}", files={"file": (file, content)}),
    ):
        assert answer.status_code == 200, answer.text
        assert flat(answer.json()["outputs"]) == pytest.approx(expected, abs=1e-4)
    if file.endswith(".csv"):
        rows = [dict(row) for row in csv.DictReader(io.StringIO(content.decode()))]
        answer = http.post(f"/v1/predict/{name}", json={"inputs": [{"rows": rows}]}).json()
        assert flat(answer["outputs"]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ["vit", "captioner", "series"])
def test_explanations_are_where_the_model_looked(http, folders, name):
    """Weights that sum to 1, over the patches of an image or the points of a series."""
    file, read = ONE[name]
    files = {"file": (file, read(folders / "data"))}
    answer = http.post(f"/v1/predict/{name}", files=files, data={"explain": "true"}).json()
    (explanation,) = answer["explanations"]
    looks = [one["patches"] for one in explanation] if isinstance(explanation, list) else [*explanation.values()]
    for look in looks:
        assert sum(flat(look)) == pytest.approx(1, abs=1e-2) and min(flat(look)) >= 0


def test_rows_of_a_table_are_inputs(http, folders):
    rows = [{"hours": 8, "school": "north"}, {"hours": None}, {"school": "south", "hours": "1"}]
    outputs = http.post("/v1/predict/rows", json={"inputs": rows}).json()["outputs"]
    expected = regard.load(folders / "rows").predict(
        [{"hours": "8", "school": "north"}, {}, {"school": "south", "hours": "1"}]
    )
    assert [one["label"] for one in outputs] == [one.label for one in expected]
    refused = http.post("/v1/predict/rows", json={"inputs": [{"hour": 8}]})
    assert refused.status_code == 400 and "hour" in refused.json()["error"]["message"]


def test_an_image_of_too_many_pixels_is_refused(http):
    """Its header is enough: a bomb is never decoded."""
    for size, status in ((300, 200), (301, 422), (12_000, 422)):
        picture = io.BytesIO()
        Image.new("1", (size, size)).save(picture, "png")
        answer = http.post("/v1/predict/vit", files={"file": ("x.png", picture.getvalue())})
        assert answer.status_code == status, answer.text
    assert "inputs[0]: the file has 144,000,000 pixels; this server allows at most 90,000" in answer.text
    broken = http.post("/v1/predict/vit", files={"file": ("x.png", b"no image")}).json()["error"]
    assert broken["message"] == "inputs[0]: input.png: cannot be read; it is damaged or not an image"
