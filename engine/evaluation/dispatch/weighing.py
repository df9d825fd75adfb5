"""Estimates which costs less at an event: to evaluate all rules by one function, or to look up candidates.

The estimate depends only on the rules, so that a replay makes the same choice. Weights are nanoseconds, as
measured with `python -m tests.bench curve`; only their ratios matter.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

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
from engine.language.operators import LARGEST

FUSED_NODES_MAX: Final = 1_000
"""With more nodes, rules are indexed whatever an event costs, because each change of a rule compiles all of
them into one function. That takes 10 to 40 µs a node, and 70 to 100 if no rule was compiled before."""

STAYS_SHARE: Final = 0.7
"""Indexed rules stay indexed until one function costs less than this share, so that rules that come and go do
not make each change expensive."""

_RULE: Final = 2.0
_EQUALITY: Final = 5.0
_LEAF: Final = 18.0
_KEY: Final = 15.0
_PATTERN: Final = 1400.0
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

_INDEX: Final = 1900.0
"""The time to look up the values of an event, beyond what one function takes for any event."""
_TABLE: Final = 900.0
_SEARCH: Final = 5000.0
"""The time to search a text for many patterns."""
_LOOP: Final = 1000.0
"""The time to begin the loop over the rows of one shape in a bucket."""
_ROW: Final = 40.0
"""The time to evaluate a rule as a row of a loop."""
_SELECTED: Final = 600.0
"""The time to evaluate a rule with several triggers, which is selected by itself. In united buckets it takes
half of that."""
_READ: Final = 30.0
_KEYED_READ: Final = 80.0
"""The time to read a memory after its update."""
_HOLDING: Final = 0.9
"""The share of events at which a memory holds a time: most events have keys that earlier events had."""
_HOLDING_MORE: Final = 0.4
"""The share of events at which a record holds the several times or values that a comparison needs."""
_HOLDING_PER_ADDED: Final = 35.0
"""A record with a key holds something at no more than this many times the share of events that add to it: the
rarer an event is, the fewer keys have had it."""
_HOLDING_MORE_PER_ADDED: Final = 12.0
"""The same for the several times or values that a comparison needs."""
_RANGES: Final = 10_000.0
"""The time to search the ranges of a fact, which mostly have some ten different lengths."""
_FEW_RANGES: Final = 700.0
"""The same for a fact with few ranges, which are compared one by one."""
_FEW_ENDS_MAX: Final = 16
"""A fact whose ranges have more ends is searched."""
_END: Final = 30.0
"""The time for each end of those."""
_PRESENT_MAX: Final = 8
"""An event is taken to have this many of the facts that rules name, or all if they name fewer. For a hundred
rules with a fact each: if an event has all facts, indexed rules take three times as long as one function; if
it has two, one function takes twice as long as indexed rules."""
_IN_RANGE: Final = 100.0
"""The time to evaluate a rule that a search of ranges selects."""
_OPEN_ENDS: Final = (-LARGEST, LARGEST)


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


def index_pays(weights: Collection[Weight], *, indexed: bool) -> bool:
    """Return whether rules of these weights should be indexed, given whether they are."""
    share = STAYS_SHARE if indexed else 1.0
    return fused_ns(weights) > share * indexed_ns(weights)


def fused_ns(weights: Collection[Weight]) -> float:
    """Estimate what an event costs if one function evaluates all rules, beyond its cost without rules."""
    updates_ns = {update.fused_name: update.fused_ns for weight in weights for update in weight.updates}
    return sum(weight.tests_ns for weight in weights) + sum(updates_ns.values())


def indexed_ns(weights: Collection[Weight]) -> float:
    """Estimate what an event costs if rules are indexed, beyond what one function costs without rules."""
    updates = {update.indexed_name: update.indexed for weight in weights for update in weight.updates}
    members = [*(weight.indexed for weight in weights), *updates.values()]
    index = _Indexed(
        (trigger for member in members for trigger in member.triggers or ()),
        {name[:2]: member.triggers for name, member in updates.items()},
    )
    met_ns = sum(member.ns * index.share_met(member.triggers) for member in members)
    loops = {(member.shape, place) for member in members for place in _places(member)}
    loops_ns = sum(_LOOP * index.share_of(place) for _, place in loops)
    searches_ns = sum(min(_SEARCH, len(of_fact) * _PATTERN) for of_fact in index.patterns.values())
    searches_ns += index.present * sum(map(_ranges_ns, index.ends.values()))
    tables = len(frozenset().union(*(weight.paths for weight in weights)))
    return _INDEX + _TABLE * tables + searches_ns + loops_ns + met_ns


def _ranges_ns(ends: Sequence[Any]) -> float:
    """Estimate the time to find the ranges with these ends that contain a value."""
    return _FEW_RANGES + _END * len(ends) if len(ends) <= _FEW_ENDS_MAX else _RANGES


def _places(member: Member) -> list[Triggers | str | None]:
    """Return where a member is a row of a loop: by each trigger, or by the fact whose ranges select it.

    The fact is an empty text for a member that shares one loop with those that other facts select.
    """
    if may_meet_several(member.triggers):
        return []
    if member.triggers is None:
        return [None]
    return [
        (each.fact if member.by_fact else "") if isinstance(each, Range) else frozenset({each})
        for each in member.triggers
    ]


class _Indexed:
    """What rules are indexed by."""

    def __init__(
        self, triggers: Iterable[Trigger], changes: Mapping[tuple[Condition, Path], Triggers | None]
    ) -> None:
        self._changes = changes
        """The triggers of the updates of memories, by node and path."""
        self._held: dict[tuple[Condition, Path], float] = {}
        """What is known by now of the share of events at which memories trigger."""
        self._values: dict[str, set[object]] = {}
        self.patterns: dict[str, set[str]] = {}
        self.ends: dict[tuple[str, bool], list[Any]] = {}
        """The ends of ranges in order, by fact and whether they are texts."""
        for trigger in triggers:
            if isinstance(trigger, Found):
                self.patterns.setdefault(trigger.fact, set()).add(trigger.pattern)
            elif isinstance(trigger, Hit | Element):
                self._values.setdefault(trigger.fact, set()).add(trigger.value)
            elif isinstance(trigger, Range):
                self._ends(trigger).extend(end for end in trigger[1:3] if end not in _OPEN_ENDS)
        for ends in self.ends.values():
            ends.sort()
        facts = self.patterns.keys() | self._values.keys() | {fact for fact, _ in self.ends}
        self.present = min(1.0, _PRESENT_MAX / max(1, len(facts)))
        """The share of the facts that an event has."""

    def _ends(self, trigger: Range) -> list[Any]:
        return self.ends.setdefault((trigger.fact, isinstance(trigger.low, str)), [])

    def share_of(self, place: Triggers | str | None) -> float:
        """Estimate the share of events at which the loop of a place is begun; see `_places`."""
        if isinstance(place, str):
            return self.present if place else 1.0
        return self.share_met(place)

    def share_met(self, triggers: Triggers | None) -> float:
        """Estimate the share of events that meet a trigger.

        All values of a fact are as frequent, and the ends of ranges stand for the values of their fact.
        """
        return 1.0 if triggers is None else min(1.0, sum(map(self._share, triggers)))

    def _share(self, trigger: Trigger) -> float:
        if isinstance(trigger, Found):
            return self.present / (1 + len(self.patterns[trigger.fact]))
        if isinstance(trigger, Hit | Element):
            return self.present / (1 if trigger.value is PRESENT else 1 + len(self._values[trigger.fact]))
        if isinstance(trigger, Range):
            ends = self._ends(trigger)
            within = bisect_left(ends, trigger.high) - bisect_left(ends, trigger.low)
            return self.present * within / max(1, len(ends))
        name = trigger.node, trigger.path
        if name not in self._held:
            self._held[name] = self._share_holding(*name)
        return self._held[name]

    def _share_holding(self, node: Condition, path: Path) -> float:
        recorded = recorded_of(node)
        if recorded is None:
            return _HOLDING
        if not path:
            # All events have the same record, which soon holds what is needed.
            return 1.0
        added = self.share_met(self._changes[node, path])
        if recorded.needed == 1:
            return min(_HOLDING, _HOLDING_PER_ADDED * added)
        return min(_HOLDING_MORE, _HOLDING_MORE_PER_ADDED * added)


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
        case language.Count() | language.Distinct():
            return _COMPARED
        case language.Sum() | language.Avg():
            return _COMPARED_SUM
        case _:
            return _VERDICT
