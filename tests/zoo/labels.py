"""Bugs of labels: on which piece they stand, what counts, what an entity is."""

from tests.zoo.bug import bugs

TASKS, SCORES = "unit/tasks/test_labels.py", "unit/evaluate/test_labels.py"

LABELS = [
    *bugs(
        "data/labelled.py",
        (
            "every piece of a word has its label",
            "word is None or word == last",
            "word is None",
            "unit/data/test_labelled.py",
        ),
    ),
    *bugs(
        "models/rnn_classifier.py",
        ("the mean is over padding too", "hidden.sum(1) / lengths[:, None]", "hidden.mean(1)", TASKS),
        (
            "the last state is that of the padding",
            "(lengths - 1)[:, None, None]",
            "(0 * lengths - 1)[:, None, None]",
            TASKS,
        ),
    ),
    *bugs(
        "evaluate/labels.py",
        ("an entity goes on with another type", 'tag != f"I-{kind}"', 'not tag.startswith("I-")', SCORES),
        ("a bin holds its lower end", "np.ceil(sure * bins).astype(int) - 1", "(sure * bins).astype(int)", SCORES),
    ),
]
