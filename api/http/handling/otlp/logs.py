"""Log records of OpenTelemetry, and the events that they become."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from math import isfinite, isnan
from typing import Any, Final, NamedTuple

import msgspec

from api.schema.envelope import RequestRefusal
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

Attributes = Mapping[str, Any]

_NANOSECONDS: Final = 1_000
"""Those of a microsecond, to which times are held."""


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
