"""Server-sent events: a response that lasts until its caller leaves, the service ends it, or it fails."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from api.http.authentication import Authenticator
from api.http.request.timeout import RequestTimeout
from api.schema.envelope import entries_of, refused
from api.server.exchange import CallerGone, Receive, Send, until_gone
from engine.evaluation.wire.events import Refused, encode_entries
from engine.language.diagnostics import Refusal
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests.operations import Operation, firings, timeline
from engine.runtime.front_end.backend import Backend

EVENT_STREAM: Final = b"text/event-stream"

_START: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", EVENT_STREAM),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    ],
}

ALIVE: Final = b":\n\n"
"""A comment, which shows that the stream is alive."""
LOOK_S: Final = 0.5
"""The interval at which a timeline is read, and at which a front end asks, for all its streams, which feeds
have grown."""
ALIVE_S: Final = 15.0
"""The longest silence of a stream."""
PAGE: Final = 100
"""The maximum number of firings that are read at once."""


@dataclass(eq=False)
class EventStreams:
    """The open streams of a front end."""

    backend: Backend
    authenticator: Authenticator
    open: "set[EventStream]" = field(default_factory=set)
    ending: bool = False

    def end(self) -> None:
        """End all streams, present and future."""
        self.ending = True
        for stream in self.open:
            stream.end()


@dataclass(eq=False)
class EventStream(ABC):
    """A stream of events about a detector."""

    streams: EventStreams
    detector_id: str
    authorization: bytes | None
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be something to send, and at the end."""
    _ended: bool = False

    def end(self) -> None:
        """End the stream at once."""
        self._ended = True
        self.woken.set()

    @property
    def ended(self) -> bool:
        """Whether the stream is over: the caller has gone, or the service ends."""
        return self._ended or self.streams.ending

    async def serve(self, receive: Receive, send: Send, progress: RequestTimeout) -> None:
        """Send events until the service or an error ends the stream. Raises CallerGone."""
        leaving = asyncio.create_task(until_gone(receive))
        leaving.add_done_callback(lambda _: self.end())
        self.streams.open.add(self)
        try:
            await send(_START)
            try:
                await self.tell(send)
            except CallerGone:
                raise
            except Exception as error:  # noqa: BLE001 -- the status is sent, so the last event reports the error
                entries = tuple(entries_of(error))
                progress.stream_error = refused(entries).body
                await send(body(event(b'{"errors":' + encode_entries(entries) + b"}")))
            await send({"type": "http.response.body", "body": b""})
        finally:
            self.streams.open.discard(self)
            gone = leaving.done()
            leaving.cancel()
        if gone:
            raise CallerGone

    @abstractmethod
    async def tell(self, send: Send) -> None:
        """Send events until the stream is over. An error that this raises becomes the last event."""

    async def wait(self, seconds: float) -> None:
        """Wait until the stream is woken, at most some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.woken.wait()

    def check_caller(self) -> None:
        """Raise the error that ends the stream if its token is no longer valid."""
        if (objection := self.streams.authenticator.objection(self.authorization)) is not None:
            raise objection

    async def ask(self, operation: Operation) -> bytes:
        """Return the detector's answer. Raises the error that ends the stream."""
        self.check_caller()
        answer = await self.streams.backend.call(self.detector_id, operation)
        if isinstance(answer, Refused):
            raise Refusal(*answer.entries)
        return answer.result


def event(data: bytes, number: int | None = None) -> bytes:
    """Return a server-sent event; a reader that reconnects may continue after its number."""
    identity = b"" if number is None else b"id: %d\n" % number
    return b"".join((identity, b"data: ", data, b"\n\n"))


def body(sent: bytes) -> dict[str, Any]:
    """Return the ASGI message that sends a part of a stream."""
    return {"type": "http.response.body", "body": sent, "more_body": True}


class Continuation(msgspec.Struct):
    """The part of a timeline that says where to continue."""

    class Moment(msgspec.Struct):
        """An event."""

        number: int

    moments: list[Moment]


@dataclass(eq=False)
class TimelineStream(EventStream):
    """A stream of a rule's timeline. Each server-sent event has the new moments."""

    rule_id: str = ""
    key: dict[str, Any] = field(default_factory=dict)

    async def tell(self, send: Send) -> None:
        """Send the new moments periodically."""
        after: int | None = None
        while not self.ended:
            found = await self.ask(timeline(self.rule_id, self.key, after or 0))
            moments = msgspec.json.decode(found, type=Continuation).moments
            new = event(found) if moments or after is None else ALIVE
            after = moments[-1].number if moments else after or 0
            # If the caller does not read, one copy is in memory, and no more is requested.
            del found, moments
            await send(body(new))
            del new
            await self.wait(LOOK_S)


class _Page(msgspec.Struct):
    firings: list[msgspec.Raw]
    next: int


@dataclass(eq=False)
class FeedStreams(EventStreams):
    """The open feed streams of a front end, which are woken when their feeds have grown.

    Only grown feeds are read, so that passive detectors are not activated and idle ones become passive.
    """

    _watching: asyncio.Task[None] | None = field(default=None, init=False)

    def watch(self) -> None:
        """Watch for grown feeds as long as there are streams."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="feeds that grow")

    async def _watch(self) -> None:
        try:
            while self.open:
                await asyncio.sleep(LOOK_S)
                await self._look()
        finally:
            self._watching = None

    async def _look(self) -> None:
        """Wake the streams whose feeds have grown, and those that must end."""
        streams = [one for one in self.open if isinstance(one, FeedStream)]
        newest: dict[str, int] = {}
        # If there is no answer now, the next poll may get one.
        with suppress(DetectorUnavailable):
            newest = await self.backend.newest_firings([*{one.detector_id for one in streams}])
        for one in streams:
            if newest.get(one.detector_id, 0) > one.after or one.objectionable:
                one.woken.set()


@dataclass(eq=False)
class FeedStream(EventStream):
    """A stream of a feed: an event for each firing, whose `id` is its number."""

    after: int = 0
    """The number of the last firing that was sent."""

    @property
    def objectionable(self) -> bool:
        """Whether the detector is gone or the token no longer valid."""
        streams = self.streams
        return (
            not streams.backend.exists(self.detector_id)
            or streams.authenticator.objection(self.authorization) is not None
        )

    async def tell(self, send: Send) -> None:
        """Send the firings after a number, as they come."""
        assert isinstance(self.streams, FeedStreams), "they watch"
        self.streams.watch()
        # An event without data tells the reader where to continue if the stream ends.
        await send(body(b"id: %d\n\n" % self.after))
        while not self.ended:
            self.woken.clear()
            page = msgspec.json.decode(await self.ask(firings(self.after, PAGE)), type=_Page)
            self.after = page.next
            if page.firings:
                events = _events(page)
                del page
                # If the caller does not read, one copy is in memory, and no more is requested.
                await send(body(events))
                continue
            while not (self.ended or self.woken.is_set()):
                await self.wait(ALIVE_S)
                if not self.woken.is_set():
                    await send(body(ALIVE))


def next_of(page: bytes) -> int:
    """Return the number after which the next page begins."""
    return msgspec.json.decode(page, type=_Page).next


def _events(page: _Page) -> bytes:
    # A gap has the number of its last firing.
    first = page.next - len(page.firings) + 1
    return b"".join([event(bytes(one), number) for number, one in enumerate(page.firings, first)])
