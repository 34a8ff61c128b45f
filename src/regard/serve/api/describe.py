"""`/openapi.json`: the schema of the loaded models; `/docs`: a page to read and try it, offline."""

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel

from regard import __version__
from regard.serve.api.bodies import ChatBody, CompletionBody, EmbeddingBody
from regard.serve.api.engine import PATHS, EngineClient, ServedModel
from regard.serve.api.guard import Access
from regard.serve.api.limits import RequestLimits
from regard.tasks.registry import get
from regard.tasks.served import array, record

router = APIRouter()
PAGE = Path(__file__).with_name("docs.html")
POLICY = {
    "content-security-policy": "default-src 'self' 'unsafe-inline'; img-src data:; frame-ancestors 'none'; "
    "base-uri 'none'"
}
ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
BODIES: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {
    "completions": (CompletionBody, {"prompt": "The cat", "max_tokens": 16, "temperature": 0}),
    "chat": (ChatBody, {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 16}),
    "embeddings": (EmbeddingBody, {"input": ["The cat drank the milk."]}),
}


@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    state = request.app.state
    return JSONResponse(schema(state.engine, state.limits, state.access))


@router.get("/docs")
async def docs() -> Response:
    return HTMLResponse(PAGE.read_text("utf-8"), headers=POLICY)


@router.get("/")
async def home() -> Response:
    """Redirect to `/docs`, unless the studio is at `/`."""
    return Response(status_code=307, headers={"location": "/docs"})


def schema(engine: EngineClient, limits: RequestLimits, access: Access) -> dict[str, Any]:
    """OpenAPI 3.1: the endpoints that the loaded models have, with examples that run."""
    ready = [model for model in engine.models.values() if model.about]
    paths: dict[str, Any] = {"/v1/models": {"get": operation("The models that are loaded.")}}
    parts: dict[str, Any] = {"Error": ERROR}
    for endpoint, (body, example) in BODIES.items():
        names = [model.name for model in ready if endpoint in (model.about or {})["endpoints"]]
        if names:
            own = body.model_json_schema(ref_template="#/components/schemas/{model}")
            parts |= own.pop("$defs", {})
            own["properties"]["model"] = {"type": "string", "enum": names}
            if "n" in own["properties"]:
                own["properties"]["n"]["anyOf"][0]["maximum"] = limits.n
            parts[body.__name__] = own | {"additionalProperties": False}
            content = {"application/json": {"schema": ref(body.__name__), "example": {"model": names[0], **example}}}
            paths[PATHS[endpoint]] = {"post": operation(f"For {', '.join(names)}.", content)}
    for model in ready:
        paths |= predict_path(model)
        if "transcriptions" in (model.about or {})["endpoints"]:
            paths[PATHS["transcriptions"]] = {"post": operation("A recording to text.", transcription_form(model))}
    info = {"title": "regard", "version": __version__}
    whole: dict[str, Any] = {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": parts}}
    if access.keys:
        whole["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        whole["security"] = [{"key": []}]
    return whole


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def operation(
    summary: str, content: dict[str, Any] | None = None, answer: dict[str, Any] | None = None
) -> dict[str, Any]:
    errors = {"description": "An error", "content": {"application/json": {"schema": ref("Error")}}}
    good: dict[str, Any] = {"description": "The answer"}
    if answer:
        good["content"] = {"application/json": {"schema": answer}}
    own: dict[str, Any] = {"summary": summary, "responses": {"200": good, "default": errors}}
    return own | ({"requestBody": {"required": True, "content": content}} if content else {})


def predict_path(model: ServedModel) -> dict[str, Any]:
    """The path of one model, with its own inputs, options and outputs."""
    about = model.about or {}
    task = get(about["task"])
    fields: dict[str, Any] = {
        "inputs": array(about["input"]) | {"minItems": 1},
        "options": {"type": "object", "properties": about["settings"], "additionalProperties": False},
    }
    outputs = record(model={"const": model.name}, task={"const": task.name}, outputs=array(task.answer_schema))
    if task.explains:
        fields["explain"] = {"type": "boolean", "default": False}
        outputs["properties"]["explanations"] = array({})
    body = {"type": "object", "properties": fields, "required": ["inputs"], "additionalProperties": False}
    example = {"inputs": about["input"]["examples"]} if "examples" in about["input"] else None
    contents = {"application/json": {"schema": body} | ({"example": example} if example else {})}
    if about["reads"] != "text" and "anyOf" in about["input"]:  # a file is one of its forms
        file = {"type": "string", "contentMediaType": "application/octet-stream"}
        parts = {"file": array(file) | {"minItems": 1}, "options": {"type": "string"}}
        parts |= {"explain": {"enum": ["true", "false"]}} if task.explains else {}
        form = {"type": "object", "properties": parts, "required": ["file"], "additionalProperties": False}
        contents["multipart/form-data"] = {"schema": form}
    return {f"/v1/predict/{model.name}": {"post": operation(f"{model.name}: {task.name}", contents, outputs)}}


def transcription_form(model: ServedModel) -> dict[str, Any]:
    fields = {
        "file": {"type": "string", "contentMediaType": "application/octet-stream"},
        "model": {"type": "string", "enum": [model.name]},
        "language": {"type": "string"},
        "response_format": {"enum": ["json", "text", "verbose_json", "srt", "vtt"]},
    }
    form = {"type": "object", "properties": fields, "required": ["file", "model"], "additionalProperties": False}
    return {"multipart/form-data": {"schema": form}}
