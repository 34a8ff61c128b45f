"""Piece weights to words: tables worked out by hand, and the picture is really drawn."""

import numpy as np
import pytest

from regard.errors import ConfigError, ShapeError
from regard.explain.alignment import END, Alignment, align_words, choose, draw_heads

# source: un|believ|able story </s>    target: histoire in|croyable </s>
PIECES = np.array(
    [
        [0.1, 0.1, 0.1, 0.6, 0.1],  # histoire
        [0.5, 0.2, 0.1, 0.1, 0.1],  # in
        [0.1, 0.4, 0.4, 0.0, 0.1],  # croyable
        [0.0, 0.0, 0.0, 0.1, 0.9],  # </s>
    ]
)


@pytest.fixture
def words() -> Alignment:
    return align_words(PIECES, ["unbelievable", "story"], [3, 1], ["histoire", "incroyable"], [1, 2])


def test_source_pieces_are_summed_and_target_pieces_averaged(words):
    assert words.source == ("unbelievable", "story", END)
    assert words.target == ("histoire", "incroyable", END)
    np.testing.assert_allclose(words.weights, [[0.3, 0.6, 0.1], [0.85, 0.05, 0.1], [0.0, 0.1, 0.9]])
    np.testing.assert_allclose(words.weights.sum(1), 1)


def test_links_are_source_first_sorted_and_leave_the_end_out(words):
    assert words.links() == [(1, 0), (0, 1)]
    assert words.pharaoh() == "0-1 1-0"


def test_links_skip_the_end_token():
    got = align_words(np.array([[0.1, 0.2, 0.7]]), ["a", "b"], [1, 1], ["x"], [1])
    assert got.source[-1] == END and got.pharaoh() == "1-0"


def test_nothing_to_align_gives_no_links():
    assert align_words(np.ones((1, 1)), [], [], [], []).pharaoh() == ""


def test_the_table_shows_percentages_dots_and_the_greatest(words):
    head, first, second, _ = words.table().splitlines()
    assert head.split() == ["unbelieva…", "story", END]
    assert first.split() == ["histoire", "30", "60*", "10"]
    assert second.split() == ["incroyable", "85*", "5", "10"]
    assert words.table().splitlines()[3].split() == [END, "·", "10", "90*"]


def test_counts_that_do_not_fit_are_an_error():
    with pytest.raises(ShapeError, match="source: 9 pieces in 2 words, but weights for 5"):
        align_words(PIECES, ["a", "b"], [8, 1], ["x", "y"], [1, 2])


def test_alignment_layers_and_heads_count_from_one():
    weights = np.arange(3 * 2).reshape(3, 2, 1, 1).astype(float)
    assert choose(weights, layer=1, head=2).item() == 1
    assert choose(weights, layer=3).item() == 4.5
    sharp, blunt = [[[0.8, 0.0, 0.2]], [[0.7, 0.1, 0.2]]], [[[0.8, 0.0, 0.2]], [[0.0, 0.8, 0.2]]]  # H T S
    sink = [[[0.01, 0.01, 0.98]], [[0.01, 0.01, 0.98]]]  # all at the end of the source: it looks at no word
    actual = choose(np.array([blunt, sharp, sink]))
    assert actual.round(6).tolist() == [[0.75, 0.05, 0.2]]  # heads that disagree are blunt
    with pytest.raises(ConfigError, match="layers 1 to 3"):
        choose(weights, layer=4)
    with pytest.raises(ConfigError, match="heads 1 to 2"):
        choose(weights, head=3)


def test_pictures_show_the_weights(words, tmp_path):
    """Every word is on the picture, and the ending decides the kind."""
    pytest.importorskip("matplotlib")
    text = words.draw(tmp_path / "a.svg").read_text()
    for word in (*words.source, *words.target):
        assert f"<!-- {word} -->" in text or word == END
    assert words.draw(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    heads = draw_heads(np.stack([PIECES, PIECES])[None], list("abcde"), list("wxyz"), tmp_path / "h.svg").read_text()
    assert "layer 1, head 2" in heads
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "a.svg", "h.svg"]


def test_a_dollar_sign_is_a_dollar_sign(tmp_path):
    pytest.importorskip("matplotlib")
    got = align_words(np.eye(2), ["$5", "$6"], [1, 1], ["5$", "6$"], [1, 1])
    assert "$5" in got.draw(tmp_path / "a.svg").read_text()


def test_an_unknown_kind_of_picture_is_said(words, tmp_path):
    with pytest.raises(ConfigError, match=r"try .*a\.png"):
        words.draw(tmp_path / "a.jpeg")
