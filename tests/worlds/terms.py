"""Generators of terms and their comparisons: unusual ones for texts, and a small world for events."""

from collections.abc import Callable
from typing import Any as Json
from typing import Final, TypeAlias

from hypothesis import strategies as st

from engine.language.condition import All, Any, Compare, Condition
from engine.language.forms.terms import PARTS
from engine.language.operators import COMPARISONS
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

ARE_EVALUATED: Final = True
"""Whether the scripts that are played on the engine have terms in them."""

ZONES: Final = (None, None, "UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu")
AGGREGATES: Final = (SumTerm, AvgTerm, MinTerm, MaxTerm)
ARITHMETIC: Final = (Add, Mul, Sub, Div)
SINGLE: Final = (Prev, Last, Length, Now, Time, Clock, Age, CountTerm, *AGGREGATES)
EARLIER: Final = st.sampled_from((None, True))
OPS: Final = st.sampled_from([*COMPARISONS])

Draw: TypeAlias = Callable[[st.SearchStrategy[Json]], Json]


@st.composite
def odd_comparisons(
    draw: Draw,
    inner: st.SearchStrategy[Condition],
    names: st.SearchStrategy[str],
    scalars: st.SearchStrategy[Json],
    windows: st.SearchStrategy[float | None],
) -> Condition:
    """Comparisons of terms of every form, over such conditions, names, constants and windows.

    Some are what `t between a and b` and `t in [a, b]` stand for, or nearly.
    """

    def term(depth: int) -> Term:
        nesting = (*ARITHMETIC, *ARITHMETIC, Abs) if depth > 1 else ()
        make = draw(st.sampled_from(("scalar", Fact, Fact, *SINGLE, *nesting)))
        optional = st.none() | inner
        if make == "scalar":
            return draw(scalars)
        if make in {Age, CountTerm}:
            counted = (draw(windows), draw(EARLIER)) if make is CountTerm else ()
            return make(draw(inner), *counted)
        if make in AGGREGATES:
            return make(draw(names), draw(optional), draw(windows), draw(EARLIER))
        if make is Last:
            return Last(draw(names), draw(optional))
        if make is Clock:
            return Clock(draw(st.sampled_from(PARTS)), draw(st.sampled_from(ZONES)))
        if make is Abs:
            return Abs(term(depth - 1))
        if make in ARITHMETIC:
            operands = 2 if make in {Sub, Div} else draw(st.integers(2, 3))
            return make(tuple(term(depth - 1) for _ in range(operands)))
        return Now() if make is Now else make(draw(names))

    op, one, other, low, high = draw(OPS), term(3), term(2), draw(scalars), draw(scalars)
    return draw(
        st.sampled_from(
            (
                Compare(one, op, other),
                Compare(one, op, other),
                Compare(one, op, low),
                Compare(other, op, Mul((low, one))),
                All((Compare(one, "gte", low), Compare(one, "lte", high))),
                All((Compare(one, "gte", low), Compare(one, "lte", other))),
                All((Compare(one, "gte", low), Compare(other, "lte", high))),
                Any((Compare(one, "eq", low), Compare(one, "eq", high))),
                Any((Compare(one, "eq", low), Compare(one, op, other))),
                Any((Compare(one, "eq", low),)),
            )
        )
    )


def small_term(world: Json, depth: int) -> Term:
    """Return a term over the names of a world of `scripts`. Conditions in it have less than this depth."""
    choose = world.choose
    names = ("a", "a", "b", "list", "user.id", "$v")
    kinds = ["fact", "fact", "constant", "prev", "last", "length", "now", "time", "clock", "age"]
    kinds += ["count", "aggregate", "aggregate"] + ["arithmetic", "arithmetic", "abs"] * (depth > 1)

    def inner() -> Condition:
        condition: Condition = world.condition(max(1, depth - 1))
        return condition

    def where() -> Condition | None:
        return inner() if choose((0, 1)) else None

    match choose(kinds):
        case "fact":
            return Fact(choose(names))
        case "prev":
            return Prev(choose(names))
        case "last":
            return Last(choose(names), where())
        case "length":
            return Length(choose(names))
        case "now":
            return Sub((Now(), choose((0, 1_700_000_000, 1_700_000_000.5))))
        case "time":
            return Time(choose(names))
        case "clock":
            return Clock(choose(PARTS), choose(ZONES))
        case "age":
            return Age(inner())
        case "count":
            return CountTerm(inner(), choose((None, 0, 1, 2.5, 60)), choose((None, True)))
        case "aggregate":
            window_secs, earlier = choose((None, 0, 1, 2.5, 60)), choose((None, True))
            return choose(AGGREGATES)(choose(names), where(), window_secs, earlier)
        case "abs":
            return Abs(small_term(world, depth - 1))
        case "arithmetic":
            make = choose(ARITHMETIC)
            many = choose((2, 2, 3)) if make in {Add, Mul} else 2
            return make(tuple(small_term(world, depth - 1) for _ in range(many)))
        case _:
            return choose((0, 1, 2, 0.5, -1, 10**20, "x", "", "12:00", True))


def small_comparison(world: Json, depth: int) -> Compare:
    """Return a comparison of two terms of a world of `scripts`, of at most this depth."""
    left, right = small_term(world, depth - 1), small_term(world, depth - 1)
    return Compare(left, world.choose([*COMPARISONS]), right)
