"""Worlds in which rules born at different times share a few histories."""

from collections.abc import Callable

from engine.language.condition import (
    All,
    Any,
    Avg,
    Compare,
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
    ScaledFact,
    Since,
    SinceWithin,
    Sum,
    children,
)
from engine.language.terms import Age, AvgTerm, CountTerm, Fact, Last, MaxTerm, MinTerm, Prev, SumTerm
from tests.worlds.scripts import Add, Change, Remove, Step, Submit, World, timestamp_ms

STEPS_US = (0, 0, 0, 1, 300_000, 300_001, 1_000_000)
"""Many events have the same time: a birth may be between them."""

P, Q = Leaf("p", "eq", 1), Leaf("q", "eq", 1)
NOT_P = Leaf("p", "neq", 1)
HISTORIES = (
    Once(P),
    Once(NOT_P),
    OnceWithin(P, 0.3),
    OnceWithin(Not(P), 1),
    Historically(P),
    Historically(NOT_P),
    HistoricallyFor(P, 0.3, "weak"),
    HistoricallyFor(NOT_P, 1, "weak"),
    HistoricallyFor(P, 0.3, "strong"),
    HistoricallyFor(Not(P), 0.3, "strong"),
    HistoricallyFor(NOT_P, 1, "strong"),
    HistoricallyFor(NOT_P, 0, "strong"),
    Since(Q, P),
    Since(NOT_P, Q),
    SinceWithin(Q, P, 1),
    SinceWithin(Not(Q), Not(P), 0.3),
    Once(SinceWithin(Q, P, 1)),
    OnceWithin(All((P, OnceWithin(Q, 0.3))), 1),
)
COUNTING = (
    Previous(P),
    Previous(NOT_P),
    Earlier(P),
    EarlierWithin(P, 0.3),
    EarlierWithin(Not(P), 1),
    OnceWithin(P, 1, 0.3),
    EarlierWithin(NOT_P, 0.6, 0.3),
    HistoricallyFor(P, 1, None, 0.3),
    SinceWithin(Q, P, 1.3, 0.6),
    SinceWithin(Not(Q), Not(P), 1, 0.3),
    CountSince(P, Q, "gte", 2),
    CountSince(P, Not(Q), "eq", 1),
    Count(P, 1, "gte", 2),
    Count(Not(P), 0.3, "lte", 1),
    Count(P, None, "eq", 2),
    Count(P, None, "gte", 2),
    Distinct("t", P, None, "lt", 2),
    Count(Earlier(P), 1, "gte", 2),
    Distinct("t", None, 1, "gt", 1),
    Distinct("t", P, None, "eq", 2),
    Sum("t", None, 0.3, "gt", 2),
    Sum("t", P, None, "gte", 3),
    Sum("t", Q, 1, "lt", ScaledFact("t", 2)),
    Avg("t", P, 0.3, "gte", 1),
    Earlier(Previous(P)),
    Previous(Previous(P)),
    Compare(Fact("t"), "neq", Prev("t")),
    Compare(Fact("t"), "eq", Last("t")),
    Compare(Fact("t"), "lt", Last("t", P)),
    Compare(Prev("t"), "eq", Last("t", Earlier(P))),
    Compare(Age(P), "lt", 0.3),
    Compare(Age(NOT_P), "gte", 1),
    Compare(CountTerm(P, 1), "gt", CountTerm(Q, 1, earlier=True)),
    Compare(SumTerm("t", P), "gte", 3),
    Compare(Fact("t"), "gt", AvgTerm("t", P, 1, earlier=True)),
    Compare(MaxTerm("t", None, 1), "gt", MinTerm("t", Q, 1)),
)
WHERES = (None, None, None, P, Not(P), Once(P), Previous(P), Count(P, 0.3, "lt", 2), Keyed(Previous(P), "t"))


class SharedWorld(World):
    """A world of rules over three histories. Rules are added, changed, switched and removed at any time."""

    def condition(self, depth: int) -> Condition:
        choose = self.choose
        if depth:
            # A script has few histories, so that its rules share them.
            self.histories = [choose(choose((HISTORIES, COUNTING))) for _ in range(3)]
            self.where = choose(WHERES)
        history = choose(self.histories)
        if choose((False, True, True)):
            history = Keyed(history, "k", choose((None, self.where)))
        match choose("aalnox"):
            case "a":
                return All((Leaf("t", "eq", choose((0, 1))), history))
            case "l":
                return All((Leaf("t", "neq", choose((0, 1))), history))
            case "n":
                return Not(history)
            case "o":
                return Any((Leaf("t", "eq", 2), history))
            case _:
                return history

    def submission(self, clock_us: int) -> tuple[Submit, int]:
        choose = self.choose
        time_us = clock_us + choose(STEPS_US)
        fields = {name: choose((0, 1)) for name in "pq" if choose((False, True, True, True))}
        fields |= {"t": choose((0, 1, 2)), "k": choose((1, 2))}
        return Submit(fields, timestamp_ms(time_us)), time_us

    def script(self, *, depth: int = 1, steps_max: int = 40) -> list[Step]:
        """Return the steps of a detector while its rules are added and removed."""
        choose, count = self.choose, 2
        steps: list[Step] = [Add("first", self.condition(depth)), Add("second", self.condition(0))]
        clock_us = 0
        for number in range(steps_max):
            match choose("eeeeeeaaachx"):
                case "a":
                    steps.append(Add(f"late {number}", self.condition(0)))
                    count += 1
                case "c":
                    steps.append(Change(choose(range(count)), {"condition": self.condition(0)}))
                case "h":
                    steps.append(Change(choose(range(count)), {"enabled": choose((False, True, True))}))
                case "x" if count > 1:
                    steps.append(Remove(choose(range(count))))
                    count -= 1
                case _:
                    step, clock_us = self.submission(clock_us)
                    steps.append(step)
        return steps


RUNS = (
    HistoricallyFor(P, 0.3, "strong"),
    HistoricallyFor(NOT_P, 1, "strong"),
    HistoricallyFor(Not(P), 1, "strong"),
    HistoricallyFor(Not(Leaf("p", "eq", 2)), 0.6, "strong"),
)


SETTLING = (
    OnceWithin(All((P, OnceWithin(Q, 0.3))), 0.3),
    OnceWithin(Not(OnceWithin(P, 0.3)), 1),
    OnceWithin(Count(P, 0.3, "eq", 2), 0.3),
    OnceWithin(Keyed(OnceWithin(P, 0.3), "k"), 0.3),
    OnceWithin(Keyed(Count(P, 0.3, "eq", 1), "k", Q), 0.3),
    OnceWithin(OnceWithin(SinceWithin(Q, P, 0.3), 0), 0.3),
    HistoricallyFor(OnceWithin(P, 0.3), 0.3, "weak"),
    HistoricallyFor(Count(P, 0.3, "lt", 2), 0.3, "weak"),
    SinceWithin(OnceWithin(P, 0.3), Q, 0.3),
    SinceWithin(Not(P), EarlierWithin(Q, 0.3), 0.3),
    OnceWithin(OnceWithin(P, 0.3, 0.1), 0.3),
    SinceWithin(Not(P), OnceWithin(Q, 0.3), 0.3, 0.1),
    EarlierWithin(HistoricallyFor(P, 0.3), 0.3),
    EarlierWithin(Not(SinceWithin(Q, Not(P), 0.3)), 0.3),
    Count(OnceWithin(P, 0.3), 0.3, "gte", 2),
    Count(Distinct("t", None, 0.3, "eq", 2), 0.3, "eq", 1),
    Distinct("t", OnceWithin(P, 0.3), 0.3, "gt", 1),
    Sum("t", Count(P, 0.3, "neq", 1), 0.3, "gte", 2),
    Avg("t", OnceWithin(P, 0.3), 0.3, "gte", 1),
)
"""Conditions whose windows are all bounded, and which tell births apart for a while. With counts that must be
equal, more of the past does not mean more of the truth."""

LASTING = (
    OnceWithin(Earlier(P), 0.3),
    OnceWithin(HistoricallyFor(P, 0.3, "strong"), 0.3),
    OnceWithin(Keyed(OnceWithin(P, 0.3), "k", OnceWithin(Q, 0.3)), 0.3),
    Count(OnceWithin(P, 0.3), None, "eq", 2),
    CountSince(P, OnceWithin(Q, 0.3), "gte", 2),
    HistoricallyFor(OnceWithin(P, 0.3), 0, "strong"),
    Once(OnceWithin(P, 0.3)),
)
"""Conditions whose verdict may depend on the birth for ever."""


class NestedWorld(SharedWorld):
    """A world of rules over nested histories; some inner histories are also rules of their own."""

    def condition(self, depth: int) -> Condition:
        choose = self.choose
        if depth:
            self.histories = [choose(SETTLING), choose(SETTLING), choose((*SETTLING, *LASTING))]
            self.per = choose((None, None, Keyed))
        history = choose(self.histories)
        inner = [child for child in children(history) if not isinstance(child, Leaf)]
        history = choose((history, history, history, *inner))
        return history if self.per is None else Keyed(history, "k")

    def submission(self, clock_us: int) -> tuple[Submit, int]:
        submit, _ = super().submission(clock_us)
        time_us = clock_us + self.choose((0, 0, 1, 100_000, 100_000, 200_000, 299_999, 300_000, 300_001))
        return Submit(submit.fields, timestamp_ms(time_us)), time_us


class RunsWorld(SharedWorld):
    """A world of rules over long runs, most of which began before the rules were added."""

    def condition(self, depth: int) -> Condition:
        history: Condition = self.choose(RUNS)
        return self.choose((history, Keyed(history, "k"), Keyed(history, "k")))

    def submission(self, clock_us: int) -> tuple[Submit, int]:
        time_us = clock_us + self.choose((0, 100_000, 100_000, 150_000, 300_000))
        fields = {"p": self.choose((0, 0, 0, 0, 0, 0, 0, 1)), "k": self.choose((1, 2, 3))}
        return Submit(fields, timestamp_ms(time_us)), time_us


ENDLESS = (
    Count(P, None, "gte", 2),
    Count(P, None, "eq", 1),
    Distinct("t", None, None, "gte", 2),
    Distinct("t", P, None, "lt", 2),
)


class EndlessWorld(SharedWorld):
    """A world of rules that count without a window, most of them added between events of the same time."""

    def condition(self, depth: int) -> Condition:
        if depth:
            self.counted = self.choose(ENDLESS)
        return self.choose((self.counted, Keyed(self.counted, "k"), Keyed(self.counted, "k")))

    def submission(self, clock_us: int) -> tuple[Submit, int]:
        time_us = clock_us + self.choose((0, 0, 0, 100_000))
        fields = {"p": self.choose((0, 1)), "t": self.choose((0, 1, 2)), "k": self.choose((1, 1, 2))}
        return Submit(fields, timestamp_ms(time_us)), time_us


WINDOWED: tuple[Callable[[float], Condition], ...] = (
    lambda window: OnceWithin(P, window),
    lambda window: EarlierWithin(NOT_P, window),
    lambda window: SinceWithin(Q, P, window),
    lambda window: HistoricallyFor(P, window, "weak"),
    lambda window: HistoricallyFor(NOT_P, window),
    lambda window: HistoricallyFor(NOT_P, window, "strong"),
    lambda window: Count(P, window, "gte", 2),
    lambda window: Count(NOT_P, window, "gt", 2),
    lambda window: Count(P, window, "lt", 2),
    lambda window: Count(NOT_P, window, "lte", 1),
    lambda window: Count(P, window, "eq", 1),
    lambda window: Count(P, window, "gte", 0),
    lambda window: Distinct("t", None, window, "gte", 2),
    lambda window: Distinct("t", P, window, "lte", 1),
    lambda window: Sum("t", None, window, "gt", 2),
    lambda window: OnceWithin(OnceWithin(Q, 0.3), window),
    lambda window: All((OnceWithin(P, window), OnceWithin(Q, window))),
)
AROUND: tuple[Callable[[Condition], Condition], ...] = (
    lambda inner: inner,
    Not,
    lambda inner: Keyed(inner, "k"),
    lambda inner: Not(Keyed(inner, "k")),
    lambda inner: Keyed(inner, "k", P),
    lambda inner: Keyed(inner, "k", OnceWithin(P, 0.3)),
    lambda inner: Keyed(Not(inner), "k", Not(P)),
    lambda inner: Keyed(Keyed(inner, "t"), "k"),
    lambda inner: All((Leaf("t", "eq", 1), Keyed(inner, "k"))),
    lambda inner: Keyed(All((Leaf("t", "neq", 1), Not(inner))), "k"),
    lambda inner: All((Leaf("t", "between", (0, 1)), Not(Keyed(Not(inner), "k")))),
    lambda inner: Any((Leaf("t", "eq", 1), inner)),
)
WINDOWS_SECS = (0, 0.000001, 0.1, 0.3, 0.3, 0.300001, 0.6, 1, 1.5, 3)


class WindowsWorld(SharedWorld):
    """A world of rules most of which differ only in their windows."""

    def condition(self, depth: int) -> Condition:
        choose = self.choose
        if depth:
            self.windowed = choose(WINDOWED)
            self.around = choose(AROUND)
            self.others = (self.around, self.around, self.around, choose(AROUND))
        condition: Condition = choose(self.others)(self.windowed(choose(WINDOWS_SECS)))
        return condition
