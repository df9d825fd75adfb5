"""The Condition types: a frozen, closed union of thirteen members, and what makes two of them equal."""

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import ClassVar, TypeAlias

Scalar: TypeAlias = str | int | float | bool
"""A JSON string, number or boolean."""

LeafValue: TypeAlias = Scalar | tuple[Scalar, ...]
"""What a leaf compares with. A tuple holds strings only or numbers only."""

_EXACT = Context(prec=10_000, rounding=ROUND_HALF_EVEN, Emax=999_999, Emin=-999_999)


_EXACT_INTEGERS = 2.0**53
"""Up to here every whole number is a double, and its shortest decimal is itself."""

_CLEAR_OF_HALVES = 0.1


def microseconds(amount: float, per_unit: int) -> int:
    """Give `amount`, read as its shortest decimal, times `per_unit`, rounded half to even to an integer."""
    if isinstance(amount, int):
        return amount * per_unit
    if amount.is_integer() and abs(amount) < _EXACT_INTEGERS:
        return int(amount) * per_unit
    scaled = amount * per_unit
    if abs(scaled) < _EXACT_INTEGERS / 4:
        # Below 2**51 the shortest decimal is off by at most 1/4 and the product by 1/8, which leaves the
        # rounded one no choice.
        whole = round(scaled)
        if abs(scaled - whole) < _CLEAR_OF_HALVES:
            return whole
    exact = _EXACT.multiply(Decimal(repr(amount)), Decimal(per_unit))
    return int(exact.to_integral_value(rounding=ROUND_HALF_EVEN))


def typed(value: object) -> object:
    """Give something hashable that is equal for two JSON values just when SPEC's typed equality holds.

    `true` is not `1`, `"5"` is not `5`, `1` is `1.0`.
    """
    if type(value) is str:
        return value
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, list | tuple):
        return ("array", *map(typed, value))
    if isinstance(value, dict):
        return ("object", frozenset((name, typed(member)) for name, member in value.items()))
    return value


class _Node:
    """Equality and hashing by typed content, so that `Leaf("x", "eq", 1)` is not `Leaf("x", "eq", True)`."""

    __slots__ = ("_hash",)
    _hash: int
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def _identity(self) -> tuple[object, ...]:
        return (type(self).__name__, *[typed(getattr(self, name)) for name in self.__match_args__])

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, _Node)
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        try:
            known = self._hash
        except AttributeError:
            # Conditions are looked up again and again, each time with all that is in them.
            known = hash(self._identity())
            object.__setattr__(self, "_hash", known)
        return known


@dataclass(frozen=True, slots=True)
class FactArg:
    """An argument of `in_relation` that is looked up by its name."""

    fact: str


@dataclass(frozen=True, slots=True, eq=False)
class Leaf(_Node):
    """A fact compared with a constant. `op`: eq, neq, in, nin, contains, matches, between."""

    fact: str
    op: str
    value: LeafValue


@dataclass(frozen=True, slots=True, eq=False)
class Ref(_Node):
    """A fact compared with another. `op`: eq, neq, in, nin."""

    fact: str
    op: str
    reference: str


@dataclass(frozen=True, slots=True, eq=False)
class InRelation(_Node):
    """The tuple of the arguments' values is in the relation of that name."""

    relation: str
    args: tuple[FactArg | Scalar, ...]


@dataclass(frozen=True, slots=True, eq=False)
class All(_Node):
    """Every member is true. At least one member."""

    members: tuple["Condition", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Any(_Node):
    """Some member is true. At least one member."""

    members: tuple["Condition", ...]


@dataclass(frozen=True, slots=True, eq=False)
class Not(_Node):
    """The inner condition is not true."""

    inner: "Condition"


@dataclass(frozen=True, slots=True, eq=False)
class Once(_Node):
    """Inner was true at some event so far, now included."""

    inner: "Condition"


@dataclass(frozen=True, slots=True, eq=False)
class Historically(_Node):
    """Inner was true at every event so far, now included."""

    inner: "Condition"


@dataclass(frozen=True, slots=True, eq=False)
class Since(_Node):
    """Right was true at some event, now included, and left at every event after it."""

    left: "Condition"
    right: "Condition"


class Windowed(_Node):
    """What the three members with a window have in common."""

    __slots__ = ()
    window_secs: float

    @property
    def window_us(self) -> int:
        """The window in whole microseconds; `0.3` seconds are 300 000 exactly."""
        return microseconds(self.window_secs, 1_000_000)


@dataclass(frozen=True, slots=True, eq=False)
class OnceWithin(Windowed):
    """Inner was true at some event no older than the window."""

    inner: "Condition"
    window_secs: float


@dataclass(frozen=True, slots=True, eq=False)
class HistoricallyFor(Windowed):
    """Inner was true at every event no older than the window (`weak`), or has held that long (`strong`).

    `boundary` is None where the document has none; it then means weak, and is written as it was given.
    """

    inner: "Condition"
    window_secs: float
    boundary: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SinceWithin(Windowed):
    """As since, where the event at which right was true is no older than the window."""

    left: "Condition"
    right: "Condition"
    window_secs: float


@dataclass(frozen=True, slots=True, eq=False)
class Keyed(_Node):
    """Inner, on the sub-history of the events whose `key` has the value that it has now."""

    inner: "Condition"
    key: str


Condition: TypeAlias = (
    Leaf
    | Ref
    | InRelation
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
)
