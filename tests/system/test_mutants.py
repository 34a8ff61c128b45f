"""Damaged and hostile model folders: `info`, `load`, `tokens` and the studio's list answer or refuse, in words."""

from contextlib import suppress

import pytest
from tests.mutants import FIXTURES, mutate
from tests.system.cli_toy import regard as cli
from tests.unit.models.tiny_gguf import tiny_llama, write_gguf

import regard
from regard.errors import RegardError
from regard.serve.shelf import Shelf

RUNS = ("lm-gpt", "classify", "translate-transformer", "image-vit", "series", "tag", "lm-lstm-chars", "audio")


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "model.gguf", tiny_llama())


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_a_mutant_is_opened_or_refused_in_words(seed, gguf, tmp_path):
    origin = gguf if seed % 4 == 3 else FIXTURES / RUNS[seed % len(RUNS)]
    target = tmp_path / "runs" / ("mutant" + origin.suffix)
    target.parent.mkdir()
    said = mutate(origin, target, seed)
    for words in (("info", target), ("tokens", target, "The cat")):
        answer = cli(*words)
        assert answer.code in (0, 2), (said, words[0], answer.err)
        assert "Traceback" not in answer.err and "should not happen" not in answer.err, said
    with suppress(RegardError):
        regard.load(target)
    listed = Shelf({"runs": target.parent}, {}).models()
    assert len(listed["models"]) + len(listed["unreadable"]) <= 1
