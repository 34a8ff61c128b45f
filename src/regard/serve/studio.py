"""The state of the studio: two models, a few looks, one worker, and the waiting clients."""

import asyncio
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard.config import model_file
from regard.errors import LimitError, RegardError
from regard.serve.news import Scan
from regard.serve.shelf import Shelf
from regard.serve.worker import Worker

if TYPE_CHECKING:
    from regard.inside.looked import Looked

MODELS, LOOKS, TABS = 2, 24, 64  # kept; the least recently used is evicted first
ROOM = 400 << 20  # bytes of all looks; the newest is kept however large
RATE = 20e6  # bytes per second, the slowest that a model may load
T = TypeVar("T")


class LookExpired(RegardError):
    """A look that was evicted to make room."""

    def __init__(self) -> None:
        super().__init__("this look was evicted to make room", "look again")


class Superseded(Exception):
    """The client does not need this result any more."""


class Ticket:
    """A request of a tab. It is void once the tab sends a newer one, or the client disconnects."""

    def __init__(self, studio: "Studio", tab: str, seq: int):
        self.studio, self.tab, self.seq = studio, tab, seq
        self.void = threading.Event()
        self.reached = ""  # the stage of its work

    def check(self) -> None:
        if self.void.is_set():
            raise Superseded
        if self.studio.worker.current:
            self.studio.worker.alive()

    def stage(self, name: str) -> None:
        self.check()
        self.reached = name


class Studio:
    def __init__(self, shelf: Shelf):
        self.shelf = shelf
        self.worker = Worker()
        self.closing = threading.Event()
        self.models: OrderedDict[str, tuple[int, Any]] = OrderedDict()  # id -> when its weights were written, predictor
        self.looks: OrderedDict[str, tuple[str, Looked]] = OrderedDict()  # look -> id of its model, the look
        self.tickets: OrderedDict[str, Ticket] = OrderedDict()  # tab -> its newest
        self.scan = Scan(shelf)
        self.lock = threading.Lock()

    # -- models and looks -----------------------------------------------------------------------------------------

    def predictor(self, id: str) -> Any:
        """A model, loaded unless the version now on disk is in memory. Call it in the worker only."""
        from regard.tasks.load import load

        folder = self.shelf.folder(id)
        written = model_file(folder).stat().st_mtime_ns
        if id not in self.models or self.models[id][0] != written:
            self.drop(id)
            while len(self.models) >= MODELS:
                self.drop(next(iter(self.models)))
            self.worker.alive(sum(f.stat().st_size for f in folder.glob("*model*.safetensors")) / RATE)
            predictor = load(folder)
            if not self.worker.current:  # loading took so long that another worker replaced this one
                raise Superseded
            self.models[id] = written, predictor
        self.models.move_to_end(id)
        return self.models[id][1]

    def drop(self, id: str) -> None:
        """Evict a model and its looks, which hold references to it."""
        self.models.pop(id, None)
        with self.lock:
            for name in [name for name, (model, _) in self.looks.items() if model == id]:
                del self.looks[name]

    def keep(self, model: str, looked: "Looked") -> str:
        name = secrets.token_hex(8)
        with self.lock:
            self.looks[name] = model, looked
            while len(self.looks) > LOOKS or (len(self.looks) > 1 and self.looks_size() > ROOM):
                self.looks.popitem(last=False)
        return name

    def looks_size(self) -> int:
        return sum(looked.size for _, looked in self.looks.values())

    def looked(self, name: str) -> "Looked":
        with self.lock:
            if name not in self.looks:
                raise LookExpired
            self.looks.move_to_end(name)
            return self.looks[name][1]

    # -- who waits ------------------------------------------------------------------------------------------------

    def ticket(self, tab: str, seq: int) -> Ticket:
        """A ticket for a tab's request, which voids the tab's older one; a request that arrives late is void itself."""
        new = Ticket(self, tab, seq)
        with self.lock:
            old = self.tickets.get(tab)
            if old is not None and old.seq > seq:
                new.void.set()
                return new
            if old is not None:
                old.void.set()
            self.tickets[tab] = new
            self.tickets.move_to_end(tab)
            while len(self.tickets) > TABS:
                self.tickets.popitem(last=False)
        return new

    async def work(self, ticket: Ticket, job: Callable[[], T], gone: Callable[[], Any]) -> T:
        """Run a job in the worker; its ticket is void as soon as `gone`, which is polled, returns true.

        A job without a heartbeat is abandoned with its worker, and a new worker takes over the waiting jobs.
        """

        def checked() -> T:
            ticket.check()
            return job()

        while True:
            worker = self.worker
            future = asyncio.wrap_future(submitted := worker.submit(checked))
            while not (await asyncio.wait([future], timeout=0.2))[0]:
                if self.closing.is_set() or await gone():
                    ticket.void.set()
                if worker is self.worker and worker.stuck:
                    self.worker = Worker()
                    worker.close()
                elif worker is not self.worker and submitted.running():
                    ticket.void.set()
                    raise LimitError(
                        "no answer for a minute, so the work was abandoned", "choose another model or text"
                    )
            if not submitted.cancelled():
                return await future
            if self.closing.is_set():
                raise Superseded

    def news(self, tab: str) -> dict[str, Any]:
        """Fingerprints of the models and runs, and the number and stage of the tab's newest request."""
        ticket = self.tickets.get(tab)
        own = {"seq": ticket.seq, "stage": ticket.reached} if ticket else {"seq": 0, "stage": ""}
        return self.scan() | own

    def close(self) -> None:
        self.closing.set()
        for ticket in list(self.tickets.values()):
            ticket.void.set()
        self.worker.close()


def shelf(runs: Path, model: str = "") -> tuple[Shelf, str]:
    """The shelf of all runs and cached models, and the id of `model`: a run, a folder, or a name to fetch."""
    from regard.data.folders import cache_folder

    roots = {"runs": runs.absolute(), "cache": (cache_folder() / "models").absolute()}
    if not model:
        return Shelf(roots, {}), ""
    from regard.config import no_run
    from regard.models.fetched import resolve

    inside = runs / model
    folder = (inside if (inside / "config.json").is_file() else resolve(model)).absolute()
    if not (folder / "config.json").is_file():
        raise no_run(folder)
    for id, listed in Shelf(roots, {}).folders():
        if listed.samefile(folder):
            return Shelf(roots, {}), id
    return Shelf(roots, {f"model/{folder.name}": folder}), f"model/{folder.name}"
