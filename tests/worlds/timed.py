"""Worlds of timed rules: the rules of other worlds, mostly under keys, with ticks between the events."""

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from engine.language import condition as terms
from engine.language import terms as values
from engine.language.condition import Condition
from tests.worlds.scripts import Add, Change, Choose, Remove, Submit, timestamp_ms

MINUTE_US = 60_000_000


@dataclass(frozen=True)
class Tick:
    """The clock moves to a time, or stays where it is."""

    time_us: int


@dataclass(frozen=True)
class AddTimed:
    """A timed rule is created."""

    name: str
    condition: Condition


@dataclass(frozen=True)
class Reload:
    """The detector is saved and loaded."""


TimedStep: TypeAlias = Add | AddTimed | Change | Remove | Submit | Tick | Reload

WINDOWS_SECS = (0, 0.001, 1, 1, 2, 2.5, 5, 1e-6, 60)
AGES_SECS = (
    *((secs, None) for secs in WINDOWS_SECS),
    (2, 1),
    (5, 1),
    (5, 4),
    (2, 1.99),
    (2e-6, 1e-6),
    (60, 5),
)
STEPS_US = (
    0,
    1,
    2,
    1_000,
    500_000,
    999_999,
    1_000_000,
    1_000_000,
    1_000_001,
    2_000_000,
    3_000_000,
    9_000_000,
)
TICKS_US = (-1_000_000, 0, 1, 500_000, 1_000_000, 1_000_001, 2_000_000, 5_000_001, 20_000_000, 70_000_000)
COMPARISONS = ("gt", "gte", "lt", "lte", "eq", "neq")


MEMBERS = (
    *("not", "not", "not", "once", "once_within", "once_within", "once_within", "all", "all", "any"),
    *("historically", "weak", "weak", "strong", "strong", "since", "since_within", "since_within", "keyed"),
    *("previous", "earlier", "earlier_within", "count", "count", "count", "count_since"),
    *("distinct", "sum", "avg", "compare", "compare", "compare", "predicate"),
)


def narrower(condition: Condition, window_secs: float) -> Condition:
    """Return a condition whose counts have this window, and others smaller lower bounds.

    What is remembered for them may serve that.
    """
    match condition:
        case terms.Keyed(inner, key, where):
            return terms.Keyed(narrower(inner, window_secs), key, where)
        case terms.All() | terms.Any():
            members = tuple(narrower(member, window_secs) for member in condition.members)
            return replace(condition, members=members)
        case terms.Not(inner):
            return terms.Not(narrower(inner, window_secs))
        case terms.Count() | terms.Distinct():
            return replace(condition, window_secs=window_secs)
        case terms.OnceWithin() | terms.EarlierWithin() | terms.SinceWithin() | terms.HistoricallyFor():
            return replace(condition, min_secs=condition.min_secs / 2) if condition.min_secs else condition
    return condition


class TimedWorld:
    """Rules of all members over two keys and two bits."""

    steps = "eeeeeettttrckkhxs"
    """Kinds of steps, the more frequent the more often."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose

    def predicate(self) -> Condition:
        choose = self.choose
        match choose("bbbbbpkn"):
            case "p":
                name = choose("abk")
                return terms.Ref(name, "eq", name)
            case "k":
                return terms.Leaf("k", choose(("eq", "neq")), choose(("x", "y")))
            case "n":
                return terms.Leaf(choose("ab"), "between", (0, 1))
        return terms.Leaf(choose("ab"), "eq", choose((0, 1)))

    def condition(self, depth: int) -> Condition:
        """Return a condition of at most this depth."""
        choose, inner = self.choose, lambda: self.condition(depth - 1)
        if depth <= 1:
            return self.predicate()
        where = inner() if choose((False, False, True)) else None
        window = choose((None, *WINDOWS_SECS))
        match choose(MEMBERS):
            case "not":
                return terms.Not(inner())
            case "all" | "any" as member:
                members = tuple(inner() for _ in choose(((0,), (0, 0), (0, 0, 0))))
                return (terms.All if member == "all" else terms.Any)(members)
            case "once":
                return terms.Once(inner())
            case "once_within":
                return terms.OnceWithin(inner(), *choose(AGES_SECS))
            case "historically":
                return terms.Historically(inner())
            case "weak":
                secs, least = choose(AGES_SECS)
                return terms.HistoricallyFor(inner(), secs, None, least)
            case "strong":
                return terms.HistoricallyFor(inner(), choose(WINDOWS_SECS), "strong")
            case "since":
                return terms.Since(inner(), inner())
            case "since_within":
                return terms.SinceWithin(inner(), inner(), *choose(AGES_SECS))
            case "keyed":
                return terms.Keyed(inner(), choose(("k", "m", "$v")), where)
            case "previous":
                return terms.Previous(inner())
            case "earlier":
                return terms.Earlier(inner())
            case "earlier_within":
                return terms.EarlierWithin(inner(), *choose(AGES_SECS))
            case "count":
                return terms.Count(inner(), window, choose(COMPARISONS), choose((0, 1, 2, 3)))
            case "count_since":
                return terms.CountSince(inner(), inner(), choose(COMPARISONS), choose((0, 1, 2)))
            case "distinct":
                return terms.Distinct(choose("abm"), where, window, choose(COMPARISONS), choose((0, 1, 2)))
            case "sum" | "avg" as member:
                kind = terms.Sum if member == "sum" else terms.Avg
                return kind(choose("abm"), where, window, choose(COMPARISONS), choose((0, 1, 0.5, 2)))
            case "compare":
                return self.comparison(depth)
        return self.predicate()

    def comparison(self, depth: int) -> Condition:
        """Return a comparison of terms; time changes most of these."""
        choose = self.choose
        inner, op = self.condition(depth - 1), choose(COMPARISONS)
        window = choose((None, *WINDOWS_SECS))
        where = inner if choose((False, True)) else None
        match choose(("age", "age", "age", "ages", "now", "clock", "count", "sum", "max", "last", "prev")):
            case "age":
                return terms.Compare(values.Age(inner), op, choose((0, 1, 1.5, 2, 5, 1e-6)))
            case "ages":
                return terms.Compare(self.longer(inner), choose(("gt", "lte")), choose((2, values.Fact("a"))))
            case "now":
                return terms.Compare(values.Now(), op, choose((2, 5, 1_700_000_003)))
            case "clock":
                part, told = choose((("minute", 1), ("minute", 14), ("clock", "22:14"), ("clock", "00:01")))
                return terms.Compare(values.Clock(part), op, told)
            case "count":
                return terms.Compare(
                    values.CountTerm(inner, window, choose((None, True))), op, choose((0, 1, 2))
                )
            case "sum":
                return terms.Compare(values.SumTerm(choose("abm"), where, window), op, choose((0, 1, 2)))
            case "max":
                return terms.Compare(values.MaxTerm(choose("abm"), where, window), op, choose((0, 1, 2)))
            case "last":
                return terms.Compare(values.Last("a", where), op, choose((0, 1)))
            case _:
                return terms.Compare(values.Prev("a"), op, choose((0, 1)))

    def longer(self, inner: Condition) -> values.Add:
        """Return an age and another number."""
        return values.Add((values.Age(inner), self.choose((0.5, values.Age(self.predicate())))))

    def often(self, depth: int) -> Condition:
        """Return a condition that time often makes true."""
        choose, inner, secs = self.choose, self.condition(depth - 1), self.choose(WINDOWS_SECS)
        match choose("owscdmay"):
            case "o":
                return terms.Not(terms.OnceWithin(inner, *choose(AGES_SECS)))
            case "w":
                return terms.OnceWithin(inner, *choose(AGES_SECS[-6:]))
            case "s":
                return terms.HistoricallyFor(terms.Not(inner), secs, "strong")
            case "c":
                return terms.Count(inner, secs, choose(("lt", "lte", "eq")), choose((1, 2)))
            case "d":
                return terms.Distinct(choose("abm"), None, secs, choose(("lt", "lte", "eq")), choose((1, 2)))
            case "m":
                return terms.Sum(choose("abm"), None, secs, choose(("lt", "eq")), choose((1, 0)))
            case "a":
                aged, ops = choose(
                    ((values.Age(inner), ("gt", "gte", "eq")), (self.longer(inner), ("gt", "lte")))
                )
                return terms.Compare(aged, choose(ops), choose((1, 2, 1.5)))
        return terms.All((terms.Once(inner), terms.Not(terms.OnceWithin(self.predicate(), secs))))

    def turning(self) -> Condition:
        """Return a condition that slices share and time often makes true."""
        choose = self.choose
        return choose(
            (
                lambda: terms.Not(terms.OnceWithin(self.predicate(), choose((1, 2)))),
                lambda: terms.Compare(values.Clock("minute"), choose(("eq", "gte")), choose((1, 14))),
                lambda: terms.Count(self.predicate(), 2, "lt", choose((1, 2))),
                lambda: terms.Compare(values.Age(self.predicate()), "gt", choose((1, 2))),
            )
        )()

    def rule(self) -> Condition:
        """Return a condition, mostly under keys."""
        choose = self.choose
        inner = self.condition(choose((2, 3, 4))) if choose((True, False)) else self.often(choose((2, 3)))
        where = self.condition(2) if choose((False, False, False, True)) else None
        match choose("kkkkvmab0"):
            case "k":
                return terms.Keyed(inner, "k", where)
            case "v":
                return terms.Keyed(inner, "$v", where)
            case "m":
                return terms.Keyed(terms.Keyed(inner, "m", where), "k")
            case "a":
                both = terms.Keyed(inner, "k"), terms.Keyed(self.condition(3), "m", where)
                return (terms.All if choose((True, False)) else terms.Any)(both)
            case "b":
                return terms.All((self.condition(3), terms.Keyed(inner, "k", where)))
        return inner

    def edited(self, condition: Condition) -> Condition:
        """Return a condition that shares something with another one."""
        choose = self.choose
        more = choose((lambda: self.condition(2), lambda: terms.Keyed(self.often(2), "k"), self.rule))()
        match choose("mmn1"):
            case "n":
                return terms.Not(condition)
            case "1" if isinstance(condition, terms.All | terms.Any):
                return choose(condition.members)
        members = choose(((condition, more), (more, condition)))
        return (terms.All if choose((True, False)) else terms.Any)(members)

    def fields(self) -> dict[str, Any]:
        """Return the fields of an event."""
        choose = self.choose
        fields: dict[str, Any] = {name: choose((0, 1)) for name in "ab" if choose((True, True, False))}
        if choose((True, True, True, False)):
            fields["k"] = choose(("x", "x", "y", 1, 1.0, True, "x" * 300))
        if choose((True, False)):
            fields["m"] = choose((0, 1, 0.5, -1))
        return fields

    def script(self, steps_max: int = 16) -> list[TimedStep]:
        """Return the steps of one detector."""
        choose = self.choose
        conditions = [self.rule()]
        steps: list[TimedStep] = [AddTimed("first", conditions[0])]
        clock_us = choose((0, 1_700_000_000_000_000))
        for number in range(choose(range(3, steps_max))):
            match choose(self.steps):
                case "t":
                    time_us = clock_us + choose(TICKS_US)
                    steps.append(Tick(time_us))
                    clock_us = max(clock_us, time_us)
                case "r" if len(conditions) < 3:
                    conditions.append(self.rule())
                    # A rule that is not timed may become timed, with a history.
                    add = choose((AddTimed, AddTimed, Add))
                    steps.append(add(f"rule {number}", conditions[-1]))
                case "c" | "k" as kind:
                    place = choose(range(len(conditions)))
                    kept = {"history": "keep"} if kind == "k" else {}
                    conditions[place] = self.edited(conditions[place]) if kept else self.rule()
                    steps.append(Change(place, {"condition": conditions[place], **kept}))
                case "h":
                    changes = choose(
                        (("enabled", False), ("enabled", True), ("timed", False), ("timed", True))
                    )
                    steps.append(Change(choose(range(len(conditions))), dict([changes])))
                case "x" if len(conditions) > 1:
                    steps.append(Remove(choose(range(len(conditions)))))
                    del conditions[steps[-1].place]
                case "s":
                    steps.append(Reload())
                case _:
                    time_us = clock_us + choose((*STEPS_US, *STEPS_US, -1, -1_000_000, 65_000_000))
                    sent = {"v": choose(("x", 1))} if choose((True, False)) else None
                    steps.append(Submit(self.fields(), timestamp_ms(time_us), sent))
                    clock_us = max(clock_us, time_us)
        return steps


class BusyWorld(TimedWorld):
    """Rules that time often makes true, each on a few slices."""

    def rule(self) -> Condition:
        """Return a condition under a key, sometimes together with one that slices share."""
        keyed = terms.Keyed(self.often(2), "k")
        return terms.All((self.turning(), keyed)) if self.choose((True, False)) else keyed

    def fields(self) -> dict[str, Any]:
        """Return the fields of an event; nearly every one has the key."""
        choose = self.choose
        fields: dict[str, Any] = {name: choose((0, 1)) for name in "ab" if choose((True, True, False))}
        if choose((True, True, True, True, False)):
            fields["k"] = choose(("x", "y", "y", 1))
        return fields

    def script(self, steps_max: int = 16) -> list[TimedStep]:
        """Return the steps of one detector, mostly events and ticks."""
        return [step for step in super().script(steps_max) if not isinstance(step, Change | Remove)]


class KeptWorld(BusyWorld):
    """Rules that start or stop turning by time alone when they change; both keep what history they can."""

    steps = "eeeeeeettttkkkkhs"

    def lasting(self) -> Condition:
        """Return a condition that time alone never turns."""
        choose, inner = self.choose, self.predicate()
        match choose("ohsccdp"):
            case "o":
                return terms.Once(inner)
            case "h":
                return terms.Historically(inner)
            case "p":
                return inner
            case "s":
                return terms.Since(inner, self.predicate())
            case "c":
                return terms.Count(inner, None, choose(COMPARISONS), choose((1, 2)))
        return terms.Distinct(choose("ab"), None, None, choose(COMPARISONS), choose((1, 2)))

    def rule(self) -> Condition:
        """Return a condition that time alone never turns, mostly under keys."""
        choose = self.choose
        match choose("kkkkm0"):
            case "0":
                return self.lasting()
            case key:
                return terms.Keyed(self.lasting(), key)

    def edited(self, condition: Condition) -> Condition:
        """Return a condition that time may turn, or one that it cannot."""
        choose = self.choose
        match choose("tw1"):
            case "w":
                return narrower(condition, choose((1, 2)))
            case "1" if isinstance(condition, terms.All | terms.Any):
                return condition.members[0]
        members = condition, choose((self.turning, self.rule, super().rule))()
        return (terms.All if choose((True, True, False)) else terms.Any)(members)

    def script(self, steps_max: int = 16) -> list[TimedStep]:
        """Return the steps of one detector: many changes, and ticks at the end."""
        steps = TimedWorld.script(self, steps_max)
        times_us = [round(1_000 * step.timestamp_ms) for step in steps if isinstance(step, Submit)]
        return [*steps, Tick(max(times_us, default=0) + self.choose((3_000_000, 100_000_000)))]
