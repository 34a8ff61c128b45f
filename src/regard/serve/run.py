"""Start the studio on this machine: in the foreground, or in a thread of another program."""

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from regard.errors import ConfigError, MissingExtra
from regard.serve.studio import Studio

PORT, TRIES = 7347, 20


def bound(port: int) -> socket.socket:
    """A socket on the loopback address: on `port`, or for 0 on the first free port from the default on."""
    why = ""
    for tried in [port] if port else range(PORT, PORT + TRIES):
        ours = socket.socket()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            ours.bind(("127.0.0.1", tried))
            ours.listen(128)
            return ours
        except OSError as e:
            ours.close()
            why = e.strerror
    raise ConfigError(f"--port {port or PORT}: {why}", "choose another, for example --port 8080")


def address(ours: socket.socket) -> str:
    return f"http://127.0.0.1:{ours.getsockname()[1]}/"


def server(studio: Studio) -> Any:
    try:
        import fastapi  # noqa: F401
        import uvicorn
    except ImportError:
        raise MissingExtra("the studio", "serve") from None
    from regard.serve.app import make_app

    app = make_app(studio)
    config = uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=2, server_header=False)

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: Any = None) -> None:
            studio.close()  # which ends the streams
            await super().shutdown(sockets)

    return Server(config)


def warm() -> None:
    """Import torch, which takes a second or two, while the page loads."""
    import regard.inside.look  # noqa: F401


def serve(studio: Studio, port: int, started: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `started` is called with the address once the server is up."""
    app, ours = server(studio), bound(port)
    threading.Thread(target=_when_up, args=(app, address(ours), started), daemon=True).start()
    app.run(sockets=[ours])
    studio.worker.thread.join(5)  # work stops at its next check; what is stuck ends with the program


def beside(studio: Studio, port: int = 0) -> str:
    """Serve from a thread, as long as the program runs; the address."""
    app, ours = server(studio), bound(port)
    threading.Thread(target=app.run, kwargs={"sockets": [ours]}, daemon=True).start()
    return address(ours)


def _when_up(app: Any, place: str, started: Callable[[str], None]) -> None:
    while not app.started:
        time.sleep(0.01)
    started(place)
    warm()
