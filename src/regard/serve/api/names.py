"""Which models are served, and under which names."""

import time
from collections.abc import Sequence
from pathlib import Path

from regard.config import no_run, unknown
from regard.data.catalog import MODELS_CATALOG
from regard.data.folders import user_path
from regard.data.hub import PREFIX, parse
from regard.errors import ConfigError
from regard.serve.api.engine import ServedModel


def named_models(models: Sequence[str], followed: Sequence[str] = ()) -> list[ServedModel]:
    """The models to serve, from `NAME=PATH`, a name, or a path, whose last part is then the name.

    Runs that are `followed` may have no model yet.
    """
    named: dict[str, ServedModel] = {}
    for model in (*models, *followed):
        name, equals, path = model.partition("=")
        if not equals or Path(model).exists():
            name, path = Path(model).resolve().name if Path(model).exists() else model.removeprefix(PREFIX), model
        if not name or not path:
            raise ConfigError(f"{model!r}: expected NAME=FOLDER, a folder, or a name from: regard model list")
        if name in named:
            raise ConfigError(f"two models are called {name!r}; name one of them: other={path}")
        follow = len(named) >= len(models)
        if not follow:
            check_exists(path)
        elif not user_path(path).is_dir():
            raise no_run(user_path(path))
        named[name] = ServedModel(name, path, int(time.time()), follow=follow)
    if not named:
        raise ConfigError("no model to serve; name a run or model folder, or --follow a run that is training")
    return list(named.values())


def check_exists(path: str) -> None:
    """Raise unless `path` is a model's folder or file or a model's name, before anything is started."""
    if path.startswith(PREFIX):
        parse(path)
        return
    folder = user_path(path)
    if folder.is_file() or (folder / "config.json").is_file() or path.lower() in MODELS_CATALOG:
        return
    if folder.is_dir() or len(folder.parts) > 1:
        raise no_run(folder)
    raise unknown("model", path, MODELS_CATALOG)
