"""Search by signs against exact search by NumPy."""

import numpy as np
import pytest
from bench.similar import draw

from regard.predictors import nearest
from regard.predictors.nearest import Nearest


@pytest.mark.parametrize("width", [384, 100])
def test_search_by_signs_finds_the_exact_neighbours(width, monkeypatch):
    monkeypatch.setattr(nearest, "EXACT", 1_000)
    vectors, queries = draw(30_000, 20, width, clusters=200, seed=1)
    index = Nearest(vectors)
    assert index.codes.shape == (-(-width // 64), 30_000)
    shared = 0
    for query in queries:
        exact = vectors @ query
        rows, scores = index.search(query, 10)
        np.testing.assert_allclose(scores, exact[rows], rtol=1e-5)
        assert (np.diff(scores) <= 0).all()
        shared += len(set(rows) & set(np.argsort(-exact)[:10]))
    assert shared >= 0.99 * 200


def test_few_vectors_are_searched_exactly_and_in_order():
    vectors = np.eye(4, dtype=np.float32)[[0, 1, 0, 2]]
    rows, scores = Nearest(vectors).search(vectors[0], 3)
    assert rows.tolist() == [0, 2, 1] and scores.tolist() == [1, 1, 0]


def test_more_results_than_vectors_are_all_of_them(monkeypatch):
    monkeypatch.setattr(nearest, "EXACT", 10)
    vectors, (query,) = draw(50, 1, 64, clusters=2, seed=0)
    rows, _ = Nearest(vectors).search(query, 80)
    assert rows.tolist() == np.argsort(-(vectors @ query), kind="stable").tolist()
