"""The server as an ASGI application: the endpoints, and every error in OpenAI's shape."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from regard.serve.api import audio, describe, manage, openai, predict
from regard.serve.api.engine import EngineClient
from regard.serve.api.errors import APIError, too_deep
from regard.serve.api.guard import Access, AccessGuard
from regard.serve.api.limits import RequestLimits
from regard.serve.api.metrics import ServerMetrics
from regard.serve.api.studio import add_studio
from regard.serve.api.traffic import AccessLog, Admission
from regard.serve.api.while_connected import ClientGone
from regard.serve.app import is_built


class ServerApp(AccessLog):
    """The whole application; `admission` counts the requests under way."""

    admission: Admission


def make_server_app(
    engine: EngineClient, access: Access, limits: RequestLimits, quiet: bool = False, texts: bool = False
) -> ServerApp:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        running = asyncio.create_task(engine.run())
        yield
        if studio is not None:
            studio.close()
        await engine.close()
        await running

    app = FastAPI(title="regard", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    metrics = ServerMetrics()
    engine.on_stats, engine.on_written, engine.on_start = metrics.load, metrics.written, metrics.starts.inc
    app.state.engine, app.state.limits, app.state.access, app.state.metrics = engine, limits, access, metrics
    app.get("/health")(health)
    app.get("/metrics")(show_metrics)
    studio = add_studio(app, engine) if access.local and is_built() else None
    for part in (openai, audio, predict, describe, *([manage] if access.manage else [])):
        app.include_router(part.router)
    handlers: dict[type[Exception], Any] = {
        APIError: on_api_error,
        ClientGone: on_client_gone,
        HTTPException: on_route_error,
        RecursionError: on_deep_body,
        Exception: on_bug,
    }
    for error, handler in handlers.items():
        app.add_exception_handler(error, handler)
    app.state.admission = admission = Admission(app, limits)
    served = ServerApp(AccessGuard(admission, access, limits.body), metrics.request, quiet, texts)
    served.admission = admission
    return served


async def health(request: Request) -> Response:
    """200 once every model is loaded or has failed; 503 until then, and while the server stops."""
    engine: EngineClient = request.app.state.engine
    ready = engine.ready and not request.app.state.admission.draining
    states = {name: model.state for name, model in engine.models.items()}
    return JSONResponse({"live": True, "ready": ready, "models": states}, 200 if ready else 503)


async def show_metrics(request: Request) -> Response:
    return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def error_response(e: APIError) -> Response:
    return JSONResponse(e.body(), e.status, {name.decode(): value.decode() for name, value in e.headers()})


async def on_api_error(_: Request, e: APIError) -> Response:
    return error_response(e)


async def on_client_gone(_: Request, __: ClientGone) -> Response:
    return Response(status_code=499)  # for the log


async def on_route_error(request: Request, e: HTTPException) -> Response:
    messages = {404: f"there is no {request.url.path}", 405: f"{request.method} {request.url.path} is not allowed"}
    answer = error_response(APIError(e.status_code, messages.get(e.status_code, str(e.detail))))
    answer.headers.update(e.headers or {})  # Allow
    return answer


async def on_deep_body(_: Request, __: RecursionError) -> Response:
    return error_response(too_deep())


async def on_bug(_: Request, e: Exception) -> Response:
    summary = f"{type(e).__name__}: {e}".splitlines()[0][:200]
    return error_response(APIError(500, f"this should not happen: {summary}"))
