"""Converts events of callers in the same process to JSON values, or refuses them by the name of the field.

Events from bodies are JSON already and do not come here.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain
from math import isfinite
from numbers import Integral, Real
from typing import Any, Final

from engine.evaluation.dispatch.compiler import Event
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

TIMESTAMP_MS_MAX: Final = 8.64e15
"""The largest distance from 1970 in both directions: the range of dates in ECMAScript."""

_PLAIN: Final = frozenset({str, int, bool, type(None)})
_PLAIN_OR_FLOAT: Final = _PLAIN | {float}
_NUMBERS: Final = frozenset({int, float})
_NOTHING: Final[Mapping[str, Any]] = {}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NAME_CHARS_SHOWN: Final = 80


def are_plain(events: Sequence[Event]) -> bool:
    """Return whether events consist of JSON scalars and have no contexts. Takes a few passes in C."""
    if not events:
        return True
    all_fields, times, contexts = zip(*events, strict=True)
    return (
        set(map(type, all_fields)) == {dict}
        and set(map(type, contexts)) == {type(None)}
        and set(map(type, times)) <= _NUMBERS
        and _are_finite(times)
        and min(times) >= -TIMESTAMP_MS_MAX
        and max(times) <= TIMESTAMP_MS_MAX
        and _are_plain(all_fields)
    )


def _are_plain(objects: Sequence[dict[str, Any]]) -> bool:
    if len(set(map(len, objects))) > 1:
        return _is_plain(list(chain.from_iterable(map(dict.values, objects))))
    # If all objects have the same fields, most columns have one type, and few need a check of each value.
    return all(map(_is_plain, zip(*map(dict.values, objects), strict=True)))


def _is_plain(values: Collection[Any]) -> bool:
    kinds = set(map(type, values))
    return kinds <= _PLAIN or (kinds <= _PLAIN_OR_FLOAT and _are_finite(values))


def _are_finite(values: Collection[Any]) -> bool:
    """Return whether the floats among the values are finite."""
    kinds = set(map(type, values))
    if float not in kinds:
        return True
    floats = values if len(kinds) == 1 else [one for one in values if type(one) is float]
    # A sum is finite only if each number is. It is not, too, if it is too large.
    return isfinite(sum(floats)) or all(map(isfinite, floats))


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
        microseconds = (value - _EPOCH) // timedelta(microseconds=1)
        return microseconds / 1_000 if microseconds % 1_000 else microseconds // 1_000
    number = _plain(value, "timestamp_ms", 0)
    if type(number) not in _NUMBERS:
        raise _refusal("timestamp_ms", f"expected a number or a datetime, got {_kind(value)}")
    if not _is_a_time(number):
        raise _refusal("timestamp_ms", "expected a number from -8.64e15 to 8.64e15")
    return number  # type: ignore[no-any-return]  # of those two types


def as_object(value: Any, place: str, depth_max: int) -> dict[str, Any]:
    """Convert fields or vars to JSON values. Raises Refusal 1001 with the name of an invalid value."""
    if type(value) is dict and _is_plain(value.values()):
        return value
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
        raise _refusal(place, f"expected a mapping, got {_kind(value)}")
    if depth <= 0:
        raise _refusal(place[:_NAME_CHARS_SHOWN], "it is nested too deeply")
    return {
        name: member
        if type(member) in _PLAIN
        else _plain(member, f"{place}.{str(name)[:_NAME_CHARS_SHOWN]}", depth - 1)
        for name, member in value.items()
    }


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
        return str(value)
    number = _number(value)
    if number is None:
        raise _refusal(place, f"expected a value that JSON has, got {_kind(value)}")
    if not isfinite(number):
        raise _refusal(place, f"expected a finite number, got {number}")
    return number


def _number(value: Any) -> float | None:
    """Convert a number or boolean of any type, NumPy's included, to Python's; give None for anything else."""
    match value:
        case Integral():
            return int(value)
        case Decimal():
            # Whole numbers are exact at any size.
            return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
        case Real():
            return float(value)
        case _ if type(value).__module__ == "numpy" and type(value).__name__ in {"bool", "bool_"}:
            return bool(value)
        case _:
            return None


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _refusal(place: str, what: str) -> Refusal:
    return Refusal(Entry(1001, f"{place}: {what}"))
