"""Log records of OpenTelemetry: their form in JSON, and the events that they become."""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite, isnan
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from api.schema.envelope import RequestRefusal
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

Attributes = Mapping[str, Any]

_NANOSECONDS: Final = 1_000
"""Those of a microsecond, to which times are held."""


_INT64: Final = 1 << 63
_EXPECTED: Final = {"expected": "a whole number of 64 bits, which may be a text"}
_NUMBER: Final = r"^(NaN|-?Infinity|-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?)$"


class LogRecord(NamedTuple):
    """A log record. What it does not have is 0, empty or None."""

    time_ns: int
    observed_ns: int
    severity_number: int
    severity: str
    body: Any
    attributes: Attributes
    trace_id: str
    span_id: str
    event_name: str


class ScopeLogs(NamedTuple):
    """The log records of one resource and one instrumentation scope."""

    resource: Attributes
    scope_name: str
    scope_version: str
    records: Iterable[LogRecord]


def lines_of(logs: Iterable[ScopeLogs], now_us: int, limits: Limits, bytes_max: int) -> bytes:
    """Return the event of each log record, as a line of JSON. A record without a time gets `now_us`.

    Raises Refusal 1400 if there are too many records, and 1003 if the lines would be too large: each repeats
    the attributes of its resource.
    """
    lines: list[bytes] = []
    size = 0
    for group in logs:
        common = {f"resource.{name}": value for name, value in group.resource.items()}
        common |= _present({"scope.name": group.scope_name, "scope.version": group.scope_version})
        for record in group.records:
            if len(lines) == limits.batch_events_max:
                raise Refusal(Entry(1400, f"the body has more than {limits.batch_events_max} log records"))
            lines.append(_line(record, common, now_us))
            size += len(lines[-1]) + 1
            if size > bytes_max:
                said = f"the body becomes events of more than {bytes_max} bytes; send fewer records at once"
                raise RequestRefusal(1003, said)
    return b"\n".join(lines)


def _line(record: LogRecord, common: Attributes, now_us: int) -> bytes:
    time_ns = record.time_ns or record.observed_ns
    time_us = time_ns // _NANOSECONDS if time_ns else now_us
    own = {
        "severity": record.severity,
        "severity_number": record.severity_number,
        "trace_id": record.trace_id,
        "span_id": record.span_id,
        "event_name": record.event_name,
    }
    # What the record itself says counts, whatever its attributes are called.
    fields = {**record.attributes, **common, **_present(own)}
    if record.body is not None:
        fields["body"] = record.body
    time_ms = time_us / 1_000 if time_us % 1_000 else time_us // 1_000
    return msgspec.json.encode({"fields": fields, "timestamp_ms": time_ms})


def _present(fields: Attributes) -> Attributes:
    # What is not sent is 0 or empty.
    return {name: value for name, value in fields.items() if value}


def number(value: float) -> float | str:
    """Return a number as an event has it: as in OTLP's JSON, what JSON has no number for is a text."""
    if isfinite(value):
        return value
    return "NaN" if isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def binary(value: bytes) -> str:
    """Return bytes as an event has them: as in OTLP's JSON, in base64."""
    return b64encode(value).decode()


_Whole = (
    Annotated[int, Meta(ge=-_INT64, le=_INT64 - 1, extra=_EXPECTED)]
    | Annotated[str, Meta(pattern="^-?[0-9]{1,20}$", extra=_EXPECTED)]
)


_Double = Annotated[str, Meta(pattern=_NUMBER, extra={"expected": "a number, which may be a text"})]

# As in all JSON of protobuf, null is what is not there.


class AnyValue(Struct, rename="camel"):
    """A value: the one of its members that is there."""

    string_value: str | None = None
    bool_value: bool | None = None
    int_value: _Whole | None = None
    double_value: int | float | _Double | None = None
    array_value: "ArrayValue | None" = None
    kvlist_value: "KeyValueList | None" = None
    bytes_value: str | None = None
    """In base64."""


class ArrayValue(Struct):
    """Values in order."""

    values: list[AnyValue] | None = None


class KeyValue(Struct):
    """An attribute."""

    key: str | None = None
    value: AnyValue | None = None


class KeyValueList(Struct):
    """Values by name."""

    values: list[KeyValue] | None = None


class Resource(Struct):
    """What the records are of."""

    attributes: list[KeyValue] | None = None


class Scope(Struct):
    """What made the records."""

    name: str | None = None
    version: str | None = None


class Record(Struct, rename="camel"):
    """A log record. Ids are in hexadecimal digits."""

    time_unix_nano: _Whole | None = None
    observed_time_unix_nano: _Whole | None = None
    severity_number: int | None = None
    severity_text: str | None = None
    body: AnyValue | None = None
    attributes: list[KeyValue] | None = None
    trace_id: str | None = None
    span_id: str | None = None
    event_name: str | None = None


class RecordsOfScope(Struct, rename="camel"):
    """The records of one scope."""

    scope: Scope | None = None
    log_records: list[Record] | None = None


class RecordsOfResource(Struct, rename="camel"):
    """The records of one resource."""

    resource: Resource | None = None
    scope_logs: list[RecordsOfScope] | None = None


class ExportLogs(Struct, rename="camel"):
    """Log records, as OTLP has them."""

    resource_logs: list[RecordsOfResource] | None = None


class PartialSuccess(Struct, rename="camel"):
    """What was refused: how many log records, and why."""

    rejected_log_records: str
    """A number, which OTLP's JSON has as a text."""
    error_message: str


class Exported(Struct, rename="camel"):
    """The answer of OTLP; empty if nothing was refused."""

    partial_success: PartialSuccess | msgspec.UnsetType = msgspec.UNSET


_HALF: Final = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
MENDED_BYTES_MAX: Final = 1 << 20


def with_whole_characters(body: bytes) -> bytes:
    """Return JSON with each half of a pair of surrogates replaced, as programs leave them that cut texts.

    A long body is returned as it is: the search would hold up others.
    """
    backslash = b"\0\0"
    if len(body) > MENDED_BYTES_MAX or backslash in body:
        # What has that is no JSON.
        return body
    plain = body.replace(rb"\\", backslash)
    return _HALF.sub(rb"\\ufffd", plain).replace(backslash, rb"\\")


JSON_LEVELS: Final = 4
"""How deep one level of an event is nested in OTLP's JSON: value, list, its elements, and each of them."""


def logs_of(given: ExportLogs) -> Iterator[ScopeLogs]:
    """Yield the log records of a request."""
    for of_resource in given.resource_logs or ():
        resource = _attributes(of_resource.resource.attributes if of_resource.resource else None)
        for of_scope in of_resource.scope_logs or ():
            scope = of_scope.scope or Scope()
            records = map(_record, of_scope.log_records or ())
            yield ScopeLogs(resource, scope.name or "", scope.version or "", records)


def _record(given: Record) -> LogRecord:
    return LogRecord(
        time_ns=int(given.time_unix_nano or 0),
        observed_ns=int(given.observed_time_unix_nano or 0),
        severity_number=given.severity_number or 0,
        severity=given.severity_text or "",
        body=_value(given.body),
        attributes=_attributes(given.attributes),
        trace_id=(given.trace_id or "").lower(),
        span_id=(given.span_id or "").lower(),
        event_name=given.event_name or "",
    )


def _attributes(given: list[KeyValue] | None) -> dict[str, Any]:
    return {each.key or "": _value(each.value) for each in given or ()}


def _value(given: AnyValue | None) -> Any:
    match given:
        case None:
            return None
        case AnyValue(string_value=str(text)):
            return text
        case AnyValue(bool_value=bool(truth)):
            return truth
        case AnyValue(int_value=int(whole) | str(whole)):
            return int(whole)
        case AnyValue(double_value=int(double) | float(double)):
            return double
        case AnyValue(double_value=str(text)):
            return number(float(text))
        case AnyValue(array_value=ArrayValue(values=values)):
            return [_value(each) for each in values or ()]
        case AnyValue(kvlist_value=KeyValueList(values=pairs)):
            return _attributes(pairs)
        case AnyValue(bytes_value=str(text)):
            return text
        case _:
            return None


def partial_success(refused: int, message: str) -> bytes:
    """Return the answer."""
    said = PartialSuccess(str(refused), message) if refused else msgspec.UNSET
    return msgspec.json.encode(Exported(said))
