"""Uploads of relations: while a body arrives, its parts, cut between tuples, go to the detector's worker."""

import asyncio
import contextlib
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from api.http.authentication import Authenticator
from api.http.body.memory import Reservation
from api.http.body.reading import send_response
from api.http.request.head import too_large
from api.http.request.timeout import BACKSTOP_S, RequestTimeout
from api.schema.envelope import DeadlinePassed, RequestRefusal, Response, answered, error_response
from api.server.exchange import CallerGone, Receive, Send, part_of
from engine.evaluation.wire.bodies import decode
from engine.evaluation.wire.events import Answer, Refused
from engine.language.diagnostics import Entry, Refusal, quoted
from engine.language.limits import Limits
from engine.runtime.contract.requests import operations
from engine.runtime.contract.requests.tuples import TuplesPart
from engine.runtime.front_end.backend import Backend

PART_BYTES: Final = 16 * 1024
"""The maximum size of a part with several tuples. A worker stages it in about two milliseconds, for which
events of the same detector wait."""
TUPLE_BYTES_MAX: Final = 64 * 1024
"""The maximum size of a tuple."""

_STRING: Final = rb'"(?:[^"\\]|\\.)*+"'
_TUPLE: Final = rb'(?:\[(?:[^"\[\]{}]++|' + _STRING + rb")*+\]|" + _STRING + rb'|[^",\[\]{}\s]++)'
_TUPLES: Final = re.compile(rb"(?:\s*+" + _TUPLE + rb"\s*+,)*+", re.DOTALL)
"""Matches tuples in JSON, each with the comma after it."""
_LAST: Final = re.compile(rb"(?:\s*+" + _TUPLE + rb")?+\s*+\]\s*+\}\s*+", re.DOTALL)
_BEGIN: Final = re.compile(rb'\s*+\{\s*+"tuples"\s*+:\s*+\[')

_CELL: Final = rb'(?:"(?:[^"]|"")*+"[^,\r\n]*+|[^",\r\n][^,\r\n]*+)?+'
"""A quote is special only at the beginning of a cell, as for `csv.reader`."""
_ROWS: Final = re.compile(rb"(?:" + _CELL + rb"(?:," + _CELL + rb")*+[\r\n])*+")


class NewRelation(msgspec.Struct, forbid_unknown_fields=True):
    """The body that replaces a relation."""

    tuples: msgspec.Raw


@dataclass(eq=False)
class TupleParts:
    """Reads a body, and holds only one part of it and the bytes that arrived with the part's end."""

    _receive: Receive
    _reservation: Reservation
    _form: TuplesPart
    """The format of the body."""
    bytes_max: int
    part_s: float
    """The time within which each part must arrive."""
    limits: Limits
    _held: bytearray = field(default_factory=bytearray)
    _size_bytes: int = 0
    _ended: bool = False

    async def __aiter__(self) -> AsyncIterator[TuplesPart]:
        """Yield the parts in order.

        Raises RequestRefusal 1003, 1401 and 1502, Refusal 1000 and 1001, and CallerGone.
        """
        async for part in self._of_json() if self._form.form == "json" else self._of_lines():
            yield part

    async def _fill(self, bytes_: int) -> None:
        """Receive until there are more bytes than that, or the body ends."""
        try:
            async with asyncio.timeout(self.part_s):
                while not self._ended and len(self._held) <= bytes_:
                    message = await self._receive()
                    self._held += part_of(message)
                    self._size_bytes += len(message.get("body", b""))
                    self._ended = not message.get("more_body", False)
                    if self._size_bytes > self.bytes_max:
                        raise too_large(self.bytes_max)
                    self._reservation.hold(len(self._held))
        except TimeoutError:
            said = f"the next {bytes_} bytes did not arrive within {self.part_s:g} s; nothing was changed"
            raise RequestRefusal(1502, said) from None

    async def _next(self, end_of: Callable[[int], int]) -> bytes:
        """Cut off the next part; empty if there is no end of a tuple where one must be.

        `end_of` returns the end of the last whole tuple within a number of bytes, or 0.
        """
        for bytes_ in (PART_BYTES, TUPLE_BYTES_MAX):
            await self._fill(bytes_)
            if end := end_of(bytes_):
                return self._cut(end)
        return b""

    def _cut(self, end: int) -> bytes:
        body = bytes(memoryview(self._held)[:end])
        del self._held[:end]
        # From here on, the queue of the detector counts the part, and the age of the rest counts from now.
        self._reservation.release()
        return body

    async def _of_lines(self) -> AsyncIterator[TuplesPart]:
        lines, form = 0, self._form

        def end_of(bytes_: int) -> int:
            if self._ended and len(self._held) <= bytes_:
                return len(self._held)
            if form.form == "csv":
                rows = _ROWS.match(self._held, 0, bytes_)
                return rows.end() if rows else 0
            return self._held.rfind(b"\n", 0, bytes_) + 1

        while body := await self._next(end_of):
            yield msgspec.structs.replace(form, body=body, first=lines)
            lines += body.count(b"\n")
        if self._held:
            said = f"line {lines + 1}: it is longer than {TUPLE_BYTES_MAX} bytes, or a quote is never closed"
            raise Refusal(Entry(1001, said))

    async def _of_json(self) -> AsyncIterator[TuplesPart]:
        await self._fill(TUPLE_BYTES_MAX)
        if self._ended and len(self._held) <= TUPLE_BYTES_MAX:
            # A whole body may have its members in any order, and its defects can be reported exactly.
            tuples = decode(bytes(self._held), NewRelation, self.limits).tuples
            yield msgspec.structs.replace(self._form, body=bytes(tuples))
            return
        begin = _BEGIN.match(self._held)
        if begin is None:
            said = f'body: one of more than {TUPLE_BYTES_MAX} bytes has to begin with {{"tuples": ['
            raise Refusal(Entry(1001, said))
        self._cut(begin.end())
        count = 0
        while body := await self._next(self._end_of_tuples):
            part = b"[" + body.rstrip()[:-1] + b"]"
            yield msgspec.structs.replace(self._form, body=part, first=count)
            # The next part carries the number of earlier tuples, so that messages can name places.
            with contextlib.suppress(msgspec.DecodeError):
                count += len(msgspec.json.decode(part, type=list[msgspec.Raw]))
        last = self._held.rindex(b"]") if self._ended and _LAST.fullmatch(self._held) else None
        if last is None or len(self._held[:last].strip()) > TUPLE_BYTES_MAX:
            raise self._unreadable(count)
        body = self._cut(last)
        if count and not body.strip():
            raise Refusal(Entry(1000, "the body is not JSON: trailing comma in array"))
        yield msgspec.structs.replace(self._form, body=b"[" + body + b"]", first=count)

    def _end_of_tuples(self, bytes_: int) -> int:
        found = _TUPLES.match(self._held, 0, bytes_)
        return found.end() if found else 0

    def _unreadable(self, count: int) -> Refusal:
        began = self._held[:TUPLE_BYTES_MAX].decode(errors="replace").lstrip()
        if not began:
            return Refusal(Entry(1000, "the body is not JSON: input data was truncated"))
        said = (
            f"tuples[{count}]: expected a string, a number, a boolean, or an array of them, in at most "
            f"{TUPLE_BYTES_MAX} bytes, and at the end `]}}`; got {quoted(began)}"
        )
        return Refusal(Entry(1001, said))


@dataclass(eq=False)
class RelationUpload:
    """One upload: the worker stages the parts, and replaces the relation once all have arrived."""

    backend: Backend
    authenticator: Authenticator
    authorization: bytes | None
    detector_id: str
    name: str
    parts: TupleParts
    deadline_s: float
    by: str = ""
    """The id of the caller's token, a space and its name."""

    async def serve(self, _receive: Receive, send: Send, _progress: RequestTimeout) -> None:
        """Read the body and answer. Raises CallerGone; the relation is then unchanged."""
        try:
            response = await self._uploaded()
        except CallerGone:
            raise
        except Exception as error:  # noqa: BLE001 -- the caller must get a response
            response = error_response(error)
        await send_response(response, send)

    async def _uploaded(self) -> Response:
        upload, count = secrets.token_hex(8), 0
        try:
            async for part in self.parts:
                staged = await self._call(operations.stage_tuples(upload, count, part))
                if isinstance(staged, Refused):
                    return answered(staged)
                count += 1
            if (objection := self.authenticator.objection(self.authorization)) is not None:
                # The token was revoked meanwhile.
                raise objection
            put = operations.put_relation(self.name, upload, count)._replace(by=self.by)
            count = 0
            return answered(await self._call(put, self.backend.change))
        finally:
            if count:
                self.backend.background.begin(
                    self.backend.call(self.detector_id, operations.drop_tuples(upload))
                )

    async def _call(
        self,
        operation: operations.Operation,
        call: Callable[[str, operations.Operation], Awaitable[Answer]] | None = None,
    ) -> Answer:
        try:
            async with asyncio.timeout(self.deadline_s + BACKSTOP_S):
                return await (call or self.backend.call)(self.detector_id, operation)
        except TimeoutError:
            raise DeadlinePassed from None
