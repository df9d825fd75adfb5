"""Evaluations as a stream: lines in, result lines out, while both are still coming."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import Final

from api.http.authentication import Authenticator
from api.http.body.discard import BodyDiscard
from api.http.body.memory import BodyMemory
from api.http.body.ndjson_reader import NdjsonReader
from api.http.request.asgi import CallerGone, Receive, Send
from api.observability.request_metrics import CALLER_GONE
from api.schema.envelope import NDJSON, DeadlinePassed, entries_of
from api.settings import Settings
from engine.evaluation.wire.events import Refused
from engine.evaluation.wire.results import encode_entries, refused_result
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.broker.fleet import Fleet
from engine.runtime.contract.errors import SHUTTING_DOWN, DetectorUnavailable
from engine.runtime.contract.operations import evaluate_lines

LOOK_S: Final = 0.2
"""Between two looks at the tokens of open streams. A front end hears of a revocation within half a second."""

_START: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", NDJSON), (b"cache-control", b"no-store")],
}


class NdjsonStreams:
    """Where streams are opened, and ended all together. `deadline_s` is for each few lines of one."""

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet,
        discard: BodyDiscard,
        *,
        authenticator: Authenticator,
        memory: BodyMemory,
        deadline_s: float,
    ) -> None:
        self.settings = settings
        self._authenticator = authenticator
        self._memory = memory
        self.fleet = fleet
        self.discard = discard
        self.deadline_s = deadline_s
        self._ending = False
        self._open: dict[NdjsonReader, bytes | None] = {}
        """Each with the Authorization header that it came with."""
        self._looking: asyncio.TimerHandle | None = None

    def open(self, detector_id: str, authorization: bytes | None) -> "NdjsonStream":
        """Give a stream to a detector that exists, for a caller who may. Raises DetectorUnavailable 1503."""
        if self._ending:
            raise _shutting_down()
        return NdjsonStream(self, detector_id, authorization)

    def end(self) -> None:
        """Let all streams end that wait for lines, or would: each with what is under way, and says why."""
        self._ending = True
        for lines in self._open:
            lines.end(_shutting_down())

    def _look(self) -> None:
        """End the streams of callers whose tokens do not let them in any more, and look again later."""
        for lines, authorization in self._open.items():
            if (objection := self._authenticator.objection(authorization)) is not None:
                lines.lose(objection)
        self._looking = None
        self._keep_looking()

    def _keep_looking(self) -> None:
        if self._open and self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    @contextmanager
    def lines(self, receive: Receive, authorization: bytes | None) -> Iterator[NdjsonReader]:
        """Give the lines of a stream, for as long as it is open."""
        lines = NdjsonReader(receive, self.settings.max_body_bytes, self.settings.deadline_s, self._memory)
        self._open[lines] = authorization
        self._keep_looking()
        if self._ending:
            lines.end(_shutting_down())
        try:
            yield lines
        finally:
            del self._open[lines]
            if not self._open and self._looking is not None:
                self._looking.cancel()
                self._looking = None
            lines.close()


def _shutting_down() -> DetectorUnavailable:
    return DetectorUnavailable(SHUTTING_DOWN, "the server is shutting down")


class NdjsonStream:
    """One stream. The lines that have come by the time that those before them are answered are one operation.

    Of its lines three batches are held at most: one whose results are sent, one that is evaluated, and one
    that is read. A caller who does not take replies is not read from.
    """

    def __init__(self, streams: NdjsonStreams, detector_id: str, authorization: bytes | None) -> None:
        self._streams = streams
        self._settings = streams.settings
        self._fleet = streams.fleet
        self._detector_id = detector_id
        self._authorization = authorization
        said = f"the line is longer than {self._settings.max_body_bytes} bytes"
        self._too_long = refused_result(Refusal(Entry(1003, said)))

    async def serve(self, receive: Receive, send: Send) -> tuple[int, bytes]:
        """Answer line by line until the body ends, or until an error ends the stream.

        Gives the status to count, CALLER_GONE where the caller left before the end, and no body.
        """
        with suppress(CallerGone), self._streams.lines(receive, self._authorization) as lines:
            await self._converse(lines, send)
            await self._end(lines, receive, send)
            return 200, b""
        return CALLER_GONE, b""

    async def _converse(self, lines: NdjsonReader, send: Send) -> None:
        """Read and answer at once. Raises CallerGone."""
        gone = False
        try:
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(lines.read())
                await send(_START)
                await self._answer(lines, send, tasks)
                reading.cancel()
        except* CallerGone:
            gone = True
        if gone:
            raise CallerGone

    async def _end(self, lines: NdjsonReader, receive: Receive, send: Send) -> None:
        if lines.ended:
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._streams.discard.finish(receive, send, 0 if lines.is_lost else lines.patience_left_s)

    async def _answer(self, lines: NdjsonReader, send: Send, tasks: asyncio.TaskGroup) -> None:
        done = 0
        closing = b""
        sending: asyncio.Task[None] | None = None
        try:
            while batch := await lines.take():
                while batch:
                    lines.check()
                    results, count = await self._evaluated(batch)
                    batch = batch[count:]
                    done += count
                    if sending is not None:
                        await sending
                    # What comes next is evaluated meanwhile: the actor need not wait for the caller.
                    sending = tasks.create_task(self._pass_on(results, lines, send))
        except Exception as error:  # noqa: BLE001 -- the stream has begun, and this is the way to say it
            closing = b',"errors":' + encode_entries(tuple(entries_of(error)))
        if sending is not None:
            await sending
        await self._pass_on(b'{"done":%d' % done + closing + b"}", lines, send)

    async def _evaluated(self, batch: list[bytes | None]) -> tuple[bytes, int]:
        """Give the result lines of a batch, or of as many of its first lines as one answer has room for.

        Gives their number, too: at least one. Raises what its caller is told.
        """
        whole = [line for line in batch if line is not None]
        if not whole:
            return b"\n".join([self._too_long] * len(batch)), len(batch)
        try:
            async with asyncio.timeout(self._streams.deadline_s):
                answer = await self._fleet.call(self._detector_id, evaluate_lines(b"\n".join(whole)))
        except TimeoutError:
            raise DeadlinePassed from None
        if isinstance(answer, Refused):
            raise Refusal(*answer.entries)
        if len(whole) == len(batch):
            return answer.result, answer.result.count(b"\n") + 1
        results = iter(answer.result.split(b"\n"))
        of_lines = (self._too_long if line is None else next(results, b"") for line in batch)
        answered = list(takewhile(bool, of_lines))
        return b"\n".join(answered), len(answered)

    async def _pass_on(self, results: bytes, lines: NdjsonReader, send: Send) -> None:
        # Sending waits for a caller who is slow to take replies, and if he has gone for us to hear of it.
        timer = asyncio.get_running_loop().call_later(self._settings.deadline_s, lines.give_up)
        try:
            await send({"type": "http.response.body", "body": results + b"\n", "more_body": True})
        finally:
            timer.cancel()
