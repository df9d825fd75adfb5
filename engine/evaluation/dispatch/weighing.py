"""Estimates what a rule costs at an event, evaluated by a function for all rules or looked up in an index.

Weights are nanoseconds, as measured with `python -m tests.bench curve`; only their ratios matter.
"""

from collections import Counter
from collections.abc import Collection, Hashable
from typing import Final, NamedTuple

from engine.evaluation.memory import PANES, Regime, Sharing
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.plan.requirements import recorded_of, requirements_of, sharing_of
from engine.evaluation.plan.triggers import (
    PRESENT,
    Analysis,
    Element,
    Found,
    Hit,
    Range,
    Trigger,
    Triggers,
    may_meet_several,
    regime_of,
)
from engine.language import condition as language
from engine.language.condition import Aggregate, Condition, children

_RULE: Final = 2.0
_EQUALITY: Final = 5.0
_LEAF: Final = 18.0
_KEY: Final = 15.0
PATTERN_NS: Final = 1400.0
_VERDICT: Final = 5.0
"""The time to read the verdict of an update in the same function."""
_AFTER_FIRST: Final = 0.3
"""The share of events at which a member of `all` that is not the first is evaluated."""

_UPDATE: Final = 60.0
_KEYED_UPDATE: Final = 55.0
_STAMP: Final = 60.0
"""The time to write a memory that nearly every event changes, as its regime says. Indexed rules need not."""
_KEYED_STAMP: Final = 120.0
_UNSTAMPED: Final = 400.0
"""The time to write such a memory at an event that changes it otherwise, once rules are indexed."""

_RECORDED: Final = 800.0
"""The time to add to a record, at an event that does so."""
_COMPARED: Final = 200.0
"""The time to read times or values, and compare their number."""
_COMPARED_SUM: Final = 350.0
"""The time to read a sum or mean, and compare it."""

_ROW: Final = 40.0
"""The time to evaluate a rule as a row of a loop."""
_SELECTED: Final = 600.0
"""The time to evaluate a rule with several triggers, which is selected by itself. In united buckets it takes
half of that."""
_READ: Final = 30.0
_KEYED_READ: Final = 80.0
"""The time to read a memory after its update."""
_IN_RANGE: Final = 100.0
"""The time to evaluate a rule that a search of ranges selects."""


class Member(NamedTuple):
    """What a rule or the update of a memory costs once it is indexed."""

    ns: float
    """The cost at an event that meets its triggers."""
    triggers: Triggers | None
    shape: Hashable
    """A value that is equal for members that share a loop, roughly."""
    by_fact: bool = False
    """Whether members that ranges of different facts select are in different loops."""


class Update(NamedTuple):
    """What the update of a memory costs. Rules share memories, so equal ones count once."""

    fused_name: Hashable
    """A value that is equal for one memory as long as rules are not indexed."""
    fused_ns: float
    indexed_name: tuple[Condition, Path, int | None]
    """A value that is equal for one memory once rules are indexed, when memories of several births join."""
    indexed: Member


class Weight(NamedTuple):
    """What one rule costs at an event, and which events it must be evaluated at once it is indexed."""

    tests_ns: float
    """What the rule costs without its memories if every event is evaluated for it."""
    indexed: Member
    updates: tuple[Update, ...]
    """The updates of its memories."""
    paths: frozenset[Path]
    """The paths of keys of its memories."""

    @property
    def fused_ns(self) -> float:
        """What the rule costs by itself if every event is evaluated for it."""
        return self.tests_ns + sum(update.fused_ns for update in self.updates)


def weight_of(condition: Condition, birth: int, memories: Collection[tuple[Condition, Path]]) -> Weight:
    """Weigh a rule that reads these memories."""
    analysis = Analysis(birth, _spread)
    tests_ns = _RULE + _tests_ns(condition)
    reads_ns = sum(_KEYED_READ if path else _READ for _, path in memories)
    triggers = analysis.of_rule(condition)
    paths = frozenset(path for _, path in memories if path)
    return Weight(
        tests_ns,
        Member(_row_ns(triggers) + tests_ns + reads_ns, triggers, paths, by_fact=True),
        tuple(_update(node, path, birth, analysis) for node, path in memories),
        paths,
    )


def _row_ns(triggers: Triggers | None) -> float:
    if may_meet_several(triggers):
        return _SELECTED
    return _IN_RANGE if any(isinstance(trigger, Range) for trigger in triggers or ()) else _ROW


def _update(node: Condition, path: Path, birth: int, analysis: Analysis) -> Update:
    fused_ns = indexed_ns = _update_ns(node, path)
    if isinstance(node, Aggregate):
        indexed_ns += _RECORDED
    elif regime_of(node) is not Regime.UNCHANGED:
        indexed_ns += _UNSTAMPED
    joins = sharing_of(node) is not Sharing.NEVER
    return Update(
        (node, path, birth),
        fused_ns,
        (node, path, None if joins else birth),
        Member(indexed_ns, analysis.of_memory(node, path), (type(node), path)),
    )


class Estimate(NamedTuple):
    """What a rule may cost by itself, roughly."""

    event_ns: int
    """The cost at an event, if every event is evaluated for it."""
    memories: dict[tuple[str, ...], int]
    """The most times, values or parts of a sum that are remembered for each key. The names of the keys are in
    order, the outermost first."""


def estimate_of(condition: Condition) -> Estimate:
    """Estimate what a rule costs."""
    memories: Counter[tuple[str, ...]] = Counter()
    event_ns = _RULE + _tests_ns(condition)
    for node, path in requirements_of(condition).memories:
        event_ns += _update_ns(node, path)
        recorded = recorded_of(node)
        memories[tuple(map(fact_of, path))] += 1 if recorded is None else recorded.most or PANES
    return Estimate(round(event_ns), dict(memories))


def _spread(triggers: Triggers) -> float:
    """Estimate how many events meet a trigger, when nothing is known of other rules."""
    return sum(map(_share_alone, triggers))


def _share_alone(trigger: Trigger) -> float:
    if isinstance(trigger, Found):
        return 0.2
    if isinstance(trigger, Hit | Element):
        return 1.0 if trigger.value is PRESENT else 0.1
    return 0.5


def _update_ns(node: Condition, path: Path) -> float:
    update_ns = (_KEYED_UPDATE if path else _UPDATE) + sum(map(_tests_ns, children(node)))
    if regime_of(node) is not Regime.UNCHANGED:
        update_ns += _KEYED_STAMP if path else _STAMP
    return update_ns


def _tests_ns(node: Condition) -> float:
    match node:
        case language.Leaf(_, "matches", _):
            return PATTERN_NS
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
        case language.Count() | language.Distinct():
            return _COMPARED
        case language.Sum() | language.Avg():
            return _COMPARED_SUM
        case _:
            return _VERDICT
