"""Estimates which costs less at an event: to evaluate all rules by one function, or to look up candidates.

The estimate depends only on the rules, so that a replay makes the same choice. Weights are nanoseconds, as
measured with `python -m tests.bench curve`; only their ratios matter.
"""

from collections import Counter
from collections.abc import Collection
from typing import Final, NamedTuple

from engine.evaluation.memory import PANES
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.plan.requirements import recorded_of, requirements_of
from engine.evaluation.plan.triggers import (
    PRESENT,
    Analysis,
    Element,
    Found,
    Hit,
    Trigger,
    Triggers,
)
from engine.language import condition as language
from engine.language.condition import Aggregate, Condition, children

FUSED_NODES_MAX: Final = 400
"""With more nodes, rules are indexed whatever an event costs: each change of a rule compiles all of them into
one function, which takes up to 50 µs a node."""

STAYS_SHARE: Final = 0.7
"""Indexed rules stay indexed until one function costs less than this share, so that rules that come and go do
not make each change expensive."""

_RULE: Final = 2.0
_EQUALITY: Final = 8.0
_LEAF: Final = 24.0
_KEY: Final = 15.0
_PATTERN: Final = 1400.0
_VERDICT: Final = 5.0
"""To read the verdict of an update, in the same function."""
_AFTER_FIRST: Final = 0.3
"""The share of events at which a member of `all` that is not the first is evaluated."""

_UPDATE: Final = 60.0
_KEYED_UPDATE: Final = 110.0

_RECORD: Final = 150.0
"""To add to a record, beyond what it takes to remember a time."""
_COMPARED: Final = 100.0
"""To read a record and compare."""

_INDEX: Final = 1900.0
"""To look up the values of an event, beyond what one function takes for any event."""
_TABLE: Final = 400.0
_SEARCH: Final = 5000.0
"""To search a text for many patterns."""
_ROW: Final = 40.0
"""To evaluate a rule apart from others."""
_READ: Final = 30.0
_KEYED_READ: Final = 80.0
"""To read a memory after its update."""
_HOLDING: Final = 0.5
"""The share of events at which a memory holds a time."""


class Weight(NamedTuple):
    """What one rule costs at an event, and which events it must be evaluated at once it is indexed."""

    fused_ns: float
    """What the rule costs if every event is evaluated for it."""
    indexed: tuple[tuple[float, Triggers | None], ...]
    """The rule and the updates of its memories: what each costs at an event that meets its triggers."""
    paths: frozenset[Path]
    """Those of its memories."""


def weight_of(condition: Condition) -> Weight:
    """Weigh a rule."""
    memories = requirements_of(condition).memories
    analysis = Analysis(0, _spread)
    updates = [(_update_ns(node, path), analysis.of_memory(node, path)) for node, path in memories]
    tests_ns = _RULE + _tests_ns(condition)
    reads_ns = sum(_KEYED_READ if path else _READ for _, path in memories)
    return Weight(
        tests_ns + sum(update_ns for update_ns, _ in updates),
        ((_ROW + tests_ns + reads_ns, analysis.of_rule(condition)), *updates),
        frozenset(path for _, path in memories if path),
    )


class Estimate(NamedTuple):
    """What a rule may cost by itself, roughly."""

    event_ns: int
    """At an event, if every event is evaluated for it."""
    kept: dict[tuple[str, ...], int]
    """By the names of keys, outermost first: the most times, values or parts of a sum that are remembered for
    each such key."""


def estimate_of(condition: Condition) -> Estimate:
    """Estimate what a rule costs."""
    kept: Counter[tuple[str, ...]] = Counter()
    event_ns = _RULE + _tests_ns(condition)
    for node, path in requirements_of(condition).memories:
        event_ns += _update_ns(node, path)
        recorded = recorded_of(node)
        kept[tuple(map(fact_of, path))] += 1 if recorded is None else recorded.most or PANES
    return Estimate(round(event_ns), dict(kept))


def index_pays(weights: Collection[Weight], *, indexed: bool) -> bool:
    """Return whether rules of these weights should be indexed, given whether they are."""
    share = STAYS_SHARE if indexed else 1.0
    return sum(weight.fused_ns for weight in weights) > share * _indexed_ns(weights)


def _indexed_ns(weights: Collection[Weight]) -> float:
    members = [member for weight in weights for member in weight.indexed]
    index = _Indexed()
    for _, triggers in members:
        index.add(triggers)
    met_ns = sum(member_ns * index.share_met(triggers) for member_ns, triggers in members)
    searches_ns = sum(min(_SEARCH, len(of_fact) * _PATTERN) for of_fact in index.patterns.values())
    tables = len(frozenset().union(*(weight.paths for weight in weights)))
    return _INDEX + _TABLE * tables + searches_ns + met_ns


class _Indexed:
    """What rules are indexed by."""

    def __init__(self) -> None:
        self._values: dict[str, set[object]] = {}
        self.patterns: dict[str, set[str]] = {}

    def add(self, triggers: Triggers | None) -> None:
        for trigger in triggers or ():
            if isinstance(trigger, Found):
                self.patterns.setdefault(trigger.fact, set()).add(trigger.pattern)
            elif isinstance(trigger, Hit | Element):
                self._values.setdefault(trigger.fact, set()).add(trigger.value)

    def share_met(self, triggers: Triggers | None) -> float:
        """Estimate the share of events that meet a trigger, where all values of a fact are as frequent."""
        return 1.0 if triggers is None else min(1.0, sum(map(self._share, triggers)))

    def _share(self, trigger: Trigger) -> float:
        if isinstance(trigger, Found):
            return 1 / (1 + len(self.patterns[trigger.fact]))
        if isinstance(trigger, Hit | Element):
            return 1.0 if trigger.value is PRESENT else 1 / (1 + len(self._values[trigger.fact]))
        return _HOLDING


def _spread(triggers: Triggers) -> float:
    """Estimate how many events meet a trigger, when nothing is known of other rules."""
    return sum(map(_share_alone, triggers))


def _share_alone(trigger: Trigger) -> float:
    if isinstance(trigger, Found):
        return 0.2
    if isinstance(trigger, Hit | Element):
        return 1.0 if trigger.value is PRESENT else 0.1
    return _HOLDING


def _update_ns(node: Condition, path: Path) -> float:
    added_ns = _RECORD if isinstance(node, Aggregate) else 0.0
    return (_KEYED_UPDATE if path else _UPDATE) + added_ns + sum(map(_tests_ns, children(node)))


def _tests_ns(node: Condition) -> float:
    match node:
        case language.Leaf(_, "matches", _):
            return _PATTERN
        case language.Leaf(_, "eq", _):
            return _EQUALITY
        case language.Leaf() | language.Ref() | language.InRelation():
            return _LEAF
        case language.All((first, *others)):
            return _tests_ns(first) + _AFTER_FIRST * sum(map(_tests_ns, others))
        case language.All() | language.Any() | language.Not():
            return sum(map(_tests_ns, children(node)))
        case language.Keyed(inner, _, where):
            return _KEY + _tests_ns(inner) + (0.0 if where is None else _tests_ns(where))
        case language.Count() | language.Distinct() | language.Sum() | language.Avg():
            return _COMPARED
        case _:
            return _VERDICT
