"""`POST /v1/predict/{model}`: one endpoint for every task, through the predictor protocol."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from regard.serve.api.audio import read_form
from regard.serve.api.bodies import PredictBody, check_body, parse_body, parse_json
from regard.serve.api.errors import APIError
from regard.serve.api.openai import engine_of
from regard.serve.api.while_connected import while_connected

router = APIRouter(prefix="/v1/predict")


@router.post("/{name:path}")
async def predict(request: Request, name: str) -> Response:
    """Accepts JSON, or a form with one or more files and `options` as JSON."""
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        fields, files = await read_form(request)
        if "inputs" in fields or not files:
            raise APIError(400, "the inputs of a form are its files; send others as JSON", "inputs")
        values = {name: parse_json(value.encode(), f"the field {name}") for name, value in fields.items()}
        body = check_body(PredictBody, values | {"inputs": files})
    else:
        body = parse_body(PredictBody, await request.body())
    engine = engine_of(request)
    model = engine.find(name, "predict")
    request.app.state.limits.check_inputs(len(body.inputs), "inputs")
    question = dict(inputs=body.inputs, options=body.options, explain=body.explain)
    answer = await while_connected(request, anext(engine.ask(model, "predict", **question)))
    task = (model.about or {})["task"]
    shown = {name: answer[name] for name in ("outputs", "explanations") if name in answer}
    return JSONResponse({"model": name, "task": task, **shown})
