"""What is valid in a condition, but hardly meant: unknown relations and facts, types that never meet."""

from collections.abc import Collection, Iterator
from typing import NamedTuple, assert_never

from engine.language.condition import (
    All,
    Any,
    Condition,
    FactArg,
    Historically,
    HistoricallyFor,
    InRelation,
    Keyed,
    Leaf,
    Not,
    Once,
    OnceWithin,
    Ref,
    Since,
    SinceWithin,
)
from engine.language.diagnostics import listed, quoted
from engine.language.samples import Sample
from engine.language.text.printer import comparison_text
from engine.language.text.printer import format as text_of
from engine.language.validation.violations import kind, meant

_SCALARS = frozenset({"a string", "a number", "a boolean"})
_OPS_OF_INEQUALITY = {"neq", "nin"}


class ConditionWarning(NamedTuple):
    """One thing in a valid condition that its author should look at."""

    place: str
    """As in errors: `all[1].leaf.fact`."""
    text: str


def condition_warnings(
    condition: Condition, sample: Sample | None = None, relations: Collection[str] | None = None
) -> list[ConditionWarning]:
    """Give what in a condition was hardly meant, in its order, each name once.

    `sample`: events that the condition is meant for; without it nothing is said about facts. `relations`: the
    names of all relations that are stored; None where that is not known, and then nothing is said about
    relations. The vars of the sample count as relations that are sent.
    """
    return list(_Reader(sample, relations).warnings(condition, ""))


class _Reader:
    """Reads one condition; remembers which names it has warned about."""

    def __init__(self, sample: Sample | None, relations: Collection[str] | None) -> None:
        self._sample = sample
        self._names = sample.names() if sample else frozenset()
        sent = sample.relations() if sample else frozenset()
        self._relations = None if relations is None else frozenset(relations) | sent
        self._told: set[tuple[str, str]] = set()

    def warnings(self, node: Condition, place: str) -> Iterator[ConditionWarning]:
        """Give the warnings about a node, which stands at `place`, and about all nodes within it."""
        prefix = f"{place}." if place else ""
        match node:
            case Leaf():
                yield from self._leaf(node, f"{prefix}leaf", text_of(node))
            case Ref():
                yield from self._ref(node, f"{prefix}ref")
            case InRelation():
                yield from self._in_relation(node, f"{prefix}in_relation")
            case All(members):
                comparison = comparison_text(members)
                if comparison and isinstance(members[0], Leaf):
                    # `x > 5` is two leaves, and is read as one.
                    yield from self._leaf(members[0], f"{prefix}all[0].leaf", comparison)
                else:
                    for index, member in enumerate(members):
                        yield from self.warnings(member, f"{prefix}all[{index}]")
            case Any(members):
                for index, member in enumerate(members):
                    yield from self.warnings(member, f"{prefix}any[{index}]")
            case Not(inner):
                yield from self.warnings(inner, f"{prefix}not")
            case Once(inner):
                yield from self.warnings(inner, f"{prefix}once")
            case Historically(inner):
                yield from self.warnings(inner, f"{prefix}historically")
            case Since(left, right):
                yield from self.warnings(left, f"{prefix}since.left")
                yield from self.warnings(right, f"{prefix}since.right")
            case SinceWithin(left, right):
                yield from self.warnings(left, f"{prefix}since_within.left")
                yield from self.warnings(right, f"{prefix}since_within.right")
            case OnceWithin(inner):
                yield from self.warnings(inner, f"{prefix}once_within.inner")
            case HistoricallyFor(inner):
                yield from self.warnings(inner, f"{prefix}historically_for.inner")
            case Keyed(inner, key):
                keys = "only strings, numbers and booleans are keys, so that this `per` is always false"
                yield from self._scalar(key, f"{prefix}keyed.key", keys)
                yield from self.warnings(inner, f"{prefix}keyed.inner")
            case _:
                assert_never(node)

    def _leaf(self, leaf: Leaf, place: str, text: str) -> Iterator[ConditionWarning]:
        yield from self._fact(leaf.fact, f"{place}.fact")
        kinds = self._kinds(leaf.fact)
        if not kinds:
            return
        wanted = _kinds_wanted(leaf)
        if kinds.isdisjoint(wanted):
            yield _never_met(f"{place}.value", leaf, text, kinds, wanted)
        elif leaf.op == "contains" and kinds == {"an array"}:
            elements = self._element_kinds(leaf.fact)
            if elements and kind(leaf.value) not in elements:
                what = f"the arrays in `{leaf.fact}` hold {_only(elements)}"
                yield ConditionWarning(f"{place}.value", f"{quoted(text)} is always false: {what}")

    def _ref(self, ref: Ref, place: str) -> Iterator[ConditionWarning]:
        yield from self._fact(ref.fact, f"{place}.fact")
        yield from self._fact(ref.reference, f"{place}.reference")
        kinds, others = self._kinds(ref.fact), self._kinds(ref.reference)
        if not kinds or not others:
            return
        if ref.op in {"eq", "neq"}:
            if kinds.isdisjoint(others):
                yield _never_met(f"{place}.reference", ref, text_of(ref), kinds, others)
            return
        if "an array" not in others:
            # Both `in` and `not in` are false there.
            what = f"`{ref.reference}` is {_only(others)} in every event that has it, never an array"
            yield ConditionWarning(f"{place}.reference", f"{quoted(text_of(ref))} is always false: {what}")
            return
        elements = self._element_kinds(ref.reference)
        if elements and kinds.isdisjoint(elements):
            yield _never_met(f"{place}.reference", ref, text_of(ref), kinds, elements)

    def _in_relation(self, node: InRelation, place: str) -> Iterator[ConditionWarning]:
        name, text = node.relation, text_of(node)
        if self._relations is not None and name not in self._relations and self._first("relation", name):
            asks = f"{quoted(text)} looks in the relation {quoted(name)}, which is not known"
            unless = "unless it is stored with the detector or sent in `context.vars`, that is always false"
            near = meant(name, sorted(self._relations))
            yield ConditionWarning(f"{place}.relation", f"{asks}: {unless}{near}")
        for index, argument in enumerate(node.args):
            if isinstance(argument, FactArg):
                at = f"{place}.args[{index}].fact"
                holds = f"relations hold strings, numbers and booleans; {quoted(text)} is always false"
                yield from self._scalar(argument.fact, at, holds)

    def _scalar(self, name: str, place: str, otherwise: str) -> Iterator[ConditionWarning]:
        """Warn about a fact that must be a scalar."""
        yield from self._fact(name, place)
        kinds = self._kinds(name)
        if kinds and kinds.isdisjoint(_SCALARS):
            yield ConditionWarning(
                place, f"{quoted(name)} is {_only(kinds)} in every event that has it: {otherwise}"
            )

    def _fact(self, name: str, place: str) -> Iterator[ConditionWarning]:
        """Warn about a fact that no event has."""
        if self._sample is None or (name.startswith("$") and not self._sample.has_vars):
            return
        kinds = self._sample.kinds(name)
        if kinds or not self._first("fact", name):
            return
        if kinds is not None:
            yield ConditionWarning(
                place, f"{quoted(name)} is null in every event that has it, as if it were missing"
            )
        else:
            yield ConditionWarning(place, f"no event has {quoted(name)}{self._near(name)}")

    def _near(self, name: str) -> str:
        """Give the end of a sentence that suggests a name that is spelt alike, or that ends like this one."""
        known = sorted(other for other in self._names if other.startswith("$") == name.startswith("$"))
        by_spelling = meant(name, known)
        if by_spelling:
            return by_spelling
        ends = [other for other in known if other.lower().endswith(f".{name.lower()}")]
        return f"; did you mean {quoted(ends[0])}?" if len(ends) == 1 else ""

    def _first(self, what: str, name: str) -> bool:
        """Tell whether this name comes up for the first time."""
        if (what, name) in self._told:
            return False
        self._told.add((what, name))
        return True

    def _kinds(self, name: str) -> frozenset[str]:
        return (self._sample.kinds(name) if self._sample else None) or frozenset()

    def _element_kinds(self, name: str) -> frozenset[str]:
        return self._sample.element_kinds(name) if self._sample else frozenset()


def _kinds_wanted(leaf: Leaf) -> frozenset[str]:
    """Give the types of facts with which the leaf compares its value."""
    match leaf.op, leaf.value:
        case (("in" | "nin" | "between"), tuple() as elements):
            # Of `[]` nothing is said: no type would do.
            return frozenset(map(kind, elements)) or _SCALARS | {"an array", "an object"}
        case "contains", str():
            return frozenset({"a string", "an array"})
        case "contains", _:
            return frozenset({"an array"})
        case _, value:
            return frozenset({kind(value)})


def _never_met(
    place: str, node: Leaf | Ref, text: str, kinds: frozenset[str], wanted: frozenset[str]
) -> ConditionWarning:
    """Give the warning about a comparison of types that never meet."""
    name = quoted(node.fact)
    verdict = f"true wherever {name} is there" if node.op in _OPS_OF_INEQUALITY else "always false"
    is_what = f"{name} is {_only(kinds)} in every event that has it, never {_only(wanted)}"
    return ConditionWarning(place, f"{quoted(text)} is {verdict}: {is_what}")


def _only(kinds: frozenset[str]) -> str:
    return listed(sorted(kinds))
