"""The studio's routes, below /api: JSON, or safetensors (`regard.inside.tensors`)."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, BeforeValidator, StrictInt

from regard import inside
from regard.errors import ConfigError, DataError
from regard.explain.curves import METRICS
from regard.serve.news import events_of
from regard.serve.shelf import CAT, describe
from regard.serve.studio import Studio, Ticket

T = TypeVar("T")
LONGEST = 256 * 1024  # characters of a text
router = APIRouter()


def well_formed(value: object) -> object:
    """null becomes an empty text, and lone surrogates, which JSON may hold, a replacement character."""
    if isinstance(value, str):
        if len(value) > LONGEST:
            raise DataError(f"the text is too long: more than {LONGEST // 1024} K characters", "send a part of it")
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "" if value is None else value


Text = Annotated[str, BeforeValidator(well_formed)]
From = Annotated[int, Query(alias="from")]


class Body(BaseModel):
    """The fields of every POST request: its tab, its number in that tab, and the model."""

    tab: Text = ""
    seq: StrictInt = 0
    model: Text = ""


class TextBody(Body):
    text: Text = ""
    second: Text = ""
    target: Text = ""
    prefix: Text = ""
    beam: StrictInt = 5
    number: StrictInt = 0
    file: dict[str, str] | None = None  # its bytes in base64 and its name


class PairBody(Body):
    a: Text = ""
    b: Text = ""
    word_a: StrictInt = -1
    word_b: StrictInt = -1


async def of_app(request: Request) -> Studio:
    return request.app.state.studio


TheStudio = Annotated[Studio, Depends(of_app)]


async def in_worker(request: Request, job: Callable[[Studio, Ticket], T], body: Body | None = None) -> T:
    """Run a job in the worker for as long as the client waits for its result."""
    studio = await of_app(request)
    ticket = studio.ticket(body.tab, body.seq) if body else Ticket(studio, "", 0)
    return await studio.work(ticket, lambda: job(studio, ticket), request.is_disconnected)


def tensors(*answer: Any) -> Response:
    """Arguments of `inside.tensors.pack` as a response."""
    return octets(inside.tensors.pack(*answer))


def octets(data: bytes) -> Response:
    return Response(data, media_type="application/octet-stream", headers={"cache-control": "no-store"})


def one_of(items: Mapping[str, T], name: str, what: str) -> T:
    if name not in items:
        raise ConfigError(f"no {what} {name!r}", f"there are: {', '.join(items) or 'none'}")
    return items[name]


# -- models and looks ---------------------------------------------------------------------------------------------


@router.get("/models")
def models(studio: TheStudio) -> dict[str, Any]:
    return studio.shelf.models()


@router.get("/vocab")
async def vocab(request: Request, model: str) -> Response:
    return JSONResponse(await in_worker(request, lambda s, _: inside.tokens.vocabulary(s.predictor(model))))


@router.post("/look")
async def look(request: Request, body: TextBody) -> Response:
    def job(studio: Studio, ticket: Ticket) -> bytes:
        ticket.stage("loading the model")
        predictor = studio.predictor(body.model)
        model = describe(body.model, studio.shelf.folder(body.model))
        if model["family"] == "pair" and not body.second.strip():
            raise DataError("this model compares two texts", "type a second one")
        if model["reads"] == "text" and body.file:
            raise DataError("this model reads text, not files", "type a text")
        ticket.stage("reading the text" if model["reads"] == "text" else "reading the example")
        fields = body.model_dump(exclude={"tab", "seq", "model", "file"})
        with tempfile.TemporaryDirectory() as folder:
            file = predictor.task.file_value(body.file, Path(folder)) if body.file else None
            looked = inside.look.look(predictor, inside.looked.Question(**fields, file=file), ticket.check)
        ticket.stage("done")
        return looked.bytes(look=studio.keep(body.model, looked), model=model)

    return octets(await in_worker(request, job, body))


@router.get("/head")
def head(studio: TheStudio, look: str, kind: str, layer: int, head: int, stage: str = "weights") -> Response:
    attention = one_of(studio.looked(look).attention, kind, "attention")
    table = one_of(inside.attention.stages(attention.layer(layer, head), head), stage, "stage")
    return tensors(*inside.tensors.matrix(table, stage == "weights"))


@router.get("/row")
def row(studio: TheStudio, look: str, kind: str, layer: int, head: int, query: int) -> Response:
    attention = one_of(studio.looked(look).attention, kind, "attention")
    return tensors(*inside.attention.row(attention.layer(layer, head), head, query))


@router.get("/embedding")
def embedding(studio: TheStudio, look: str, stream: str, first: From = 0, to: int = 1 << 30) -> Response:
    return tensors(*one_of(studio.looked(look).embeddings, stream, "embedding of").part(first, to))


@router.get("/positions")
async def positions(request: Request, model: str, n: int = 64) -> Response:
    return tensors(*await in_worker(request, lambda s, _: inside.positions.positions(s.predictor(model).model, n)))


@router.post("/permute")
async def permute(request: Request, body: TextBody) -> Response:
    def job(studio: Studio, ticket: Ticket) -> dict[str, Any]:
        question = inside.looked.Question(text=body.text, second=body.second)
        return inside.positions.permute(studio.predictor(body.model), question, ticket.check)

    return JSONResponse(await in_worker(request, job, body))


@router.post("/pair")
async def pair(request: Request, body: PairBody) -> Response:
    words = (body.a, body.word_a), (body.b, body.word_b)
    job = lambda s, ticket: inside.pair.pair(s.predictor(body.model), *words, ticket.check)  # noqa: E731
    return tensors(*await in_worker(request, job, body))


@router.get("/recurrent")
def recurrent(studio: TheStudio, look: str) -> Response:
    return tensors(*inside.recurrent.unrolled(studio.looked(look)))


@router.get("/gradients")
async def gradients(request: Request, model: str, text: str = "", length: int = 50, compare: str = "") -> Response:
    """Gradient against distance, of models by id and of untrained ones by architecture."""
    ids = [id for id in (model, *compare.split(",")) if id]
    job = lambda s, ticket: inside.reach.compared(ids, s.predictor, text or CAT, length, ticket.check)  # noqa: E731
    return JSONResponse(await in_worker(request, job))


# -- training -----------------------------------------------------------------------------------------------------


@router.get("/runs")
def runs(studio: TheStudio) -> dict[str, Any]:
    """Every run with curves, and the labels of the metrics in the order of display."""
    return {"runs": studio.shelf.runs(), "metrics": METRICS}


@router.get("/metrics")
def metrics(studio: TheStudio, run: str, start: From = 0) -> dict[str, Any]:
    return events_of(studio.shelf.folder(run) / "metrics.jsonl", start)


@router.get("/news")
def news(studio: TheStudio, tab: str) -> dict[str, Any]:
    return studio.news(tab)
