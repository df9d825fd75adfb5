"""Converts events of callers in the same process to JSON values, or refuses them by the name of the field.

Events from bodies are JSON already and do not come here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite, nan
from numbers import Integral, Real
from typing import Any, Final

from engine.evaluation.facts.values import Event
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

TIMESTAMP_MS_MAX: Final = 8.64e15
"""The largest distance from 1970 in both directions: the range of dates in ECMAScript."""

_PLAIN: Final = frozenset({str, int, bool, type(None)})
_NUMBERS: Final = frozenset({int, float})
_MS_MAX: Final = int(TIMESTAMP_MS_MAX)
_MS_MIN: Final = -_MS_MAX
"""The same as integers, which most times are."""

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
    """Converts events. A context that comes with several events in a row is converted once."""

    def __init__(self, limits: Limits) -> None:
        self._depth_max = limits.body_depth_max
        self._given: Any = None
        self._taken: Mapping[str, Any] = _NOTHING

    def event(self, fields: Any, timestamp_ms: Any, given: Any) -> tuple[dict[str, Any], float, Any]:
        """Convert an event to JSON values. Raises Refusal 1001."""
        if given is None:
            sent = _NOTHING
        elif given is self._given:
            sent = self._taken
        else:
            sent = self._taken = as_object(given, "vars", self._depth_max)
            self._given = given
        return as_object(fields, "fields", self._depth_max), as_time(timestamp_ms), sent

    def events(self, events: Iterable[Event], before_next: Callable[[], None]) -> Iterable[Event]:
        """Convert events to JSON values. Raises Refusal 1001 at the first event that JSON cannot express.

        If `events` is an iterator, `before_next` is called before each next event, which may consist of the
        same objects, changed.
        """
        if not isinstance(events, list | tuple):
            return self._made(events, before_next)
        return events if are_plain(events) else (self.event(*event) for event in events)

    def _made(self, events: Iterable[Event], before_next: Callable[[], None]) -> Iterator[Event]:
        for event in events:
            yield self.event(*event)
            self._given = None
            before_next()


def _object(value: Any, place: str, depth: int) -> dict[str, Any]:
    if not isinstance(value, Mapping):
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
    if kind in _PLAIN:
        return value
    if kind is list or kind is tuple:
        if depth <= 0:
            raise _refusal(place[:_NAME_CHARS_SHOWN], "it is nested too deeply")
        if _PLAIN.issuperset(map(type, value)):
            return value if kind is list else list(value)
        return [_plain(member, f"{place}[{index}]", depth - 1) for index, member in enumerate(value)]
    if isinstance(value, Mapping):
        return _object(value, place, depth)
    if isinstance(value, str):
        # The text itself: members of an Enum are shown as `Color.RED`.
        return str.__str__(value)
    number = _finite(value, place)
    if number is None:
        raise _refusal(place, f"expected a value that JSON has, got {_type(value)}")
    return number


def _finite(value: Any, place: str) -> float | None:
    """Convert a number as `_number` does. Raises Refusal 1001 if JSON has no such number."""
    try:
        number = _number(value)
    except ArithmeticError:
        raise _refusal(place, f"expected a number in the range of a double, got a {_type(value)}") from None
    if type(number) is float and not isfinite(number):
        raise _refusal(place, f"expected a finite number, got {number}")
    return number


def _number(value: Any) -> float | None:
    """Convert a number or boolean of any type, NumPy's included, to Python's; give None for anything else."""
    match value:
        case bool():
            return value
        # Subclasses, such as an IntEnum, count by the number that they are, whatever they convert to.
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
        # To write out the integer takes minutes for a million digits.
        raise OverflowError
    # Whole numbers are exact.
    return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _refusal(place: str, what: str) -> Refusal:
    return Refusal(Entry(1001, f"{place}: {what}"))
