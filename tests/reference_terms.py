"""The executable specification of terms: their values at the last event of a history, None if missing."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any
from zoneinfo import ZoneInfo

from engine.language import terms
from engine.language.nodes import ConditionNode
from tests.reference_panes import added, double, pane_numbers
from tests.reference_values import equal, kind, scalar

DAYS_OF_400_YEARS = 146_097
RFC_3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:Z|([+-])(\d\d):(\d\d))?)?", re.ASCII
)


def seconds(text: Any) -> float | None:
    """Return the seconds since 1970 of a date or time of RFC 3339. Fractions of a microsecond are cut off."""
    parts = RFC_3339.fullmatch(text) if kind(text) == "string" else None
    if parts is None:
        return None
    *calendar, fraction, sign, hours, minutes = parts.groups(default="0")
    year, month, day, hour, minute, second = map(int, calendar)
    if int(hours) > 23 or int(minutes) > 59:
        return None
    micros = int(fraction[:6].ljust(6, "0"))
    try:
        # RFC 3339 has a year 0, Python has not. The calendar repeats every 400 years.
        then = datetime(year % 400 + 400, month, day, hour, minute, second, micros, UTC)
    except ValueError:
        return None
    days = (year // 400 - 1) * DAYS_OF_400_YEARS
    offset = timedelta(hours=int(hours), minutes=int(minutes)) * (-1 if sign == "-" else 1)
    since = then - offset - datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=days)
    return (since // timedelta(microseconds=1)) / 1_000_000


def clock(part: str, zone: str | None, now_us: int) -> Any:
    """Return a part of the local time. It has none outside the years 1 to 9999."""
    try:
        utc = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=now_us)
        local = utc.astimezone(ZoneInfo(zone or "UTC"))
    except OverflowError:
        return None
    if part == "clock":
        return f"{local.hour:02}:{local.minute:02}"
    return local.isoweekday() if part == "weekday" else getattr(local, part)


def arithmetic(term: terms.Term, values: Sequence[Any]) -> float | None:
    """Calculate in doubles, from left to right. Non-finite results are missing."""
    numbers = [double(value) for value in values]
    if any(number is None for number in numbers):
        return None
    operations: Mapping[type, Callable[[float, float], float]] = {
        terms.Add: lambda a, b: a + b,
        terms.Mul: lambda a, b: a * b,
        terms.Sub: lambda a, b: a - b,
        terms.Div: lambda a, b: a / b if b else math.nan,
    }
    found = reduce(operations[type(term)], numbers)  # type: ignore[arg-type]
    return found if math.isfinite(found) else None


def value(
    term: terms.Term,
    history: Sequence[Any],
    now_us: int,
    verdicts: Callable[[ConditionNode, Sequence[Any]], list[bool]],
    seen_by: Callable[[terms.Term, Sequence[Any]], Sequence[Any]] = lambda _, history: history,
) -> Any:
    """Return the value at the last event, or later, at `now_us`, if no event follows.

    `verdicts` returns the truth of a condition at each event of a history. `seen_by` returns the part of a
    history that a term looks back at.
    """
    history = seen_by(term, history)
    now = history[-1]

    def inner(operand: terms.Term) -> Any:
        return value(operand, history, now_us, verdicts, seen_by)

    def was(condition: ConditionNode | None) -> list[bool]:
        return [True] * len(history) if condition is None else verdicts(condition, history)

    def counted(term: terms.AggregateTerm, true: Sequence[bool]) -> list[tuple[int, Any]]:
        """Return the events that count, each with its pane."""
        kept = pane_numbers(history, true, term.window_secs, now_us)
        return [(pane, e) for pane, e in kept if not (term.earlier and e is now)]

    def numbers(term: Any) -> list[tuple[int, float]]:
        drawn = [(pane, double(e[term.fact])) for pane, e in counted(term, was(term.where))]
        return [(pane, number) for pane, number in drawn if number is not None]

    match term:
        case bool() | int() | float() | str():
            return term
        case terms.Fact(fact):
            return now[fact] if scalar(now[fact]) else None
        case terms.Prev(fact):
            before = history[-2][fact] if len(history) > 1 else None
            return before if scalar(before) else None
        case terms.Last(fact, where):
            before = zip(history[:-1], was(where), strict=False)
            seen = [e[fact] for e, true in before if true and scalar(e[fact])]
            return seen[-1] if seen else None
        case terms.Add(operands) | terms.Mul(operands) | terms.Sub(operands) | terms.Div(operands):
            return arithmetic(term, [inner(operand) for operand in operands])
        case terms.Abs(operand):
            found = double(inner(operand))
            return None if found is None or not math.isfinite(found) else abs(found)
        case terms.Length(fact):
            return len(now[fact]) if kind(now[fact]) in ("string", "array") else None
        case terms.Now():
            return now_us / 1_000_000
        case terms.Time(fact):
            return seconds(now[fact])
        case terms.Clock(part, zone):
            return clock(part, zone, now_us)
        case terms.Age(condition):
            times = [e.time_us for e, true in zip(history, was(condition), strict=True) if true]
            return (now_us - times[-1]) / 1_000_000 if times else None
        case terms.CountTerm(condition):
            return len(counted(term, was(condition)))
        case terms.SumTerm() | terms.AvgTerm():
            found = numbers(term)
            total = added(found)
            # Infinities of both signs have no sum.
            if math.isnan(total) or (isinstance(term, terms.AvgTerm) and not found):
                return None
            return total / len(found) if isinstance(term, terms.AvgTerm) else total
        case terms.MinTerm() | terms.MaxTerm():
            pick = min if isinstance(term, terms.MinTerm) else max
            return pick((number for _, number in numbers(term)), default=None)
    raise AssertionError(term)


def holds(left: Any, op: str, right: Any, compare: Callable[[Any, Any], bool]) -> bool:
    """Compare two values, either of which may be missing."""
    if left is None or right is None:
        return False
    if op in ("eq", "neq"):
        return equal(left, right) is (op == "eq")
    return kind(left) == kind(right) and kind(left) in ("number", "string") and compare(left, right)
