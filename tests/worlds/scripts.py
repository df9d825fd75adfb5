"""Generators of conditions, events and scripts, from worlds so small that everything collides.

There are few names, few values that look alike, and few steps in time, which land on the edges of windows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any as Json
from typing import TypeAlias

from hypothesis import strategies as st

from engine.language.condition import (
    All,
    Any,
    Anywhere,
    Avg,
    Condition,
    Count,
    CountSince,
    Distinct,
    Earlier,
    EarlierWithin,
    FactArg,
    Historically,
    HistoricallyFor,
    InNetwork,
    InRelation,
    Keyed,
    Leaf,
    NetworksOf,
    Not,
    Once,
    OnceWithin,
    Previous,
    Ref,
    ScaledFact,
    Since,
    SinceWithin,
    Some,
    Sum,
)
from tests.worlds.terms import ARE_EVALUATED, small_comparison

Draw: TypeAlias = Callable[[st.SearchStrategy[int]], int]
Choose: TypeAlias = Callable[[Sequence[Json]], Json]

NAMES = ("a", "b", "list", "user.id", "user", "$v", "$user.id", "nowhere", "user.id.x")
IN_ELEMENTS = ("a", "b", "it", "list", "$v", "id.x", "nowhere")
WINDOWS_SECS = (0, 0.001, 0.3, 1, 1.0, 1.001, 2.5, 5e-7, 1.5e-6, 86_400, 1e300)
AGES_SECS = (
    *((window_secs, None) for window_secs in WINDOWS_SECS),
    *((1, 0), (1, 0.3), (1.0, 0.3), (1, 0.996), (1.3, 1), (1.004, 1), (0.3, 1e-6), (1e300, 1), (86_400, 2.5)),
    *((1.5e-6, 5e-7), (1.5e-6, 1e-6)),
)
"""Windows, each with its minimum age, if there is one."""
BIG = 2**53 + 1
SCALARS = (0, 1, True, False, 1.0, 1.5, "1", "", "ab", "b", BIG, float(2**53), 10**30, -1, "é")
ARRAYS = ((), (1,), ("1",), (1.0, 0), ("ab", "1"), (BIG,))
MAX = 1.7976931348623157e308
RANGES = ((0, 1), (0.5, 1.5), (1, 1), (-MAX, 1), (1, MAX), ("", "1"), ("1", "b"), (BIG, BIG))
PATTERNS = ("^a", "b$", "1", "(?i)AB", "", "^$", "[^a]", "(?s)^a", "(?s)^a.*$", "(?i)^B$", "(?si)^.b$")
ADDRESSES = ("10.0.0.1", "10.1.0.1", "::ffff:10.0.0.1", "::1", "2001:db8::1", "fe80::1%e", "10.0.0.01")
NETWORKS = (
    "10.0.0.0/8",
    "10.0.0.1",
    "10.0.0.7/30",
    "::ffff:10.0.0.0/104",
    "::/0",
    "0.0.0.0/0",
    "2001:db8::/32",
)
ELEMENTS = (0, 1, "ab", None, {"a": 0, "b": 1}, {"a": 1, "b": 1}, {"it": 1}, {"list": [1, {"a": 1}]}, [1])
VALUES = (*SCALARS, None, [1], ["1"], [True, None], [], ["ab", "1"], [[1]], {"id": 1}, {"id": None}, {})
VALUES += (*ADDRESSES[:4], {"id.x": 1, "id": {"x": 0}}, list(ELEMENTS))

KINDS_OF_PREDICATE = (*["bit"] * 8, "equality", "equality", "membership", "contains", "matches", "between")
KINDS_OF_PREDICATE += ("ref", "ref", "presence", "relation", "network", "some", "some")
MEMBERS = ("predicate", "all", "any", "not", "once", "historically", "since", "once_within")
MEMBERS += ("historically_for", "historically_for", "since_within", "keyed", "keyed")
ADDITIONS = (
    *["compare"] * ARE_EVALUATED,
    "previous",
    "earlier",
    "earlier_within",
    "count",
    "count",
    "count_since",
    "distinct",
    "sum",
    "avg",
    "keyed where",
)
"""The members beyond the interface's thirteen."""
COMPARISONS = ("gt", "gte", "gte", "lt", "lte", "eq", "neq")
COUNTS = (0, 1, 1, 2, 2, 3)
AMOUNTS = (0, 1, 1.5, -1, 2, 3.0, BIG, ScaledFact("a"), ScaledFact("b", 2), ScaledFact("$v", 0.5))
CHANGES = (("enabled", False), ("enabled", True), ("enabled", True), ("name", "z"), ("notify", True))
BITS = (False, True)
MOSTLY = (False, True, True, True)
UP_TO_2 = ((), (0,), (0, 0))
UP_TO_3 = ((0,), (0, 0), (0, 0, 0))
RULES_MAX = 4

STEPS_US = (0, 0, 1, 999, 1_000, 299_999, 300_000, 300_001, 999_999, 1_000_000, 1_000_001, 1_001_000)
RARE_STEPS_US = (-1, -1_000, -300_000, -300_000_000, -300_000_001, 2_500_000, 2_500_001, 864 * 10**8)
STARTS_US = (0, 1_700_000_000_000_000, -2_000_000)


@dataclass(frozen=True)
class Submit:
    """An event reaches the detector."""

    fields: dict[str, Json]
    timestamp_ms: float
    vars: dict[str, Json] | None = None


@dataclass(frozen=True)
class Add:
    """A rule is created."""

    name: str
    condition: Condition
    notify: bool = False


@dataclass(frozen=True)
class Change:
    """The rule at this index is patched."""

    place: int
    changes: dict[str, Json]


@dataclass(frozen=True)
class Remove:
    """The rule at this index is deleted."""

    place: int


Step: TypeAlias = Submit | Add | Change | Remove


def timestamp_ms(time_us: int, *, as_float: bool = False) -> float:
    """Return the number that a caller would send for a time."""
    return time_us / 1_000 if time_us % 1_000 or as_float else time_us // 1_000


def rewritten(condition: Condition, rewrite: Callable[[Json], Json]) -> Condition:
    """Return the condition with each constant in it rewritten."""
    if isinstance(condition, tuple):
        return tuple(rewritten(member, rewrite) for member in condition)
    if is_dataclass(condition):
        parts = {field.name: getattr(condition, field.name) for field in fields(condition)}
        kept = {"fact", "op", "reference", "relation", "key"} | {k for k, v in parts.items() if v is None}
        if isinstance(condition, Count | CountSince | Distinct):
            # Only a whole number is a valid count, in either spelling.
            kept.add("value")
        kept.discard("boundary")
        return type(condition)(**{k: v if k in kept else rewritten(v, rewrite) for k, v in parts.items()})
    return rewrite(condition)


def respelt(value: Json) -> Json:
    """Return the same JSON number in its other spelling."""
    if isinstance(value, float) and value.is_integer() and abs(value) < BIG:
        return int(value)
    return float(value) if type(value) is int and abs(value) < BIG else value


def spelt_out(value: Json) -> Json:
    """Write out the default boundary: as JSON, this is another condition."""
    return "weak" if value is None else None if value == "weak" else value


def retyped(value: Json) -> Json:
    """Return the boolean that Python finds equal to a number; JSON does not."""
    return bool(value) if type(value) is int and value in (0, 1) else value


class World:
    """A small world; `choose` takes each decision, by a random generator or by hypothesis."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose

    def predicate(self, names: Sequence[str] = NAMES, bits: Sequence[str] = ("a", "b")) -> Condition:
        """Half of them test two bits, so that temporal members see both truths; the rest test anything."""
        choose = self.choose
        match choose(KINDS_OF_PREDICATE):
            case "bit":
                return Leaf(choose(bits), "eq", choose((0, 1)))
            case "equality":
                return Leaf(choose(names), choose(("eq", "neq")), choose(SCALARS + ARRAYS))
            case "membership":
                return Leaf(choose(names), choose(("in", "nin")), choose(ARRAYS))
            case "contains":
                return Leaf(choose(names), "contains", choose(SCALARS))
            case "matches":
                return Leaf(choose(names), "matches", choose(PATTERNS))
            case "between":
                return Leaf(choose(names), "between", choose(RANGES))
            case "ref":
                return Ref(choose(names), choose(("eq", "neq", "in", "nin")), choose(names))
            case "presence":
                name = choose(names)
                return Ref(name, "eq", name)
            case "network":
                listed = tuple(choose(NETWORKS) for _ in choose(UP_TO_3))
                return InNetwork(choose(names), listed if choose(BITS) else NetworksOf(choose(("r", "s"))))
            case "some":
                name = choose(("list", "list", "a", "$v", "anywhere"))
                inner = self.about_element()
                return Anywhere(inner) if name == "anywhere" else Some(name, inner)
            case _:
                args = [FactArg(choose(names)) if choose(BITS) else choose(SCALARS) for _ in choose(UP_TO_2)]
                return InRelation(choose(("r", "s")), tuple(args))

    def about_element(self) -> Condition:
        """Return a condition on the elements of an array."""
        choose = self.choose
        parts = tuple(self.predicate(IN_ELEMENTS, ("a", "b", "it")) for _ in choose(UP_TO_2 + UP_TO_3[:1]))
        if len(parts) == 1:
            return parts[0] if choose(BITS) else Not(parts[0])
        return (All if choose(BITS) else Any)(parts) if parts else Leaf("it", "eq", 1)

    def condition(self, depth: int) -> Condition:
        """Return a condition of at most this depth, of any member."""
        if depth == 1:
            return self.predicate()
        choose, inner = self.choose, lambda: self.condition(depth - 1)
        match choose(MEMBERS + ADDITIONS):
            case "all" | "any" as member:
                members = tuple(inner() for _ in choose(UP_TO_3))
                return (All if member == "all" else Any)(members)
            case "not":
                return Not(inner())
            case "once":
                return Once(inner())
            case "historically":
                return Historically(inner())
            case "since":
                return Since(inner(), inner())
            case "once_within":
                return OnceWithin(inner(), *choose(AGES_SECS))
            case "historically_for":
                boundary = choose((None, "weak", "strong", "strong"))
                window_secs, min_secs = choose(AGES_SECS)
                min_secs = None if boundary == "strong" else min_secs
                return HistoricallyFor(inner(), window_secs, boundary, min_secs)
            case "since_within":
                return SinceWithin(inner(), inner(), *choose(AGES_SECS))
            case "keyed":
                return Keyed(inner(), choose(("a", "b", "user.id", "$v")))
            case "keyed where":
                return Keyed(inner(), choose(("a", "b", "user.id", "$v")), inner())
            case "compare":
                return small_comparison(self, depth)
            case "previous":
                return Previous(inner())
            case "earlier":
                return Earlier(inner())
            case "earlier_within":
                return EarlierWithin(inner(), *choose(AGES_SECS))
            case "count":
                window_secs = choose((None, *WINDOWS_SECS))
                return Count(inner(), window_secs, choose(COMPARISONS), choose(COUNTS))
            case "count_since":
                return CountSince(inner(), inner(), choose(COMPARISONS), choose(COUNTS))
            case "distinct" | "sum" | "avg" as member:
                where = inner() if choose(BITS) else None
                compared = (
                    choose(("a", "b", "b", "$v")),
                    where,
                    choose((None, *WINDOWS_SECS)),
                    choose(COMPARISONS),
                )
                if member == "distinct":
                    return Distinct(*compared, choose(COUNTS))
                return (Sum if member == "sum" else Avg)(*compared, choose(AMOUNTS))
            case _:
                return self.predicate()

    def value(self) -> Json:
        """Return a value of a fact: mostly one of two bits, sometimes anything else."""
        return self.choose((0, 1)) if self.choose(MOSTLY) else self.choose(VALUES)

    def some(self, names: Sequence[str], value: Callable[[], Json]) -> dict[str, Json]:
        """Return an object with some of these members."""
        return {name: value() for name in names if self.choose(BITS)}

    def fields(self) -> dict[str, Json]:
        """Return the fields of an event; `user.id` comes as one key, nested, or both."""
        fields = self.some(("b", "list", "user.id"), self.value)
        if self.choose(BITS):
            fields["list"] = [self.choose(ELEMENTS) for _ in self.choose(UP_TO_3)]
        if self.choose(MOSTLY):
            fields["a"] = self.value()
        if self.choose(BITS):
            fields["user"] = {"id": self.value()} if self.choose(MOSTLY) else self.value()
        return fields

    def vars(self) -> dict[str, Json] | None:
        """Return the caller's variables, relations among them."""
        if self.choose(BITS):
            return None
        sent = self.some(("v", "user.id"), self.value) | self.some(("user",), lambda: {"id": self.value()})
        return sent | self.some(("r",), self.relation)

    def relation(self) -> Json:
        """Return the tuples of a relation, or something invalid."""
        if not self.choose(MOSTLY):
            return self.value()
        pair = [[self.value() for _ in self.choose(UP_TO_2)], self.value(), self.choose(NETWORKS)]
        return [self.choose(pair) for _ in self.choose(UP_TO_3)]

    def edit(self, condition: Condition) -> Condition:
        """Return a replacement for a condition: equal to it as JSON, nearly equal, or different."""
        match self.choose(("respelt", "spelt out", "retyped", "doubly negated", "another")):
            case "respelt":
                return rewritten(condition, respelt)
            case "spelt out":
                return rewritten(condition, spelt_out)
            case "retyped" if isinstance(condition, Leaf) and not isinstance(condition.value, tuple):
                return rewritten(condition, retyped)
            case "doubly negated":
                return Not(Not(condition))
            case _:
                return self.condition(3)

    def submission(self, clock_us: int) -> tuple[Submit, int]:
        """Return an event soon after the clock's time, or a late one, and the clock's time after it."""
        rare = not self.choose(MOSTLY)
        time_us = clock_us + self.choose(RARE_STEPS_US if rare else STEPS_US)
        stamp_ms = timestamp_ms(time_us, as_float=self.choose(BITS))
        return Submit(self.fields(), stamp_ms, self.vars()), max(clock_us, time_us)

    def script(self, *, depth: int = 4, steps_max: int = 18) -> list[Step]:
        """Return the steps of one detector: rules are added, changed and removed while events arrive."""
        choose = self.choose
        rules = [self.condition(depth)]
        steps: list[Step] = [Add("first", rules[0], notify=choose(BITS))]
        clock_us = choose(STARTS_US)
        for number in range(choose(range(3, steps_max))):
            kind = choose("eeeeeeeeeerachx")
            place = choose(range(len(rules))) if rules and kind in "achx" else 0
            match kind:
                case "r" if len(rules) < RULES_MAX:
                    rules.append(self.condition(depth))
                    steps.append(Add(f"rule {number}", rules[-1], notify=choose(BITS)))
                case "a" if rules and len(rules) < RULES_MAX:
                    # An old condition again, alone or inside another, so that conditions share state.
                    again = choose((rules[place], Not(rules[place]), Once(rules[place])))
                    rules.append(again)
                    steps.append(Add(f"rule {number}", again, notify=False))
                case "c" if rules:
                    rules[place] = self.edit(rules[place])
                    steps.append(Change(place, {"condition": rules[place]}))
                case "h" if rules:
                    steps.append(Change(place, dict([choose(CHANGES)])))
                case "x" if rules and choose(BITS):
                    del rules[place]
                    steps.append(Remove(place))
                case _:
                    step, clock_us = self.submission(clock_us)
                    steps.append(step)
        return steps


def chooser(draw: Draw) -> Choose:
    """Let hypothesis decide, so that it can shrink examples."""
    return lambda options: options[draw(st.integers(0, len(options) - 1))]


@st.composite
def conditions(draw: Draw, depth: int = 4) -> Condition:
    """Conditions of at most this depth."""
    return World(chooser(draw)).condition(depth)


@st.composite
def scripts(draw: Draw, depth: int = 4, steps_max: int = 18) -> list[Step]:
    """Scripts of at most this many steps, with rules of at most this depth."""
    return World(chooser(draw)).script(depth=depth, steps_max=steps_max)
