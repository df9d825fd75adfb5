"""The serving end of a link: executes what the other process requests."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from engine.language.diagnostics import Refusal
from engine.runtime.contract.errors import DetectorUnavailable, Superseded, encode_failure
from engine.runtime.contract.requests.calls import Reply
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
    Refusing,
    Request,
    Response,
    Returned,
    Unavailable,
    Unknown,
    Withdraw,
    bytes_of,
    encoder,
    requests,
)
from snapshots.errors import StorageError

_log = logging.getLogger(__name__)

MOVED: Exception = LookupError("the detector is not here")
"""The outcome of a batch whose detector is not here any more."""

Outcome = Reply | Exception
Methods = Mapping[str, Callable[..., Awaitable[Any]]]


Release = Callable[[], None]
"""Drops a batch in progress: its caller is gone."""
Submit = Callable[[Batch, Callable[[Outcome], None]], Release | None]
"""Takes a batch, and calls back once with its outcome. Returns None if it has called back already."""


@dataclass(eq=False)
class ServerConnection:
    """Serves one connection until it ends, then withdraws its pending batches.

    What is asked for is executed to its end, even if the other process no longer waits or is gone: a caller
    that leaves must not cut a change short.
    """

    methods: Methods
    """Those that can be asked for."""
    submit: Submit | None = None
    abandonable: Collection[str] = ()
    """The methods that do something for nobody but the caller: they are cancelled when it is gone."""
    noted: Callable[[Note], None] = lambda _: None
    """Called with notes."""
    lost: Callable[[], None] = lambda: None
    """Called when the other process is gone."""
    heard: int = 0
    """How often messages arrived."""
    _link: Link | None = None
    _batches: dict[int, Release] = field(default_factory=dict)
    _asks: dict[int, tuple[str, asyncio.Task[None]]] = field(default_factory=dict)
    """The methods and the tasks of unanswered asks, by their numbers."""
    _announced: dict[int, Answered] = field(default_factory=dict)
    """The answers that are sent once they are fetched, by the numbers of their batches."""

    @property
    def under_way(self) -> int:
        return len(self._batches) + len(self._asks)

    @property
    def connected(self) -> bool:
        """Whether the other process is there."""
        return self._link is not None

    @property
    def waiting(self) -> int:
        return 0 if self._link is None else self._link.waiting

    def link(self) -> Link:
        """Make the link to serve, for a connection that is about to be made."""
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
        release = self.submit(batch, partial(self._settle, batch.number))
        if release is not None:
            self._batches[batch.number] = release

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
        # Without batches there are no more answers that could go in the same frame.
        self._send(message, at_once=not self._batches)

    def _withdraw(self, number: int) -> None:
        self._announced.pop(number, None)
        if (release := self._batches.pop(number, None)) is not None:
            release()
        method, task = self._asks.get(number, ("", None))
        if task is not None and method in self.abandonable:
            task.cancel()

    def _confirm(self, numbers: Sequence[int]) -> None:
        """Announce answers again that are not fetched yet, and tell what is not under way here."""
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
    match error:
        case Refusal():
            return Refusing(number, error.entries)
        case DetectorUnavailable():
            return Unavailable(number, error.code, error.message, error.retry_after_s)
        case StorageError() | Superseded():
            pass
        case _:
            fields = {"operation": operation}
            _log.error("a call from another process failed", exc_info=error, extra={"fields": fields})
    return Failed(number, encode_failure(error))
