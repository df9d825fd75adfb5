"""The Term types, a closed union: the sides of `compare`. At an event, a term has a value or is missing."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from engine.language.durations import microseconds
from engine.language.nodes import ConditionNode, TermNode


@dataclass(frozen=True, slots=True, eq=False)
class Fact(TermNode):
    """The value of a fact, if it is a scalar."""

    fact: str


@dataclass(frozen=True, slots=True, eq=False)
class Prev(TermNode):
    """The value of a fact at the event directly before the current one."""

    fact: str


@dataclass(frozen=True, slots=True, eq=False)
class Last(TermNode):
    """The value of a fact at the latest event before the current one at which it was a scalar.

    With `where`, only events at which `where` was true count.
    """

    fact: str
    where: ConditionNode | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Add(TermNode):
    """The sum of two or more terms, from left to right."""

    operands: tuple["Term", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Mul(TermNode):
    """The product of two or more terms, from left to right."""

    operands: tuple["Term", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Sub(TermNode):
    """The first of two terms minus the second."""

    operands: tuple["Term", "Term"]


@dataclass(frozen=True, slots=True, eq=False)
class Div(TermNode):
    """The first of two terms divided by the second."""

    operands: tuple["Term", "Term"]


@dataclass(frozen=True, slots=True, eq=False)
class Abs(TermNode):
    """The absolute value of a term."""

    operand: "Term"


@dataclass(frozen=True, slots=True, eq=False)
class Length(TermNode):
    """The number of code points of a string, or of elements of an array."""

    fact: str


@dataclass(frozen=True, slots=True, eq=False)
class Now(TermNode):
    """The time of the event in seconds since 1970."""


@dataclass(frozen=True, slots=True, eq=False)
class Time(TermNode):
    """The seconds since 1970 of a date or time of RFC 3339 in a fact."""

    fact: str


@dataclass(frozen=True, slots=True, eq=False)
class Clock(TermNode):
    """A part of the event's local time, such as `hour`, in a zone. None means UTC."""

    part: str
    zone: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Age(TermNode):
    """The seconds since the latest event, the current one included, at which inner was true."""

    inner: ConditionNode


class AggregateTerm(TermNode):
    """The base of the five terms computed over the events no older than a window.

    Without a window, all events so far count. The current event counts unless `earlier` is True. None means
    that the document has no `earlier`.
    """

    __slots__ = ()
    window_secs: float | None
    earlier: bool | None

    @property
    def window_us(self) -> int | None:
        """The window in whole microseconds; None without a window."""
        return None if self.window_secs is None else microseconds(self.window_secs, 1_000_000)


@dataclass(frozen=True, slots=True, eq=False)
class CountTerm(AggregateTerm):
    """The number of events at which inner was true."""

    inner: ConditionNode
    window_secs: float | None = None
    earlier: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SumTerm(AggregateTerm):
    """The sum of a fact over the events at which `where` was true; 0 if none counts."""

    fact: str
    where: ConditionNode | None = None
    window_secs: float | None = None
    earlier: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AvgTerm(AggregateTerm):
    """The mean of a fact over the events at which `where` was true."""

    fact: str
    where: ConditionNode | None = None
    window_secs: float | None = None
    earlier: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MinTerm(AggregateTerm):
    """The least value of a fact over the events at which `where` was true."""

    fact: str
    where: ConditionNode | None = None
    window_secs: float | None = None
    earlier: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MaxTerm(AggregateTerm):
    """The greatest value of a fact over the events at which `where` was true."""

    fact: str
    where: ConditionNode | None = None
    window_secs: float | None = None
    earlier: bool | None = None


Term: TypeAlias = (
    str
    | int
    | float
    | bool
    | Fact
    | Prev
    | Last
    | Add
    | Mul
    | Sub
    | Div
    | Abs
    | Length
    | Now
    | Time
    | Clock
    | Age
    | CountTerm
    | SumTerm
    | AvgTerm
    | MinTerm
    | MaxTerm
)


def terms_in(term: Term) -> Iterator[Term]:
    """Yield a term and every term inside it, in document order."""
    yield term
    match term:
        case Add(operands) | Mul(operands) | Sub(operands) | Div(operands):
            for operand in operands:
                yield from terms_in(operand)
        case Abs(operand):
            yield from terms_in(operand)


def looks_back(term: Term) -> bool:
    """Return whether the value of a term depends on other events than the current one.

    Such a term is refused (1301) inside `some`, which concerns the elements of one event.
    """
    return any(is_past(type(each)) for each in terms_in(term))


def is_past(kind: type) -> bool:
    """Return whether terms of a type depend by themselves on other events than the current one."""
    return issubclass(kind, Prev | Last | Age | AggregateTerm)


def conditions_in(term: Term) -> Iterator[ConditionNode]:
    """Yield the conditions that a term observes, in document order."""
    for each in terms_in(term):
        match each:
            case Age(inner) | CountTerm(inner):
                yield inner
            case (
                Last(_, where) | SumTerm(_, where) | AvgTerm(_, where) | MinTerm(_, where) | MaxTerm(_, where)
            ):
                if where is not None:
                    yield where
