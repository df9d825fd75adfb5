"""A world of comparisons of terms: few facts, values that look alike, events at the edges of windows."""

from collections.abc import Sequence
from typing import Any as Json

from engine.language.condition import All, Compare, Condition, Keyed, Leaf, Not, Once
from engine.language.terms import (
    Abs,
    Add,
    Age,
    AvgTerm,
    Clock,
    CountTerm,
    Div,
    Fact,
    Last,
    Length,
    MaxTerm,
    MinTerm,
    Mul,
    Now,
    Prev,
    Sub,
    SumTerm,
    Term,
    Time,
)
from tests.worlds.scripts import BIG, BITS, COMPARISONS, MOSTLY, World
from tests.worlds.scripts import NAMES as FACTS

NAMES = ("a", "b", "b", "user.id", "$v", "list")
NUMBERS = (0, 1, 1, 2, 1.5, -1, 0.5, BIG, 10**30, 1e308, 10**400)
CONSTANTS = (*NUMBERS, "1", "ab", "", True, False, "00:00", "10:30", 1_700_000_000, 0.000001)
TIMES = (
    "1970-01-01",
    "1970-01-01T00:00:00Z",
    "1970-01-01T00:00:01.0000005+00:00",
    "2023-11-14T22:13:20.3-01:30",
    "2023-11-14T22:13:60Z",
    "2023-02-29",
    "0000-02-29T00:00:00",
    "9999-12-31T23:59:59.999999-23:59",
)
VALUES = (*NUMBERS, *TIMES, "1", "ab", True, False, None, [1, 2], {}, "é")
WINDOWS_SECS = (None, None, 0, 0.001, 0.3, 1, 2.5, 5e-7, 86_400)
ZONES = (None, "Europe/Berlin", "Africa/Monrovia", "America/New_York", "Asia/Kolkata")
PARTS = ("hour", "minute", "weekday", "day", "month", "clock")
KINDS = ("fact", "fact", "constant", "constant", "prev", "last", "last", "add", "sub", "mul", "div", "abs")
KINDS += ("length", "now", "time", "clock", "age", "count", "count", "sum", "avg", "min", "max")
EARLIER = (None, True)


class TermsWorld(World):
    """Half of the predicates compare terms, which observe conditions in turn."""

    depth = 2
    """How deep terms are nested."""

    def predicate(self, names: Sequence[str] = FACTS, bits: Sequence[str] = ("a", "b")) -> Condition:
        """Return a comparison or any other predicate; about the elements of an array, only the latter."""
        choose = self.choose
        if names is not FACTS or not choose(MOSTLY):
            return super().predicate(names, bits)
        left, right = self.term(self.depth), self.term(self.depth)
        return Compare(left, choose(COMPARISONS), choose((right, choose(CONSTANTS))))

    def observed(self) -> Condition:
        """Return a condition that a term observes."""
        choose = self.choose
        bit = Leaf(choose(("a", "b")), "eq", choose((0, 1)))
        inner = Compare(Fact(choose(NAMES)), choose(COMPARISONS), Prev(choose(NAMES)))
        return choose((bit, bit, Not(bit), Once(bit), inner, Keyed(inner, "a"), All((bit, inner))))

    def term(self, depth: int) -> Term:
        """Return a term of at most this depth."""
        choose = self.choose
        kind = choose(KINDS if depth > 1 else tuple(k for k in KINDS if k not in "add sub mul div abs"))
        where = self.observed() if choose(BITS) else None
        aggregate = (choose(NAMES), where, choose(WINDOWS_SECS), choose(EARLIER))
        several = tuple(self.term(depth - 1) for _ in range(choose((2, 2, 3)))) if depth > 1 else ()
        match kind:
            case "fact":
                return Fact(choose(NAMES))
            case "constant":
                return choose(CONSTANTS)
            case "prev":
                return Prev(choose(NAMES))
            case "last":
                return Last(choose(NAMES), where)
            case "add":
                return Add(several)
            case "mul":
                return Mul(several)
            case "sub":
                return Sub(several[:2])
            case "div":
                return Div(several[:2])
            case "abs":
                return Abs(several[0])
            case "length":
                return Length(choose(NAMES))
            case "now":
                return Now()
            case "time":
                return Time(choose(NAMES))
            case "clock":
                return Clock(choose(PARTS), choose(ZONES))
            case "age":
                return Age(self.observed())
            case "count":
                return CountTerm(self.observed(), *aggregate[2:])
            case "sum":
                return SumTerm(*aggregate)
            case "avg":
                return AvgTerm(*aggregate)
            case "min":
                return MinTerm(*aggregate)
            case _:
                return MaxTerm(*aggregate)

    def value(self) -> Json:
        """Return a value of a fact: mostly one of two bits, or a number."""
        return self.choose((0, 1, 2, 1.5)) if self.choose(MOSTLY) else self.choose(VALUES)


class FlatTermsWorld(TermsWorld):
    """Rules are comparisons of simple terms, so that more of them are true."""

    depth = 1

    def condition(self, depth: int) -> Condition:
        """Return a comparison, sometimes under a key."""
        predicate = self.predicate()
        return Keyed(predicate, self.choose(("a", "b"))) if self.choose(BITS) and depth > 1 else predicate
