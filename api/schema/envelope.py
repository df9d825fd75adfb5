"""The envelope of every response, the error codes, and the mapping of exceptions to responses."""

import logging
import math
import secrets
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from engine.evaluation.wire.batches import BatchForm
from engine.evaluation.wire.events import Answer, Done
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests.operations import current_request

_log = logging.getLogger("rule_detector.api")


class EntryOfReply(msgspec.Struct):
    """A code of at least 1000 and a message."""

    code: Annotated[int, msgspec.Meta(ge=1000)]
    message: str


class Failure(msgspec.Struct):
    """The response to a failed request. All errors are of one kind, and the first sets the status."""

    success: Literal[False]
    errors: Annotated[list[EntryOfReply], msgspec.Meta(min_length=1)]
    messages: list[EntryOfReply]
    result: dict[str, Any]


class Code(NamedTuple):
    """A code of `errors`: the status of the response, and a sentence for the reference."""

    status: int
    meaning: str


CODES: Final[dict[int, Code]] = {
    1000: Code(400, "The body is not JSON."),
    1001: Code(400, "The body has a wrong shape; the message names the place."),
    1002: Code(415, "The Content-Type is present and is not one that the operation takes."),
    1003: Code(413, "The body is larger than the limit."),
    1004: Code(404, "No such path."),
    1005: Code(405, "The path does not take this method; `Allow` names those that it takes."),
    1006: Code(400, "A query parameter or header has a wrong value."),
    1100: Code(401, "No Authorization header, or not of the form `Bearer TOKEN`."),
    1101: Code(401, "The token is unknown, revoked or expired."),
    1102: Code(403, "The token may not do this."),
    1200: Code(404, "No such detector."),
    1201: Code(404, "No such rule in that detector."),
    1202: Code(404, "No such token."),
    1203: Code(404, "No such relation."),
    1204: Code(404, "No such node, or none that takes detectors."),
    1300: Code(400, "The condition's text or JSON cannot be parsed; the message has line, column and caret."),
    1301: Code(400, "The condition is not valid; the message names the place."),
    1302: Code(400, "A regular expression is refused; the message has the reason."),
    1303: Code(400, "The condition is too large or too deep."),
    1400: Code(409, "A count limit is reached, or the answer to a batch is full or took too long."),
    1401: Code(
        429,
        "Too many requests wait for this detector, too many answers are kept for it, a front end has no "
        "memory left for the request, or the token sends more events a second than it may; nothing was done. "
        "See `Retry-After`.",
    ),
    1402: Code(422, "The event's timestamp is too late or too far ahead."),
    1500: Code(500, "An internal error; the log repeats the reference in the message."),
    1501: Code(503, "The detector is starting, moving or recovering. See `Retry-After`."),
    1502: Code(504, "The deadline passed; whether the request was carried out is not known."),
    1503: Code(503, "The server is shutting down."),
}
"""Every code of `errors`, with its status."""

MESSAGE_CODES: Final[dict[int, str]] = {
    2001: "The event was late and was evaluated at the clock's time.",
    2002: "Keyed state was evicted because the detector reached its limit on keys or on their memory.",
    2003: "A condition names a relation that is neither stored with the detector nor sent with the event.",
    2004: (
        "A text was too long for patterns to be tried on it, or an array for `some`, or there were too many "
        "strings for `anywhere`."
    ),
    2005: "A rule's history begins anew.",
    2006: "A condition is valid, but probably not what was meant; the message says what to write.",
    2007: "`timestamp_ms` is probably not in milliseconds: the detector's first event is before 1980 or "
    "after 2100.",
    2008: "Some actions of a tick had no room in the response.",
}
"""Every code of `messages`."""

JSON: Final = b"application/json"
MSGPACK: Final = b"application/msgpack"
NDJSON: Final = b"application/x-ndjson"
CSV: Final = b"text/csv"
PROTOBUF: Final = b"application/x-protobuf"

BATCH_FORMS: Final[dict[bytes, BatchForm]] = {JSON: "json", MSGPACK: "msgpack"}
"""The format of a batch's body, by media type."""

_JOINED_BYTES_MAX: Final = 64 * 1024
"""A longer result is not copied into its envelope."""

_FAILED: Final = b'{"success":false,"errors":[{"code":'
_CODE_DIGITS: Final = 4

_AGAIN_AFTER_S: Final = {1401: 10.0, 1501: 5.0}
"""Seconds of `Retry-After` by code: 1401 waits for kept answers to expire, 1501 for space on the disk."""

Headers = tuple[tuple[bytes, bytes], ...]


class Response(NamedTuple):
    """A whole response. `headers` does not have Content-Type and Content-Length."""

    status: int
    body: bytes
    """The whole body, or its beginning if there is a rest."""
    headers: Headers = ()
    content_type: bytes = JSON
    rest: tuple[bytes, ...] = ()
    """The rest of a long body, in pieces: joining them would copy them."""

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The pieces of the body."""
        return (self.body, *self.rest)

    def all_headers(self) -> list[tuple[bytes, bytes]]:
        """Every header, names in lower case."""
        return [*self.own_headers(), (b"content-length", b"%d" % sum(map(len, self.pieces)))]

    def own_headers(self) -> Headers:
        """Every header but Content-Length."""
        return ((b"content-type", self.content_type), *self.headers)

    def closing(self) -> "Response":
        """The same response, with `Connection: close`."""
        return self._replace(headers=(*self.headers, (b"connection", b"close")))


class RequestRefusal(Refusal):
    """The refusal of a request as HTTP: for its path, method, headers, size or token.

    `headers` go into the response, as `Allow` and `WWW-Authenticate` do.
    """

    def __init__(self, code: int, *defects: str, headers: Headers = ()) -> None:
        super().__init__(*(Entry(code, defect) for defect in defects))
        self.headers = headers


class DeadlinePassed(Exception):
    """The request took longer than its deadline."""


def success(result: bytes, messages: bytes = b"[]") -> Response:
    """Wrap a result that is JSON already."""
    begin = b'{"success":true,"errors":[],"messages":' + messages + b',"result":'
    if len(result) > _JOINED_BYTES_MAX:
        return Response(200, begin, rest=(result, b"}"))
    return Response(200, begin + result + b"}")


def success_of(result: Any) -> Response:
    """Encode a result and wrap it."""
    return success(msgspec.json.encode(result))


def answered(answer: Answer) -> Response:
    """Return the response to a detector's answer."""
    if isinstance(answer, Done):
        return success(answer.result, answer.messages)
    return refused(answer.entries, _retry_after(_AGAIN_AFTER_S.get(answer.entries[0].code)))


def failure(status: int, entries: Sequence[Entry], headers: Headers = ()) -> Response:
    """Return a failure with a status."""
    errors = msgspec.json.encode([{"code": entry.code, "message": entry.message} for entry in entries])
    body = b'{"success":false,"errors":' + errors + b',"messages":[],"result":{}}'
    return Response(status, body, headers)


def error_code(body: bytes) -> int | None:
    """Return the first code of `errors` from the beginning of an envelope, None where there is none."""
    digits = body[len(_FAILED) : len(_FAILED) + _CODE_DIGITS]
    return int(digits) if body.startswith(_FAILED) and digits.isdigit() else None


def refused(entries: Sequence[Entry], headers: Headers = ()) -> Response:
    """Return a failure with the status of its first entry."""
    return failure(CODES[entries[0].code].status, entries, headers)


def error_response(error: Exception) -> Response:
    """Return the response to an exception."""
    match error:
        case RequestRefusal():
            headers = error.headers
        case Refusal() | DetectorUnavailable():
            headers = _retry_after(getattr(error, "retry_after_s", None))
        case _:
            headers = ()
    return refused(entries_of(error), headers)


def entries_of(error: Exception) -> Sequence[Entry]:
    """Return the errors that a caller sees. An unexpected exception is logged, and shown without detail."""
    match error:
        case Refusal():
            return error.entries
        case DetectorUnavailable():
            return [Entry(error.code, error.message)]
        case DeadlinePassed():
            message = "the deadline passed before an answer; whether the request was carried out is not known"
            return [Entry(1502, message)]
        case _:
            reference = secrets.token_hex(6)
            fields = current_request().fields
            _log.error("internal error %s", reference, exc_info=error, extra={"fields": fields})
            return [Entry(1500, f"an internal error; its reference is {reference}")]


def _retry_after(seconds: float | None) -> Headers:
    if seconds is None:
        return ()
    return ((b"retry-after", str(max(1, math.ceil(seconds))).encode()),)
