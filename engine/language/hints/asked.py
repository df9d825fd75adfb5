"""The constraints of a condition on one value, such as a fact or a count, and the values that satisfy all."""

from collections.abc import Hashable, Iterable
from typing import Any, Final, NamedTuple

from engine.language import condition as language
from engine.language.condition import Condition
from engine.language.diagnostics import json_type, quoted
from engine.language.forms.form import Content
from engine.language.forms.table import FORM_OF_NODE
from engine.language.nodes import TermNode
from engine.language.operators import MIRRORED
from engine.language.terms import Fact, Term
from engine.language.text.printer import comparison_text, format_term
from engine.language.text.printer import format as text_of

ELEMENTS_MAX: Final = 100
"""Longer lists are not examined."""

_OUTCOMES: Final = {
    "eq": ("equal",),
    "neq": ("less", "greater", "of other types"),
    "lt": ("less",),
    "gt": ("greater",),
    "lte": ("less", "equal"),
    "gte": ("greater", "equal"),
}
"""The possible orders of two values for which each comparison is true."""

_BEYOND_SCALARS: Final = {"eq": ("equal arrays or objects",), "neq": ("other arrays or objects",)}
"""The same for two facts in a predicate, which may also be arrays and objects."""

_ORDERED: Final = {"a number", "a string"}


class Asked(NamedTuple):
    """The constraints of a condition: it is true if the subject has a value that satisfies all of them."""

    subject: Hashable
    node: Condition
    asks: tuple[tuple[str, Any], ...]
    """Operators with their constants."""

    @property
    def oneness(self) -> str:
        """A sentence that says why a subject cannot have two values."""
        match self.subject:
            case str() as fact:
                name = fact
            case TermNode() as term:
                name = format_term(term)
            case (TermNode() as left, TermNode() as right):
                both = f"{quoted(format_term(left))} and {quoted(format_term(right))}"
                return f"{both} compare in one way at an event"
            case _:
                # A member that compares a number ends with the operator and the constant.
                name = text_of(self.node).rsplit(" ", 2)[0]
        return f"{quoted(name)} has one value at an event"


def asked_by(node: Condition) -> Asked | None:
    """Return the constraints of a condition on one value; None if it has no such form."""
    match node:
        case language.All(members):
            if comparison_text(members) is None:
                return None
            between, unequal = members
            assert isinstance(between, language.Leaf)
            assert isinstance(unequal, language.Leaf)
            asks = ((between.op, between.value), (unequal.op, unequal.value))
            return Asked(between.fact, node, asks)
        case language.Leaf(fact, "eq" | "neq" as op, value) if not isinstance(value, tuple):
            return Asked(fact, node, ((op, value),))
        case language.Leaf(fact, "in" | "nin" | "between" as op, tuple() as value):
            return Asked(fact, node, ((op, value),)) if len(value) <= ELEMENTS_MAX else None
        case language.Ref(fact, "eq" | "neq" as op, other) if fact != other:
            return _of_two(node, Fact(fact), op, Fact(other), _BEYOND_SCALARS[op])
        case language.Compare(left, op, right):
            return _of_terms(node, left, op, right)
        case _:
            return _of_number(node)


def _of_terms(node: Condition, left: Term, op: str, right: Term) -> Asked | None:
    if not isinstance(left, TermNode) and isinstance(right, TermNode):
        left, op, right = right, MIRRORED[op], left
    if not isinstance(left, TermNode):
        return None
    if isinstance(right, TermNode):
        return None if left == right else _of_two(node, left, op, right)
    # A predicate on the fact is another subject, because it can also be true of an array or an object.
    return Asked(left, node, ((op, right),))


def _of_two(node: Condition, left: Term, op: str, right: Term, others: tuple[str, ...] = ()) -> Asked:
    """Return the constraint of a comparison of two terms on the order of their values."""
    if hash(left) > hash(right):
        left, op, right = right, MIRRORED[op], left
    return Asked((left, right), node, (("in", _OUTCOMES[op] + others),))


def _of_number(node: Any) -> Asked | None:
    """Return the constraint of a member that compares a number with a constant on the number."""
    fields = FORM_OF_NODE[type(node)].fields
    if not {Content.COUNT, Content.AMOUNT} & set(fields.values()) or isinstance(
        node.value, language.ScaledFact
    ):
        return None
    others = [getattr(node, name) for name in fields if name not in {"op", "value"}]
    return Asked((type(node).__name__, *others), node, ((node.op, node.value),))


class Values:
    """The values that satisfy all constraints on a subject."""

    def __init__(self, asks: Iterable[tuple[str, Any]] = ()) -> None:
        self.listed: set[Any] | None = None
        """All possible values; None if not listed."""
        self.excluded: set[Any] = set()
        self.kind: str | None = None
        """The type of the values in the range."""
        self.limits: dict[str, tuple[Any, bool]] = {}
        """The ends of the range, `low` and `high`, and whether each is included."""
        self.is_never = False
        """Whether a constraint cannot be satisfied, such as an order of booleans."""
        for op, value in asks:
            self.narrow(op, value)

    def narrow(self, op: str, value: Any) -> None:
        """Add a constraint."""
        match op:
            case "eq" | "in":
                listed = typed_set(value)
                self.listed = listed if self.listed is None else self.listed & listed
            case "neq" | "nin":
                self.excluded |= typed_set(value)
            case "between":
                self._limit("low", value[0], is_inside=True)
                self._limit("high", value[1], is_inside=True)
            case _:
                end = "low" if op in {"gt", "gte"} else "high"
                self._limit(end, value, is_inside=op in {"gte", "lte"})

    def _limit(self, end: str, value: Any, *, is_inside: bool) -> None:
        kind = json_type(value)
        if kind not in _ORDERED or self.kind not in {None, kind}:
            self.is_never = True
            return
        self.kind = kind
        if end in self.limits:
            other, other_inside = self.limits[end]
            if value == other:
                is_inside = is_inside and other_inside
            elif (value < other) is (end == "low"):
                return
        self.limits[end] = value, is_inside

    def is_empty(self) -> bool:
        """Return whether no value is left."""
        if self.is_never:
            return True
        if self.listed is not None:
            return not any(map(self.admits, self.listed))
        if len(self.limits) < 2:  # noqa: PLR2004 -- a range has two ends
            return False
        (low, low_inside), (high, high_inside) = self.limits["low"], self.limits["high"]
        if low != high:
            return bool(low > high)
        return not (low_inside and high_inside) or (self.kind, low) in self.excluded

    def admits(self, typed: tuple[str, Any]) -> bool:
        """Return whether a value, with its type, satisfies the constraints other than `listed`."""
        return typed not in self.excluded and self._is_within(typed)

    def _is_within(self, typed: tuple[str, Any]) -> bool:
        kind, value = typed
        if self.kind is None:
            return True
        low, high = self.limits.get("low"), self.limits.get("high")
        return (
            kind == self.kind
            and (low is None or value > low[0] or (low[1] and value == low[0]))
            and (high is None or value < high[0] or (high[1] and value == high[0]))
        )

    def are_among(self, other: "Values") -> bool:
        """Return whether `other` certainly admits each of these values. False may be wrong."""
        if self.listed is not None and not other.is_never:
            left = filter(self.admits, self.listed)
            return all((other.listed is None or one in other.listed) and other.admits(one) for one in left)
        if (
            other.is_never
            or other.listed is not None
            or any(one not in self.excluded and self._is_within(one) for one in other.excluded)
        ):
            return False
        if other.kind is None:
            return True
        return self.kind == other.kind and all(
            self._reaches_no_further(end, limit) for end, limit in other.limits.items()
        )

    def _reaches_no_further(self, end: str, limit: tuple[Any, bool]) -> bool:
        if end not in self.limits:
            return False
        (value, is_inside), (most, most_inside) = self.limits[end], limit
        if value == most:
            return most_inside or not is_inside
        return bool(value > most if end == "low" else value < most)


def typed_set(value: Any) -> set[tuple[str, Any]]:
    """Return the scalars of a constant with their types, so that values of different types differ."""
    return {(json_type(each), each) for each in (value if isinstance(value, tuple) else (value,))}
