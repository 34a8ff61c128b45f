"""Bugs of labels: on which piece they stand, what counts, what an entity is."""

from tests.zoo.bug import bugs

FOLDERS = "reference/test_labels.py::test_transformers_opens_the_folder_with_equal_logits"
CASES = "unit/data/test_labelled.py::test_the_segments_of_tagged_words_say_how_they_are_written"
MENTIONS = "unit/data/test_mentions.py"
PROBE = "reference/test_labels.py::test_a_probe_is_a_linear_map_of_their_states"
COMPARE = "unit/metrics/test_compare.py"
TASKS, SCORES = "unit/objectives/test_classify.py", "unit/metrics/test_labels.py"

LABELS = [
    *bugs(
        "data.labelled",
        (
            "every piece of a word has its label",
            "first_pieces",
            "word is None or word == last",
            "word is None",
            "unit/data/test_labelled.py",
        ),
    ),
    *bugs(
        "data.sources",
        ("words are all written in lower case in training", "LabelledSource.batch", "rows, types)", "rows)", CASES),
    ),
    *bugs(
        "data.mentions",
        ("a mention ends with its first word", "Mentions.places", "end += 1", "break", MENTIONS),
        ("later words begin a mention too", "Mentions.tagged", "[self.inside[code]]", "[code]", MENTIONS),
        ("pieces of a word are labelled like words", "Mentions.tagged", "NONE)", "self.inside[code])", MENTIONS),
        ("names are never new", "Mentions.drawn", "rng.random() >= RECOMBINED", "True", MENTIONS),
        ("a sentence may outgrow the model", "Mentions.replace", "room -= longer", "pass", MENTIONS),
        (
            "only the first piece of the old name goes",
            "Mentions.replace",
            "after = stop",
            "after = start + 1",
            MENTIONS,
        ),
    ),
    *bugs(
        "predictors.labeller",
        ("words are all written in lower case in use", "Labeller._padded", "types=cases", "types=None", FOLDERS),
    ),
    *bugs(
        "models.rnn_classifier",
        (
            "the mean is over padding too",
            "RecurrentClassifier.summary",
            "pooled(hidden, lengths, ",
            "pooled(hidden, None, ",
            TASKS,
        ),
        (
            "every step waits for the lengths",
            "RecurrentClassifier.forward",
            "0.0)[0]",
            "0.0, lengths=lengths)[0]",
            "reference/test_rnn_classifier.py",
        ),
        (
            "the last state is that of the padding",
            "RecurrentClassifier.summary",
            "(lengths - 1)[:, None, None]",
            "(0 * lengths - 1)[:, None, None]",
            TASKS,
        ),
    ),
    *bugs(
        "predictors.labeller",
        (
            "a packed text is labelled by its neighbour's [CLS]",
            "Labeller._packed",
            "hidden[starts[:-1]]",
            "hidden[starts[1:] - 1]",
            FOLDERS,
        ),
    ),
    *bugs(
        "tasks.start",
        (
            "a probe moves the encoder",
            "freeze_",
            "model.requires_grad_(False)\n        say",
            "say",
            PROBE,
        ),
    ),
    *bugs(
        "models.published.bert",
        ("a mean of states passes for [CLS]", "BertLayout.writes", ' and config.pooling == "cls"', "", PROBE),
    ),
    *bugs(
        "metrics.compare",
        (
            "an entity found counts once",
            "counted",
            "return 2 * len(ours & theirs)",
            "return len(ours & theirs)",
            f"{COMPARE}::test_counts_of_texts_add_up_to_the_score_of_all",
        ),
        (
            "systems are drawn apart",
            "compare_sums",
            "ratio(a[drawn], under_a[drawn])",
            "ratio(a[drawn[::-1]], under_a[drawn])",
            f"{COMPARE}::test_the_same_parts_are_drawn_for_both",
        ),
    ),
    *bugs(
        "metrics.labels",
        ("an alarm where there is nothing to tell apart", "alarm", " or len(np.unique(true)) < 2", "", SCORES),
        ("an entity goes on with another type", "entities", 'tag != f"I-{kind}"', 'not tag.startswith("I-")', SCORES),
        (
            "a bin holds its lower end",
            "reliability",
            "np.ceil(sure * bins).astype(int) - 1",
            "(sure * bins).astype(int)",
            SCORES,
        ),
    ),
]
