"""An export of logs: the events that it becomes, and the answer, which says what was refused.

Both forms of OTLP give resources, scopes and records whose members have the names of `opentelemetry.proto`.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from math import isfinite, isnan
from typing import Any, Final

import msgspec

from api.http.handling.otlp import json_form, protobuf
from api.schema.envelope import JSON, PROTOBUF, RequestRefusal, Response
from engine.evaluation.wire.bodies import decode
from engine.evaluation.wire.events import Done
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

_TOLD: Final = 3
"""How many refusals the message of the answer tells."""
_NANOSECONDS: Final = 1_000
"""Those of a microsecond, to which times are held."""

ScopeLogs = tuple[Any, Any, Iterable[Any]]
"""A resource, a scope, and the log records of the two."""


def events_in(body: bytes, now_us: int, limits: Limits, bytes_max: int, *, in_protobuf: bool) -> bytes:
    """Return the events of the log records in a body, a line each. Raises Refusal."""
    logs: Iterable[ScopeLogs]
    if in_protobuf:
        logs = protobuf.logs_of(body, limits)
    else:
        logs = json_form.logs_of(decode(body, json_form.ExportLogs, limits))
    return _lines_of(logs, now_us, limits, bytes_max)


def exported(answer: Done, *, in_protobuf: bool) -> Response:
    """Return the response to records that were evaluated, and of which some may have been refused."""
    said = msgspec.json.decode(answer.result)
    refused, message = said["refused"], _message(said["errors"])
    if in_protobuf:
        return Response(200, protobuf.partial_success(refused, message), content_type=PROTOBUF)
    return Response(200, json_form.partial_success(refused, message), content_type=JSON)


def _message(errors: list[dict[str, Any]]) -> str:
    told = [f"log record {error['index']}: {error['code']} {error['message']}" for error in errors[:_TOLD]]
    return "; ".join(told)


def _lines_of(logs: Iterable[ScopeLogs], now_us: int, limits: Limits, bytes_max: int) -> bytes:
    """Return the event of each log record, as a line of JSON. A record without a time gets `now_us`.

    Raises Refusal 1400 if there are too many records, and 1003 if the lines would be too large: each repeats
    the attributes of its resource.
    """
    lines: list[bytes] = []
    size = 0
    for resource, scope, records in logs:
        common = {f"resource.{name}": value for name, value in _attributes(resource.attributes).items()}
        common |= _present({"scope.name": scope.name, "scope.version": scope.version})
        for record in records:
            if len(lines) == limits.batch_events_max:
                raise Refusal(Entry(1400, f"the body has more than {limits.batch_events_max} log records"))
            lines.append(_line(record, common, now_us))
            size += len(lines[-1]) + 1
            if size > bytes_max:
                said = f"the body becomes events of more than {bytes_max} bytes; send fewer records at once"
                raise RequestRefusal(1003, said)
    return b"\n".join(lines)


def _line(record: Any, common: Mapping[str, Any], now_us: int) -> bytes:
    time_ns = int(record.time_unix_nano) or int(record.observed_time_unix_nano)
    time_us = time_ns // _NANOSECONDS if time_ns else now_us
    own = {
        "severity": record.severity_text,
        "severity_number": record.severity_number,
        "trace_id": _identifier(record.trace_id),
        "span_id": _identifier(record.span_id),
        "event_name": record.event_name,
    }
    # What the record itself says counts, whatever its attributes are called.
    fields = {**_attributes(record.attributes), **common, **_present(own)}
    body = _value(record.body)
    if body is not None:
        fields["body"] = body
    time_ms = time_us / 1_000 if time_us % 1_000 else time_us // 1_000
    return msgspec.json.encode({"fields": fields, "timestamp_ms": time_ms})


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    # What is not sent is 0 or empty.
    return {name: value for name, value in fields.items() if value}


def _attributes(given: Iterable[Any]) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in given}


def _value(given: Any) -> Any:
    """Return an AnyValue as an event has it, None if it is empty.

    As in OTLP's JSON, bytes are in base64, and a double that JSON has no number for is a text.
    """
    kind = None if given is None else given.WhichOneof("value")
    match kind:
        case None:
            return None
        case "string_value":
            return given.string_value
        case "array_value":
            return [_value(each) for each in given.array_value.values]
        case "kvlist_value":
            return _attributes(given.kvlist_value.values)
    value = getattr(given, kind)
    match value:
        case float() if not isfinite(value):
            return "NaN" if isnan(value) else ("Infinity" if value > 0 else "-Infinity")
        case bytes():
            return b64encode(value).decode()
        case str() if kind == "int_value":
            return int(value)
    return value


def _identifier(value: bytes | str) -> str:
    return value.hex() if isinstance(value, bytes) else value.lower()
