"""Bytes to text while they come, against decoding all at once."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.generate.engine import Engine, Sampling
from regard.generate.text import TextStream, stream, write


def byte(id):
    return bytes([id])


def fed(data, stop=()):
    """What was shown after each byte, what came at the end, and the stream itself."""
    text = TextStream(byte, stop)
    return [text.feed(id) for id in data], text.close(), text


def test_half_a_character_is_never_shown():
    shown, rest, _ = fed("aé€😀b".encode())
    assert shown == ["a", "", "é", "", "", "€", "", "", "", "😀", "b"] and rest == ""


def test_bytes_that_never_became_a_character_are_shown_as_such():
    assert fed(b"a\xe2\x82")[:2] == (["a", "", ""], "�")
    assert fed(b"\xffa")[:2] == (["�", "a"], "")
    assert "".join(fed(b"\xe2\x82a")[0]) == "�a"


@given(st.binary(max_size=40))
def test_pieces_make_the_text_decoded_at_once(data):
    shown, rest, _ = fed(data)
    assert "".join(shown) + rest == data.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("data", "stop", "shown", "rest", "count"),
    [
        ("one END two", ("END",), "one ", "", 4),
        ("one EN", ("END",), "one ", "EN", 6),  # it never came: held text is shown after all
        ("aab", ("ab",), "a", "", 1),
        ("aaab", ("aab",), "a", "", 1),
        ("abcabd", ("abd",), "abc", "", 3),
        ("x\n\ny", ("\n\n", "y"), "x", "", 1),
        ("née", ("é",), "n", "", 1),
        ("abc", ("abcd", "bc"), "a", "", 1),  # whichever is there first
        ("stop", ("s",), "", "", 0),
    ],
)
def test_text_ends_before_a_stop_string(data, stop, shown, rest, count):
    pieces, last, text = fed(data.encode(), stop)
    assert ("".join(pieces), last, text.count) == (shown, rest, count)
    assert text.stopped == (rest == "")


def test_a_stop_string_inside_a_piece():
    """Pieces of several letters: what precedes it is shown, and the id that holds both counts."""
    pieces = [b"one", b" tw", b"o END th", b"ree"]
    text = TextStream(pieces.__getitem__, ("END",))
    assert [text.feed(i) for i in range(4)] == ["one", " tw", "o ", ""]
    assert text.stopped and text.count == 3 and text.close() == ""


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3))
def test_stop_strings_against_a_plain_search(data, stop):
    pieces, rest, text = fed(data.encode(), stop)
    ends = [
        n for n in range(len(data) + 1) if any(s in data[:n] for s in stop)
    ]  # the first letter with which one is there
    expected = min(data[: ends[0]].find(s) for s in stop if s in data[: ends[0]]) if ends else len(data)
    assert "".join(pieces) + rest == data[:expected] and text.stopped == bool(ends)
    for n in range(len(data) if not ends else ends[0]):  # nothing was shown that had to be taken back, or held in vain
        seen = "".join(pieces[: n + 1])
        assert data[:expected].startswith(seen)
        held = data[len(seen) : n + 1][: expected - len(seen)]
        assert not held or any(s.startswith(held) for s in stop) or ends


PIECES = ["a", "b", " é".encode(), b"\xf0\x9f", b"\x98\x80", "c"]
PIECES = [p.encode() if isinstance(p, str) else p for p in PIECES]
PROMPTS = [[1, 2], [3], [4, 0, 1], [5, 5]]


def joined(ids):
    return b"".join(PIECES[i] for i in ids).decode("utf-8", "replace")


def test_a_stream_says_what_writing_says(pairs):
    engine = Engine(pairs(), ends=[0], batch=3)
    settings = Sampling(seed=3, n=2, max_tokens=5, logprobs=1)
    rows = [""] * 8
    for row, piece in stream(engine, PIECES.__getitem__, PROMPTS, settings):
        assert piece
        rows[row] += piece
    written = write(engine, PIECES.__getitem__, PROMPTS, settings)
    plain = engine.generate(PROMPTS, settings)
    written, plain = ([c for group in groups for c in group] for groups in (written, plain))
    assert rows == [w.text for w in written]
    for w, c in zip(written, plain, strict=True):
        assert (w.ids, w.finish, w.logprobs, w.top) == (c.ids, c.finish, c.logprobs, c.top)
        assert w.text == joined(c.ids)
    assert {w.finish for w in written} == {"stop", "length"}


def result_of(pieces):
    """What a generator returns when it is through."""
    result = []

    def through():
        result.append((yield from pieces))

    assert list(through())
    return result[0]


@pytest.mark.parametrize("look_every", [1, 5])
def test_stop_strings_end_rows_wherever_the_pieces_break(pairs, look_every):
    """However often we look: what ids were written behind the stop string are not told."""
    engine, settings = Engine(pairs()), Sampling(seed=3, n=4, max_tokens=30)
    whole = [w.text for group in write(engine, PIECES.__getitem__, PROMPTS, settings) for w in group]
    stopping = Sampling(seed=3, n=4, max_tokens=30, stop=("b é", "😀a"))
    actual = [
        w for group in result_of(stream(engine, PIECES.__getitem__, PROMPTS, stopping, look_every)) for w in group
    ]
    assert {w.finish for w in actual} == {"stop", "length"}
    for w, text in zip(actual, whole, strict=True):
        places = [text.find(s) for s in stopping.stop if s in text]
        assert w.text == (text[: min(places)] if places else text)
        assert (w.finish == "stop") == bool(places)
        decoded = codecs.decode(b"".join(PIECES[i] for i in w.ids), "utf-8", "replace")
        assert decoded == w.text or decoded.startswith(w.text)


def test_a_closed_stream_stops_the_work(pairs, monkeypatch):
    model, reads = pairs(), []
    read = model.read
    monkeypatch.setattr(model, "read", lambda *args: reads.append(1) or read(*args))
    pieces = stream(Engine(model), PIECES.__getitem__, PROMPTS, Sampling(temperature=0))
    next(pieces)
    before = len(reads)
    pieces.close()
    assert len(reads) == before < 5
