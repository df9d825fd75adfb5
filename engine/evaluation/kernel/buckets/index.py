"""The index from events to the rules to evaluate and the memories to update.

A member is in the bucket of each of its triggers. A member without triggers is in the bucket of every event.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.evaluation.facts.lookups import Lookup, Lookups
from engine.evaluation.facts.names import FactNames
from engine.evaluation.facts.relations import address, network_key
from engine.evaluation.facts.values import key_of
from engine.evaluation.kernel.buckets.buckets import Bucket
from engine.evaluation.kernel.buckets.related import RelatedBuckets
from engine.evaluation.kernel.selection.ranges import Ranges
from engine.evaluation.kernel.selection.selected_rows import RowsByPlace, Selected, SelectedRows
from engine.evaluation.kernel.selection.selectivity import Selectivity
from engine.evaluation.kernel.selection.triggers import (
    PRESENT,
    Beginning,
    Bucketed,
    Element,
    Ending,
    Found,
    Hit,
    InNetwork,
    Known,
    Range,
    Related,
    Trigger,
    Triggers,
    Value,
)
from engine.language.validation.networks import shift_of
from engine.patterns.fact_patterns import FactPatterns


class ByMeasure(dict[Any, Bucket]):
    """Buckets by key, and how many keys have each measure."""

    __slots__ = ("_measure", "measures")

    def __init__(self, measure: Callable[[Any], int]) -> None:
        super().__init__()
        self._measure = measure
        self.measures: dict[int, int] = {}

    def __setitem__(self, key: Any, bucket: Bucket) -> None:
        if key not in self:
            measure = self._measure(key)
            self.measures[measure] = self.measures.get(measure, 0) + 1
        super().__setitem__(key, bucket)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        measure = self._measure(key)
        self.measures[measure] -= 1
        if not self.measures[measure]:
            del self.measures[measure]


_PRESENT_COST: Final = 1.0
_RELATED_COST: Final = 0.9
_HOLDING_COST: Final = 0.5
_SEARCH_COST: Final = 20.0
"""The cost that a trigger adds to each event, in evaluations of a rule. Any event may meet PRESENT. A search
for patterns has a fixed cost, which the patterns of a fact share."""

_ELEMENTS: Final = 2.0
"""A rough estimate of how many of the indexed elements a value has."""

NewBucket = Callable[[Known | None], Bucket]
"""Gives an empty bucket, for events of which something may be known."""

PatternsOf = Callable[[str], FactPatterns]
"""Gives the patterns of a fact, which include those that rules are indexed by."""


class _Fact:
    """The buckets of one fact, by value, by element, by pattern and for any value; and its ranges."""

    __slots__ = (
        "by_beginning",
        "by_element",
        "by_ending",
        "by_network",
        "by_pattern",
        "by_value",
        "has_ranges",
        "lookup",
        "more",
        "patterns",
        "present",
        "ranges",
        "related",
    )

    def __init__(
        self, patterns: FactPatterns, lookup: Lookup, selected: SelectedRows, related: RelatedBuckets
    ) -> None:
        self.by_value: dict[Any, Bucket] = {}
        self.by_element: dict[Any, Bucket] = {}
        """The buckets by the key of an element that an array has, or by the literal that a text contains."""
        self.lookup = lookup
        self.by_pattern: dict[str, Bucket] = {}
        self.by_beginning = ByMeasure(len)
        self.by_ending = ByMeasure(len)
        self.by_network = ByMeasure(lambda key: shift_of(key if type(key) is int else int(key[1], 16)))
        """The buckets by the number of a network, in its hashable form."""
        self.patterns = patterns
        self.present: dict[Any, Bucket] = {}
        """The bucket for any value, by PRESENT."""
        self.ranges = Ranges(selected)
        self.related = related

    def refresh(self) -> bool:
        """Set `has_ranges` and `more` after a change, the first one too; return whether there is anything."""
        self.has_ranges = bool(self.ranges)
        of_texts = self.by_pattern or self.by_beginning or self.by_ending or self.by_network
        self.more = bool(self.by_element or of_texts or self.present or self.related)
        """Whether there is anything but `by_value` and `ranges`."""
        return self.more or self.has_ranges or bool(self.by_value)

    def place_of(self, trigger: Any) -> tuple[dict[Any, Bucket], Any]:
        """Return where the bucket of a trigger is: the dict, and the key in it."""
        match trigger:
            case Beginning(_, text):
                return self.by_beginning, text
            case Ending(_, text):
                return self.by_ending, text
            case InNetwork(_, number):
                return self.by_network, network_key(number)
            case Related():
                return self.related.buckets_of(trigger), trigger.literals
            case Found(_, pattern):
                return self.by_pattern, pattern
            case Element(_, value):
                return self.by_element, value
            case Hit(_, value):
                return (self.present if value is PRESENT else self.by_value), value
            case _:
                raise AssertionError(trigger)


class Index:
    """The buckets of a detector by trigger."""

    def __init__(
        self,
        new_bucket: NewBucket,
        selected: SelectedRows,
        patterns_of: PatternsOf,
        lookups: Lookups,
        stored: Mapping[str, Any],
    ) -> None:
        self._new_bucket = new_bucket
        self._selected = selected
        self._selectivity = Selectivity()
        self._patterns_of = patterns_of
        self._lookups = lookups
        self._stored = stored
        self._always = new_bucket(None)
        self._names: FactNames[_Fact] = FactNames()
        self._facts: dict[str, _Fact] = {}

    def cost(self, triggers: Triggers) -> float:
        """Estimate how often an event meets one of these triggers."""
        self._selectivity.learn(triggers)
        values = Counter(
            trigger.fact for trigger in triggers if isinstance(trigger, Hit) and trigger.value is not PRESENT
        )
        rest = (trigger for trigger in triggers if not isinstance(trigger, Hit) or trigger.value is PRESENT)
        return sum(map(self._cost, rest)) + sum(
            count / (count + 1 + self._values(fact)) for fact, count in values.items()
        )

    def _values(self, said: str) -> int:
        """Estimate how many values of a fact the rules ask for."""
        indexed = len(self._facts[said].by_value) if said in self._facts else 0
        return max(indexed, self._selectivity.values(said))

    def _cost(self, trigger: Trigger) -> float:
        match trigger:
            case Found():
                fact = self._facts.get(trigger.fact)
                return _SEARCH_COST / (1 + len(fact.by_pattern) if fact else 1)
            case Beginning() | Ending() | InNetwork():
                fact = self._facts.get(trigger.fact)
                known = len(fact.place_of(trigger)[0]) if fact else 0
                return 1 / (2 + known)
            case Element():
                fact = self._facts.get(trigger.fact)
                return _ELEMENTS / (1 + _ELEMENTS + (len(fact.by_element) if fact else 0))
            case Range():
                return self._selectivity.cost(trigger)
            case Hit():
                return _PRESENT_COST
            case Related():
                return _RELATED_COST
            case _:
                return _HOLDING_COST

    def add(self, member: int, triggers: Triggers | None, stage: int, *, several: bool) -> None:
        """Add a member to the buckets of its triggers; see `Bucket.add`.

        Triggers on memories are ignored here: each memory has its own bucket.
        """
        if triggers is None:
            self._always.add(member, stage)
            return
        for trigger in triggers:
            if isinstance(trigger, Bucketed):
                self._bucket(trigger).add(member, stage, several=several)
        for said, ranges in _ranges_by_fact(triggers).items():
            fact = self._fact(said)
            fact.ranges.add(ranges, member, (stage, several))
            fact.refresh()

    def remove(self, member: int, triggers: Triggers | None, stage: int, *, several: bool) -> None:
        """Undo `add` with the same arguments."""
        if triggers is None:
            self._always.remove(member, stage)
            return
        for trigger in triggers:
            if isinstance(trigger, Bucketed):
                self._bucket(trigger).remove(member, stage, several=several)
                self._drop_if_empty(trigger)
        for said, ranges in _ranges_by_fact(triggers).items():
            self._facts[said].ranges.remove(ranges, member, (stage, several))
            self._drop_if_unused(said)

    def relation_changed(self, name: str) -> None:
        """Find members by the tuples that a stored relation has now."""
        for fact in self._facts.values():
            if fact.related:
                fact.related.relation_changed(name)

    def met_by(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[Bucket | Selected]:
        """Return the buckets that an event meets, and what it selects by ranges."""
        met: list[Bucket | Selected] = [self._always] if self._always.size else []
        selected: RowsByPlace = {}
        for fact, value in self._names.found_in(fields, sent):
            if fact.by_value:
                bucket = fact.by_value.get(value if type(value) is str else key_of(value))
                if bucket is not None:
                    met.append(bucket)
            if fact.has_ranges:
                fact.ranges.select(value, selected)
            if fact.more:
                _meet_more(fact, value, sent, met)
        if self._names.of_elements:
            # Several elements of an array may meet the same.
            met = list({id(bucket): bucket for bucket in met}.values())
        if selected:
            met.append(Selected.of(selected))
        return met

    def _fact(self, said: str) -> _Fact:
        fact = self._facts.get(said)
        if fact is None:
            related = RelatedBuckets(self._stored)
            fact = _Fact(self._patterns_of(said), self._lookups.of(said), self._selected, related)
            self._facts[said] = fact
            self._names.add(said, fact)
        return fact

    def _bucket(self, trigger: Any) -> Bucket:
        fact = self._fact(trigger.fact)
        buckets, key = fact.place_of(trigger)
        bucket = buckets.get(key)
        if bucket is None:
            is_value = isinstance(trigger, Hit) and trigger.value is not PRESENT
            bucket = buckets[key] = self._new_bucket(Value(trigger.fact, key) if is_value else None)
            fact.refresh()
        return bucket

    def _drop_if_empty(self, trigger: Any) -> None:
        buckets, key = self._facts[trigger.fact].place_of(trigger)
        if not buckets[key].size:
            del buckets[key]
            if isinstance(trigger, Related):
                self._facts[trigger.fact].related.drop_if_empty(trigger)
        self._drop_if_unused(trigger.fact)

    def _drop_if_unused(self, said: str) -> None:
        if not self._facts[said].refresh():
            del self._facts[said]
            self._names.remove(said)


def _ranges_by_fact(triggers: Triggers) -> dict[str, list[Range]]:
    found: dict[str, list[Range]] = {}
    for trigger in triggers:
        if isinstance(trigger, Range):
            found.setdefault(trigger.fact, []).append(trigger)
    return found


def _meet_more(fact: _Fact, value: Any, sent: Mapping[str, Any], met: list[Bucket | Selected]) -> None:
    """Add what an event with this value of a fact meets, except for the bucket of the value and ranges."""
    if fact.related:
        fact.related.meet(value, sent, met)
    if fact.present:
        met += fact.present.values()
    if fact.by_pattern and type(value) is str:
        found = fact.patterns.found_among(fact.by_pattern, value)
        met += [fact.by_pattern[pattern] for pattern in found]
    if fact.by_element:
        met += _met_elements(fact, value)
    if type(value) is str:
        # A shorter text is a beginning and an ending of its own length only.
        for length in fact.by_beginning.measures:
            if length <= len(value) and (bucket := fact.by_beginning.get(value[:length])) is not None:
                met.append(bucket)
        for length in fact.by_ending.measures:
            if length <= len(value) and (bucket := fact.by_ending.get(value[-length:])) is not None:
                met.append(bucket)
        if fact.by_network and (number := address(value)) is not None:
            for shift in fact.by_network.measures:
                bucket = fact.by_network.get(network_key(number >> shift))
                if bucket is not None:
                    met.append(bucket)


def _met_elements(fact: _Fact, value: Any) -> list[Bucket]:
    """Return the buckets of the elements of an array, or of the literals that a text contains."""
    if type(value) is list:
        keys = fact.lookup.keys(value)
    elif type(value) is str:
        keys = fact.lookup.found(value)
    else:
        return []
    by_element = fact.by_element
    if len(keys) < len(by_element):
        return [by_element[key] for key in keys if key in by_element]
    return [bucket for key, bucket in by_element.items() if key in keys]
