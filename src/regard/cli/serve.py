"""`regard serve`: models over HTTP, for programs."""

import os
from typing import Annotated

import typer

from regard.cli.common import Device, Weights, argument, flag, option, pick_device
from regard.ticks import Console

MODELS = "Run or model folders, .gguf files, or names (regard model list); NAME=FOLDER gives one a name of its own."


def serve(
    ctx: typer.Context,
    models: Annotated[list[str] | None, argument("MODEL…", MODELS)] = None,
    follow: Annotated[
        list[str] | None, option("RUN", "A run in training: serve its best model so far; may be repeated.")
    ] = None,
    port: Annotated[int, option("N", "The port; 0 takes any free one.", default=True, min=0, max=65535)] = 8000,
    host: Annotated[str, option("ADDRESS", "Where to listen; beyond this machine a key is needed.", default=True)] = (
        "127.0.0.1"
    ),
    api_key: Annotated[
        list[str] | None, option("KEY", "Require this key; may be repeated. Visible to others in `ps`.")
    ] = None,
    api_key_file: Annotated[str, option("FILE", "Keys, one a line; or set REGARD_API_KEY.")] = "",
    allow_host: Annotated[list[str] | None, option("NAME", "A host name of this server; may be repeated.")] = None,
    allow_origin: Annotated[
        list[str] | None, option("URL", "Allow requests by pages from this origin; may be repeated.")
    ] = None,
    slots: Annotated[int, option("N", "Texts written at the same time by one model.", default=True, min=1)] = 16,
    context: Annotated[int, option("N", "Tokens of prompt and answer together.", default="the model's own", min=0)] = 0,
    max_requests: Annotated[
        int, option("N", "Requests at the same time, waiting ones included.", default=True, min=1)
    ] = 512,
    max_tokens: Annotated[
        int, option("N", "Most tokens that a request may generate.", "--max-tokens", default="what fits", min=1)
    ] = 1 << 20,
    max_pixels: Annotated[int, option("N", "Most pixels of an image.", default=True, min=1)] = 50_000_000,
    max_seconds: Annotated[float, option("SECONDS", "The longest recording.", default=True, min=0.1)] = 1_800.0,
    timeout: Annotated[float, option("SECONDS", "The longest that a request may take.", default=True, min=0.1)] = 600.0,
    weights: Weights = "fp32",
    manage: Annotated[bool, flag("--manage", "Let clients load, replace and unload models.")] = False,
    log_texts: Annotated[bool, flag("--log-texts", "Log requests and answers too, up to 16 KiB of each.")] = False,
    device: Device = "auto",
) -> None:
    """Serve models over HTTP, with OpenAI's API.

    Language models answer /v1/completions and /v1/chat/completions, text encoders /v1/embeddings, and every model
    /v1/predict/NAME; the address itself is a page to try them. SIGTERM or Ctrl-C finishes what was accepted and stops.

    \b
    Examples:
      regard serve runs/demo
      regard serve smollm2-135m minilm=runs/minilm --port 8080
      regard serve --follow runs/demo
      REGARD_API_KEY=… regard serve runs/demo --host 0.0.0.0 --allow-host models.example.org
    """
    from regard.serve.api.guard import Access, read_keys
    from regard.serve.api.lanes import LaneSettings
    from regard.serve.api.limits import RequestLimits
    from regard.serve.api.names import named_models
    from regard.serve.api.run import serve_models

    console: Console = ctx.obj
    keys = read_keys(api_key or (), api_key_file, os.environ.get("REGARD_API_KEY", ""))
    access = Access(
        host=host,
        keys=keys,
        allowed_hosts=tuple(name.lower() for name in allow_host or ()),
        allowed_origins=tuple(origin.lower().rstrip("/") for origin in allow_origin or ()),
        manage=manage,
    )
    served = named_models(models or (), follow or ())
    most = {"pixels": max_pixels, "seconds": max_seconds}
    settings = LaneSettings(device=usable(device), weights=weights, slots=slots, context=context, most=most)
    limits = RequestLimits(requests=max_requests, max_tokens=max_tokens, seconds=timeout)
    started = lambda address: print(address, flush=True)  # noqa: E731
    serve_models(served, port, started, settings, access, limits, console.quiet, log_texts)
    console.say("stopped")


def usable(device: str) -> str:
    """The device for the engine's process; torch is imported here only to check one that may be missing."""
    return device if device in ("auto", "cpu") else pick_device(device)
