"""Finds rules whose conditions mean the same, regardless of the order and repetition of their members."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, Final

from engine.evaluation.rules import LiveRule, Rule
from engine.language.condition import (
    All,
    Compare,
    Condition,
    InNetwork,
    InRelation,
    Leaf,
    Not,
    Ref,
    ScaledFact,
)
from engine.language.condition import Any as AnyOf
from engine.language.nodes import Node, typed
from engine.language.terms import conditions_in

_DEFAULTS: Final = {"boundary": "weak", "min_secs": 0, "earlier": False}
"""The meaning of absent members in the JSON."""


def meaning_of(value: Any) -> Hashable:
    """Return a value that is equal for equivalent conditions, which differ in order and repetition at most.

    It also accepts the members of a condition.
    """
    match value:
        case All() | AnyOf():
            members = frozenset(map(meaning_of, _flattened(value)))
            return next(iter(members)) if len(members) == 1 else (type(value).__name__, members)
        case Not(Not(inner)):
            return meaning_of(inner)
        case Leaf(fact, "in" | "nin" as op, tuple() as listed):
            return "Leaf", fact, op, frozenset(map(typed, listed))
        case InNetwork(fact, tuple() as networks):
            return "InNetwork", fact, frozenset(networks)
        case Leaf() | Ref() | InRelation() | InNetwork():
            return value
        case Compare(left, _, right) if not any(True for side in (left, right) for _ in conditions_in(side)):
            return value
        case Node():
            return type(value).__name__, *[_member(value, name) for name in value.__match_args__]
        case tuple():
            return tuple(map(meaning_of, value))
        case ScaledFact(fact):
            return fact, value.factor
        case _:
            return typed(value)


def _member(node: Node, name: str) -> Hashable:
    value = getattr(node, name)
    return _DEFAULTS.get(name) if value is None else meaning_of(value)


def _flattened(node: All | AnyOf) -> Iterable[Condition]:
    pending = [*node.members]
    while pending:
        member = pending.pop()
        if isinstance(member, type(node)):
            pending += member.members
        else:
            yield member


class Meanings:
    """The rules by the meaning of their conditions, without shadow rules, which are trials of others.

    It stores a hash for each rule, and compares the conditions of rules with equal hashes.
    """

    def __init__(self, live: Mapping[str, LiveRule]) -> None:
        """`live` has the rules by id; others change it."""
        self._live = live
        self._ids: dict[int, str | dict[str, None]] = {}
        """By hash, the id of a rule, or those of several."""
        for each in live.values():
            self.add(each.rule)

    def add(self, rule: Rule) -> None:
        """Add a rule."""
        if rule.shadow:
            return
        number = hash(meaning_of(rule.condition))
        known = self._ids.setdefault(number, rule.id)
        if isinstance(known, dict):
            known[rule.id] = None
        elif known != rule.id:
            self._ids[number] = {known: None, rule.id: None}

    def remove(self, rule: Rule) -> None:
        """Undo `add`."""
        if rule.shadow:
            return
        number = hash(meaning_of(rule.condition))
        known = self._ids[number]
        if isinstance(known, dict):
            del known[rule.id]
        if not known or known == rule.id:
            del self._ids[number]

    def equal_to(self, rule: Rule, besides: Collection[str] = ()) -> Rule | None:
        """Return another rule with the same meaning; None for a shadow rule, or if there is none.

        Rules with the ids `besides` are ignored.
        """
        if rule.shadow:
            return None
        meaning = meaning_of(rule.condition)
        known = self._ids.get(hash(meaning), ())
        for rule_id in (known,) if isinstance(known, str) else known:
            if rule_id != rule.id and rule_id not in besides:
                other = self._live[rule_id].rule
                if meaning_of(other.condition) == meaning:
                    return other
        return None
