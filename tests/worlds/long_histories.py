"""Worlds of few keys with long histories, in which most events change nothing.

The engine skips updates that it can derive later from a slice's last event. Mistakes in that show only when
the same few keys return again and again, while rules are added.
"""

from engine.language.condition import (
    All,
    Any,
    Avg,
    Condition,
    Count,
    CountSince,
    Distinct,
    Earlier,
    EarlierWithin,
    Historically,
    HistoricallyFor,
    Keyed,
    Leaf,
    Not,
    Once,
    OnceWithin,
    Previous,
    Since,
    SinceWithin,
    Sum,
)
from tests.worlds.scripts import Choose, Submit, World, timestamp_ms

BOUNDED = ("once_within", "weak", "since_within", "earlier_within", "count", "distinct", "sum", "avg")
MEMBERS = ("once", "historically", "since", "strong", "strong", "previous", "earlier", *BOUNDED)
MEMBERS += ("count_since", "count_since")
COMPARED = (("gte", 3), ("gt", 2), ("lt", 2), ("lte", 1), ("eq", 2), ("neq", 1))
STEPS_US = (0, 1, 300_000, 300_000, 700_000, 999_999, 1_000_000, 1_300_000)


class LongHistoriesWorld(World):
    """A world of three keys, one of them composite, and of two facts that most events have."""

    def __init__(self, choose: Choose) -> None:
        super().__init__(choose)
        # Where nothing is remembered for ever, slices may be forgotten whole.
        self.members = choose((MEMBERS, BOUNDED))
        self.least_secs: tuple[float | None, ...] = (None, None, 0.0, 0.25, 0.298)

    def predicate(self) -> Condition:
        leaf = Leaf(
            self.choose("pq"), *self.choose((("eq", 1), ("eq", 1), ("between", (1, 2)), ("matches", "1")))
        )
        return Not(leaf) if self.choose((False, True)) else leaf

    def condition(self, depth: int) -> Condition:
        choose = self.choose
        inner: Condition = self.temporal(1 if choose((False, True, True)) else 2)
        for key in choose(((), ("k",), ("k",), ("k",), ("j", "k"))):
            where = choose((None, None, None, self.predicate(), self.temporal(1)))
            inner = Keyed(inner, key, where)
        match choose(("alone", "alone", "not", "all", "all", "any")):
            case "not":
                return Not(inner)
            case "all":
                return All((Leaf("t", "eq", choose((0, 1))), inner))
            case "any":
                return Any((Leaf("t", "in", (0, 7)), inner))
        return inner

    def temporal(self, depth: int) -> Condition:
        """Return a temporal member over predicates, over a keyed member, or over another temporal member."""
        choose = self.choose

        def operand() -> Condition:
            if depth == 1 or choose((False, True)):
                return self.predicate()
            inner = self.temporal(depth - 1)
            return choose((inner, Not(inner), Keyed(inner, "k")))

        window_secs = choose((0.3, 1))
        least_secs = choose(self.least_secs)
        match choose(self.members):
            case "once":
                return Once(operand())
            case "historically":
                return Historically(operand())
            case "since":
                return Since(operand(), operand())
            case "once_within":
                return OnceWithin(operand(), window_secs, least_secs)
            case "weak" | "strong" as boundary:
                return HistoricallyFor(
                    operand(), window_secs, boundary, least_secs if boundary == "weak" else None
                )
            case "previous":
                return Previous(operand())
            case "earlier":
                return Earlier(operand())
            case "earlier_within":
                return EarlierWithin(operand(), window_secs, least_secs)
            case "count":
                return Count(operand(), choose((window_secs, 10, None)), *choose(COMPARED))
            case "count_since":
                return CountSince(operand(), operand(), *choose(COMPARED))
            case "distinct":
                return Distinct(
                    choose("jt"),
                    choose((None, operand())),
                    choose((window_secs, 10, None)),
                    *choose(COMPARED),
                )
            case "sum" | "avg" as member:
                made = Sum if member == "sum" else Avg
                where = choose((None, operand()))
                return made("t", where, choose((0.01, window_secs, 10, None)), *choose(COMPARED))
            case _:
                return SinceWithin(operand(), operand(), window_secs, least_secs)

    def submission(self, clock_us: int) -> tuple[Submit, int]:
        choose = self.choose
        time_us = clock_us + choose(STEPS_US)
        fields = {name: choose((0, 1, 1, "1", None)) for name in "pq" if choose((False, True, True))}
        fields |= {"t": choose((0, 1)), "j": choose((1, 1, 2))}
        if choose((False, True, True, True)):
            fields["k"] = choose((1, 1, 2, 3))
        return Submit(fields, timestamp_ms(time_us)), time_us


class AgesWorld(LongHistoriesWorld):
    """A world of windows with a minimum age, and events so close together that most are too young."""

    def __init__(self, choose: Choose) -> None:
        super().__init__(choose)
        self.members = ("once_within", "weak", "since_within", "since_within", "earlier_within")
        self.least_secs = (0.1, 0.25, 0.298)

    def submission(self, clock_us: int) -> tuple[Submit, int]:
        submit, _ = super().submission(clock_us)
        time_us = clock_us + self.choose((0, 1, 1_000, 2_000, 49_999, 50_000, 100_000, 250_000, 300_001))
        return Submit(submit.fields, timestamp_ms(time_us)), time_us
