"""Run an HTTP server, in the foreground or in a thread: shared by the studio and `regard serve`."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from regard.errors import ConfigError, MissingExtra
from regard.serve.studio import Studio

PORT, TRIES = 7347, 20


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free port."""
    try:
        (family, kind, protocol, _, place), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        ours = socket.socket(family, kind, protocol)  # asyncio disables Nagle only if given the protocol
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ours.bind(place)
        ours.listen(1024)
    except (OSError, OverflowError) as e:
        why = getattr(e, "strerror", None) or e
        raise ConfigError(f"--host {host} --port {port}: {why}", "choose another, for example --port 8080") from None
    return ours


def bind_local(port: int) -> socket.socket:
    """A socket on the loopback address: on `port`, or for 0 on the first free port from `PORT` on."""
    for tried in range(PORT, PORT + TRIES - 1) if not port else ():
        try:
            return bind("127.0.0.1", tried)
        except ConfigError:
            continue
    return bind("127.0.0.1", port or PORT + TRIES - 1)


def address(ours: socket.socket) -> str:
    name, number = ours.getsockname()[:2]
    return f"http://{f'[{name}]' if ':' in name else name}:{number}/"


def run_server(server: Any, ours: socket.socket, started: Callable[[str], None]) -> None:
    """Run a uvicorn server until it is stopped; `started` is called with the address once it answers."""

    def report() -> None:
        while not server.started:
            time.sleep(0.01)
        started(address(ours))

    threading.Thread(target=report, daemon=True).start()
    server.run(sockets=[ours])


def studio_server(studio: Studio) -> Any:
    """A uvicorn server that is not running yet."""
    try:
        import fastapi  # noqa: F401
        import uvicorn
    except ImportError:
        raise MissingExtra("the studio", "serve") from None
    from regard.serve.app import make_app

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: Any = None) -> None:
            studio.close()
            await super().shutdown(sockets)

    how: dict[str, Any] = dict(log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=2)
    return Server(uvicorn.Config(make_app(studio), **how))


def warm() -> None:
    """Import torch, which takes a second or two, while the page loads."""
    import regard.inside.look  # noqa: F401


def serve(studio: Studio, port: int, started: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `started` is called with the address once the server is up."""

    def report(place: str) -> None:
        started(place)
        warm()

    run_server(studio_server(studio), bind_local(port), report)
    studio.worker.thread.join(5)  # work stops at its next check; a hanging job ends with the program


@contextmanager
def serve_in_thread(studio: Studio, port: int = 0) -> Iterator[str]:
    """Serve from a thread during the block; yields the address."""
    server, ours = studio_server(studio), bind_local(port)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [ours]}, daemon=True)
    thread.start()
    try:
        yield address(ours)
    finally:
        server.should_exit = True
        thread.join(5)
