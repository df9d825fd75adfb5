"""Objects that can die at any moment, and two protocols connected without sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from engine.runtime.contract.errors import ActorDied

T = TypeVar("T")

Before = Callable[[str], Awaitable[None]]
"""Runs before a call with this name. A test may delay the call or make it fail."""


class Mortal:
    """Runs calls until it dies; calls in progress then end with ActorDied."""

    def __init__(self) -> None:
        self._death: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def dead(self) -> bool:
        return self._death.done()

    def die(self) -> None:
        """Act as if the process were killed: nothing is saved, and every further call fails."""
        if not self._death.done():
            self._death.set_result(None)

    async def until_death(self) -> None:
        await asyncio.shield(self._death)

    async def _alive(self, work: Awaitable[T]) -> T:
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._death}, return_when=asyncio.FIRST_COMPLETED)
            if self.dead:
                raise ActorDied("it was killed")
            return task.result()
        finally:
            task.cancel()


class Pipe(asyncio.Transport):
    """One end of a connection within this process. Data arrives in the next turn of the loop."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._other: Pipe
        self._closed = False

    @classmethod
    def between(cls, one: asyncio.BufferedProtocol, two: asyncio.BufferedProtocol) -> None:
        first, second = cls(one), cls(two)
        first._other, second._other = second, first
        one.connection_made(first)
        two.connection_made(second)

    def is_closing(self) -> bool:
        return self._closed

    def write(self, data: Any) -> None:
        if not self._closed:
            asyncio.get_running_loop().call_soon(self._other._arrived, bytes(data))

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        loop = asyncio.get_running_loop()
        for end in (self, self._other):
            if not end._closed:
                end._closed = True
                loop.call_soon(end._protocol.connection_lost, None)

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def _arrived(self, data: bytes) -> None:
        while data and not self._closed:
            room = self._protocol.get_buffer(-1)
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self._protocol.buffer_updated(count)


async def no_fault(_: str) -> None:
    return None


async def run(work: Callable[[], T]) -> T:
    return work()
