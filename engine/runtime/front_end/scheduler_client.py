"""The client of the scheduler: its calls are repeated when the scheduler's process is lost."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from engine.language.diagnostics import Refusal
from engine.runtime.concurrency.background import mark_retrieved
from engine.runtime.contract.errors import (
    OUTCOME_UNKNOWN,
    STARTING,
    ActorDied,
    DetectorUnavailable,
    shutting_down,
)
from engine.runtime.contract.figures import Status
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.transport.link import Note
from engine.runtime.transport.link_client import LinkClient
from engine.runtime.transport.server_connection import Methods
from snapshots.errors import StorageError

T = TypeVar("T")

Connect = Callable[[], Awaitable[LinkClient]]
"""Returns a connection to the scheduler's process, which is ready to answer.

Raises OSError and ActorDied if a retry may succeed soon, StorageError and Unreachable if not.
"""

_START_S: Final = 120.0
_SOON_S: Final = 5.0
_LEAVE_S: Final = 10.0
"""The timeout for connecting when the service leaves."""

_OUT_OF_REACH: Final = "the directory of tokens and detectors cannot be reached: {}"
_SLOW: Final = "the directory of tokens and detectors has not completed the request within {:g} s"
_SOON: Final = frozenset({"status", "cluster", "add_counts", "report_figures", "newest_firings"})
"""The methods that are answered within `_SOON_S`, or not at all. Repeating them is harmless."""

_HARMLESS: Final = _SOON | {"route", "changes", "logged_changes", "tokens", "tokens_used", "move", "drain"}
"""The methods that may be executed twice."""

_REMOVALS: Final = frozenset({"revoke_token", "delete_detector"})
_METHODS: Final = (
    _HARMLESS
    | _REMOVALS
    | {*("add_token", "create_detector", "fork_detector", "events_spent", "report_changes")}
)

ABANDONABLE: Final = frozenset({"route"})
"""The methods that are cancelled with their caller: a detector is activated only for waiting callers."""


@dataclass(eq=False)
class OpenCalls:
    """The calls in progress, each with a timeout, after which it raises TimeoutError."""

    _deadline_s: float
    _timeouts: set[asyncio.Timeout] = field(default_factory=set)
    _refused: bool = False

    def refused(self) -> bool:
        """Whether `refuse_all` was called. No call may begin afterwards."""
        return self._refused

    def refuse_all(self) -> None:
        """End all calls now."""
        self._refused = True
        for timeout in self._timeouts:
            # An expired call is ending already.
            if not timeout.expired():
                timeout.reschedule(0.0)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Enter the context of one call."""
        async with asyncio.timeout(self._deadline_s) as timeout:
            self._timeouts.add(timeout)
            try:
                yield
            finally:
                self._timeouts.discard(timeout)


class Unreachable(Exception):
    """No later attempt to connect can succeed."""


@dataclass(eq=False)
class SchedulerClient:
    """Calls the scheduler's process.

    A call during which the connection ends is repeated on the next connection. Repeating is safe: callers
    choose the ids of what they create, and if the object of a repeated removal is gone, the first attempt
    removed it.
    """

    _settings: RuntimeSettings
    _connect: Connect
    noted: Callable[[Note], None] = lambda _: None
    """Called with the scheduler's notes."""
    lost: Callable[[], None] = lambda: None
    """Called when a connection ends."""
    not_ready: Callable[[], str | None] = lambda: None
    """Returns the reason if this process cannot serve, else None."""
    problem: Callable[[], str | None] = lambda: None
    """Returns a problem that does not affect active detectors, else None."""
    end: Callable[[], Awaitable[None]] | None = None
    """Ends the scheduler's process; for the client of a service, which may be the last one to leave. None for
    any other client."""
    _client: LinkClient | None = None
    _connecting: asyncio.Task[LinkClient] | None = None
    _last: Status | None = None
    """The last status that the scheduler returned."""
    _unsent: dict[tuple[str, ...], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._calls = OpenCalls(self._settings.deadline_s)

    async def start(self) -> None:
        """Connect to the scheduler's process. Raises StorageError and DetectorUnavailable."""
        reason = ""
        try:
            async with asyncio.timeout(_START_S):
                while True:
                    try:
                        await self._connected()
                    except (ActorDied, OSError) as error:
                        reason = str(error)
                        await asyncio.sleep(self._settings.ask_s)
                    else:
                        return
        except Unreachable as error:
            raise StorageError(str(error)) from error
        except TimeoutError:
            raise self._out_of_reach(reason) from None

    async def close(self) -> list[str]:
        """End the connection. The scheduler keeps serving other clients, if any.

        Returns a sentence for each detector that could not be saved.
        """
        unsaved = [] if self.end is None else await self._leave(self.end)
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._client is not None:
            self._client.close()
        return unsaved

    def refuse_all(self) -> None:
        """Refuse all pending and future calls. The outcome of pending changes is unknown."""
        self._calls.refuse_all()

    def note(self, name: str, body: bytes = b"") -> None:
        """Send a note to the scheduler's process, if it can be reached."""
        if self._client is not None:
            self._client.note(name, body)

    # -- calls -----------------------------------------------------------------------------------------------

    async def ask(self, method: str, kind: type[T], *arguments: object) -> T:
        """Call a method of the scheduler or its catalogue by its name; return a result of that kind.

        Raises what the method raises, and DetectorUnavailable: 1502 if the call was made and must not be
        repeated, 1501 without an answer by the deadline, and 1503 after `refuse_all`. A removal returns 0,
        for an unknown version, if an earlier attempt has removed the object.
        """
        attempts = itertools.count()

        async def attempt(client: LinkClient) -> Any:
            earlier = next(attempts)
            try:
                return await client.ask(method, kind, *arguments)
            except Refusal:
                if not (earlier and method in _REMOVALS):
                    raise
                return 0

        repeated: T
        if method not in _SOON:
            repeated = await self._repeat(attempt, harmless=method in _HARMLESS)
            return repeated
        try:
            async with asyncio.timeout(_SOON_S):
                repeated = await self._repeat(attempt, harmless=True)
                return repeated
        except TimeoutError:
            raise self._out_of_reach("it does not answer") from None

    def relay(self) -> Methods:
        """Return the methods that this process forwards for its front ends."""
        passed_on = {name: partial(self.ask, name, msgspec.Raw) for name in _METHODS}
        return {**passed_on, "status": self.status, "add_counts": self.add_counts}

    async def add_counts(self, counted: Iterable[tuple[Iterable[str], float]]) -> None:
        """Add to the metrics of front ends. Counts that cannot be sent now are sent with the next call."""
        self._add_unsent(counted)
        sent, self._unsent = self._unsent, {}
        try:
            await self.ask("add_counts", type(None), list(sent.items()))
        except DetectorUnavailable:
            self._add_unsent(sent.items())
            raise

    async def status(self) -> Status:
        """Return the scheduler's state; if it cannot be reached, its last known one with that problem added.

        Raises DetectorUnavailable 1501 if no state is known.
        """
        try:
            self._last = await self.ask("status", Status)
        except DetectorUnavailable as error:
            return self.last_status(error)
        return self._judged(self._last)

    def last_status(self, error: DetectorUnavailable) -> Status:
        """Return the last known state with a problem added. Raises the error if no state is known."""
        if self._last is None or self._calls.refused():
            raise error
        problems = [*self._last.problems, error.message]
        return self._judged(msgspec.structs.replace(self._last, problems=problems))

    def _judged(self, status: Status) -> Status:
        """Add what only this process knows."""
        if (not_ready := self.not_ready()) is not None:
            status = msgspec.structs.replace(status, reasons=[*status.reasons, not_ready])
        if (problem := self.problem()) is not None:
            status = msgspec.structs.replace(status, problems=[*status.problems, problem])
        return status

    # -- inside ----------------------------------------------------------------------------------------------

    @property
    def _usable(self) -> bool:
        return self._client is not None and self._client.link.usable

    async def _connected(self) -> LinkClient:
        """Return the connection, or make one. Concurrent callers share the attempt.

        Raises what `Connect` raises.
        """
        if self._client is not None and self._usable:
            return self._client
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._reconnect())
            self._connecting.add_done_callback(mark_retrieved)
        return await asyncio.shield(self._connecting)

    async def _reconnect(self) -> LinkClient:
        try:
            client = await self._connect()
            client.noted, client.ended = self.noted, self.lost
            self._client = client
            return client
        finally:
            self._connecting = None

    async def _repeat(self, call: Callable[[LinkClient], Awaitable[T]], *, harmless: bool) -> T:
        """Make a call, repeating it on a new connection if one ends, until the deadline."""
        if self._calls.refused():
            raise shutting_down()
        reason, made, under_way = "it does not answer", False, False
        try:
            async with self._calls.one():
                while True:
                    try:
                        client = await self._connected()
                        made = under_way = True
                        return await call(client)
                    except (ActorDied, OSError) as error:
                        reason, under_way = str(error), False
                    await asyncio.sleep(self._settings.ask_s)
        except (Unreachable, StorageError) as error:
            reason = str(error)
        except TimeoutError:
            if self._calls.refused() and (harmless or not made):
                raise shutting_down() from None
        if made and not harmless:
            if self._calls.refused():
                why = "the server is shutting down"
            elif under_way:
                why = _SLOW.format(self._settings.deadline_s)
            else:
                why = _OUT_OF_REACH.format(reason)
            message = f"{why}; the outcome of the request is unknown"
            raise DetectorUnavailable(OUTCOME_UNKNOWN, message, self._settings.retry_s)
        raise self._out_of_reach(reason)

    async def _leave(self, end: Callable[[], Awaitable[None]]) -> list[str]:
        """Tell the scheduler that this service leaves. The last service waits until everything is saved."""
        settings = self._settings
        reason = ""
        unsaved: list[str] | None
        try:
            async with asyncio.timeout(settings.shutdown_s + 4 * settings.hung_s):
                while True:
                    if (self.not_ready() or self.problem()) is not None and not self._usable:
                        # All detectors ended with Ray.
                        return []
                    try:
                        async with asyncio.timeout(_LEAVE_S):
                            client = await self._connected()
                        unsaved = await client.ask("leave", list[str] | None)
                    except (ActorDied, OSError) as error:
                        # The successor of a lost scheduler adopts the detectors, and saves them.
                        reason = str(error) or "it does not answer"
                        await asyncio.sleep(settings.ask_s)
                    else:
                        break
        except (StorageError, Unreachable, TimeoutError, DetectorUnavailable) as error:
            return [f"whether all detectors were saved is not known: {error or reason}"]
        if unsaved is None:
            return []
        await end()
        return unsaved

    def _out_of_reach(self, reason: str) -> DetectorUnavailable:
        return DetectorUnavailable(STARTING, _OUT_OF_REACH.format(reason), self._settings.retry_s)

    def _add_unsent(self, counted: Iterable[tuple[Iterable[str], float]]) -> None:
        for parts, value in counted:
            name = tuple(parts)
            self._unsent[name] = self._unsent.get(name, 0) + value
