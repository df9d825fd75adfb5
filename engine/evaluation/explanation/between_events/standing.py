"""A rule between two events: what its histories say at the detector's clock.

Predicates have no event to look at. So each verdict is the one that an event now would have if the operands
kept their truth, and it is unknown where it depends on a predicate.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.between_events.document import milliseconds
from engine.evaluation.explanation.past.decisive_events import Settled, Temporal, settle
from engine.evaluation.explanation.past.futures import Future, every, negated
from engine.evaluation.explanation.past.remembered import Remembered
from engine.evaluation.explanation.past.tallies import found_at, future_of, since_of, tally_of
from engine.evaluation.facts.shown import shown
from engine.evaluation.facts.values import key_of, split_name, value_of
from engine.evaluation.paths import Path, fact_of, step_of
from engine.evaluation.plan.triggers import Comparison
from engine.evaluation.state.node_names import NodeName
from engine.language import condition as language
from engine.language.condition import Condition, ScaledFact
from engine.language.diagnostics import quoted
from engine.language.text.printer import format as format_condition


class _Standing(NamedTuple):
    document: dict[str, Any]
    future: Future | None
    """None if it depends on a predicate."""


def standing(detector: Detector, rule_id: str, key: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree of a rule for the slices of some keys, by name. Raises Refusal 1201 for the rule."""
    rule = detector.rule(rule_id)
    about = {"ruleId": rule.id, "name": rule.name, "enabled": rule.enabled}
    if rule.shadow:
        about["shadow"] = True
    if not rule.enabled:
        return {**about, "node": {"text": format_condition(rule.condition)}}
    root = _Tree(detector, rule_id, key).node(rule.condition, ())
    return {**about, "node": root.document}


class _Tree:
    def __init__(self, detector: Detector, rule_id: str, key: Mapping[str, Any]) -> None:
        self._fields = {name: value for name, value in key.items() if not name.startswith("$")}
        self._sent = {name[1:]: value for name, value in key.items() if name.startswith("$")}
        self._remembered = Remembered(detector.state, detector.events_seen, self._fields, self._sent)
        self._birth = detector.live[rule_id].birth
        self._now_us = detector.clock_us or 0

    def node(self, condition: Condition, path: Path) -> _Standing:
        """Return a condition under a path of keys whose values are given."""
        match condition:
            case language.Leaf() | language.Ref() | language.InRelation():
                return _standing(condition, None)
            case language.All(members):
                nodes = [self.node(member, path) for member in members]
                return _standing(condition, _every([node.future for node in nodes]), nodes)
            case language.Any(members):
                nodes = [self.node(member, path) for member in members]
                return _standing(condition, _not(_every([_not(node.future) for node in nodes])), nodes)
            case language.Not(inner):
                node = self.node(inner, path)
                return _standing(condition, _not(node.future), [node])
            case language.Keyed():
                return self._keyed(condition, path)
            case language.Count() | language.Distinct() | language.Sum() | language.Avg():
                return self._comparison(condition, path)
            case _:
                return self._temporal(condition, path)

    def _keyed(self, keyed: language.Keyed, path: Path) -> _Standing:
        if key_of(value_of(split_name(keyed.key), self._fields, self._sent)) is None:
            return _standing(keyed, None, note=f"name a slice by a value of {quoted(keyed.key)}")
        longer = (*path, step_of(keyed, self._birth))
        inner = self.node(keyed.inner, longer)
        key = {
            name: shown(value_of(split_name(name), self._fields, self._sent)).value
            for name in map(fact_of, longer)
        }
        if keyed.where is None:
            return _standing(keyed, inner.future, [inner], key=key)
        where = self.node(keyed.where, path)
        return _standing(keyed, _every([inner.future, where.future]), [inner, where], key=key)

    def _temporal(self, node: Temporal, path: Path) -> _Standing:
        past_us = self._remembered.past_us(NodeName(node, path, self._birth))
        settled = _unchanged(node, past_us, self._now_us)
        nodes = [self.node(operand, path) for operand in language.children(node)]
        return _standing(node, settled.future, nodes, witness_ms=milliseconds(settled.witness_us))

    def _comparison(self, node: Comparison, path: Path) -> _Standing:
        past = self._remembered.past(NodeName(node, path, self._birth))
        counted = tally_of(node, past, self._now_us, None, adds=False)
        # What is compared with a fact needs an event.
        knows = not isinstance(node.value, ScaledFact)
        future = future_of(node, counted, self._now_us, lambda _: None) if knows else None
        since_us = since_of(node, counted, self._now_us) if knows else None
        nodes = [self.node(child, path) for child in language.children(node)]
        found = found_at(node, counted, self._now_us)
        return _standing(node, future, nodes, found=found, since_ms=milliseconds(since_us))


def _unchanged(node: Temporal, past_us: int | None, now_us: int) -> Settled:
    """Return the verdict at an event now that changes nothing."""
    match node:
        case language.HistoricallyFor(_, _, "strong") if past_us is None:
            return Settled(Future(verdict=False))
        case language.Historically() | language.HistoricallyFor():
            return settle(node, past_us, now_us, (True,))
        case language.Since() | language.SinceWithin():
            return settle(node, past_us, now_us, (True, False))
        case _:
            return settle(node, past_us, now_us, (False,))


def _standing(
    condition: Condition, future: Future | None, nodes: Sequence[_Standing] = (), **more: Any
) -> _Standing:
    document = {
        "text": format_condition(condition),
        "verdict": None if future is None else future.verdict,
        "nodes": [node.document for node in nodes] or None,
        **more,
        "until_ms": None if future is None else milliseconds(future.until_us),
    }
    return _Standing({name: value for name, value in document.items() if value is not None}, future)


def _not(future: Future | None) -> Future | None:
    return None if future is None else negated(future)


def _every(futures: Sequence[Future | None]) -> Future | None:
    known = [future for future in futures if future is not None]
    if len(known) == len(futures):
        return every(known)
    decisive = [future for future in known if not future.verdict]
    if not decisive:
        return None
    # One that stays false for ever is enough; afterwards, nothing is known.
    if any(not future.flips for future in decisive):
        return Future(verdict=False)
    return Future(verdict=False, flips=(max(future.flips[0] for future in decisive),))
