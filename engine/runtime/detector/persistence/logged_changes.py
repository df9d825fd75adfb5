"""Describes changes of a detector's rules and relations for the changes log of the service."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.relations.stored import StoredRelation
from engine.evaluation.rules import Rule, rule_as_sent
from engine.language.diagnostics import Refusal
from engine.language.json.writer import json_bytes
from engine.language.text.printer import format as canonical
from engine.runtime.contract.catalogue_changes import LoggedChange, encode_changes
from engine.runtime.contract.requests import operations
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.requests.tuples import ChangeRelation

_OF_ONE_RULE: Final = frozenset({operations.CHANGE_RULE, operations.REMOVE_RULE, operations.PROMOTE})
_OF_RELATIONS: Final = frozenset(
    {operations.PUT_RELATION, operations.CHANGE_RELATION, operations.DELETE_RELATION}
)
_TUPLES_BYTES_MAX: Final = 4_096
"""How many bytes of the tuples that a PATCH adds and removes are logged."""


class _Named(msgspec.Struct):
    name: str


class _OfRule(msgspec.Struct):
    rule_id: str


class Before:
    """The rules or the relation that an operation may change, before it is executed."""

    def __init__(self, detector: Detector, operation: Operation) -> None:
        self._operation = operation
        self._rules: dict[str, Rule] = {}
        self._relation: StoredRelation | None = None
        if operation.kind in _OF_ONE_RULE:
            named = msgspec.json.decode(operation.payload, type=_OfRule).rule_id
            self._rules = _named(detector, named, with_draft=operation.kind == operations.PROMOTE)
        elif operation.kind == operations.PUT_RULES:
            self._rules = {rule.id: rule for rule in detector.rules()}
        elif operation.kind in _OF_RELATIONS:
            self._relation = detector.stored.get(self._name)

    @property
    def _name(self) -> str:
        return msgspec.json.decode(self._operation.payload, type=_Named).name

    def changes(self, detector: Detector, result: Mapping[str, Any] | None = None) -> bytes:
        """Return the changes that the operation has made, encoded for the answer."""
        of_relation = self._operation.kind in _OF_RELATIONS
        found = [*(self._of_relation(detector) if of_relation else self._of_rules(detector, result or {}))]
        return encode_changes(found) if found else b""

    def _of_rules(self, detector: Detector, result: Mapping[str, Any]) -> Iterator[LoggedChange]:
        kind, before = self._operation.kind, self._rules
        if kind == operations.PUT_RULES:
            after = {rule.id: rule for rule in detector.rules()}
        else:
            names = [result["id"]] if kind == operations.ADD_RULE else before
            after = {rule_id: rule for rule_id in names if (rule := _rule(detector, rule_id)) is not None}
        for rule_id, was in before.items():
            now = after.get(rule_id)
            if now is None:
                old = json_bytes(_members(was))
                yield LoggedChange("rule", "delete", rule_id, was.name, old=old)
            elif now is not was and not now.is_same(was):
                action = "promote" if kind == operations.PROMOTE else "change"
                old, new = _differing(was, now)
                yield LoggedChange("rule", action, rule_id, now.name, old=old, new=new)
        for rule_id, rule in after.items():
            if rule_id not in before:
                new = json_bytes(_members(rule))
                yield LoggedChange("rule", "create", rule_id, rule.name, new=new)

    def _of_relation(self, detector: Detector) -> Iterator[LoggedChange]:
        name = self._name
        after = detector.stored.get(name)
        if after is self._relation:
            return
        old, new = _shown(self._relation), _shown(after)
        if new is not None and self._operation.kind == operations.CHANGE_RELATION:
            given = msgspec.json.decode(self._operation.payload, type=ChangeRelation)
            if len(given.add) + len(given.remove) <= _TUPLES_BYTES_MAX:
                new |= {"added": given.add, "removed": given.remove}
        action = "create" if old is None else "delete" if new is None else "change"
        was, now = (b"" if one is None else msgspec.json.encode(one) for one in (old, new))
        yield LoggedChange("relation", action, name, name, old=was, new=now)


def _named(detector: Detector, rule_id: str, *, with_draft: bool) -> dict[str, Rule]:
    """Return a rule, and its draft if wanted, by their ids; empty if the rule does not exist."""
    rule = _rule(detector, rule_id)
    drafts = [one for one in detector.rules() if one.draft_of == rule_id] if with_draft else []
    return {one.id: one for one in (rule, *drafts) if one is not None}


def _rule(detector: Detector, rule_id: str) -> Rule | None:
    try:
        return detector.rule(rule_id)
    except Refusal:
        return None


def _members(rule: Rule) -> dict[str, Any]:
    document = rule_as_sent(rule, "") | {"condition": rule.source or canonical(rule.condition)}
    return {name: value for name, value in document.items() if name not in ("id", "detectorId")}


def _differing(was: Rule, now: Rule) -> tuple[bytes, bytes]:
    """Return the old and the new values of the members of a rule that have changed."""
    old, new = _members(was), _members(now)
    names = [name for name in (old | new) if not _equal(old, new, name)]

    def of(members: Mapping[str, Any]) -> bytes:
        return json_bytes({name: members[name] for name in names if name in members})

    return of(old), of(new)


def _equal(old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> bool:
    # Compare as JSON, in which 1 is not true.
    return name in old and name in new and json_bytes(old[name]) == json_bytes(new[name])


def _shown(relation: StoredRelation | None) -> dict[str, Any] | None:
    return None if relation is None else {"tuples": len(relation), "arity": relation.arity}
