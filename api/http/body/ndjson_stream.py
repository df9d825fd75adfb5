"""NDJSON streams of evaluations: lines in, result lines out, both while the body is still arriving."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from api.http.authentication import Authenticator
from api.http.body.memory import BodyMemory
from api.http.body.ndjson_reader import LINES_MAX, NdjsonReader
from api.http.request.timeout import BACKSTOP_S, RequestTimeout
from api.schema.envelope import NDJSON, DeadlinePassed, entries_of, refused
from api.server.exchange import CallerGone, Receive, Send
from api.settings import Settings
from engine.evaluation.wire.events import Refused, encode_entries, refused_result
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.contract.errors import shutting_down
from engine.runtime.contract.requests.operations import evaluate_lines
from engine.runtime.front_end.backend import Backend
from engine.runtime.front_end.permits import UNBOUNDED, Permit, Rate

TOKEN_CHECK_S: Final = 0.2
"""The interval at which the tokens of open streams are checked. A revocation takes up to 0.5 s to arrive."""

_RESULTS_BYTES: Final = 1024 * 1024
"""The approximate size of the results of lines that are evaluated together."""

_START: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", NDJSON), (b"cache-control", b"no-store")],
}


@dataclass(eq=False)
class NdjsonStreams:
    """The open streams."""

    settings: Settings
    backend: Backend
    authenticator: Authenticator
    memory: BodyMemory
    _ending: bool = False
    _open: dict[NdjsonReader, bytes | None] = field(default_factory=dict)
    """The readers of the open streams, each with its Authorization header."""
    _check: asyncio.TimerHandle | None = None

    def open(self, detector_id: str, authorization: bytes | None, permit: Permit) -> "NdjsonStream":
        """Open a stream for an authenticated caller to a detector that exists. Raises DetectorUnavailable."""
        if self._ending:
            raise shutting_down()
        return NdjsonStream(self, detector_id, authorization, permit)

    def end(self) -> None:
        """End all streams, present and future, once the lines that they have taken are answered."""
        self._ending = True
        for reader in self._open:
            reader.end(shutting_down())

    def _check_tokens(self) -> None:
        """End the streams whose tokens are no longer valid, and schedule the next check."""
        for reader, authorization in self._open.items():
            if (objection := self.authenticator.objection(authorization)) is not None:
                reader.lose(objection)
        self._check = None
        self._schedule_check()

    def _schedule_check(self) -> None:
        if self._open and self._check is None:
            self._check = asyncio.get_running_loop().call_later(TOKEN_CHECK_S, self._check_tokens)

    @contextmanager
    def reading(self, receive: Receive, authorization: bytes | None) -> Iterator[NdjsonReader]:
        """Yield the reader of a stream, which counts as open within this context."""
        reader = NdjsonReader(receive, self.settings.max_body_bytes, self.settings.deadline_s, self.memory)
        self._open[reader] = authorization
        self._schedule_check()
        if self._ending:
            reader.end(shutting_down())
        try:
            yield reader
        finally:
            del self._open[reader]
            if not self._open and self._check is not None:
                self._check.cancel()
                self._check = None
            reader.give_up()


@dataclass(eq=False)
class NdjsonStream:
    """One stream. The lines that arrive while a batch is evaluated become the next batch, one operation.

    A stream holds at most two batches: one that is evaluated or whose results are sent, and one that is read.
    If the caller does not read results, evaluation stops, and then reading stops.
    """

    streams: NdjsonStreams
    detector_id: str
    authorization: bytes | None
    permit: Permit = UNBOUNDED

    async def serve(self, receive: Receive, send: Send, progress: RequestTimeout) -> None:
        """Answer line by line until the body ends, or until an error ends the stream. Raises CallerGone."""
        with self.streams.reading(receive, self.authorization) as reader:
            await self._converse(reader, send, progress)
            await send({"type": "http.response.body", "body": b""})

    async def _converse(self, reader: NdjsonReader, send: Send, progress: RequestTimeout) -> None:
        """Read and answer concurrently. Raises CallerGone."""
        gone = False
        try:
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(reader.read())
                await send(_START)
                await self._answer(reader, send, progress)
                reading.cancel()
        except* CallerGone:
            gone = True
        if gone:
            raise CallerGone

    async def _answer(self, reader: NdjsonReader, send: Send, progress: RequestTimeout) -> None:
        done = 0
        closing = b""
        rate = self.permit.rate
        lines = most = LINES_MAX if rate is None else max(1, min(LINES_MAX, int(rate.per_s)))
        try:
            while batch := await reader.take():
                while batch:
                    if rate is not None:
                        await self._await_turn(rate, len(batch[:lines]), reader)
                    reader.check()
                    results, count = await self._evaluate(batch[:lines])
                    batch = batch[count:]
                    done += count
                    # Results are sent before the next lines are evaluated. If the caller reads, the system
                    # takes the results at once; a caller who does not read gets no more.
                    lines = max(1, min(most, count * _RESULTS_BYTES // max(1, len(results))))
                    await self._send_results(results, reader, send)
        except Exception as error:  # noqa: BLE001 -- the status is sent, so the last line reports the error
            entries = tuple(entries_of(error))
            progress.stream_error = refused(entries).body
            closing = b',"errors":' + encode_entries(entries)
        await self._send_results(b'{"done":%d' % done + closing + b"}", reader, send)

    async def _await_turn(self, rate: Rate, events: int, reader: NdjsonReader) -> None:
        """Wait until the events may be evaluated: a stream that is too fast is slowed down, not refused."""
        while wait_s := rate.take(events, time.monotonic()):
            await asyncio.sleep(min(wait_s, TOKEN_CHECK_S))
            reader.check()
            reader.excuse()

    async def _evaluate(self, batch: list[bytes | None]) -> tuple[bytes, int]:
        """Return the result lines, and their number, of a batch or of the part of it that fits one answer.

        Raises the error that the last line reports.
        """
        whole = [line for line in batch if line is not None]
        try:
            async with asyncio.timeout(self.streams.settings.deadline_s + BACKSTOP_S):
                answer = await self.streams.backend.call(self.detector_id, evaluate_lines(b"\n".join(whole)))
        except TimeoutError:
            raise DeadlinePassed from None
        if isinstance(answer, Refused):
            raise Refusal(*answer.entries)
        if len(whole) == len(batch):
            return answer.result, answer.result.count(b"\n") + 1
        results = iter(answer.result.split(b"\n"))
        too_long = self._too_long()
        of_lines = (too_long if line is None else next(results, b"") for line in batch)
        answered = list(takewhile(bool, of_lines))
        return b"\n".join(answered), len(answered)

    def _too_long(self) -> bytes:
        said = f"the line is longer than {self.streams.settings.max_body_bytes} bytes"
        return refused_result(Refusal(Entry(1003, said)))

    async def _send_results(self, results: bytes, reader: NdjsonReader, send: Send) -> None:
        # A caller who does not read results blocks `send`. Reading shows whether the caller is gone.
        timer = asyncio.get_running_loop().call_later(self.streams.settings.deadline_s, reader.give_up)
        try:
            await send({"type": "http.response.body", "body": results + b"\n", "more_body": True})
        finally:
            timer.cancel()
