"""The calling end of a link: numbers its requests, and matches each response to its request."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

import msgspec

from engine.runtime.contract.errors import ActorDied, MessageLost, decode_failure
from engine.runtime.contract.requests.calls import Address
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.transport.connecting import connect
from engine.runtime.transport.link import (
    Announced,
    Ask,
    Batch,
    Confirm,
    Failed,
    Fetch,
    Link,
    Note,
    Response,
    Returned,
    Unknown,
    Withdraw,
    encoder,
    responses,
)

T = TypeVar("T")

Settled = Callable[[Response | None], None]
"""Takes the response to a batch; None if the connection ended before there was one."""

Room = Callable[[int, Callable[[], None]], Callable[[], None]]
"""Calls back once there is room for that many bytes of answers. Returns a function that gives it back."""

_ENDED: Final = "its connection ended"
_CONFIRM_S: Final = 1.0
"""The interval at which unanswered requests are confirmed."""


def _at_once(_bytes: int, fetch: Callable[[], None]) -> Callable[[], None]:
    fetch()
    return lambda: None


class LinkClient:
    """Sends batches, asks and notes to the process at the other end of a link.

    Messages arrive in order. So if the other process does not know a request, and no answer has arrived, then
    the request or its answer was lost, and the request fails: no caller waits forever.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        link.take, link.lost = self._take, self._lost
        self.noted: Callable[[Note], None] = lambda _: None
        """Called with the notes of the other process."""
        self.ended: Callable[[], None] = lambda: None
        """Called once when the connection has ended."""
        self.room: Room = _at_once
        """Gives room for announced answers before they are fetched."""
        self._open: dict[int, Settled] = {}
        self._numbers = 0
        self._loop = asyncio.get_running_loop()
        self._confirming: asyncio.TimerHandle | None = None
        """Set while requests are unanswered."""
        self._rooms: dict[int, Callable[[], None]] = {}
        """Functions that give back the room for announced answers, by the numbers of their batches."""
        self._fetched: set[int] = set()
        """The numbers of the batches whose announced answers have room and are being fetched."""

    @classmethod
    async def to(cls, address: Address) -> Self:
        """Connect to a listening process. Raises OSError."""
        link = Link(responses)
        # The client is made first, because messages may arrive together with the welcome.
        client = cls(link)
        await connect(address, lambda: link)
        if not link.usable:
            raise ConnectionResetError(_ENDED)
        return client

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Connect over one end of a Unix socket pair."""
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: Link(responses), sock=end)
        return cls(link)

    @property
    def under_way(self) -> int:
        """The number of unanswered batches and asks."""
        return len(self._open)

    def send(self, settled: Settled, epoch: int, operations: list[Operation]) -> int:
        """Send a batch, and return its number. `settled` is called once, unless the batch is withdrawn."""
        number = self._begin(settled)
        # While other requests are in progress, messages of one iteration are sent in one frame.
        self.link.send(Batch(number, epoch, operations), at_once=len(self._open) == 1)
        return number

    def withdraw(self, number: int) -> None:
        """Drop a batch or ask whose caller is gone."""
        if self._open.pop(number, None) is not None:
            self._give_back(number)
            self.link.send(Withdraw(number))

    def is_announced(self, number: int) -> bool:
        """Whether the answers to a batch are announced but not received yet."""
        return number in self._rooms

    def note(self, name: str, body: bytes = b"") -> None:
        """Send a note; does nothing if the other process is gone."""
        self.link.send(Note(name, body))

    async def ask(self, method: str, kind: type[T] | Any, *arguments: object) -> T:
        """Call a method of the other process. Raises what the method raises.

        Raises ActorDied if the connection has ended, and MessageLost. In both cases, the method may have been
        executed.
        """
        if not self.link.usable:
            raise ActorDied(_ENDED)
        answer: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()

        def settled(response: Response | None) -> None:
            if not answer.done():
                answer.set_result(response)

        number = self._begin(settled)
        self.link.send(Ask(number, method, msgspec.Raw(encoder.encode(arguments))))
        try:
            response = await answer
        finally:
            self.withdraw(number)
        if response is None:
            raise ActorDied(_ENDED)
        if isinstance(response, Returned):
            return msgspec.msgpack.decode(response.result, type=kind)
        raise error_in(response)

    async def ask_until_answered(self, method: str, kind: type[T] | Any, *arguments: object) -> T:
        """Call a method that may be executed twice; repeat the call if it or its answer is lost."""
        while True:
            with suppress(MessageLost):
                return await self.ask(method, kind, *arguments)

    def close(self) -> None:
        self.link.close()

    def _begin(self, settled: Settled) -> int:
        """Number a request, and confirm it periodically until it is answered."""
        number = self._numbers = self._numbers + 1
        self._open[number] = settled
        if self._confirming is None:
            self._confirming = self._loop.call_later(_CONFIRM_S, self._confirm, number)
        return number

    def _confirm(self, last: int) -> None:
        """Ask whether the open requests up to a number are in progress, and schedule the next check."""
        self._confirming = None
        if self._open:
            self.link.send(Confirm([number for number in self._open if number <= last]))
            self._confirming = self._loop.call_later(_CONFIRM_S, self._confirm, self._numbers)

    def _take(self, messages: Sequence[Response]) -> None:
        for message in messages:
            if isinstance(message, Note):
                self.noted(message)
            elif isinstance(message, Announced):
                self._announced(message)
            elif (settled := self._open.pop(message.number, None)) is not None:
                settled(message)
                if self._rooms:
                    # The callers count the answers from the next iteration on.
                    self._loop.call_soon(self._give_back, message.number)

    def _announced(self, message: Announced) -> None:
        number = message.number
        if number not in self._open:
            self.link.send(Withdraw(number))
            return
        if number not in self._rooms:
            # There may be room at once, or only after other callers have read their answers.
            self._rooms[number] = lambda: None
            self._rooms[number] = self.room(message.bytes, lambda: self._fetch(number))
        elif number in self._fetched:
            self._fetch(number)

    def _fetch(self, number: int) -> None:
        self._fetched.add(number)
        self.link.send(Fetch(number), at_once=True)

    def _give_back(self, number: int) -> None:
        self._fetched.discard(number)
        if (release := self._rooms.pop(number, None)) is not None:
            release()

    def _lost(self) -> None:
        if self._confirming is not None:
            self._confirming.cancel()
        for number in list(self._rooms):
            self._give_back(number)
        pending, self._open = self._open, {}
        for settled in pending.values():
            settled(None)
        self.ended()


def error_in(response: Response) -> Exception:
    """Return the exception that a response carries."""
    if isinstance(response, Failed):
        return decode_failure(response.failure)
    assert isinstance(response, Unknown), "no other response carries one"
    return MessageLost("a message was lost")
