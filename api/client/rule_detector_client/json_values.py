"""Converts values to JSON like the engine's library: numbers of any type count by value."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite, nan
from numbers import Integral, Real
from typing import Any, Final, NoReturn

import msgspec

from .results import Entry, ServiceError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DEPTH_MAX: Final = 64
_DIGITS_MAX: Final = 4_000
_NAME_CHARS_SHOWN: Final = 80


def event_json(fields: Mapping[str, Any] | msgspec.Raw, timestamp_ms: Any) -> bytes:
    """Return an event as JSON; fields that are JSON already are not converted.

    Raises ServiceError 1001 with the name of a field that JSON cannot express.
    """
    given = bytes(fields) if isinstance(fields, msgspec.Raw) else object_json(fields, "fields")
    return b'{"fields":%b,%b}' % (given, time_json(timestamp_ms))


def time_json(timestamp_ms: Any) -> bytes:
    """Return a time as a member of a JSON object. Raises ServiceError 1001 if it is no time."""
    if isinstance(timestamp_ms, datetime) and timestamp_ms.utcoffset() is not None:
        timestamp_ms = (timestamp_ms - _EPOCH) / timedelta(milliseconds=1)
    time = _number(timestamp_ms, "timestamp_ms")
    if time is None or isinstance(time, bool):
        _refuse("timestamp_ms", f"expected a number or a zoned datetime, got {_type(timestamp_ms)}")
    return b'"timestamp_ms":%b' % json.dumps(time, allow_nan=False).encode()


def event_body(
    fields: Mapping[str, Any] | msgspec.Raw,
    timestamp_ms: Any,
    variables: Mapping[str, Any] | None,
    more: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the body of a request about one event. Raises ServiceError 1001 like `event_json`."""
    members: dict[str, Any] = {"event": msgspec.Raw(event_json(fields, timestamp_ms))}
    if variables is not None:
        members["context"] = {"vars": msgspec.Raw(object_json(variables, "vars"))}
    return msgspec.json.encode({**members, **(more or {})})


def object_json(value: Any, place: str) -> bytes:
    """Return fields or vars as JSON. Raises ServiceError 1001 like `event_json`."""
    plain = _object(value, place, _DEPTH_MAX)
    # The standard encoder: msgspec writes no integers beyond 64 bits. Lone surrogates become escapes.
    return json.dumps(plain, allow_nan=False, separators=(",", ":")).encode()


def _object(value: Any, place: str, depth: int) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        _refuse(place, f"expected a mapping, got {_type(value)}")
    if depth <= 0:
        _refuse(place, "it is nested too deeply")
    plain = {}
    for name, member in value.items():
        if not isinstance(name, str):
            _refuse(place, f"expected names that are strings, got {ascii(name)[:_NAME_CHARS_SHOWN]}")
        # Naming the place takes longer than checking a text.
        if type(member) is str:
            plain[str.__str__(name)] = member
        else:
            plain[str.__str__(name)] = _plain(member, f"{place}.{name[:_NAME_CHARS_SHOWN]}", depth - 1)
    return plain


def _plain(value: Any, place: str, depth: int) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return _object(value, place, depth)
    if type(value) in {list, tuple}:
        if depth <= 0:
            _refuse(place, "it is nested too deeply")
        return [_plain(member, f"{place}[{index}]", depth - 1) for index, member in enumerate(value)]
    number = _number(value, place)
    if number is None:
        _refuse(place, f"expected a value that JSON has, got {_type(value)}")
    return number


def _number(value: Any, place: str) -> float | None:
    """Convert a number or boolean of any type; return None for anything else."""
    try:
        number = _converted(value)
    except ArithmeticError:
        _refuse(place, f"expected a number in the range of a double, got a {_type(value)}")
    if type(number) is float and not isfinite(number):
        _refuse(place, f"expected a finite number, got {number}")
    return number


def _converted(value: Any) -> float | None:
    match value:
        case bool():
            return value
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case Integral():
            return int(value)
        case Decimal():
            if value.is_nan():
                return nan
            if value.is_finite() and value.adjusted() >= _DIGITS_MAX:
                raise OverflowError
            # Whole numbers are exact.
            is_whole = value.is_finite() and value == value.to_integral_value()
            return int(value) if is_whole else float(value)
        case Real():
            return float(value)
        case _ if type(value).__module__ == "numpy" and type(value).__name__ in {"bool", "bool_"}:
            return bool(value)
        case _:
            return None


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _refuse(place: str, what: str) -> NoReturn:
    said = f"{place[:_NAME_CHARS_SHOWN]}: {what}"
    raise ServiceError(said, entries=(Entry(1001, said),), sent=False)
