"""A timeline as server-sent events: the verdicts of a rule, sent soon after each event."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from api.http.authentication import Authenticator
from api.http.request.timeout import RequestTimeout
from api.schema.envelope import entries_of, refused
from api.server.asgi import CallerGone, Receive, Send, until_gone
from engine.evaluation.wire.events import Refused
from engine.evaluation.wire.results import encode_entries
from engine.language.diagnostics import Refusal
from engine.runtime.contract.requests.operations import timeline
from engine.runtime.front_end.backend import Backend

EVENT_STREAM: Final = b"text/event-stream"
LOOK_S: Final = 0.5
"""The interval between two looks at the timeline."""

_START: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", EVENT_STREAM),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    ],
}
_NOTHING_NEW: Final = {"type": "http.response.body", "body": b":\n\n", "more_body": True}


class Continuation(msgspec.Struct):
    """The part of a timeline that says where to continue."""

    class Moment(msgspec.Struct):
        """An event."""

        number: int

    moments: list[Moment]


@dataclass(eq=False)
class TimelineStreams:
    """The open streams of a front end."""

    backend: Backend
    authenticator: Authenticator
    open: "set[TimelineStream]" = field(default_factory=set)
    ending: bool = False

    def end(self) -> None:
        """Shut down: end each stream, now and later."""
        self.ending = True
        for stream in self.open:
            stream.end()


@dataclass(eq=False)
class TimelineStream:
    """One stream. Each server-sent event has what is new; comments show that the stream is alive."""

    streams: TimelineStreams
    detector_id: str
    rule_id: str
    key: dict[str, Any]
    authorization: bytes | None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        """End without waiting for the next look."""
        self._ended.set()

    async def serve(self, receive: Receive, send: Send, progress: RequestTimeout) -> None:
        """Send what happens until the service or an error ends it. Raises CallerGone."""
        leaving = asyncio.create_task(until_gone(receive))
        leaving.add_done_callback(lambda _: self.end())
        self.streams.open.add(self)
        try:
            await send(_START)
            await self._tell(send, progress)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self.streams.open.discard(self)
            gone = leaving.done()
            leaving.cancel()
        if gone:
            raise CallerGone

    async def _tell(self, send: Send, progress: RequestTimeout) -> None:
        after: int | None = None
        while not (self._ended.is_set() or self.streams.ending):
            try:
                found = await self._look(after or 0)
            except Exception as error:  # noqa: BLE001 -- the status is sent, so the last event reports the error
                entries = tuple(entries_of(error))
                progress.stream_error = refused(entries).body
                await send(_event(b'{"errors":' + encode_entries(entries) + b"}"))
                return
            moments = msgspec.json.decode(found, type=Continuation).moments
            event = _event(found) if moments or after is None else _NOTHING_NEW
            after = moments[-1].number if moments else after or 0
            # While it is not read, it is there once, and nothing more is asked for.
            del found, moments
            await send(event)
            del event
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._ended.wait()

    async def _look(self, after: int) -> bytes:
        """Return what the timeline has after an event. Raises the error that ends the stream."""
        if (objection := self.streams.authenticator.objection(self.authorization)) is not None:
            raise objection
        answer = await self.streams.backend.call(self.detector_id, timeline(self.rule_id, self.key, after))
        if isinstance(answer, Refused):
            raise Refusal(*answer.entries)
        return answer.result


def _event(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": b"".join((b"data: ", data, b"\n\n")), "more_body": True}
