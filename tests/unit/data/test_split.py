"""One rule for every medium: which examples are held out."""

import random
from collections import Counter
from fractions import Fraction

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import split
from regard.data.audio import Clip
from regard.data.audio import hold_out as hold_out_clips
from regard.data.captions import Captioned
from regard.data.captions import hold_out as hold_out_captions
from regard.data.examples import Example
from regard.data.features import load_table
from regard.data.images import Images
from regard.data.images import hold_out as hold_out_images
from regard.data.labelled import hold_out as hold_out_texts
from regard.data.series import Long, gather, held_out
from regard.data.settings import (
    AudioConfig,
    CaptionsConfig,
    ImagesConfig,
    LabelledConfig,
    SeriesConfig,
    TableConfig,
)
from regard.errors import ConfigError, DataError
from regard.tasks.plan import run_from_dict


def held(digests, labels, share=0.1, **more):
    return split.hold_out(digests, labels, share, "texts", **more)


def units(count):
    return [split.digest(f"text {i}") for i in range(count)]


def texts(order, labels):
    rows = [Example(f"text {i}", None, labels[i]) for i in order]
    return {row.text for row in hold_out_texts(rows, LabelledConfig(path="x"), "texts")[1]}


def rows(order, labels, folder):
    path = folder / "rows.csv"
    path.write_text("n,label\n" + "".join(f"{i},{labels[i]}\n" for i in order))
    return set(load_table(TableConfig(path=str(path))).valid.features[:, 0].tolist())


def pixels(order):
    return np.array([np.full((1, 2, 2), i, np.uint8) for i in order])


def images(order, labels):
    part = Images(pixels(order), np.array([sorted(set(labels)).index(labels[i]) for i in order]))
    valid = hold_out_images(part, ImagesConfig(path="x"))[1]
    return {int(valid.pixels[i][0, 0, 0]) for i in range(len(valid))}


def captions(order, labels):
    part = Captioned(pixels(order), [[f"caption {i}"] for i in order])
    return {told[0] for told in hold_out_captions(part, CaptionsConfig(path="x"))[1].captions}


def clips(order, labels):
    some = [Clip(f"{i}.wav", labels[i], data=b"%d" % i) for i in order]
    return {clip.file for clip in hold_out_clips(some, AudioConfig(path="x"))[1]}


def series(order, labels):
    n = np.repeat(np.array(list(order)), 2)
    times, labelled = np.tile([0.0, 1.0], len(n) // 2), np.array([labels[i] for i in n])
    curves = gather(Long(n.astype(str), times, n + times, None, None, labelled))
    return {curves.ids[i] for i in np.flatnonzero(held_out(curves, SeriesConfig(path="x")))}


LABELS = [f"class {i % 10}" for i in range(40)]
MEDIA = {"text": texts, "images": images, "audio": clips, "series": series, "captions": captions}


@pytest.mark.parametrize("medium", [*MEDIA, "table"])
def test_forty_of_ten_classes_hold_out_four_in_any_order(medium, tmp_path):
    choose = MEDIA.get(medium) or (lambda order, labels: rows(order, labels, tmp_path))
    chosen = choose(range(40), LABELS)
    shuffled = random.Random(0).sample(range(40), 40)
    assert len(chosen) == 4 and choose(shuffled, LABELS) == chosen


@pytest.mark.parametrize(
    ("sizes", "share", "expected"),
    [
        ((900, 100), 0.1, {0: 90, 1: 10}),
        ((100, 50, 7, 1), 0.1, {0: 10, 1: 5, 2: 1}),
        ((12,), 0.1, {0: 2}),
        ((9,), 0.1, {0: 1}),
        ((2, 2), 0.1, {0: 1}),
        ((5, 5), 0.1, {0: 1, 1: 1}),
        ((2, 2, 2), 0.9, {0: 1, 1: 1, 2: 1}),
        ((10_000, 3), 0.01, {0: 100}),
        ((1, 1, 1, 1, 1, 1, 1, 1, 2), 0.1, {8: 1}),
    ],
)
def test_every_class_gives_its_share(sizes, share, expected):
    labels = [str(label) for label, size in enumerate(sizes) for _ in range(size)]
    aside = held(units(len(labels)), labels, share)
    counts = Counter(int(label) for label, held in zip(labels, aside, strict=True) if held)
    assert dict(counts) == expected
    left = {label for label, held in zip(labels, aside, strict=True) if not held}
    assert left == set(labels), "no class is held out whole"


@pytest.mark.parametrize("total", [10, 11, 19, 20, 50])
def test_ten_or_more_hold_out_two_at_least(total):
    for classes in (1, 2, 3):
        labels = [str(i % classes) for i in range(total)]
        assert held(units(total), labels).sum() == max(2, round(0.1 * total))
    assert split.count(total, 0.01) == 2 and split.count(5, 0.1) == 1 and split.count(1, 0.1) == 0


def test_what_shares_a_source_stays_together():
    groups = [f"image {i // 5}" for i in range(100)]
    aside = held([split.digest(group) for group in groups], None)
    sides = {(group, bool(side)) for group, side in zip(groups, aside, strict=True)}
    assert len(sides) == 20 and aside.sum() == 10


def test_a_content_with_two_labels_takes_no_class_away():
    digests, labels = [*units(20), units(20)[3]], [*["a"] * 20, "b"]
    for order in (range(21), range(20, -1, -1)):
        aside = held([digests[i] for i in order], [labels[i] for i in order], 0.5)
        assert not aside[list(order).index(20)] and aside.sum() >= 9


def test_the_rest_of_the_classes_is_unmoved_by_examples_without_one():
    labels = ["a"] * 23 + ["b"] * 17 + ["c"] * 14
    alone, beside = held(units(54), labels), held(units(97), [*labels, *[""] * 43])
    assert (beside[:54] == alone).all() and beside[54:].sum() == round(9.7) - round(5.4)


def test_folds_hold_out_everything_once():
    labels = [str(i % 7) for i in range(103)]
    folds = np.array([held(units(103), labels, 1 / 5, fold=fold) for fold in range(5)])
    assert (folds.sum(0) == 1).all() and set(folds.sum(1).tolist()) <= {20, 21}
    with pytest.raises(ConfigError, match=r"12 examples make no folds of 2; set data\.folds"):
        held(units(12), None, 1 / 10, fold=3)


@given(sizes=st.lists(st.integers(2, 23), min_size=1, max_size=40), folds=st.integers(2, 12), old=st.booleans())
def test_folds_stay_even_over_many_classes(sizes, folds, old):
    """However many classes leave a rest, no fold gets all of them; and every example is in one."""
    labels = [f"{label:02}" for label, size in enumerate(sizes) for _ in range(size)]
    hypothesis.assume(len(labels) >= 4 * folds)
    digests = units(len(labels))
    if old:
        parts = [split.legacy_folds(digests, labels, folds, fold) for fold in range(folds)]
    else:
        parts = [split._chosen(digests, labels, Fraction(1, folds), fold) for fold in range(folds)]
        parts = [np.array([unit in part for unit in digests]) for part in parts]
    assert (np.sum(parts, 0) == 1).all()
    for label, size in enumerate(sizes):
        mine = [int(part[np.array(labels) == f"{label:02}"].sum()) for part in parts]
        assert max(mine) - min(mine) <= (1 if old else 2) and sum(mine) == size
    if not old:
        totals = [int(part.sum()) for part in parts]
        assert max(totals) - min(totals) <= 1


@pytest.mark.parametrize(("classes", "size", "folds"), [(40, 11, 10), (30, 7, 5), (12, 3, 4), (50, 6, 5)])
def test_old_folds_share_the_rests_of_many_classes(classes, size, folds):
    labels = [f"{i // size:02}" for i in range(classes * size)]
    totals = [int(split.legacy_folds(units(len(labels)), labels, folds, fold).sum()) for fold in range(folds)]
    assert totals == [len(labels) // folds] * folds


@pytest.mark.parametrize("labels", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_too_few_are_refused(labels):
    with pytest.raises(DataError, match=f"{len(labels)} texts are too few to split") as e:
        held(units(len(labels)), labels)
    assert ("is it the right column?" in str(e.value)) == (len(labels) > 2)
    with pytest.raises(DataError, match="too few"):
        held([split.digest("same")] * 30, None)


def test_in_time_parts_follow_each_other():
    assert split.in_time(100, (0.7, 0.1, 0.2)) == [(0, 70), (70, 80), (80, 100)]
    assert split.in_time(100, (40, 20, 20)) == [(0, 40), (40, 60), (60, 80)]


def test_the_split_is_one_sentence():
    said = split.report(900, 100, "texts", split.BY_CLASS)
    assert said == "900 texts to train on, 100 for validation: 10 % of each class, chosen by a hash of the content"
    assert split.report(900, 100, "texts") == "900 texts to train on, 100 for validation"


def test_a_run_that_names_no_rule_keeps_the_old_one():
    """Recorded from the version before: of every class the rounded share of the smallest hashes, or one in all."""
    labels = ["a"] * 14 + ["b"] * 16 + ["c"] * 4
    old = held(units(34), labels, rule="v1")
    by_hash = sorted(range(34), key=lambda i: units(34)[i])
    expected = {next(i for i in by_hash if labels[i] == "a"), *[i for i in by_hash if labels[i] == "b"][:2]}
    assert set(np.flatnonzero(old).tolist()) == expected
    assert held(units(40), LABELS, rule="v1").sum() == 1
    run = run_from_dict({"arch": "mlp", "task": "table", "model": {}, "data": {"path": "x.csv"}, "steps": 1})
    assert run.data.split_rule == "v1" and run_from_dict(run.to_dict()) == run
    assert TableConfig(path="x.csv").split_rule == "v2"
    with pytest.raises(ConfigError, match="no rule to split by 'v3'"):
        TableConfig(path="x.csv", split_rule="v3")


def test_content_with_two_labels_is_split_in_any_order():
    digests = [*units(40), *units(20)]
    labels = [*(f"class {i % 4}" for i in range(40)), *(f"class {(i + 1) % 4}" for i in range(20))]
    chosen = {unit for unit, aside in zip(digests, held(digests, labels), strict=True) if aside}
    backwards = held(digests[::-1], labels[::-1])
    assert {unit for unit, aside in zip(digests[::-1], backwards, strict=True) if aside} == chosen
