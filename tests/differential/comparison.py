"""Plays a script on the engine and on the reference, step by step, and compares the answers."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, assert_never

from engine import Detector
from engine.language.diagnostics import Refusal
from tests.reference import ReferenceDetector, as_json
from tests.reference_values import equal
from tests.worlds.relations import Amend, Delete, Put, RelationStep, Reload
from tests.worlds.scripts import Add, Change, Remove, Step, Submit

Action = tuple[Any, ...]
S = TypeVar("S")


class Pair:
    """A detector of the engine and one of the reference, which execute the same steps."""

    def __init__(self) -> None:
        self.engine = Detector()
        self.reference = ReferenceDetector()

    def apply(self, step: Step | RelationStep) -> None:
        """Execute a step on both. Their answers must be equal."""
        ids = list(self.reference.rules)
        match step:
            case Add(name, condition, notify):
                rule_id = self.engine.add_rule(name=name, condition=condition, notify=notify)
                self.reference.add_rule(rule_id, name, condition, notify=notify)
            case Change(place, changes):
                self.engine.change_rule(ids[place], **changes)
                self.reference.change_rule(ids[place], **changes)
            case Remove(place):
                self.engine.remove_rule(ids[place])
                del self.reference.rules[ids[place]]
            case Put(name, tuples):
                self.engine.put_relation(name, tuples, 0)
                self.reference.put_relation(name, tuples)
            case Amend(name, add, remove):
                self.engine.change_relation(name, add, remove, time_ms=0)
                self.reference.change_relation(name, add, remove)
            case Delete(name):
                self.engine.delete_relation(name)
                del self.reference.relations[name]
            case Reload():
                self.reload()
            case Submit(fields, timestamp_ms, sent):
                expected = self.reference.evaluate(fields, timestamp_ms, sent)
                given = evaluated(self.engine, step)
                assert given == expected, f"{step}: the engine gives {given}, the reference {expected}"
            case _:
                assert_never(step)

    def reload(self) -> None:
        """Replace the engine's detector by one restored from its saved state."""
        self.engine = Detector.load(self.engine.dump(), Detector.STATE_VERSION)

    def compare_rules(self) -> None:
        """Check that the rules are listed alike, with conditions as they were given."""
        listed = [
            (rule.id, rule.name, rule.notify, rule.priority, rule.enabled) for rule in self.engine.rules()
        ]
        rules = self.reference.rules.items()
        assert listed == [(i, rule.name, rule.notify, rule.priority, rule.enabled) for i, rule in rules]
        for listed_rule, (_, rule) in zip(self.engine.rules(), rules, strict=True):
            assert repr(listed_rule.condition) == repr(rule.condition)
            assert equal(as_json(listed_rule.condition), as_json(rule.condition))


def evaluated(detector: Detector, step: Submit) -> list[Action] | None:
    """Return the engine's answer in the form of the reference."""
    try:
        actions = detector.evaluate(step.fields, step.timestamp_ms, step.vars)
    except Refusal as refusal:
        if refusal.code != 1402:
            raise
        return None
    return [in_order(action) for action in actions]


def in_order(action: dict[str, Any]) -> Action:
    """Return the members of an action, and check that there are no others."""
    members = ("type", "ruleId", "name", "priority", "notify")
    held_back = ("suppressed",) if "suppressed" in action else ()
    assert set(action) == {*members, *held_back}
    return tuple(action[name] for name in (*members, *held_back))


def run(script: Iterable[Step | RelationStep]) -> Pair:
    """Execute a whole script."""
    pair = Pair()
    for step in script:
        pair.apply(step)
    pair.compare_rules()
    return pair


def disagreement(script: Sequence[Step | RelationStep]) -> str | None:
    """Describe where engine and reference differ; None if they agree."""
    try:
        run(script)
    except AssertionError as error:
        return str(error)
    return None


def shortened(script: Sequence[S], differs: Callable[[Sequence[S]], object]) -> list[S]:
    """Return a minimal script on which the two still differ."""
    for number in range(len(script)):
        shorter = [*script[:number], *script[number + 1 :]]
        with contextlib.suppress(LookupError, Refusal):  # a step of what is no longer there
            if differs(shorter):
                return shortened(shorter, differs)
    return list(script)


def explained(script: Sequence[Step | RelationStep]) -> str:
    """Return the shortened script and its disagreement, for people."""
    shorter = shortened(script, disagreement)
    return "\n".join([str(disagreement(shorter)), *map(repr, shorter)])
