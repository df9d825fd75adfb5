"""Reads the protobuf form of OTLP logs, and writes that of the answer.

It reads those few messages only (opentelemetry/proto/logs/v1/logs.proto, common/v1/common.proto): each field
by its tag, which is its number and its wire type. Other fields are skipped, as protobuf demands.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

from api.http.handling.otlp_logs import LogRecord, ScopeLogs, binary, number
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

_WIRE_TYPE: Final = 7
_VARINT: Final = 0
_BYTES: Final = 2
_SIZES: Final = {1: 8, 5: 4}
"""The bytes of a number, for the wire types that fix them."""
_MORE: Final = 0x80
_VARINT_BYTES_MAX: Final = 10
_UINT64: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63
_DOUBLE: Final = Struct("<d")

_FIRST: Final = 0x0A
"""A first field that is bytes. In a request it has the logs of a resource; in these, the resource; in the
logs of a scope, the scope; in a scope and an attribute, the name; in an array and an object, an element."""
_SECOND: Final = 0x12
"""A second field that is bytes. In the logs of a resource it has those of a scope; in these, a log record; in
a scope, the version; in an attribute, the value."""


class _Record:
    """The tags of a log record."""

    TIME: Final = 0x09
    SEVERITY_NUMBER: Final = 0x10
    SEVERITY: Final = 0x1A
    BODY: Final = 0x2A
    ATTRIBUTE: Final = 0x32
    TRACE_ID: Final = 0x4A
    SPAN_ID: Final = 0x52
    OBSERVED: Final = 0x59
    EVENT_NAME: Final = 0x62


class _Value:
    """The tags of a value, one of which it has."""

    TEXT: Final = 0x0A
    BOOLEAN: Final = 0x10
    WHOLE: Final = 0x18
    DOUBLE: Final = 0x21
    ARRAY: Final = 0x2A
    OBJECT: Final = 0x32
    BYTES: Final = 0x3A


Read = tuple[int, Any]
"""The tag of a field, and its value: a whole number, or bytes."""


class LogsReader:
    """Reads one request. Raises Refusal 1000 if it is no protobuf or has too many fields."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left = limits.body_values_max

    def logs(self, body: bytes) -> Iterator[ScopeLogs]:
        """Yield the log records of an ExportLogsServiceRequest."""
        for tag, resource_logs in self._fields(body):
            if tag == _FIRST:
                yield from self._resource_logs(resource_logs)

    def _resource_logs(self, data: bytes) -> Iterator[ScopeLogs]:
        resource: dict[str, Any] = {}
        groups = []
        for tag, value in self._fields(data):
            if tag == _FIRST:
                resource = self._attributes(value)
            elif tag == _SECOND:
                groups.append(value)
        for group in groups:
            name, version = "", ""
            records = []
            for tag, value in self._fields(group):
                if tag == _FIRST:
                    found = dict(self._fields(value))
                    name, version = _text(found.get(_FIRST, b"")), _text(found.get(_SECOND, b""))
                elif tag == _SECOND:
                    records.append(value)
            yield ScopeLogs(resource, name, version, map(self._record, records))

    def _record(self, data: bytes) -> LogRecord:
        found: dict[int, Any] = {}
        attributes: dict[str, Any] = {}
        for tag, value in self._fields(data):
            if tag == _Record.ATTRIBUTE:
                self._attribute(value, attributes, 0)
            else:
                found[tag] = value
        return LogRecord(
            time_ns=found.get(_Record.TIME, 0),
            observed_ns=found.get(_Record.OBSERVED, 0),
            severity_number=_signed(found.get(_Record.SEVERITY_NUMBER, 0)),
            severity=_text(found.get(_Record.SEVERITY, b"")),
            body=self._value(found.get(_Record.BODY, b""), 0),
            attributes=attributes,
            trace_id=found.get(_Record.TRACE_ID, b"").hex(),
            span_id=found.get(_Record.SPAN_ID, b"").hex(),
            event_name=_text(found.get(_Record.EVENT_NAME, b"")),
        )

    def _attributes(self, data: bytes, depth: int = 0) -> dict[str, Any]:
        """Return the attributes in a message, each of which is its first field."""
        attributes: dict[str, Any] = {}
        for tag, value in self._fields(data):
            if tag == _FIRST:
                self._attribute(value, attributes, depth)
        return attributes

    def _attribute(self, data: bytes, attributes: dict[str, Any], depth: int) -> None:
        name, value = "", None
        for tag, given in self._fields(data):
            if tag == _FIRST:
                name = _text(given)
            elif tag == _SECOND:
                value = self._value(given, depth)
        attributes[name] = value

    def _value(self, data: bytes, depth: int) -> Any:
        """Return an AnyValue, None if it is empty."""
        if depth > self._limits.body_depth_max:
            # What is around it is deep enough for its record to be refused, and not those beside it.
            return None
        value: Any = None
        for tag, given in self._fields(data):
            match tag:
                case _Value.TEXT:
                    value = _text(given)
                case _Value.BOOLEAN:
                    value = bool(given)
                case _Value.WHOLE:
                    value = _signed(given)
                case _Value.DOUBLE:
                    value = number(_DOUBLE.unpack(given.to_bytes(8, "little"))[0])
                case _Value.ARRAY:
                    elements = [element for of, element in self._fields(given) if of == _FIRST]
                    value = [self._value(element, depth + 1) for element in elements]
                case _Value.OBJECT:
                    value = self._attributes(given, depth + 1)
                case _Value.BYTES:
                    value = binary(given)
        return value

    def _fields(self, data: bytes) -> list[Read]:
        """Return the fields of a message."""
        found: list[Read] = []
        at, end = 0, len(data)
        try:
            while at < end:
                tag = data[at]
                if tag < _MORE:
                    at += 1
                else:
                    tag, at = _varint(data, at)
                kind = tag & _WIRE_TYPE
                if kind == _BYTES:
                    stop = at + 1 + data[at]
                    if data[at] < _MORE:
                        at += 1
                    else:
                        size, at = _varint(data, at)
                        stop = at + size
                    found.append((tag, data[at:stop]))
                    at = stop
                elif kind == _VARINT:
                    value, at = _varint(data, at)
                    found.append((tag, value))
                elif size := _SIZES.get(kind, 0):
                    found.append((tag, int.from_bytes(data[at : at + size], "little")))
                    at += size
                else:
                    raise _no_protobuf("it has a field of an unknown type")
                if len(found) > self._left:
                    most = self._limits.body_values_max
                    raise Refusal(Entry(1000, f"the body holds more than {most} values"))
        except IndexError:
            at = end + 1
        if at > end:
            raise _no_protobuf("it ends early")
        self._left -= len(found)
        return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place and the place after it. Raises IndexError if it ends early."""
    value = data[at]
    if value < _MORE:
        return value, at + 1
    value = 0
    for place in range(_VARINT_BYTES_MAX):
        byte = data[at + place]
        value |= (byte & ~_MORE) << 7 * place
        if byte < _MORE:
            return value & _UINT64, at + place + 1
    raise _no_protobuf("a number has too many bytes")


def _signed(value: int) -> int:
    return value - (value & _SIGN) * 2


def _text(value: bytes) -> str:
    # Collectors send what lines of logs have. Whoever writes one must not get those beside it refused.
    return value.decode(errors="replace")


def _no_protobuf(reason: str) -> Refusal:
    return Refusal(Entry(1000, f"the body is no protobuf of logs: {reason}"))


def partial_success(refused: int, message: str) -> bytes:
    """Return an ExportLogsServiceResponse, empty if nothing was refused."""
    if not refused:
        return b""
    said = message.encode()
    inner = b"\x08" + _as_varint(refused) + b"\x12" + _as_varint(len(said)) + said
    return b"\x0a" + _as_varint(len(inner)) + inner


def _as_varint(value: int) -> bytes:
    written = bytearray()
    while value >= _MORE:
        written.append(value & 0x7F | _MORE)
        value >>= 7
    return bytes([*written, value])
