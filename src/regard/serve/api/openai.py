"""The endpoints of OpenAI's API."""

import base64
import json
import secrets
from array import array
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from regard.serve.api.bodies import ChatBody, CompletionBody, EmbeddingBody, SamplingBody, parse_body
from regard.serve.api.engine import EngineClient, ServedModel
from regard.serve.api.errors import APIError
from regard.serve.api.shapes import ChatShape, CompletionShape, usage_of
from regard.serve.api.while_connected import while_connected

router = APIRouter(prefix="/v1")
Message = dict[str, Any]
STREAMED = {"cache-control": "no-store", "x-accel-buffering": "no"}


def engine_of(request: Request) -> EngineClient:
    return request.app.state.engine


@router.get("/models")
async def models(request: Request) -> Response:
    listed = [described(model) for model in engine_of(request).models.values() if model.about]
    return JSONResponse({"object": "list", "data": listed})


@router.get("/models/{name:path}")
async def one_model(request: Request, name: str) -> Response:
    model = engine_of(request).find(name, "predict")
    about = model.about or {}
    return JSONResponse({**described(model), "input": about["input"], "options": about["settings"]})


def described(model: ServedModel) -> Message:
    about = model.about or {}
    more = {name: about[name] for name in ("task", "reads", "endpoints", "context") if name in about}
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "regard", **more}


@router.post("/completions")
async def completions(request: Request) -> Response:
    body = parse_body(CompletionBody, await request.body())
    return await write(
        request, body, "completions", CompletionShape(body.model, body.counts), body.logprobs, prompts=body.prompts
    )


@router.post("/chat/completions")
async def chat(request: Request) -> Response:
    body = parse_body(ChatBody, await request.body())
    if body.top_logprobs is not None and not body.logprobs:
        raise APIError(400, "top_logprobs needs logprobs: true", "top_logprobs")
    top = (body.top_logprobs or 0) if body.logprobs else None
    messages = [message.plain() for message in body.messages]
    return await write(request, body, "chat", ChatShape(body.model, body.counts), top, messages=messages)


async def write(
    request: Request, body: SamplingBody, do: str, shape: CompletionShape, top: int | None, **message: Any
) -> Response:
    """Generate texts, whole or streamed; `top` alternatives of each token are reported."""
    engine = engine_of(request)
    request.app.state.limits.check_sampling(body)
    if body.stream_options and not body.stream:
        raise APIError(400, "stream_options needs stream: true", "stream_options")
    sampling = body.sampling(seed=secrets.randbits(32))
    reports = engine.ask(engine.find(body.model, do), do, sampling=sampling, stream=bool(body.stream), **message)
    if not body.stream:
        return JSONResponse(await while_connected(request, whole(reports, shape, top)))
    first = await while_connected(request, anext(reports))  # until here an error has its own status
    events = streamed(first, reports, shape, top)
    return StreamingResponse(events, media_type="text/event-stream", headers=STREAMED)


async def whole(reports: AsyncGenerator[Message, None], shape: CompletionShape, top: int | None) -> Message:
    choices, report = {}, {}
    async with aclosing(reports):
        async for report in reports:
            choices[report["index"]] = shape.choice(report, top)
    return shape.whole([choices[index] for index in sorted(choices)], usage_of(report))


async def streamed(
    first: Message, reports: AsyncGenerator[Message, None], shape: CompletionShape, top: int | None
) -> AsyncGenerator[bytes, None]:
    """Server-sent events; the last is `[DONE]`, or the error if something fails on the way."""
    begun: set[int] = set()
    report = first

    def chunks(report: Message) -> list[bytes]:
        choices = [shape.chunk_choice(report, top)]
        if report["index"] not in begun and (begin := shape.begin()):
            choices.insert(0, {"index": report["index"], **begin})
        begun.add(report["index"])
        return [event(shape.chunk([choice])) for choice in choices]

    async with aclosing(reports):
        for data in chunks(first):
            yield data
        try:
            async for report in reports:
                for data in chunks(report):
                    yield data
        except APIError as e:
            yield event(e.body())
            return
    if shape.usage:
        yield event(shape.chunk([], usage_of(report)))
    yield b"data: [DONE]\n\n"


def event(data: Message) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


@router.post("/embeddings")
async def embeddings(request: Request) -> Response:
    body = parse_body(EmbeddingBody, await request.body())
    engine, texts = engine_of(request), [body.input] if isinstance(body.input, str) else body.input
    request.app.state.limits.check_inputs(len(texts), "input")
    reports = engine.ask(engine.find(body.model, "embeddings"), "predict", inputs=texts, options={})
    answer = await while_connected(request, anext(reports))
    vectors = [output["vector"] for output in answer["outputs"]]
    if body.encoding_format == "base64":
        vectors = [base64.b64encode(array("f", vector).tobytes()).decode() for vector in vectors]
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    usage = {"prompt_tokens": answer["tokens"], "total_tokens": answer["tokens"]}
    return JSONResponse({"object": "list", "data": data, "model": body.model, "usage": usage})
