"""The studio's addresses. Everything is answered as JSON or as the bytes of `regard.inside.container`."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from regard.errors import CheckpointError, ConfigError, DataError, MissingExtra, RegardError
from regard.serve.guard import Guard
from regard.serve.news import events_of, news
from regard.serve.studio import Gone, Studio, Superseded, Ticket

PAGE = Path(__file__).parent / "page"  # what `make page` builds
NO_PAGE = "The page is not built: run make page in the source tree, then reload."


def make_app(studio: Studio) -> Any:
    """An ASGI application; torch is imported with the first question that needs it, in the worker."""
    try:
        from fastapi import FastAPI, Query, Request
        from fastapi.exceptions import RequestValidationError
        from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
    except ImportError:
        raise MissingExtra("the studio", "serve") from None

    app = FastAPI(title="regard studio", docs_url=None, redoc_url=None, openapi_url=None)

    def octets(data: bytes) -> Any:
        return Response(data, media_type="application/octet-stream", headers={"cache-control": "no-store"})

    async def asked(request: Request, answer: Callable[[Ticket, dict[str, Any]], Any]) -> Any:
        """The worker's answer to a JSON question, for as long as the tab waits for it."""
        body = parsed(await request.body())
        ticket = studio.ticket(word(body, "tab"), number(body, "seq"))
        return await studio.work(ticket, lambda: answer(ticket, body), request.is_disconnected)

    # -- what there is --------------------------------------------------------------------------------------------

    @app.get("/api/models")
    def models() -> dict[str, Any]:
        return studio.shelf.models()

    @app.get("/api/vocab")
    async def vocab(request: Request, model: str) -> Any:
        def read() -> list[str]:
            from regard.inside.tokens import vocabulary

            predictor = studio.predictor(model)
            return vocabulary(predictor.tokenizer, predictor.model.config.vocab)

        return JSONResponse(await studio.work(Ticket(studio, "", 0), read, request.is_disconnected))

    # -- looking --------------------------------------------------------------------------------------------------

    @app.post("/api/look")
    async def look(request: Request) -> Any:
        return octets(await asked(request, looked))

    def looked(ticket: Ticket, body: dict[str, Any]) -> bytes:
        from regard.inside.look import look as look_at
        from regard.inside.looked import Question
        from regard.serve.shelf import describe

        question = Question(
            text=word(body, "text"), second=word(body, "second"), target=word(body, "target"),
            prefix=word(body, "prefix"), beam=number(body, "beam", 5),
        )  # fmt: skip
        id = word(body, "model")
        ticket.stage("loading the model")
        predictor = studio.predictor(id)
        about = describe(id, studio.shelf.folder(id))
        if about["family"] == "pair" and not question.second.strip():
            raise DataError("this model compares two texts; give a second one")
        ticket.stage("reading the text")
        found = look_at(predictor, question, ticket.check)
        ticket.stage("done")
        return found.bytes(look=studio.keep(id, found), model=about)

    @app.get("/api/head")
    def head(look: str, kind: str, layer: int, head: int, stage: str = "weights") -> Any:
        from regard.inside.attention import STAGES, stages
        from regard.inside.container import matrix, pack

        if stage not in STAGES:
            raise ConfigError(f"no stage {stage!r}; there are: {', '.join(STAGES)}")
        table = stages(attention(studio, look, kind).layer(layer, head), head)[stage]
        return octets(pack(*matrix(table, stage == "weights")))

    @app.get("/api/row")
    def row(look: str, kind: str, layer: int, head: int, query: int) -> Any:
        from regard.inside.attention import row as one_row
        from regard.inside.container import pack

        header, tensors = one_row(attention(studio, look, kind).layer(layer, head), head, query)
        return octets(pack(header, tensors, {}))

    @app.get("/api/embedding")
    def embedding(look: str, stream: str, first: int = Query(0, alias="from"), to: int = 1 << 30) -> Any:
        from regard.inside.container import pack

        found = studio.looked(look).embeddings
        if stream not in found:
            raise ConfigError(f"no embedding of {stream!r}; there are: {', '.join(found)}")
        return octets(pack(*found[stream].part(first, to), {}))

    @app.get("/api/positions")
    async def places(request: Request, model: str, n: int = 64) -> Any:
        def answer() -> bytes:
            from regard.inside.container import pack
            from regard.inside.positions import positions

            return pack(*positions(studio.predictor(model).model, n), {})

        return octets(await studio.work(Ticket(studio, "", 0), answer, request.is_disconnected))

    @app.post("/api/permute")
    async def permute(request: Request) -> Any:
        def answer(ticket: Ticket, body: dict[str, Any]) -> dict[str, Any]:
            from regard.inside.looked import Question
            from regard.inside.positions import permute as permuted

            question = Question(text=word(body, "text"), second=word(body, "second"))
            return permuted(studio.predictor(word(body, "model")), question, ticket.check)

        return JSONResponse(await asked(request, answer))

    @app.post("/api/pair")
    async def pair(request: Request) -> Any:
        def answer(ticket: Ticket, body: dict[str, Any]) -> bytes:
            from regard.inside.container import pack
            from regard.inside.pair import pair as compared

            one, two = ((word(body, name), number(body, f"word_{name}")) for name in "ab")
            return pack(*compared(studio.predictor(word(body, "model")), one, two, ticket.check), {})

        return octets(await asked(request, answer))

    @app.get("/api/recurrent")
    def recurrent(look: str) -> Any:
        from regard.inside.container import pack
        from regard.inside.recurrent import unrolled

        return octets(pack(*unrolled(studio.looked(look)), {}))

    @app.get("/api/gradients")
    async def gradients(request: Request, model: str, text: str = "", length: int = 50, compare: str = "") -> Any:
        ticket = Ticket(studio, "", 0)
        answer = partial(reaches, studio, ticket, [model, *compare.split(",")], text, length)
        return JSONResponse(await studio.work(ticket, answer, request.is_disconnected))

    # -- training -------------------------------------------------------------------------------------------------

    @app.get("/api/runs")
    def runs() -> dict[str, Any]:
        return {"runs": studio.shelf.runs()}

    @app.get("/api/metrics")
    def metrics(run: str, start: int = Query(0, alias="from")) -> dict[str, Any]:
        return events_of(studio.shelf.folder(run) / "metrics.jsonl", start)

    @app.get("/api/events")
    async def events(request: Request, tab: str) -> Any:
        how = {"cache-control": "no-store", "x-accel-buffering": "no"}
        stream = news(studio, tab, request.is_disconnected)
        return StreamingResponse(stream, media_type="text/event-stream", headers=how)

    # -- the page -------------------------------------------------------------------------------------------------

    @app.get("/api/{rest:path}")
    def nothing(rest: str) -> Any:
        return JSONResponse(problem(f"there is no /api/{rest}; is the page older than the server?"), 404)

    @app.get("/{path:path}")
    def page(path: str) -> Any:
        if not (PAGE / "index.html").is_file():
            return PlainTextResponse(NO_PAGE, 404 if path else 200)
        file = (PAGE / (path.replace("\0", "?") or "index.html")).resolve()
        if not file.is_relative_to(PAGE.resolve()) or not file.is_file():
            return PlainTextResponse("There is nothing here.", 404)
        lasting = "public, max-age=31536000, immutable" if path.startswith("assets/") else "no-cache"
        return FileResponse(file, headers={"cache-control": lasting})

    # -- what went wrong ------------------------------------------------------------------------------------------

    @app.exception_handler(RegardError)
    async def regretted(_: Request, e: RegardError) -> Any:
        status = 410 if isinstance(e, Gone) else 404 if isinstance(e, CheckpointError) else 400
        return JSONResponse(problem(str(e)), status)

    @app.exception_handler(OSError)
    async def vanished(_: Request, e: OSError) -> Any:
        return JSONResponse(problem(f"a file cannot be read any more ({e.strerror or e}); choose another model"), 404)

    @app.exception_handler(Superseded)
    async def overtaken(_: Request, __: Superseded) -> Any:
        return Response(status_code=204)  # nothing went wrong: the page has asked for something newer

    @app.exception_handler(RequestValidationError)
    async def misspelt(_: Request, e: RequestValidationError) -> Any:
        first = e.errors()[0]
        return JSONResponse(problem(f"{first['loc'][-1]}: {first['msg']}; is the page older than the server?"), 400)

    @app.exception_handler(Exception)
    async def unforeseen(_: Request, e: Exception) -> Any:
        said = f"{type(e).__name__}: {e}".splitlines()[0][:300]
        return JSONResponse(problem(f"this should not happen: {said}; another text or model may work"), 500)

    return Guard(app)


def attention(studio: Studio, look: str, kind: str) -> Any:
    found = studio.looked(look).attention
    if kind not in found:
        raise ConfigError(f"no attention of the kind {kind!r}; there are: {', '.join(found) or 'none'}")
    return found[kind]


def reaches(studio: Studio, ticket: Ticket, ids: list[str], text: str, length: int) -> dict[str, Any]:
    """Gradients against distance: of models by id, and of untrained ones by architecture."""
    from regard.inside.reach import AT_BIRTH, LONGEST, at_birth, curve, said
    from regard.serve.shelf import CAT

    length, curves = min(max(length, 2), LONGEST), []
    for id in dict.fromkeys(id for id in ids if id):
        ticket.check()
        found = (
            at_birth(id, length) if id in AT_BIRTH else curve(studio.predictor(id), text or CAT, length, ticket.check)
        )
        curves.append({"name": f"{id} at birth" if id in AT_BIRTH else id, **found})
    return {"curves": curves, "finding": said(curves)}


def problem(text: str) -> dict[str, str]:
    """Our errors say what, then what to do: `error; hint`."""
    error, _, hint = text.partition("; ")
    return {"error": error, "hint": hint}


def parsed(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise DataError("the question is not JSON; reload the page") from None
    if not isinstance(found, dict):
        raise DataError("the question is not a JSON object; reload the page")
    return found


def word(body: dict[str, Any], name: str) -> str:
    """A text of the question; halves of characters, which JSON can spell, become a question mark."""
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{name} wants text, got {type(value).__name__}; reload the page")
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def number(body: dict[str, Any], name: str, usual: int = 0) -> int:
    value = body.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 53:
        raise DataError(f"{name} wants a whole number, got {value!r:.40}; reload the page")
    return value
