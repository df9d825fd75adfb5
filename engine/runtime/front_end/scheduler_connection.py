"""The connection to the scheduler's process: it is made again when it ends, and lost calls are repeated."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from engine.runtime.concurrency.background import mark_retrieved
from engine.runtime.concurrency.open_calls import OpenCalls
from engine.runtime.contract.errors import (
    OUTCOME_UNKNOWN,
    STARTING,
    ActorDied,
    DetectorUnavailable,
    shutting_down,
)
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.transport.link_client import LinkClient
from engine.runtime.transport.messages import Note
from snapshots.errors import StorageError

T = TypeVar("T")

Connect = Callable[[], Awaitable[LinkClient]]
"""Returns a connection to the scheduler's process, which is ready to answer.

Raises OSError and ActorDied if that may succeed soon, StorageError and Unreachable if not.
"""

_SOON_S: Final = 5.0
"""How long `ask_soon` may take."""
_START_S: Final = 120.0
_OUT_OF_REACH: Final = "the directory of tokens and detectors cannot be reached: {}"


class Unreachable(Exception):
    """No later attempt to connect can succeed."""


class SchedulerConnection:
    """Calls the scheduler's process. A call during which the connection ends is made again on the next one.

    `noted` is called with the scheduler's notes, and `lost` when a connection ends.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        connect: Connect,
        noted: Callable[[Note], None],
        lost: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._noted = noted
        self._lost = lost
        self._client: LinkClient | None = None
        self._connecting: asyncio.Task[LinkClient] | None = None
        self._calls = OpenCalls(settings.deadline_s)

    async def start(self) -> None:
        """Connect to the scheduler's process. Raises StorageError and DetectorUnavailable."""
        reason = ""
        try:
            async with asyncio.timeout(_START_S):
                while True:
                    try:
                        await self.client()
                    except (ActorDied, OSError) as error:
                        reason = str(error)
                        await asyncio.sleep(self._settings.ask_s)
                    else:
                        return
        except Unreachable as error:
            raise StorageError(str(error)) from error
        except TimeoutError:
            raise self._out_of_reach(reason) from None

    async def close(self) -> None:
        """End the connection."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._client is not None:
            self._client.close()

    def refused(self) -> bool:
        """Whether `refuse_all` was called."""
        return self._calls.refused()

    def refuse_all(self) -> None:
        """Refuse all pending and future calls. The outcome of pending changes is unknown."""
        self._calls.refuse_all()

    def note(self, name: str, body: bytes = b"") -> None:
        """Send a note to the scheduler's process, if it can be reached."""
        if self._client is not None:
            self._client.note(name, body)

    @property
    def usable(self) -> bool:
        """Whether there is a connection."""
        return self._client is not None and self._client.link.usable

    async def client(self) -> LinkClient:
        """Return the connection, or make one, once. Concurrent callers share the attempt.

        Raises what `Connect` raises.
        """
        if self._client is not None and self.usable:
            return self._client
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._reconnect())
            self._connecting.add_done_callback(mark_retrieved)
        return await asyncio.shield(self._connecting)

    async def ask(self, method: str, kind: type[T], *arguments: object, harmless: bool = False) -> T:
        """Call a method; raise what it raises, and what `repeat` raises."""
        return await self.repeat(lambda client: client.ask(method, kind, *arguments), harmless=harmless)

    async def ask_soon(self, method: str, kind: type[T], *arguments: object) -> T:
        """Call a harmless method. Raises DetectorUnavailable 1501 already after 5 s."""
        try:
            async with asyncio.timeout(_SOON_S):
                return await self.ask(method, kind, *arguments, harmless=True)
        except TimeoutError:
            raise self._out_of_reach("it does not answer") from None

    async def repeat(self, call: Callable[[LinkClient], Awaitable[T]], *, harmless: bool = False) -> T:
        """Make a call, and again on another connection if one ends, until the deadline.

        Raises DetectorUnavailable: 1502 if the call was made and is not harmless, 1501 otherwise, and 1503
        after `refuse_all`.
        """
        if self._calls.refused():
            raise shutting_down()
        reason = "it does not answer"
        made = False
        try:
            async with self._calls.one():
                while True:
                    try:
                        client = await self.client()
                        made = True
                        return await call(client)
                    except (ActorDied, OSError) as error:
                        reason = str(error)
                    await asyncio.sleep(self._settings.ask_s)
        except (Unreachable, StorageError) as error:
            reason = str(error)
        except TimeoutError:
            if self._calls.refused() and (harmless or not made):
                raise shutting_down() from None
        if made and not harmless:
            why = "the server is shutting down" if self._calls.refused() else _OUT_OF_REACH.format(reason)
            message = f"{why}; the outcome of the request is unknown"
            raise DetectorUnavailable(OUTCOME_UNKNOWN, message, self._settings.retry_s)
        raise self._out_of_reach(reason)

    async def _reconnect(self) -> LinkClient:
        try:
            client = await self._connect()
            client.noted, client.ended = self._noted, self._lost
            self._client = client
            return client
        finally:
            self._connecting = None

    def _out_of_reach(self, reason: str) -> DetectorUnavailable:
        return DetectorUnavailable(STARTING, _OUT_OF_REACH.format(reason), self._settings.retry_s)
