"""What is served under which name."""

import pytest

from regard.errors import CheckpointError, ConfigError
from regard.serve.api.names import named_models


def test_models_are_named_after_their_folders(tmp_path):
    (tmp_path / "gpt").mkdir()
    (tmp_path / "gpt" / "config.json").touch()
    models = named_models([str(tmp_path / "gpt"), f"other={tmp_path / 'gpt'}", "smollm2-135m", "hf:Owner/Name"])
    assert [m.name for m in models] == ["gpt", "other", "smollm2-135m", "Owner/Name"]
    with pytest.raises(ConfigError, match="two models are called 'gpt'; name one of them: other="):
        named_models([str(tmp_path / "gpt"), str(tmp_path / "gpt")])


def test_runs_may_be_followed_before_they_have_a_model(tmp_path):
    (tmp_path / "new").mkdir()
    (model,) = named_models([], [str(tmp_path / "new")])
    assert model.follow and model.newest() == () and model.state == "waiting for the first model of its run"
    with pytest.raises(CheckpointError, match="no run or model folder"):
        named_models([str(tmp_path / "new")])
    with pytest.raises(ConfigError, match="no model to serve"):
        named_models([])
