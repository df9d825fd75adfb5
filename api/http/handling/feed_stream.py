"""A feed as server-sent events, read from the detector again and again: no firing waits in a front end."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from api.http.handling.event_stream import ALIVE, EventStream, EventStreams, body, event
from api.server.exchange import Send
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests.operations import firings

LOOK_S: Final = 0.5
"""The interval between two questions which feeds have grown, one for all streams of a front end."""
ALIVE_S: Final = 15.0
"""How long a stream is silent at most."""
PAGE: Final = 100
"""The most firings that are read at once."""


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
