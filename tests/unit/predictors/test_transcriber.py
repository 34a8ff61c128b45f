"""What generation_config.json may say of a transcriber."""

import pytest

from regard.errors import CheckpointError
from regard.predictors.transcriber import token_ids


def test_suppressed_tokens_are_a_list_of_ids():
    assert token_ids({"suppress_tokens": [1, 4]}, "suppress_tokens", 5) == (1, 4)
    assert token_ids({"suppress_tokens": None}, "suppress_tokens", 5) == token_ids({}, "suppress_tokens", 5) == ()


@pytest.mark.parametrize("value", [{"a": 1}, [5], [-1], ["1"], [True], 3, "12"])
def test_other_suppressed_tokens_are_refused(value):
    with pytest.raises(CheckpointError, match="suppress_tokens must be a list of token ids below 5"):
        token_ids({"suppress_tokens": value}, "suppress_tokens", 5)
