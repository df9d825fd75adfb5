"""Server-sent events: a response that goes on until its caller leaves, the service ends it, or it fails."""

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
"""A comment: the stream is alive."""
LOOK_S: Final = 0.5
"""The interval between two looks at a timeline, or two questions which feeds have grown: one for all streams
of a front end."""
ALIVE_S: Final = 15.0
"""How long a stream is silent at most."""
PAGE: Final = 100
"""The most firings that are read at once."""


@dataclass(eq=False)
class EventStreams:
    """The open streams of a front end."""

    backend: Backend
    authenticator: Authenticator
    open: "set[EventStream]" = field(default_factory=set)
    ending: bool = False

    def end(self) -> None:
        """Shut down: end each stream, now and later."""
        self.ending = True
        for stream in self.open:
            stream.end()


@dataclass(eq=False)
class EventStream(ABC):
    """One stream of what happens to a detector."""

    streams: EventStreams
    detector_id: str
    authorization: bytes | None
    stirred: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be something to send, and at the end."""
    _ended: bool = False

    def end(self) -> None:
        """End without waiting for what comes next."""
        self._ended = True
        self.stirred.set()

    @property
    def ended(self) -> bool:
        """Whether it is over: the caller has gone, or the service ends."""
        return self._ended or self.streams.ending

    async def serve(self, receive: Receive, send: Send, progress: RequestTimeout) -> None:
        """Send what happens until the service or an error ends it. Raises CallerGone."""
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
        """Send what happens until the stream is over. An error that it raises is the last event."""

    async def wait(self, seconds: float) -> None:
        """Wait until the stream is stirred, at most so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stirred.wait()

    def check_caller(self) -> None:
        """Raise the error that ends the stream if its token is no longer good."""
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
    """Return a server-sent event; a reader that comes back may go on after its number."""
    identity = b"" if number is None else b"id: %d\n" % number
    return b"".join((identity, b"data: ", data, b"\n\n"))


def body(sent: bytes) -> dict[str, Any]:
    """Return the message that sends a part of a stream."""
    return {"type": "http.response.body", "body": sent, "more_body": True}


class Continuation(msgspec.Struct):
    """The part of a timeline that says where to continue."""

    class Moment(msgspec.Struct):
        """An event."""

        number: int

    moments: list[Moment]


@dataclass(eq=False)
class TimelineStream(EventStream):
    """One stream. Each server-sent event has what is new; comments show that the stream is alive."""

    rule_id: str = ""
    key: dict[str, Any] = field(default_factory=dict)

    async def tell(self, send: Send) -> None:
        """Send what is new at each look."""
        after: int | None = None
        while not self.ended:
            found = await self.ask(timeline(self.rule_id, self.key, after or 0))
            moments = msgspec.json.decode(found, type=Continuation).moments
            new = event(found) if moments or after is None else ALIVE
            after = moments[-1].number if moments else after or 0
            # While it is not read, it is there once, and nothing more is asked for.
            del found, moments
            await send(body(new))
            del new
            await self.wait(LOOK_S)


class _Page(msgspec.Struct):
    firings: list[msgspec.Raw]
    next: int


@dataclass(eq=False)
class FeedStreams(EventStreams):
    """The open streams of a front end, and what tells them that there is something to read.

    Detectors are read only where there is: a passive one is not activated, and an idle one becomes passive.
    """

    _watching: asyncio.Task[None] | None = field(default=None, init=False)

    def watch(self) -> None:
        """Look for news as long as there are streams."""
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
        """Stir the streams for which there is news, and those that are to end."""
        streams = [one for one in self.open if isinstance(one, FeedStream)]
        newest: dict[str, int] = {}
        # Without an answer, the next look may get one.
        with suppress(DetectorUnavailable):
            newest = await self.backend.newest_firings([*{one.detector_id for one in streams}])
        for one in streams:
            if newest.get(one.detector_id, 0) > one.after or one.objectionable:
                one.stirred.set()


@dataclass(eq=False)
class FeedStream(EventStream):
    """One stream: an event for each firing, whose `id` is its number."""

    after: int = 0
    """The number of the last firing that was sent."""

    @property
    def objectionable(self) -> bool:
        """Whether the detector is gone or the token no longer good."""
        streams = self.streams
        return (
            not streams.backend.exists(self.detector_id)
            or streams.authenticator.objection(self.authorization) is not None
        )

    async def tell(self, send: Send) -> None:
        """Send the firings after a number, as they come."""
        assert isinstance(self.streams, FeedStreams), "they watch"
        self.streams.watch()
        # Without data, it only says after which number to go on if the stream ends.
        await send(body(b"id: %d\n\n" % self.after))
        while not self.ended:
            self.stirred.clear()
            page = msgspec.json.decode(await self.ask(firings(self.after, PAGE)), type=_Page)
            self.after = page.next
            if page.firings:
                events = _events(page)
                del page
                # While it is not read, it is there once, and nothing more is asked for.
                await send(body(events))
                continue
            while not (self.ended or self.stirred.is_set()):
                await self.wait(ALIVE_S)
                if not self.stirred.is_set():
                    await send(body(ALIVE))


def next_of(page: bytes) -> int:
    """Return the number after which to go on behind a page."""
    return msgspec.json.decode(page, type=_Page).next


def _events(page: _Page) -> bytes:
    # A gap has the number of its last firing.
    first = page.next - len(page.firings) + 1
    return b"".join([event(bytes(one), number) for number, one in enumerate(page.firings, first)])
