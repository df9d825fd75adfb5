"""The serving end of a link: executes calls of other processes, and queues batches."""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from engine.language.diagnostics import Refusal
from engine.runtime.contract.errors import DetectorUnavailable, Superseded, encode_failure
from engine.runtime.contract.requests.calls import Reply, Took
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.transport.link import (
    ANNOUNCED_BYTES,
    Announced,
    Answered,
    Ask,
    Batch,
    Confirm,
    Failed,
    Fetch,
    Link,
    Moved,
    Note,
    Request,
    Response,
    Returned,
    Unknown,
    Withdraw,
    bytes_of,
    encoder,
    requests,
)
from snapshots.errors import StorageError

_log = logging.getLogger(__name__)

MOVED: Exception = LookupError("the detector is not here")
"""The outcome of a batch whose activation is not here any more."""

Outcome = Reply | Exception
Methods = Mapping[str, Callable[..., Awaitable[Any]]]


@dataclass(eq=False, slots=True)
class Submission:
    """A batch of another process, and the callback that receives its outcome once."""

    operations: list[Operation]
    settled: Callable[[Outcome], None]
    since_s: float
    """When it arrived, in the loop's time."""
    done: bool = False
    """Whether it is answered, or its caller is gone."""

    def settle(self, outcome: Outcome) -> None:
        """Answer the batch, unless it is answered already."""
        if not self.done:
            self.done = True
            self.settled(outcome)


class WaitingBatches:
    """Batches for one detector, in order of arrival; they are executed together, within bounds."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self._settings = settings
        self.submissions: deque[Submission] = deque()

    def __len__(self) -> int:
        return len(self.submissions)

    def take(self) -> list[Submission]:
        """Return the batches to execute together, within the bounds, but at least one if any waits."""
        taken: list[Submission] = []
        operations_left = self._settings.batch_operations_max
        bytes_left = self._settings.batch_bytes_max
        waiting = self.submissions
        while waiting:
            submission = waiting[0]
            if not submission.done:
                operations_left -= len(submission.operations)
                bytes_left -= sum([len(operation.payload) for operation in submission.operations])
                if taken and (operations_left < 0 or bytes_left < 0):
                    break
                taken.append(submission)
            waiting.popleft()
        return taken

    def put_back(self, taken: list[Submission]) -> None:
        """Put batches that were taken but not started back at the front."""
        self.submissions.extendleft(reversed(taken))

    def answer(self, taken: list[Submission], reply: Reply, now_s: float) -> None:
        """Give each batch its answers. Batches without any were not started, and come first next time."""
        answers, crash = reply.answers, reply.crash
        assert answers or crash is not None, "a reply has at least one answer"
        begin = 0
        for number, submission in enumerate(taken):
            end = begin + len(submission.operations)
            own = answers[begin:end]
            crashed = crash if len(own) < len(submission.operations) else None
            if not own and crashed is None:
                self.put_back(taken[number:])
                return
            submission.settle(Reply(own, crashed, took=_took(submission, reply.took, now_s)))
            if crashed is not None:
                self.put_back(taken[number + 1 :])
                return
            begin = end

    def refuse(self, outcome: Outcome) -> None:
        """Answer all batches with the same outcome."""
        while self.submissions:
            self.submissions.popleft().settle(outcome)


def operations_of(taken: Iterable[Submission]) -> list[Operation]:
    """Return the operations of batches, in order."""
    return [operation for submission in taken for operation in submission.operations]


def settle(taken: Iterable[Submission], outcome: Outcome) -> None:
    """Answer batches with the same outcome."""
    for submission in taken:
        submission.settle(outcome)


def _took(submission: Submission, together: Took | None, now_s: float) -> Took | None:
    """Return how a batch's time was spent, given the measurements of the batches executed with it."""
    if together is None:
        return None
    busy_s = together.evaluated_s + together.synced_s
    return together._replace(waited_s=max(0.0, now_s - submission.since_s - busy_s))


Submit = Callable[[int, Submission], None]
"""Takes a batch for the activation of an epoch, and settles it eventually, perhaps at once."""


@dataclass(eq=False)
class ServerConnection:
    """Serves one connection until it ends, then withdraws its pending batches.

    Calls are executed to their end even if the other process no longer waits or is gone, so that it cannot
    cut a change short.
    """

    methods: Methods
    """The methods that can be called."""
    submit: Submit | None = None
    abandonable: Collection[str] = ()
    """The methods that serve only their caller, and are cancelled when it is gone."""
    noted: Callable[[Note], None] = lambda _: None
    """Called with received notes."""
    lost: Callable[[], None] = lambda: None
    """Called when the other process is gone."""
    heard: int = 0
    """How often messages have arrived."""
    _link: Link | None = None
    _batches: dict[int, Submission] = field(default_factory=dict)
    _asks: dict[int, tuple[str, asyncio.Task[None]]] = field(default_factory=dict)
    """The methods and the tasks of unanswered asks, by their numbers."""
    _announced: dict[int, Answered] = field(default_factory=dict)
    """The announced answers, by the numbers of their batches."""

    @property
    def under_way(self) -> int:
        return len(self._batches) + len(self._asks)

    @property
    def connected(self) -> bool:
        """Whether the other process is connected."""
        return self._link is not None

    @property
    def waiting(self) -> int:
        return 0 if self._link is None else self._link.waiting

    def link(self) -> Link:
        """Make the link of a new connection."""
        link = self._link = Link(requests, back_pressure=True)
        link.take, link.lost = self._take, self._lost
        return link

    async def start(self, end: socket.socket) -> None:
        """Begin to serve the process at the other end of a socket pair."""
        await asyncio.get_running_loop().create_unix_connection(self.link, sock=end)

    def note(self, name: str, body: bytes = b"") -> None:
        self._send(Note(name, body))

    def close(self) -> None:
        """End the connection and withdraw its pending requests."""
        if self._link is not None:
            self._link.abort()

    def _send(self, message: Response, *, at_once: bool = False) -> None:
        if self._link is not None:
            self._link.send(message, at_once=at_once)

    # -- incoming --------------------------------------------------------------------------------------------

    def _take(self, messages: Sequence[Request]) -> None:
        self.heard += 1
        for message in messages:
            match message:
                case Batch():
                    self._begin(message)
                case Withdraw():
                    self._withdraw(message.number)
                case Fetch():
                    if (answered := self._announced.pop(message.number, None)) is not None:
                        self._send(answered, at_once=True)
                case Ask():
                    task = asyncio.create_task(self._answer(message))
                    self._asks[message.number] = message.method, task
                    task.add_done_callback(partial(self._ask_over, message.number))
                case Note():
                    self.noted(message)
                case Confirm():
                    self._confirm(message.numbers)

    def _begin(self, batch: Batch) -> None:
        assert self.submit is not None, "this process executes no batches"
        now_s, settled = asyncio.get_running_loop().time(), partial(self._settle, batch.number)
        submission = self._batches[batch.number] = Submission(batch.operations, settled, now_s)
        self.submit(batch.epoch, submission)

    def _settle(self, number: int, outcome: Outcome) -> None:
        self._batches.pop(number, None)
        message: Response = (
            Answered(number, outcome.answers, outcome.crash, outcome.took)
            if isinstance(outcome, Reply)
            else _raised(number, outcome, "batch")
        )
        if isinstance(message, Answered) and (size := bytes_of(message.answers)) > ANNOUNCED_BYTES:
            self._announced[number] = message
            message = Announced(number, size)
        # Without batches in progress, no further answers could share the frame.
        self._send(message, at_once=not self._batches)

    def _withdraw(self, number: int) -> None:
        self._announced.pop(number, None)
        if (submission := self._batches.pop(number, None)) is not None:
            submission.done = True
        method, task = self._asks.get(number, ("", None))
        if task is not None and method in self.abandonable:
            task.cancel()

    def _confirm(self, numbers: Sequence[int]) -> None:
        """Announce unfetched answers again, and report the requests that are not in progress here."""
        for number in numbers:
            if (answered := self._announced.get(number)) is not None:
                self._send(Announced(number, bytes_of(answered.answers)))
            elif number not in self._batches and number not in self._asks:
                self._send(Unknown(number))

    async def _answer(self, ask: Ask) -> None:
        try:
            arguments = msgspec.msgpack.decode(ask.arguments)
            result = await self.methods[ask.method](*arguments)
        except Exception as error:  # noqa: BLE001 -- the caller raises it
            self._send(_raised(ask.number, error, ask.method))
            return
        self._send(Returned(ask.number, msgspec.Raw(encoder.encode(result))))

    def _ask_over(self, number: int, _task: asyncio.Task[None]) -> None:
        self._asks.pop(number, None)

    def _lost(self) -> None:
        self._link = None
        self._announced.clear()
        for number in [*self._batches, *self._asks]:
            self._withdraw(number)
        self.lost()


def _raised(number: int, error: Exception, operation: str) -> Response:
    if error is MOVED:
        return Moved(number)
    if not isinstance(error, Refusal | DetectorUnavailable | StorageError | Superseded):
        fields = {"operation": operation}
        _log.error("a call from another process failed", exc_info=error, extra={"fields": fields})
    return Failed(number, encode_failure(error))
