"""Load, replace and unload models while the server runs: with `--manage` only."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from regard.errors import RegardError
from regard.serve.api.bodies import LoadBody, parse_body
from regard.serve.api.engine import EngineClient
from regard.serve.api.errors import APIError
from regard.serve.api.names import check_exists
from regard.serve.api.openai import described

router = APIRouter(prefix="/v1/models")


@router.post("")
async def load(request: Request) -> Response:
    """Load a model under a new name, or replace the one that has it."""
    body = parse_body(LoadBody, await request.body())
    try:
        check_exists(body.path)
    except RegardError as e:
        raise APIError(400, str(e), "path") from None
    engine: EngineClient = request.app.state.engine
    return JSONResponse(described(await engine.load(body.name, body.path)))


@router.delete("/{name:path}")
async def unload(request: Request, name: str) -> Response:
    engine: EngineClient = request.app.state.engine
    if name not in engine.models:
        raise engine.missing(name)
    engine.unload(name)
    return JSONResponse({"id": name, "object": "model", "deleted": True})
