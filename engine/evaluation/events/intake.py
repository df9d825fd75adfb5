"""Converts events of callers in the same process to JSON values, or refuses them with the field's name.

Events from bodies are JSON already, and do not need this.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite, nan
from numbers import Integral, Real
from typing import Any, Final

from engine.evaluation.facts.values import Event
from engine.evaluation.stamps import LATEST_US
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

TIMESTAMP_MS_MAX: Final = LATEST_US / 1_000
"""The maximum distance of a time from 1970, in both directions: the range of dates in ECMAScript."""

_PLAIN: Final = frozenset({str, int, bool, type(None)})
_STRING: Final = frozenset({str})
_NUMBERS: Final = frozenset({int, float})
_MS_MAX: Final = int(TIMESTAMP_MS_MAX)
_MS_MIN: Final = -_MS_MAX
"""The same bounds as integers, like most times."""

_NOTHING: Final[Mapping[str, Any]] = {}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NAME_CHARS_SHOWN: Final = 80
_DIGITS_MAX: Final = Limits().digits_max


def are_plain(events: Iterable[Event]) -> bool:
    """Return whether events consist of JSON scalars and have no contexts.

    A statement for each value costs less than building columns of values for loops in C.
    """
    for fields, timestamp_ms, sent in events:
        if sent is not None or type(fields) is not dict or type(timestamp_ms) not in _NUMBERS:
            return False
        if not _MS_MIN <= timestamp_ms <= _MS_MAX:
            return False
        for name, value in fields.items():
            if type(value) not in _PLAIN and (type(value) is not float or value - value != 0):
                return False
            if type(name) is not str:
                return False
    return True


def _is_a_time(timestamp_ms: float) -> bool:
    # False for NaN, too.
    return -TIMESTAMP_MS_MAX <= timestamp_ms <= TIMESTAMP_MS_MAX


def as_time(value: Any) -> float:
    """Convert a timestamp to milliseconds. Raises Refusal 1001."""
    if type(value) in _NUMBERS and _is_a_time(value):
        return value  # type: ignore[no-any-return]  # of those two types
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise _refusal("timestamp_ms", "expected a datetime with a time zone")
        return (value - _EPOCH) / timedelta(milliseconds=1)
    number = _finite(value, "timestamp_ms")
    if number is None or isinstance(number, bool):
        raise _refusal("timestamp_ms", f"expected a number or a datetime, got {_type(value)}")
    if not _is_a_time(number):
        raise _refusal("timestamp_ms", "expected a number from -8.64e15 to 8.64e15")
    return number


def as_object(value: Any, place: str, depth_max: int) -> dict[str, Any]:
    """Convert fields or vars to JSON values. Raises Refusal 1001 with the name of an invalid value."""
    if are_plain(((value, 0, None),)):
        return value  # type: ignore[no-any-return]  # a dict
    return _object(value, place, depth_max)


class Intake:
    """Converts events. A context of several consecutive events is converted once."""

    def __init__(self, limits: Limits) -> None:
        self._depth_max = limits.body_depth_max
        self._given: Any = None
        self._taken: Mapping[str, Any] = _NOTHING

    time = staticmethod(as_time)

    def context(self, given: Any) -> Mapping[str, Any]:
        """Convert vars to JSON values. Raises Refusal 1001."""
        if given is None:
            return _NOTHING
        if given is not self._given:
            self._taken = as_object(given, "vars", self._depth_max)
            self._given = given
        return self._taken

    def event(self, fields: Any, timestamp_ms: Any, given: Any) -> tuple[dict[str, Any], float, Any]:
        """Convert an event to JSON values. Raises Refusal 1001."""
        sent = self.context(given)
        return as_object(fields, "fields", self._depth_max), as_time(timestamp_ms), sent

    def in_turn(self, events: Iterable[Event], before_next: Callable[[], None]) -> Iterable[Event]:
        """Return events unchanged.

        If `events` is an iterator, `before_next` is called before each next event, which may consist of the
        same objects, changed.
        """
        return events if isinstance(events, list | tuple) else self._made(events, before_next)

    def events(self, events: Iterable[Event]) -> Iterable[Event]:
        """Convert events to JSON values. Raises Refusal 1001 at the first event that JSON cannot express."""
        if isinstance(events, list | tuple) and are_plain(events):
            return events
        return (self.event(*event) for event in events)

    def read_events(
        self, events: Iterable[Event], names_read: Callable[[], frozenset[str]]
    ) -> Iterable[Event]:
        """Convert the fields of each event that are read; `names_read` returns their names."""
        if isinstance(events, list | tuple) and are_plain(events):
            return events
        return self._read_events(events, names_read())

    def _read_events(self, events: Iterable[Event], names: frozenset[str]) -> Iterator[Event]:
        for fields, timestamp_ms, given in events:
            sent = self.context(given)
            yield self.read(fields, names), as_time(timestamp_ms), sent

    def read(self, fields: Any, names: frozenset[str]) -> dict[str, Any]:
        """Return the fields with these names, converted to JSON values.

        Raises Refusal 1001 with the name of an invalid value, and for names that are not strings if a field
        is missing.
        """
        if type(fields) is not dict and not isinstance(fields, Mapping):
            raise _refusal("fields", f"expected a mapping, got {_type(fields)}")
        found = fields
        if type(fields) is not dict or not _STRING.issuperset(map(type, fields)):
            found = _named(fields, names)
        return {
            name: value
            if type(value) in _PLAIN
            else _plain(value, f"fields.{name[:_NAME_CHARS_SHOWN]}", self._depth_max - 1)
            for name, value in found.items()
            if name in names
        }

    def _made(self, events: Iterable[Event], before_next: Callable[[], None]) -> Iterator[Event]:
        for event in events:
            yield event
            self._given = None
            before_next()


def _named(fields: Mapping[Any, Any], names: frozenset[str]) -> dict[str, Any]:
    """Return fields by names of type `str`. Such names take precedence over equal ones of subclasses.

    Raises Refusal 1001 for a name that is not a string if one of `names` is missing, because it may be meant.
    """
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if type(name) is str:
            found[name] = value
        elif isinstance(name, str):
            found.setdefault(str.__str__(name), value)
    if len(names) > len(found) or any(found.get(name) is None for name in names):
        for name in fields:
            _name(name, "fields")
    return found


def _object(value: Any, place: str, depth: int) -> dict[str, Any]:
    if type(value) is not dict and not isinstance(value, Mapping):
        raise _refusal(place, f"expected a mapping, got {_type(value)}")
    if depth <= 0:
        raise _refusal(place[:_NAME_CHARS_SHOWN], "it is nested too deeply")
    return {
        name if type(name) is str else _name(name, place): member
        if type(member) in _PLAIN
        else _plain(member, f"{place}.{_name(name, place)[:_NAME_CHARS_SHOWN]}", depth - 1)
        for name, member in value.items()
    }


def _name(name: Any, place: str) -> str:
    if not isinstance(name, str):
        raise _refusal(place, f"expected names that are strings, got {ascii(name)[:_NAME_CHARS_SHOWN]}")
    return str.__str__(name)


def _plain(value: Any, place: str, depth: int) -> Any:
    """Convert a value to JSON values."""
    kind = type(value)
    if kind in _PLAIN or (kind is float and value - value == 0):
        return value
    if kind is list or kind is tuple:
        if depth <= 0:
            raise _refusal(place[:_NAME_CHARS_SHOWN], "it is nested too deeply")
        if _PLAIN.issuperset(map(type, value)):
            return value if kind is list else list(value)
        return [_plain(member, f"{place}[{index}]", depth - 1) for index, member in enumerate(value)]
    if kind is dict or isinstance(value, Mapping):
        return _object(value, place, depth)
    if isinstance(value, str):
        # The text itself: members of an Enum would be shown as `Color.RED`.
        return str.__str__(value)
    number = _finite(value, place)
    if number is None:
        raise _refusal(place, f"expected a value that JSON has, got {_type(value)}")
    return number


def _finite(value: Any, place: str) -> float | None:
    """Convert a number like `_number`. Raises Refusal 1001 if JSON cannot express it."""
    try:
        number = _number(value)
    except ArithmeticError:
        raise _refusal(place, f"expected a number in the range of a double, got a {_type(value)}") from None
    if type(number) is float and not isfinite(number):
        raise _refusal(place, f"expected a finite number, got {number}")
    return number


def _number(value: Any) -> float | None:
    """Convert a number or boolean of any type, NumPy's included, to Python's; None for anything else."""
    match value:
        case bool():
            return value
        # Subclasses, such as IntEnum, have the value of the number, even if they override the conversion.
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case Integral():
            return int(value)
        case Decimal():
            return _decimal(value)
        case Real():
            return float(value)
        case _ if type(value).__module__ == "numpy" and type(value).__name__ in {"bool", "bool_"}:
            return bool(value)
        case _:
            return None


def _decimal(value: Decimal) -> float:
    if value.is_nan():
        return nan
    if value.is_finite() and value.adjusted() >= _DIGITS_MAX:
        # Writing out the integer would take minutes for a million digits.
        raise OverflowError
    # Whole numbers are exact.
    return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _refusal(place: str, what: str) -> Refusal:
    return Refusal(Entry(1001, f"{place}: {what}"))
