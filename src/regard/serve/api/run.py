"""Run the server on an address until it is stopped."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from regard.errors import MissingExtra
from regard.serve.api.engine import EngineClient, ServedModel
from regard.serve.api.guard import Access
from regard.serve.api.lanes import LaneSettings
from regard.serve.api.limits import RequestLimits
from regard.serve.run import bind, run_server


def make_server(
    models: Sequence[ServedModel],
    settings: LaneSettings,
    access: Access,
    limits: RequestLimits,
    quiet: bool,
    texts: bool = False,
) -> Any:
    """A uvicorn server that is not running yet."""
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn
    except ImportError:
        raise MissingExtra("the server", "serve") from None
    from regard.serve.api.app import make_server_app
    from regard.serve.api.protocol import ServerProtocol

    class ModelServer(uvicorn.Server):
        until = math.inf  # when to give up on requests still under way

        def handle_exit(self, sig: int, frame: Any) -> None:
            """The first signal refuses new requests and finishes those under way; a second one stops at once."""
            if app.admission.draining:
                super().handle_exit(sig, frame)
            app.admission.draining, self.until = True, time.monotonic() + limits.drain

        async def on_tick(self, counter: int) -> bool:
            drained = app.admission.draining and (not app.admission.active or time.monotonic() > self.until)
            return await super().on_tick(counter) or drained

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """SIGTERM and Ctrl-C end the program with code 0."""
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
            yield
            for number, handler in before.items():
                signal.signal(number, handler)

    app = make_server_app(EngineClient(models, settings), access, limits, quiet, texts)
    how: dict[str, Any] = dict(log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=5)
    return ModelServer(uvicorn.Config(app, http=ServerProtocol, ws="none", **how))


def serve_models(
    models: Sequence[ServedModel],
    port: int,
    started: Callable[[str], None],
    settings: LaneSettings = LaneSettings(),  # noqa: B008 - frozen
    access: Access = Access(),  # noqa: B008
    limits: RequestLimits = RequestLimits(),  # noqa: B008
    quiet: bool = False,
    texts: bool = False,
) -> None:
    """Serve until SIGTERM or Ctrl-C; `started` is called with the address once the server answers."""
    server = make_server(models, settings, access, limits, quiet, texts)
    run_server(server, bind(access.host, port), lambda address: started(address.rstrip("/")))
