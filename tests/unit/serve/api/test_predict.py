"""Every task through one endpoint, against `predict` without a server."""

import pytest

import regard
from regard.tasks.load import open_model

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
