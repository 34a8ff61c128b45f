"""Start the studio on this machine: in the foreground, or in a thread beside something else."""

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from regard.errors import ConfigError, MissingExtra
from regard.serve.studio import Studio

PORT, TRIES = 7347, 20


def bound(port: int) -> socket.socket:
    """A socket on the loopback address: on `port`, or for 0 on the first free one from the usual on."""
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
    raise ConfigError(f"--port {port or PORT}: {why}", "choose another one, as --port 8080")


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
            studio.close()  # streams end by themselves then
            await super().shutdown(sockets)

    return Server(config)


def warm() -> None:
    """torch takes a second or two to import: while the page loads, not while somebody waits."""
    import regard.inside.look  # noqa: F401


def serve(studio: Studio, port: int, started: Callable[[str], None]) -> None:
    """Answer until Ctrl-C; `started` hears the address as soon as somebody answers there."""
    made, ours = server(studio), bound(port)
    threading.Thread(target=_when_up, args=(made, address(ours), started), daemon=True).start()
    made.run(sockets=[ours])
    studio.worker.thread.join(5)  # whatever it computes ends at its next look; what is stuck ends with the program


def beside(studio: Studio, port: int = 0) -> str:
    """Answer from a thread of its own, as long as the program runs: the address."""
    made, ours = server(studio), bound(port)
    threading.Thread(target=made.run, kwargs={"sockets": [ours]}, daemon=True).start()
    return address(ours)


def _when_up(made: Any, place: str, started: Callable[[str], None]) -> None:
    while not made.started:
        time.sleep(0.01)
    started(place)
    warm()
