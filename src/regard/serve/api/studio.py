"""The studio for the served models, at `/`, on this machine only.

It loads a model a second time, into the server's own process, when somebody first looks at it; so a server that other
machines can reach has the form at `/docs` instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import Response

from regard.serve.api.engine import EngineClient
from regard.serve.app import page, studio_api
from regard.serve.guard import HEADERS
from regard.serve.shelf import Shelf
from regard.serve.studio import Studio


@dataclass(frozen=True)
class ServedShelf(Shelf):
    """The models that are loaded now."""

    engine: EngineClient

    def folders(self) -> Iterator[tuple[str, Path]]:
        for model in list(self.engine.models.values()):
            if model.about:
                yield f"served/{model.name}", Path(model.about["folder"])


def add_studio(app: FastAPI, engine: EngineClient) -> Studio:
    studio = Studio(ServedShelf({}, {}, engine))
    app.mount("/api", studio_api(studio))
    for path in ("/", "/figure.html", "/assets/{file}"):
        app.get(path)(studio_page)
    return studio


def studio_page(request: Request) -> Response:
    answer = page(request.url.path.removeprefix("/"))
    answer.headers.update(HEADERS)
    return answer
