"""Decides whether rules are indexed: compares what an event costs in one function and with an index.

Both are estimates in nanoseconds, as those of `weighing.py`. They depend only on the rules, so that a replay
makes the same choice.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from engine.evaluation.dispatch.weighing import PATTERN_NS, Member, Weight
from engine.evaluation.paths import Path
from engine.evaluation.plan.requirements import recorded_of
from engine.evaluation.plan.triggers import (
    PRESENT,
    Element,
    Found,
    Hit,
    Range,
    Trigger,
    Triggers,
    may_meet_several,
)
from engine.language.condition import Condition
from engine.language.operators import LARGEST

FUSED_NODES_MAX: Final = 1_000
"""With more nodes, rules are indexed whatever an event costs, because each change of a rule compiles all of
them into one function. That takes 10 to 40 µs a node, and 70 to 100 if no rule was compiled before."""

STAYS_SHARE: Final = 0.7
"""Indexed rules stay indexed until one function costs less than this share, so that rules that come and go do
not make each change expensive."""

_INDEX: Final = 1900.0
"""The time to look up the values of an event, beyond what one function takes for any event."""
_TABLE: Final = 900.0
_SEARCH: Final = 5000.0
"""The time to search a text for many patterns."""
_LOOP: Final = 1000.0
"""The time to begin the loop over the rows of one shape in a bucket."""
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
_OPEN_ENDS: Final = (-LARGEST, LARGEST)


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
    searches_ns = sum(min(_SEARCH, len(of_fact) * PATTERN_NS) for of_fact in index.patterns.values())
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
