"""Worlds of many rules whose ranges overlap, touch, and end at values that are hard to compare."""

from engine.language.condition import (
    All,
    Any,
    Condition,
    HistoricallyFor,
    Keyed,
    Leaf,
    Not,
    OnceWithin,
    Since,
)
from engine.language.operators import LARGEST
from tests.worlds.scripts import Json, Submit, timestamp_ms
from tests.worlds.shared_histories import SharedWorld

NUMBERS = (
    *(
        -LARGEST,
        -(10**400),
        -(2**63),
        -1.5,
        -1,
        -5e-324,
        -0.0,
        0,
        0.0,
        5e-324,
        1e-300,
        0.5,
        1,
        1.0,
        2,
        3,
        4,
        100,
    ),
    *(2**53 - 1, 2**53, 2**53 + 1, 2.0**53 + 2, 2**63, 2**64 + 1, 10**400, 10**400 + 1, LARGEST),
)
TEXTS = (
    *("", "\x00", "a", "a\x00", "a\x00\x00", "ab", "b", "\x7f", "\x80", "é", "\ud7ff", "\ud800", "\udfff"),
    *("\ue000", "\uffff", "\U00010000", "\U0010ffff", "x" * 40, "x" * 40 + "a", "x" * 40 + "b", "x" * 41),
)
_NUMBERS_OF_RULES = tuple(number for number in NUMBERS if abs(number) <= LARGEST)
TEXTS_OF_RULES = tuple(text for text in TEXTS if text.encode("utf-8", "replace").decode() == text)
STEPS_US = (0, 1, 300_000, 300_001, 1_000_000)


class RangesWorld(SharedWorld):
    """A world of rules that are added, changed, switched and removed at any time."""

    def between(self) -> Leaf:
        """Return a range, mostly of numbers."""
        choose = self.choose
        ends = choose((_NUMBERS_OF_RULES, _NUMBERS_OF_RULES, _NUMBERS_OF_RULES, TEXTS_OF_RULES))
        low, high = sorted((choose(ends), choose(ends)))
        if ends is _NUMBERS_OF_RULES:
            low, high = choose(((low, high), (low, high), (low, LARGEST), (-LARGEST, high)))
            low, high = min(low, high), max(low, high)
        return Leaf(choose("xxxy"), "between", (low, high))

    def condition(self, depth: int) -> Condition:
        """Return a rule. Most have a range that decides whether it is evaluated."""
        choose, within = self.choose, self.between()
        match choose("lllltaaaoonshwk"):
            case "l":
                return within
            case "t":
                return All((within, Leaf("x", "neq", choose(_NUMBERS_OF_RULES))))
            case "a":
                return All((All((within, self.between())), Leaf("p", choose(("eq", "neq")), choose((0, 1)))))
            case "o":
                return Any((within, self.between(), Leaf("p", "eq", choose((0, 1)))))
            case "n":
                return Not(within)
            case "s":
                return Keyed(Since(Not(within), self.between()), "k")
            case "h":
                return HistoricallyFor(within, choose((0.3, 1)), choose(("weak", "strong")))
            case "w":
                return OnceWithin(All((within, OnceWithin(self.between(), 1))), choose((0.3, 1)))
            case _:
                return Keyed(OnceWithin(within, choose((0.3, 1))), "k")

    def submission(self, clock_us: int) -> tuple[Submit, int]:
        """Return an event."""
        choose = self.choose
        time_us = clock_us + choose(STEPS_US)
        values: tuple[Json, ...] = (*NUMBERS, *NUMBERS, *TEXTS, True, False, None, [1])
        fields = {name: choose(values) for name in "xy" if choose((True, True, False))}
        return Submit(fields | {"p": choose((0, 1)), "k": choose((1, 2))}, timestamp_ms(time_us)), time_us
