"""Terms that depend only on the event: facts, computations with them, and the time.

Arithmetic uses doubles. A non-finite result counts as missing: it stays non-finite through `+`, `-`, `*` and
`abs`. Only a division by it would be finite again.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import inf, nan
from typing import Any, Final, TypeAlias, TypeVar

from engine.evaluation.operators.interface import Found, Reading, Triggers
from engine.evaluation.operators.table import values
from engine.evaluation.operators.term_interface import Kind, Motion, TermOperator, together
from engine.evaluation.paths import Path
from engine.language.terms import Abs, Add, Age, Div, Fact, Length, Mul, Now, Sub, Term, Time

SECOND = "1000000"
"""The number of microseconds in a second, as code."""

NamingT = TypeVar("NamingT", bound=Any)
"""A term about one fact."""


class OfFact(TermOperator[NamingT]):
    """A term that has a value only if the event has a fact."""

    def present_at(self, term: NamingT, triggers: Triggers, path: Path) -> Found:  # noqa: ARG002 -- all paths
        return triggers.present(term.fact)


@values(Fact)
class FactOperator(OfFact[Fact]):
    """The value of a fact."""

    cost_ns = 0
    gives = Kind.SCALAR

    def value(self, term: Fact, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- it has none
        return read.fact(term.fact)


@values(Length)
class LengthOperator(OfFact[Length]):
    """The length of a fact."""

    cost_ns = 40
    gives = Kind.NUMBER

    def value(self, term: Length, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- none
        fact = read.fact(term.fact)
        return f"(NAN if type({fact}) is not str and type({fact}) is not list else len({fact}))"


@values(Now)
class NowOperator(TermOperator[Now]):
    """The seconds since 1970."""

    cost_ns = 40

    def value(self, term: Now, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- none
        return f"({read.now} / {SECOND})"

    def motion(self, term: Now, operands: Sequence[Motion]) -> Motion:  # noqa: ARG002 -- none
        return Motion.STRAIGHT


_RFC_3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:Z|([+-])([01]\d|2[0-3]):([0-5]\d))?)?",
    re.ASCII,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_CYCLE_YEARS: Final = 400
_CYCLE: Final = timedelta(days=146_097)
"""The calendar repeats after this many years, which have this length."""

_CHARS_KEPT_MAX: Final = 40
_KEPT: Final = 1024
"""The cache holds this many times, of texts up to this length, so rules about the same fact parse it once."""


def seconds(text: Any) -> float:
    """Return the seconds since 1970 of a text; NaN if it is not a date or time of RFC 3339.

    Without a zone, it is in UTC. Fractions of a microsecond are cut off. There are no leap seconds.
    """
    if type(text) is not str:
        return nan
    return _seconds_kept(text) if len(text) <= _CHARS_KEPT_MAX else _seconds(text)


def _seconds(text: str) -> float:
    found = _RFC_3339.fullmatch(text)
    if found is None:
        return nan
    *calendar, fraction, sign, hours, minutes = found.groups("0")
    year, month, day, hour, minute, second = map(int, calendar)
    # RFC 3339 has a year 0, Python has not.
    cycles, year = divmod(year, _CYCLE_YEARS)
    try:
        then = datetime(year + _CYCLE_YEARS, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return nan
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    since = then - _EPOCH + (cycles - 1) * _CYCLE + (offset if sign == "-" else -offset)
    return (since // _MICROSECOND + int(fraction[:6].ljust(6, "0"))) / 1_000_000


_seconds_kept: Final = lru_cache(_KEPT)(_seconds)


@values(Time)
class TimeOperator(OfFact[Time]):
    """The time in a fact."""

    cost_ns = 500
    calls = (seconds,)

    def value(self, term: Time, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- none
        return f"seconds({read.fact(term.fact)})"


# -- arithmetic --------------------------------------------------------------------------------------------

Computed: TypeAlias = Add | Sub | Mul | Div | Abs

_SIGNS: Final[Mapping[type, str]] = {Add: " + ", Sub: " - ", Mul: " * "}


@values(Add, Sub)
class AddOperator(TermOperator[Computed]):
    """The sum, from left to right, or the difference."""

    gives = Kind.COMPUTED

    def operands(self, term: Computed) -> tuple[Term, ...]:
        return (term.operand,) if isinstance(term, Abs) else term.operands

    def value(self, term: Computed, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- the operands do
        return f"({_SIGNS[type(term)].join(operands)})"

    def motion(self, term: Computed, operands: Sequence[Motion]) -> Motion:  # noqa: ARG002 -- the same
        return together(operands)


@values(Mul)
class MulOperator(AddOperator):
    """The product, from left to right."""

    def motion(self, term: Computed, operands: Sequence[Motion]) -> Motion:
        if operands.count(Motion.STILL) >= len(operands) - 1:
            return super().motion(term, operands)
        # Ages only grow, from 0 on, and so do their products.
        factors = [
            one
            for one, motion in zip(self.operands(term), operands, strict=True)
            if motion is not Motion.STILL
        ]
        return Motion.ONE_WAY if all(isinstance(one, Age) for one in factors) else Motion.BENT


def quotient(dividend: float, divisor: float) -> float:
    """Return a quotient, or NaN if the divisor is 0 or not finite."""
    return dividend / divisor if divisor and -inf < divisor < inf else nan


@values(Div)
class DivOperator(AddOperator):
    """The first divided by the second."""

    cost_ns = 80
    calls = (quotient,)

    def value(self, term: Computed, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- the operands do
        return f"quotient({', '.join(operands)})"

    def motion(self, term: Computed, operands: Sequence[Motion]) -> Motion:
        dividend, divisor = operands
        if divisor is Motion.STILL:
            return super().motion(term, operands)
        is_one_way = divisor is Motion.STRAIGHT and dividend in (Motion.STILL, Motion.STRAIGHT)
        return Motion.ONE_WAY if is_one_way else Motion.BENT


@values(Abs)
class AbsOperator(AddOperator):
    """The absolute value."""

    cost_ns = 40

    def value(self, term: Computed, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- the operand does
        return f"abs({operands[0]})"
