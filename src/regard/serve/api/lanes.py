"""The threads of the engine process, one per model: requests in, answers out.

A model that writes token by token has a scheduler, whose batch requests join and leave at every step. Any other model
answers the inputs of a few milliseconds together; its predictor sorts them by length.
"""

import queue
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.serve.api.errors import APIError, as_error
from regard.serve.api.traffic import write_log
from regard.ticks import Console

if TYPE_CHECKING:
    from regard.generate.request import Event, Sampling
    from regard.generate.scheduler import Scheduler
    from regard.generate.text import TextStream
    from regard.tasks.base import Task

Message = dict[str, Any]
Send = Callable[[Message], None]
DEADLINE = 0.004  # seconds that an input waits for others to join its batch
TOGETHER = 256  # inputs per batch
SILENT = Console(quiet=True)
REPORT_EVERY = 0.25  # seconds between two reports of a lane's load


@dataclass(frozen=True, kw_only=True)
class LaneSettings:
    """How a model is opened."""

    device: str = "cpu"  # auto: a GPU if there is one
    weights: str = "fp32"  # how a CPU stores them
    slots: int = 16  # sequences decoded together
    context: int = 0  # tokens of prompt and answer together; 0: as many as the model can
    most: Mapping[str, float] = field(default_factory=dict)  # limits of one input, by unit: pixels, seconds


class Lane:
    """A model and the requests to it. A subclass answers them in `run`, until a `close` message."""

    def __init__(self, task: "Task", predictor: Any, send: Send, most: Mapping[str, float]):
        self.task, self.predictor, self.send, self.most = task, predictor, send, most
        self.closing = self.ended = False
        self.inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.batches: list[int] = []  # their sizes, since the last report
        self.reported = 0.0

    def run(self) -> None:
        raise NotImplementedError

    def about(self) -> Message:
        """What the server reports about the model."""
        task, predictor = self.task, self.predictor
        return {
            "task": task.name,
            "folder": str(predictor.folder.absolute()),
            "reads": task.reads,
            "endpoints": [*task.endpoints, "predict"],
            "settings": {name: setting.schema() for name, setting in task.request_settings.items()},
            "input": task.input_schema(predictor),
        }

    def load(self) -> Message:
        """The lane's load, for the server's metrics."""
        return {}

    def report_load(self, idle: bool) -> None:
        """Report the load every `REPORT_EVERY` seconds, and when there is nothing to do."""
        if idle or time.monotonic() - self.reported > REPORT_EVERY:
            self.send({"stats": {"batches": self.batches, **self.load()}})
            self.batches, self.reported = [], time.monotonic()

    def fail(self, id: int, e: BaseException) -> None:
        if not isinstance(e, RegardError | APIError):
            write_log("".join(traceback.format_exception(e)).rstrip())
        self.send({"id": id, "error": as_error(e)})

    def inputs(self, values: Sequence[Any]) -> list[Any]:
        """The input for each value of a request, each as a list of one."""
        inputs = []
        for number, value in enumerate(values):
            with tempfile.TemporaryDirectory(prefix="regard-") as folder:
                try:
                    one = self.task.request_input(self.predictor, value, Path(folder), SILENT, self.most)
                except RegardError as e:
                    what = f"inputs[{number}]: {str(e).replace(f'{folder}/', '')}"
                    raise APIError(as_error(e)["status"], what, f"inputs[{number}]") from None
            if len(one) != 1:
                raise APIError(400, f"inputs[{number}] holds {len(one)} {self.task.unit}; expected one per input")
            inputs.append(one)
        return inputs


# -- models that answer a batch at a time -------------------------------------------------------------------------


@dataclass
class PendingRequest:
    """A request that waits for its batch: its inputs, and how to answer them."""

    id: int
    inputs: list[Any]
    options: dict[str, Any]
    explain: bool


class AnsweringLane(Lane):
    def run(self) -> None:
        while not self.closing:
            questions = [question for message in self.gather() if (question := self.parse(message))]
            groups: dict[Any, list[PendingRequest]] = defaultdict(list)
            for question in questions:
                key = tuple(sorted(question.options.items())) if self.task.joins else question.id
                groups[key].append(question)
            for group in groups.values():
                self.answer(group)
                self.batches.append(sum(len(question.inputs) for question in group))
            self.report_load(self.inbox.empty())
        self.ended = True

    def gather(self) -> list[Message]:
        """Wait for a request, then add what else arrives before the deadline."""
        messages = [self.inbox.get()]
        end, size = time.monotonic() + DEADLINE, len(messages[0].get("inputs", ()))
        with suppress(queue.Empty):
            while size < TOGETHER:
                messages.append(self.inbox.get(timeout=max(0.0, end - time.monotonic())))
                size += len(messages[-1].get("inputs", ()))
        self.closing = any(message["do"] == "close" for message in messages)
        gone = {message["id"] for message in messages if message["do"] in ("cancel", "close")}
        return [message for message in messages if message["id"] not in gone]

    def parse(self, message: Message) -> PendingRequest | None:
        try:
            options = self.task.check_settings(message["options"])
            inputs = self.inputs(message["inputs"])
            return PendingRequest(message["id"], inputs, options, message.get("explain", False))
        except Exception as e:
            self.fail(message["id"], e)
            return None

    def answer(self, questions: list[PendingRequest]) -> None:
        """Run the batch; if it fails, run its requests one by one so that only the faulty one gets the error."""
        try:
            answers = iter(self.predict([one for q in questions for one in q.inputs], questions[0].options))
            replies = [self.reply(q, [next(answers) for _ in q.inputs]) for q in questions]
        except Exception as e:
            if len(questions) == 1:
                self.fail(questions[0].id, e)
            else:
                for question in questions:
                    self.answer([question])
            return
        for reply in replies:
            self.send(reply)

    def reply(self, question: PendingRequest, answers: list[Any]) -> Message:
        task, inputs = self.task, question.inputs
        reply = {"id": question.id, "outputs": [task.to_json(answer) for answer in answers], "last": True}
        if question.explain:
            pairs = zip(inputs, answers, strict=True)
            reply["explanations"] = [task.explain(self.predictor, one, answer) for one, answer in pairs]
        return reply | {"tokens": sum(task.count_tokens(self.predictor, one) for one in inputs)}

    def predict(self, inputs: list[Any], options: dict[str, Any]) -> list[Any]:
        if self.task.joins:
            return list(self.predictor.predict([x for one in inputs for x in one], **options))
        return [answer for one in inputs for answer in self.predictor.predict(one, **options)]


# -- models that write token by token -----------------------------------------------------------------------------


@dataclass
class Choice:
    """One of the texts of a request."""

    index: int
    text: "TextStream"
    tokens: list[Message] = field(default_factory=list)  # not sent yet, with their log-probabilities
    sent: int = 0  # tokens sent so far
    piece: str = ""  # text not sent yet
    finish: str = ""


@dataclass
class Writing:
    """A request that is being written: its choices by the scheduler's keys."""

    id: int
    settings: "Sampling"
    stream: bool
    predict: bool  # whether to send outputs of the task instead of text
    prompt_tokens: int
    choices: dict[int, Choice] = field(default_factory=dict)
    completion_tokens: int = 0
    open: int = 0
    began: float = field(default_factory=time.monotonic)
    first: float | None = None  # when its first token came

    def times(self) -> Message:
        """Seconds to the first token, and between tokens of the same text; None if each text has one token."""
        now, first = time.monotonic(), self.first or time.monotonic()
        gaps = self.completion_tokens - len(self.choices)
        return {"first": first - self.began, "between": (now - first) * len(self.choices) / gaps if gaps > 0 else None}


class WritingLane(Lane):
    scheduler: "Scheduler"

    def __init__(self, task: "Task", predictor: Any, send: Send, settings: LaneSettings):
        super().__init__(task, predictor, send, settings.most)
        from regard.generate.scheduler import Scheduler
        from regard.nn.linear import takes
        from regard.nn.packed import pack_

        engine = predictor.engine
        if takes(engine.model.token.weight):
            pack_(engine.model)
        self.scheduler = Scheduler(engine.model, engine.ends, slots=settings.slots, capacity=settings.context)
        self.requests: dict[int, Writing] = {}
        self.owners: dict[int, Writing] = {}  # by the scheduler's keys

    def about(self) -> Message:
        return super().about() | {"context": self.scheduler.capacity}

    def run(self) -> None:
        while not self.closing or self.scheduler.active:
            waiting = [] if self.scheduler.active else [self.inbox.get()]
            with suppress(queue.Empty):
                while True:
                    waiting.append(self.inbox.get_nowait())
            for message in waiting:
                self.take(message)
            try:
                for event in self.scheduler.step():
                    self.pass_on(event)
                self.batches.append(self.scheduler.decoding)
                self.report_load(not self.scheduler.active)
            except Exception as e:  # out of memory, or a bug: fail the requests of this batch, not the server
                self.scheduler.reset()
                ids, self.requests, self.owners = list(self.requests), {}, {}
                for id in ids:
                    self.fail(id, e)
        self.ended = True

    def load(self) -> Message:
        scheduler = self.scheduler
        used = sum(row.place for row in scheduler.rows) / (scheduler.size * scheduler.capacity)
        return {"running": len(scheduler.rows), "waiting": len(scheduler.waiting), "cache": used}

    def take(self, message: Message) -> None:
        id = message["id"]
        if message["do"] in ("cancel", "close"):
            self.closing |= message["do"] == "close"
            self.drop(id)
            return
        try:
            self.begin(message)
        except Exception as e:
            self.drop(id)
            self.fail(id, e)

    def begin(self, message: Message) -> None:
        from regard.generate.text import TextStream

        id, prompts = message["id"], self.prompts(message)
        settings = self.sampling(message, max(map(len, prompts)))
        request = Writing(
            id, settings, message.get("stream", False), message["do"] == "predict", sum(map(len, prompts))
        )
        self.requests[id] = request
        for prompt in prompts:
            self.scheduler.fit(len(prompt), settings.max_tokens)  # check all prompts before any is started
        for number, prompt in enumerate(prompts):
            for nth in range(settings.n):
                choice = Choice(
                    number * settings.n + nth, TextStream(self.predictor.tokenizer.token_bytes, settings.stop)
                )
                key = self.scheduler.add(prompt, settings, nth, self.enough, id)
                request.choices[key], self.owners[key] = choice, request
                request.open += 1

    def prompts(self, message: Message) -> list[list[int]]:
        """The token ids of each prompt."""
        predictor = self.predictor
        if message.get("explain"):
            raise APIError(400, f"explain is not for {self.task.name}; leave it out", "explain")
        if message["do"] == "chat":
            from regard.data.records import render

            return [predictor.encode(render(message["messages"], predictor.tokenizer, True), special=True)]
        if message["do"] == "predict":
            texts = [text for one in self.inputs(message["inputs"]) for text in one]
            return [predictor.encode(text, bool(predictor.template)) for text in predictor.asked(texts)]
        return [list(p) if isinstance(p, list) else predictor.encode(p) for p in message["prompts"]]

    def sampling(self, message: Message, longest: int) -> "Sampling":
        from regard.generate.request import Sampling

        if message["do"] == "predict":
            usual = {name: setting.default for name, setting in self.task.request_settings.items()}
            values: Mapping[str, Any] = usual | self.task.check_settings(message["options"])
            limit = values["max_tokens"] if "max_tokens" in message["options"] else None
        else:
            values, limit = message["sampling"], message["sampling"].get("max_tokens")
        values = {**values, "stop": tuple(values.get("stop", ()))}
        if limit is None:  # the default, or what still fits
            values["max_tokens"] = min(self.scheduler.fit(longest), values.get("max_tokens") or 1 << 30)
        return Sampling(**values)

    def enough(self, key: int, id: int) -> bool:
        choice = self.owners[key].choices[key]
        choice.piece += choice.text.feed(id)
        return choice.text.stopped

    def pass_on(self, event: "Event") -> None:
        """Send a row's new tokens to its request: at once if it streams, else when the text is complete."""
        request = self.owners[event.row]
        choice = request.choices[event.row]
        request.completion_tokens += len(event.ids)
        request.first = request.first or time.monotonic()
        if request.settings.logprobs:
            rows = zip(event.ids, event.logprobs, event.top, strict=True)
            choice.tokens += [self.token(id, p) | {"top": [self.token(*t) for t in top]} for id, p, top in rows]
        if event.finish:
            choice.piece += choice.text.close()
            choice.finish = event.finish
            request.open -= 1
            del self.owners[event.row]
        if not request.open:
            del self.requests[request.id]
        if request.predict:
            if not request.open:
                self.send({"id": request.id, "outputs": self.outputs(request), "last": True, **self.usage(request)})
        elif event.finish or (request.stream and choice.piece):
            self.send(self.report(request, choice))

    def report(self, request: Writing, choice: Choice) -> Message:
        """A choice's new text, and the new tokens whose text is sent; those of a stop string are left out."""
        text = choice.text
        sure = text.count if choice.finish else sum(begin < text.shown for begin in text.begins)
        tokens, choice.tokens = choice.tokens[: sure - choice.sent], choice.tokens[sure - choice.sent :]
        piece, choice.piece, choice.sent = choice.piece, "", sure
        report = {"id": request.id, "index": choice.index, "text": piece, "tokens": tokens, "finish": choice.finish}
        return report | {"last": not request.open} | ({} if request.open else self.usage(request))

    def usage(self, request: Writing) -> Message:
        tokens = {"prompt_tokens": request.prompt_tokens, "completion_tokens": request.completion_tokens}
        return tokens | request.times()

    def outputs(self, request: Writing) -> list[Any]:
        from regard.generate.text import Written

        return [self.task.to_json(Written(text=c.piece, finish=c.finish)) for c in request.choices.values()]

    def token(self, id: int, logprob: float) -> Message:
        data = self.predictor.tokenizer.token_bytes(id)
        return {"token": data.decode("utf-8", "replace"), "bytes": list(data), "logprob": logprob}

    def drop(self, id: int) -> None:
        """Cancel a request."""
        request = self.requests.pop(id, None)
        for key in list(request.choices) if request else ():
            self.scheduler.cancel(key)
            self.owners.pop(key, None)


def open_lane(path: str, settings: LaneSettings, send: Send) -> Lane:
    """Load a model and make its lane."""
    from regard.tasks.load import open_model
    from regard.tasks.use import pick_device

    task, predictor = open_model(path, pick_device(settings.device), settings.weights)
    if task.writes:
        return WritingLane(task, predictor, send, settings)
    return AnsweringLane(task, predictor, send, settings.most)
