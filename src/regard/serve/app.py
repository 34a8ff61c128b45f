"""The studio as an ASGI application: its routes, its page, its error handlers, and the guard in front.

It needs the extra `serve`, so it is imported when a server is made. torch is imported in the worker.
"""

from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from regard.errors import CheckpointError, RegardError
from regard.serve.errors import error_body
from regard.serve.guard import Guard
from regard.serve.routes import router
from regard.serve.studio import LookExpired, Studio, Superseded

PAGE = Path(__file__).parent / "page"  # what `make page` builds
NO_PAGE = "The page is not built: run make page in the source tree, then reload."
OLD_PAGE = "reload the page: it may be older than the server"


def make_app(studio: Studio) -> Guard:
    app = FastAPI(title="regard studio", docs_url=None, redoc_url=None, openapi_url=None)
    app.mount("/api", studio_api(studio))
    app.get("/{path:path}")(page)
    on_error: Any = on_http_error
    app.add_exception_handler(HTTPException, on_error)
    return Guard(app)


def studio_api(studio: Studio) -> FastAPI:
    """The API of the page, below /api."""
    app = FastAPI(title="regard studio", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.studio = studio
    app.include_router(router)
    handlers: dict[type[Exception], Any] = {
        RegardError: on_user_error,
        OSError: on_missing_run,
        Superseded: on_superseded,
        RequestValidationError: on_bad_request,
        HTTPException: on_http_error,
        Exception: on_unexpected_error,
    }
    for error, handler in handlers.items():
        app.add_exception_handler(error, handler)
    return app


def is_built() -> bool:
    return (PAGE / "index.html").is_file()


def page(path: str) -> Response:
    """A file of the built page, and nothing outside it."""
    if not is_built():
        return problem(404, NO_PAGE) if path else PlainTextResponse(NO_PAGE)
    file = (PAGE / (path.replace("\0", "?") or "index.html")).resolve()
    if not file.is_relative_to(PAGE.resolve()) or not file.is_file():
        return problem(404, "there is nothing here", OLD_PAGE)
    caching = "public, max-age=31536000, immutable" if path.startswith("assets/") else "no-cache"
    return FileResponse(file, headers={"cache-control": caching})


def problem(status: int, error: str, hint: str = "") -> JSONResponse:
    return JSONResponse(error_body(status, error) | {"hint": hint}, status)


async def on_user_error(_: Request, e: RegardError) -> Response:
    status = 410 if isinstance(e, LookExpired) else 404 if isinstance(e, CheckpointError) else 400
    return problem(status, e.message, e.hint)


async def on_missing_run(_: Request, e: OSError) -> Response:
    return problem(404, f"a file can no longer be read ({e.strerror or e})", "choose another model")


async def on_superseded(_: Request, __: Superseded) -> Response:
    return Response(status_code=204)  # not an error: the page has sent a newer request


async def on_bad_request(_: Request, e: RequestValidationError) -> Response:
    first = e.errors()[0]
    return problem(400, f"{first['loc'][-1]}: {first['msg']}", OLD_PAGE)


async def on_http_error(request: Request, e: HTTPException) -> Response:
    error = f"there is no {request.url.path}" if e.status_code == 404 else str(e.detail)
    return problem(e.status_code, error, OLD_PAGE)


async def on_unexpected_error(_: Request, e: Exception) -> Response:
    summary = f"{type(e).__name__}: {e}".splitlines()[0][:300]
    return problem(500, f"this should not happen: {summary}", "another text or model may work")
