"""Data sets by name."""

import pytest

from regard.data.catalog import find
from regard.errors import ConfigError


def test_names_ignore_case_and_help():
    assert find("TATOEBA-en-ES").target == "es"
    with pytest.raises(ConfigError, match="did you mean 'multi30k-en-de'"):
        find("multi30k-en-d")
