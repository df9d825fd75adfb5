"""Reads the feed of a detector, the actions of its rules with `notify`, from a place on, across breaks."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx
import msgspec

from .results import Entry, ServiceError
from .sending import RetryingSender

WAIT_S_MAX: Final = 30.0
"""The longest wait before the next connection, unless the service requests a longer one."""
_WAIT_S: Final = 0.5
_DOUBLINGS_MAX: Final = 10
OPENED_AT_ONCE: Final = 16
"""The maximum number of feeds that are being opened at once, however many are read."""
_TIMEOUT: Final = httpx.Timeout(60.0, connect=10.0)
"""How long a feed may be silent. The service sends comments much more often."""
_EVENT_STREAM: Final = "text/event-stream"
_OK: Final = 200
_NOT_FOUND: Final = 404


class Firing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule with `notify` that fired. `seq` counts the firings of a detector, from 1."""

    seq: int
    time_ms: float
    rule_id: str = msgspec.field(name="ruleId")
    name: str
    priority: int
    keys: dict[str, Any]
    """The values of the rule's keys."""
    found: dict[str, Any] | None = None
    """The values of its counting members and terms."""
    labels: dict[str, Any] = {}
    suppressed: int = 0
    """How many firings `every_secs` suppressed before this one."""
    timed: bool = False
    """Whether time alone made it fire."""
    why: Any = None
    """Its explanation at that event, in short."""


class Gap(msgspec.Struct, frozen=True):
    """Firings that the service no longer stores: those with a `seq` from `first` to `last`."""

    first: int = msgspec.field(name="from")
    last: int = msgspec.field(name="to")


class _Entry(msgspec.Struct):
    """The members that tell which kind of entry a server-sent event is."""

    seq: int | None = None
    gap: Gap | None = None
    errors: list[Entry] = []


class Event(NamedTuple):
    """A server-sent event."""

    id: int
    """The number of the entry after which to continue."""
    data: bytes
    """Empty for the event that only shows where a feed begins."""


class Events:
    """Parses server-sent events from the bytes of a response."""

    def __init__(self) -> None:
        self._left = b""
        self._id = 0
        self._data: list[bytes] | None = None
        """The lines of an incomplete event."""

    def take(self, data: bytes) -> Iterator[Event]:
        """Take the next bytes, and yield the events that they complete."""
        # Not `splitlines`, which also splits at characters that JSON does not escape.
        *lines, self._left = (self._left + data).split(b"\n")
        for line in lines:
            name, _, value = line.rstrip(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if name == b"id" and value.isdigit():
                self._id, self._data = int(value), self._data or []
            elif name == b"data":
                self._data = [*(self._data or ()), value]
            elif not name and not value and self._data is not None:
                yield Event(self._id, b"\n".join(self._data))
                self._data = None


OnBreak = Callable[[ServiceError, float], None]
"""Called with the reason why a connection ended, and the seconds until the next one."""

_Pieces = AsyncGenerator[httpx.Response | bytes, None]
Opened = Callable[..., _Pieces]
"""Yields a response, read whole unless its status is 200, and then its body piece by piece."""


async def opened(http: httpx.AsyncClient, opening: asyncio.Semaphore, path: str, **how: Any) -> _Pieces:
    """Yield a response and the pieces of its body (see `Opened`). Raises httpx.HTTPError."""
    async with AsyncExitStack() as stack:
        # Opening a feed may activate its detector.
        async with opening:
            response = await stack.enter_async_context(http.stream("GET", path, **how))
        if response.status_code != _OK:
            await response.aread()
        yield response
        async for data in response.aiter_bytes():
            yield data


async def opened_at_once(http: httpx.Client, path: str, **how: Any) -> _Pieces:
    """Yield the same without suspending. Raises httpx.HTTPError."""
    with http.stream("GET", path, **how) as response:  # noqa: ASYNC212 -- it waits where the caller does
        if response.status_code != _OK:
            response.read()
        yield response
        for data in response.iter_bytes():
            yield data


@dataclass(slots=True)
class FeedReader:
    """Reads feeds, each over one connection after another."""

    sender: RetryingSender
    open: Opened
    jitter: Callable[[], float] = random.random

    async def entries(
        self, detector_id: str, after: int | None = None, on_break: OnBreak | None = None
    ) -> AsyncGenerator[Firing | Gap, None]:
        """Yield the firings after a place, by default new ones, and gaps for firings that are gone.

        After each break, calls `on_break`, waits, and continues after the last entry. Raises ServiceError if
        the service refuses, or has never answered at the address.
        """
        failures = 0
        while True:
            try:
                async with aclosing(self._pieces(detector_id, after)) as pieces:
                    async for events in pieces:
                        failures = 0
                        for event in events:
                            entry = _entry_of(event)
                            after = event.id
                            if entry is not None:
                                yield entry
            except ServiceError as error:
                if error.is_refusal or not (error.sent or self.sender.has_answered):
                    raise
                longest_s = min(_WAIT_S * 2 ** min(failures, _DOUBLINGS_MAX), WAIT_S_MAX)
                wait_s = max(longest_s * (1 + self.jitter()) / 2, error.retry_after_s)
                if on_break is not None:
                    on_break(error, wait_s)
            failures += 1
            await self.sender.sleep(wait_s)

    async def end(self, detector_id: str) -> int:
        """Return the number of the newest firing, 0 if there is none. Raises ServiceError."""
        async with aclosing(self._pieces(detector_id, None)) as pieces:
            async for events in pieces:
                for event in events:
                    if event.data:
                        _entry_of(event)
                    return event.id
        raise AssertionError("a feed ends with an error")

    async def _pieces(self, detector_id: str, after: int | None) -> AsyncGenerator[Iterator[Event], None]:
        """Yield the events of a connection, piece by piece as they come. Raises ServiceError at its end."""
        path = f"/api/detectors/{quote(detector_id, safe='')}/firings"
        headers = {"Accept": _EVENT_STREAM} | ({} if after is None else {"Last-Event-ID": str(after)})
        events = Events()
        try:
            async with aclosing(self.open(path, headers=headers, timeout=_TIMEOUT)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, bytes):
                        yield events.take(piece)
                    else:
                        self._check(piece)
        except httpx.HTTPError as error:
            raise self.sender.unanswered(error) from None
        raise ServiceError(f"{self.sender.url} ended the feed", retry_after_s=0.0)

    def _check(self, response: httpx.Response) -> None:
        """Raise ServiceError unless events follow."""
        if response.status_code != _OK:
            self.sender.answer(response)
        if not response.headers.get("Content-Type", "").startswith(_EVENT_STREAM):
            raise ServiceError(f"{self.sender.url} has no feed of firings", status=_NOT_FOUND)
        self.sender.has_answered = True


def _entry_of(event: Event) -> Firing | Gap | None:
    """Return the entry in an event, None if its kind is not known.

    Raises ServiceError for an error, which ends the feed, and for what cannot be read.
    """
    if not event.data:
        return None
    try:
        entry = msgspec.json.decode(event.data, type=_Entry)
        firing = None if entry.seq is None else msgspec.json.decode(event.data, type=Firing)
    except ValueError as error:
        raise ServiceError(f"the feed has something else: {error}") from None
    if entry.errors:
        said = "\n".join(f"{one.code} {one.message}" for one in entry.errors)
        raise ServiceError(said, entries=tuple(entry.errors))
    return entry.gap or firing
