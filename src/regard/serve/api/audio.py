"""`POST /v1/audio/transcriptions`: transcribe a recording, with the times of its passages."""

import base64
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from regard.serve.api.bodies import TranscriptionBody, check_body
from regard.serve.api.errors import APIError
from regard.serve.api.openai import engine_of
from regard.serve.api.transcripts import transcript
from regard.serve.api.while_connected import while_connected

router = APIRouter(prefix="/v1/audio")
FILE = "file"  # the name of files in a form
FIELDS, FILES = 32, 256  # of a form, at most


async def read_form(request: Request) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The fields of a multipart form, and its files as inputs of a request."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise APIError(400, "expected multipart/form-data with a file")
    fields: dict[str, Any] = {}
    files = []
    try:
        async with request.form(max_files=FILES, max_fields=FIELDS) as form:
            for name, value in form.multi_items():
                if isinstance(value, UploadFile) and name != FILE:
                    raise APIError(400, f"{name} is a file; expected files under the name {FILE}", name)
                if name == FILE and not isinstance(value, UploadFile):
                    raise APIError(400, f"{FILE} is a text; expected a file: curl -F {FILE}=@NAME", FILE)
                if isinstance(value, UploadFile):
                    data = base64.b64encode(await value.read()).decode()
                    files.append({"file": data, "name": value.filename or ""})
                elif name in fields:
                    raise APIError(400, f"{name} appears twice; expected it once", name)
                else:
                    fields[name] = value
    except HTTPException as e:
        raise APIError(400, f"the form cannot be read: {e.detail}") from None
    return fields, files


@router.post("/transcriptions")
async def transcriptions(request: Request) -> Response:
    fields, files = await read_form(request)
    body = check_body(TranscriptionBody, fields)
    if len(files) != 1:
        raise APIError(400, f"expected one file, got {len(files)}", "file")
    engine = engine_of(request)
    model = engine.find(body.model, "transcriptions")
    timed = body.response_format in ("verbose_json", "srt", "vtt")
    options = ({"language": body.language} if body.language else {}) | ({"timestamps": True} if timed else {})
    answer = await while_connected(request, anext(engine.ask(model, "predict", inputs=files, options=options)))
    shown = transcript(answer["outputs"][0], body.response_format)
    return PlainTextResponse(shown) if isinstance(shown, str) else JSONResponse(shown)
