"""Finds members of an `and` or `or` that make it never or always true, and members that add nothing."""

from collections.abc import Hashable, Iterator
from typing import Any, Final

from engine.language import condition as language
from engine.language.condition import All, Condition, FactArg, Leaf, NetworksOf, Ref
from engine.language.condition import Any as AnyOf
from engine.language.diagnostics import quoted
from engine.language.hints.asked import ELEMENTS_MAX, Asked, Values, asked_by, typed_set
from engine.language.terms import Fact, Length, Time, terms_in
from engine.language.text.printer import comparison_text
from engine.language.text.printer import format as text_of
from engine.language.validation.networks import network_of

_ASKED_MAX: Final = 32
"""The maximum number of predicates on one fact that are compared with each other."""
_RANGES_MAX: Final = 4
"""The maximum number of alternatives on one fact, besides lists, that others are compared with."""

Ranges = list[tuple[int, int]]


def why_never(node: All) -> str | None:
    """Return why the members of an `and` are never true together, if each of them can be true."""
    known: dict[Hashable, tuple[Values, list[Condition]]] = {}
    networks: dict[str, tuple[Ranges, Condition]] = {}
    found: set[Condition] = set()
    present: dict[str, Condition] = {}
    """The facts that must exist if all members are true, each with a member that needs it."""
    absent: dict[str, Condition] = {}
    for member in flattened(node):
        if (opposite := _opposite(member)) in found:
            return _never(member, opposite, "one is the negation of the other")
        found.add(member)
        for fact in _needed(member):
            present.setdefault(fact, member)
        if isinstance(member, language.Not) and (gone := _fact_present(member.inner)) is not None:
            absent[gone] = member
        if isinstance(member, language.InNetwork) and not isinstance(member.networks, NetworksOf):
            other = _disjoint_network(member, member.networks, networks)
            if other is not None:
                why = "no address lies in networks of both; alternatives are joined by `or`"
                return _never(member, other, why)
        asked = asked_by(member)
        if asked is not None:
            values, askers = known.setdefault(asked.subject, (Values(), []))
            if len(askers) < _ASKED_MAX:
                for ask in asked.asks:
                    values.narrow(*ask)
                askers.append(member)
                if values.is_empty() and len(askers) > 1:
                    return _no_value(asked, askers)
    for fact in present.keys() & absent.keys():
        return _never(present[fact], absent[fact], "it is true only at events that have the fact")
    return None


def _no_value(asked: Asked, askers: list[Condition]) -> str:
    rest = "" if len(askers) == 2 else " and the other conditions on it"  # noqa: PLR2004
    return (
        f"{quoted(text_of(asked.node))} is never true together with {quoted(text_of(askers[-2]))}{rest}: "
        f"{asked.oneness}; alternatives are joined by `or`"
    )


def _never(member: Condition, other: Condition, why: str) -> str:
    return f"{quoted(text_of(member))} is never true together with {quoted(text_of(other))}: {why}"


def _fact_present(node: Condition) -> str | None:
    """Return the fact of `exists x`; None for another condition."""
    return node.fact if isinstance(node, Ref) and node.op == "eq" and node.fact == node.reference else None


def _needed(node: Condition) -> Iterator[str]:
    """Yield the facts without which a condition is false at an event."""
    match node:
        case Leaf(fact) | language.InNetwork(fact) | language.Some(fact):
            yield fact
        case Ref(fact, _, reference):
            yield from (fact, reference)
        case language.InRelation(_, args):
            yield from (arg.fact for arg in args if isinstance(arg, FactArg))
        case language.Compare(left, _, right):
            for side in (left, right):
                yield from (term.fact for term in terms_in(side) if isinstance(term, Fact | Length | Time))
        case language.Keyed(_, key):
            yield key
        case All() if comparison_text(node.members):
            yield from _needed(node.members[0])
        case _:
            pass


def _disjoint_network(
    node: language.InNetwork, texts: tuple[str, ...], before: dict[str, tuple[Ranges, Condition]]
) -> Condition | None:
    """Return the earlier member with which these networks have no address in common.

    If there is none, store what they have in common in `before`.
    """
    if len(texts) > ELEMENTS_MAX:
        return None
    here = _ranges(texts)
    if node.fact in before:
        others, other = before[node.fact]
        here = _shared(here, others)
        if not here:
            return other
    before[node.fact] = here, node
    return None


def _ranges(texts: tuple[str, ...]) -> Ranges:
    """Return the numbers of all addresses in networks, as sorted ranges without overlaps."""
    networks = [network for text in texts if (network := network_of(text)) is not None]
    merged: Ranges = []
    for low, high in sorted((key << shift, (key + 1 << shift) - 1) for shift, key in networks):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return merged


def _shared(some: Ranges, others: Ranges) -> Ranges:
    """Return the intersection of two lists of ranges."""
    shared: Ranges = []
    at = place = 0
    while at < len(some) and place < len(others):
        low, high = max(some[at][0], others[place][0]), min(some[at][1], others[place][1])
        if low <= high:
            shared.append((low, high))
        if some[at][1] < others[place][1]:
            at += 1
        else:
            place += 1
    return shared


def why_always(node: AnyOf) -> str | None:
    """Return why an `or` is true at every event, if none of its members is always true."""
    found: set[Condition] = set()
    for member in flattened(node):
        opposite = _opposite(member)
        if opposite in found:
            both = f"{quoted(text_of(opposite))} or {quoted(text_of(member))}"
            return f"{both} is always true: one is the negation of the other"
        found.add(member)
    return None


def idle_alternative(node: AnyOf) -> tuple[Condition, Condition] | None:
    """Return a member of an `or` that adds nothing, and another member that is true whenever it is."""
    members = [(member, asked_by(member)) for member in flattened(node)]
    for order in (members, members[::-1]):
        seen = _Alternatives()
        for member, asked in order:
            wider = seen.wider_than(member, asked)
            if wider is not None:
                return member, wider
            seen.add(member, asked)
    return None


class _Alternatives:
    """Members of an `or`, to find those that are true whenever another one is."""

    def __init__(self) -> None:
        self._members: set[Condition] = set()
        self._listed: dict[tuple[Hashable, Any], Condition] = {}
        """The values that a subject may have, each with the member that allows it."""
        self._ranges: dict[Hashable, list[tuple[Values, Condition]]] = {}
        self._facts: dict[str, Condition] = {}
        """The facts whose presence is sufficient."""

    def add(self, member: Condition, asked: Asked | None) -> None:
        """Add a member."""
        self._members.add(member)
        if (fact := _fact_present(member)) is not None:
            self._facts[fact] = member
        if asked is None:
            return
        op, value = asked.asks[0]
        if op in {"eq", "in"}:
            for one in typed_set(value):
                self._listed.setdefault((asked.subject, one), member)
        elif len(kept := self._ranges.setdefault(asked.subject, [])) < _RANGES_MAX:
            kept.append((Values(asked.asks), member))

    def wider_than(self, member: Condition, asked: Asked | None) -> Condition | None:
        """Return a member that is true whenever this one is; None if there is none."""
        if member in self._members:
            return member
        if isinstance(member, All) and comparison_text(member.members) is None:
            return next((each for each in flattened(member) if each in self._members), None)
        if self._facts:
            found = next((self._facts[fact] for fact in _needed(member) if fact in self._facts), None)
            if found is not None:
                return found
        if asked is None:
            return None
        op, value = asked.asks[0]
        if op in {"eq", "in"}:
            wider = {self._listed.get((asked.subject, one)) for one in typed_set(value)}
            if len(wider) == 1 and None not in wider:
                return wider.pop()
        values = Values(asked.asks)
        kept = self._ranges.get(asked.subject, ())
        return next((wide for limits, wide in kept if values.are_among(limits)), None)


def excluded_alternatives(node: AnyOf) -> str | None:
    """Return a hint about `x != 1 or x != 2`: it is true at every event with x, which is hardly meant."""
    before: dict[str, Leaf] = {}
    for member in flattened(node):
        match member:
            case Leaf(fact, "neq", value) if not isinstance(value, tuple):
                first = before.setdefault(fact, member)
                if typed_set(first.value) != typed_set(value):
                    both = f"{quoted(text_of(first))} or {quoted(text_of(member))}"
                    return (
                        f"{both} is true at every event that has {quoted(fact)}, since no value equals both; "
                        "to exclude both, join them by `and`, or use `not in`"
                    )
            case _:
                pass
    return None


def flattened(node: All | AnyOf) -> Iterator[Condition]:
    """Yield the members of an `and` or `or`, including those of nested ones, in document order.

    A comparison such as `x > 5`, which is an `and` of two leaves, is one member.
    """
    pending = [*reversed(node.members)]
    while pending:
        member = pending.pop()
        if isinstance(member, type(node)) and comparison_text(member.members) is None:
            pending += reversed(member.members)
        else:
            yield member


def _opposite(node: Condition) -> Condition:
    return node.inner if isinstance(node, language.Not) else language.Not(node)
