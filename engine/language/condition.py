"""The Condition types: a closed union of frozen forms, and how to traverse them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, cast

from engine.language.durations import microseconds
from engine.language.nodes import ConditionNode
from engine.language.terms import Term, conditions_in

Scalar: TypeAlias = str | int | float | bool
"""A JSON string, number or boolean."""

LeafValue: TypeAlias = Scalar | tuple[Scalar, ...]
"""The constant of a leaf. A tuple holds only strings or only numbers."""

Keys: TypeAlias = tuple["str | FilteredKey", ...]
"""The keys of the `Keyed` conditions around a condition, outermost first."""


class FilteredKey(NamedTuple):
    """The key of a `Keyed` with a `where`: its slices contain only events at which `where` is true."""

    fact: str
    where: "Condition"


@dataclass(frozen=True, slots=True)
class FactArg:
    """An argument of `in_relation` that is the value of a fact."""

    fact: str


@dataclass(frozen=True, slots=True)
class ScaledFact:
    """The value of a fact in the current event, times a number.

    `times` is None if the document has none; then the value is that of the fact.
    """

    fact: str
    times: float | None = None

    @property
    def factor(self) -> float:
        """The number by which the fact is multiplied."""
        return 1 if self.times is None else self.times


@dataclass(frozen=True, slots=True, eq=False)
class Leaf(ConditionNode):
    """A fact compared with a constant. `op` is any operator of `operators.py`."""

    fact: str
    op: str
    value: LeafValue


@dataclass(frozen=True, slots=True, eq=False)
class Ref(ConditionNode):
    """A fact compared with another fact. `op` is eq, neq, in or nin."""

    fact: str
    op: str
    reference: str


@dataclass(frozen=True, slots=True, eq=False)
class InRelation(ConditionNode):
    """The tuple of the arguments' values is in the named relation."""

    relation: str
    args: tuple[FactArg | Scalar, ...]


@dataclass(frozen=True, slots=True)
class NetworksOf:
    """The networks that are tuples of a relation."""

    relation: str


@dataclass(frozen=True, slots=True, eq=False)
class InNetwork(ConditionNode):
    """A fact is an IP address that lies in one of the networks."""

    fact: str
    networks: tuple[str, ...] | NetworksOf


@dataclass(frozen=True, slots=True, eq=False)
class Some(ConditionNode):
    """A fact is an array with an element for which inner is true. Inner looks names up in the element."""

    fact: str
    inner: "Condition"


STRINGS: Final = "\udfff.strings"
"""The fact that is an array of all strings of an event. No name of a caller has a lone surrogate."""


class Anywhere(Some):
    """Inner is true for some string of the event, at any depth. In inner, `it` is the string."""

    __slots__ = ()
    __match_args__ = ("inner",)

    # It must also accept its fields, like all conditions, for replacing conditions inside.
    def __init__(self, inner: "Condition", fact: str = STRINGS) -> None:
        super().__init__(fact, inner)

    def __repr__(self) -> str:
        """Show its only argument."""
        return f"Anywhere(inner={self.inner!r})"


@dataclass(frozen=True, slots=True, eq=False)
class Compare(ConditionNode):
    """Both terms have values that satisfy the comparison. `op` is gt, gte, lt, lte, eq or neq."""

    left: Term
    op: str
    right: Term


@dataclass(frozen=True, slots=True, eq=False)
class All(ConditionNode):
    """Every member is true. There is at least one member."""

    members: tuple["Condition", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Any(ConditionNode):
    """Some member is true. There is at least one member."""

    members: tuple["Condition", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Not(ConditionNode):
    """The inner condition is not true."""

    inner: "Condition"


@dataclass(frozen=True, slots=True, eq=False)
class Once(ConditionNode):
    """Inner was true at some event so far, the current one included."""

    inner: "Condition"


@dataclass(frozen=True, slots=True, eq=False)
class Historically(ConditionNode):
    """Inner was true at every event so far, the current one included."""

    inner: "Condition"


@dataclass(frozen=True, slots=True, eq=False)
class Since(ConditionNode):
    """Right was true at some event so far, the current one included, and left at every event after it."""

    left: "Condition"
    right: "Condition"


class Windowed(ConditionNode):
    """The base of the four forms that always have a window.

    With `min_secs`, only events at least this old count; None if the document has none.
    """

    __slots__ = ()
    window_secs: float
    min_secs: float | None

    @property
    def window_us(self) -> int:
        """The window in whole microseconds: 0.3 seconds are exactly 300 000."""
        return microseconds(self.window_secs, 1_000_000)

    @property
    def min_us(self) -> int:
        """The minimum age of an event, in whole microseconds."""
        return 0 if self.min_secs is None else microseconds(self.min_secs, 1_000_000)


@dataclass(frozen=True, slots=True, eq=False)
class OnceWithin(Windowed):
    """Inner was true at some event no older than the window."""

    inner: "Condition"
    window_secs: float
    min_secs: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class HistoricallyFor(Windowed):
    """Weak: inner was true at every event no older than the window. Strong: for at least that long.

    `boundary` is `weak`, `strong` or None. None means weak, and the document then has no boundary.
    """

    inner: "Condition"
    window_secs: float
    boundary: str | None = None
    min_secs: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SinceWithin(Windowed):
    """Like since; the event at which right was true is also no older than the window."""

    left: "Condition"
    right: "Condition"
    window_secs: float
    min_secs: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Keyed(ConditionNode):
    """Inner holds on the events whose `key` has the same value as in the current event.

    With `where`, only the events at which `where` was true belong to the slices.
    """

    inner: "Condition"
    key: str
    where: "Condition | None" = None

    @property
    def step(self) -> str | FilteredKey:
        """The key that this condition adds to those around inner."""
        return self.key if self.where is None else FilteredKey(self.key, self.where)


@dataclass(frozen=True, slots=True, eq=False)
class Previous(ConditionNode):
    """Inner was true at the event directly before the current one."""

    inner: "Condition"


@dataclass(frozen=True, slots=True, eq=False)
class Earlier(ConditionNode):
    """Inner was true at some event before the current one."""

    inner: "Condition"


@dataclass(frozen=True, slots=True, eq=False)
class EarlierWithin(Windowed):
    """Inner was true at some event before the current one that is no older than the window."""

    inner: "Condition"
    window_secs: float
    min_secs: float | None = None


class Aggregate(ConditionNode):
    """The base of the four forms that compare a number computed over the events no older than a window.

    Without a window, all events so far count. `op` is gt, gte, lt, lte, eq or neq.
    """

    __slots__ = ()
    window_secs: float | None
    op: str

    @property
    def window_us(self) -> int | None:
        """The window in whole microseconds, or None without a window."""
        return None if self.window_secs is None else microseconds(self.window_secs, 1_000_000)


@dataclass(frozen=True, slots=True, eq=False)
class Count(Aggregate):
    """The number of events at which inner was true, compared with a constant."""

    inner: "Condition"
    window_secs: float | None
    op: str
    value: int


@dataclass(frozen=True, slots=True, eq=False)
class CountSince(ConditionNode):
    """The number of events at which inner was true, after the last event at which reset was true."""

    inner: "Condition"
    reset: "Condition"
    op: str
    value: int


@dataclass(frozen=True, slots=True, eq=False)
class Distinct(Aggregate):
    """The number of different values of a fact at the events at which `where` was true."""

    fact: str
    where: "Condition | None"
    window_secs: float | None
    op: str
    value: int


@dataclass(frozen=True, slots=True, eq=False)
class Sum(Aggregate):
    """The sum of a fact over the events at which `where` was true."""

    fact: str
    where: "Condition | None"
    window_secs: float | None
    op: str
    value: float | ScaledFact


@dataclass(frozen=True, slots=True, eq=False)
class Avg(Aggregate):
    """The mean of a fact over the events at which `where` was true. False if no event counts."""

    fact: str
    where: "Condition | None"
    window_secs: float | None
    op: str
    value: float | ScaledFact


Condition: TypeAlias = (
    Leaf
    | Ref
    | InRelation
    | InNetwork
    | Compare
    | Some
    | Anywhere
    | All
    | Any
    | Not
    | Once
    | Historically
    | Since
    | OnceWithin
    | HistoricallyFor
    | SinceWithin
    | Keyed
    | Previous
    | Earlier
    | EarlierWithin
    | Count
    | CountSince
    | Distinct
    | Sum
    | Avg
)


Predicate: TypeAlias = Leaf | Ref | InRelation | InNetwork | Some
"""The conditions that an event decides by itself, in one step. So do comparisons of terms that do not look
back."""


def children(condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions directly inside a condition, in document order."""
    match condition:
        case Leaf() | Ref() | InRelation() | InNetwork():
            return ()
        case Compare(left, _, right):
            return tuple(cast("Condition", each) for term in (left, right) for each in conditions_in(term))
        case All(members) | Any(members):
            return members
        case _:
            # Each other form has its conditions as fields. An absent one is None.
            values = (getattr(condition, name) for name in condition.__match_args__)
            return tuple(cast("Condition", value) for value in values if isinstance(value, ConditionNode))


def walk(condition: Condition, keys: Keys = ()) -> Iterator[tuple[Condition, Keys]]:
    """Yield a condition and every condition inside it, each with the keys around it.

    A condition comes before its children, and children come in document order. `keys` are those around the
    whole condition. The `where` of a `Keyed` is outside its slices, so its keys are those around the `Keyed`.
    """
    pending = [(condition, keys)]
    while pending:
        node, around = pending.pop()
        yield node, around
        match node:
            case Keyed(inner, _, where):
                if where is not None:
                    pending.append((where, around))
                pending.append((inner, (*around, node.step)))
            case _:
                pending += [(child, around) for child in reversed(children(node))]
