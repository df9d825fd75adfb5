"""The index from events to the rules to evaluate and the memories to update.

A member is in the bucket of each of its triggers. A member without triggers is in a bucket that every event
meets.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.evaluation.facts.look_up import OF_ELEMENTS
from engine.evaluation.facts.lookups import Lookup
from engine.evaluation.facts.names import FactNames
from engine.evaluation.facts.relations import address, network_key
from engine.evaluation.facts.values import key_of
from engine.evaluation.kernel.buckets.buckets import Bucket, Compile, RowsByPlace, SelectedRows
from engine.evaluation.kernel.buckets.ranges import Ranges
from engine.evaluation.kernel.buckets.related import RelatedBuckets
from engine.evaluation.kernel.buckets.running import Selected
from engine.evaluation.kernel.buckets.selectivity import Selectivity
from engine.evaluation.kernel.buckets.triggers import (
    PRESENT,
    Beginning,
    Element,
    Ending,
    Found,
    Hit,
    Holding,
    InNetwork,
    Range,
    Related,
    Triggers,
)
from engine.evaluation.kernel.needs import Needs
from engine.evaluation.slices.slices import Remembered, Slices
from engine.language.validation.networks import shift_of
from engine.patterns.fact_patterns import FactPatterns


class ByMeasure(dict[Any, Bucket]):
    """Buckets by key, and the number of keys with each measure, such as a length."""

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


class _Fact:
    """The index of one fact."""

    __slots__ = ("by_value", "is_of_elements", "lookup", "more", "patterns", "ranges")

    def __init__(self, patterns: FactPatterns, lookup: Lookup, *, is_of_elements: bool) -> None:
        self.is_of_elements = is_of_elements
        """Whether an event may have several values of it."""
        self.by_value: dict[Any, Bucket] = {}
        self.ranges: Ranges | None = None
        """None without ranges."""
        self.more: dict[type, Any] = {}
        """The buckets of all other triggers, by kind and key. `Hit` has that of PRESENT."""
        self.patterns, self.lookup = patterns, lookup

    def buckets_of(self, trigger: Any, stored: Mapping[str, Any]) -> Any:
        """Return the buckets that contain that of a trigger. `stored` has the detector's relations."""
        kind = type(trigger)
        if kind is Hit and trigger.value is not PRESENT:
            return self.by_value
        if kind not in self.more:
            measure = _MEASURES.get(kind)
            buckets = {} if measure is None else ByMeasure(measure)
            self.more[kind] = RelatedBuckets(stored) if kind is Related else buckets
        return self.more[kind].buckets_of(trigger) if kind is Related else self.more[kind]

    def drop_if_empty(self, trigger: Any) -> None:
        """Drop the buckets of a trigger's kind if there are none left."""
        kind = type(trigger)
        if kind is Related:
            self.more[kind].drop_if_empty(trigger)
        if not self.more.get(kind, True):
            del self.more[kind]

    def __bool__(self) -> bool:
        return bool(self.by_value or self.more or self.ranges)


class Index:
    """The buckets of a detector by trigger."""

    def __init__(self, compile_member: Compile, needs: Needs) -> None:
        self._compile, self._needs = compile_member, needs
        self.selected = SelectedRows(compile_member)
        self._always = Bucket(compile_member, self.selected)
        self._names: FactNames[_Fact] = FactNames()
        self._facts: dict[str, _Fact] = {}
        self.selectivity = Selectivity(self._facts)

    def add(self, member: int, triggers: Triggers | None, stage: int) -> None:
        """Add a member to the buckets of its triggers. Lower stages are evaluated first."""
        if triggers is None:
            self._always.add(member, stage)
            return
        several, held_in, ranges_in = may_meet_several(triggers), _held_in(triggers), _ranges_in(triggers)
        if several:
            self.selected.add(member)
        for trigger in triggers:
            if isinstance(trigger, Holding):
                self._held(trigger.remembered).add(member, stage, several=several)
            elif not isinstance(trigger, Range):
                self._bucket(trigger).add(member, stage, several=several)
        for slices in held_in:
            if slices.triggered is None:
                slices.triggered = Bucket(self._compile, self.selected)
            slices.triggered.add(member, stage, several=several)
        for said, ranges in ranges_in.items():
            fact = self._fact(said)
            if fact.ranges is None:
                fact.ranges = Ranges(self.selected)
            fact.ranges.add(ranges, member, (stage, several))

    def remove(self, member: int, triggers: Triggers | None, stage: int) -> None:
        """Undo `add` with the same arguments."""
        if triggers is None:
            self._always.remove(member, stage)
            return
        several = may_meet_several(triggers)
        for trigger in triggers:
            if isinstance(trigger, Holding):
                remembered = trigger.remembered
                remembered.bucket.remove(member, stage, several=several)
                if not remembered.bucket.size:
                    remembered.bucket = None
                    del remembered.slices.watched[remembered.place]
            elif not isinstance(trigger, Range):
                bucket = self._bucket(trigger)
                bucket.remove(member, stage, several=several)
                if not bucket.size:
                    self._drop(trigger)
        for slices in _held_in(triggers):
            slices.triggered.remove(member, stage, several=several)
        for said, ranges in _ranges_in(triggers).items():
            fact = self._facts[said]
            assert fact.ranges is not None, "it has this range"
            fact.ranges.remove(ranges, member, (stage, several))
            if not fact.ranges:
                fact.ranges = None
            self._drop_if_unused(said)
        if several:
            self.selected.remove(member)

    def relation_changed(self, name: str) -> None:
        """Update the index after a change of a stored relation."""
        for fact in self._facts.values():
            if Related in fact.more:
                fact.more[Related].relation_changed(name)

    def met_by(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[Any]:
        """Return the buckets that an event meets, and the rows it selects by ranges."""
        met: list[Bucket | Selected] = [self._always] if self._always.size else []
        selected: RowsByPlace = {}
        of_elements: dict[Ranges, list[Any]] = {}
        for fact, value in self._names.found_in(fields, sent):
            if fact.by_value:
                bucket = fact.by_value.get(value if type(value) is str else key_of(value))
                if bucket is not None:
                    met.append(bucket)
            if fact.ranges is not None:
                if fact.is_of_elements:
                    of_elements.setdefault(fact.ranges, []).append(value)
                else:
                    fact.ranges.select(value, selected)
            if fact.more:
                _meet_more(fact, value, sent, met)
        for ranges, values in of_elements.items():
            # Each row once, not once for each element.
            ranges.select_any(values, selected)
        if self._names.of_elements:
            # Several elements of an array may meet the same bucket.
            met = list({id(bucket): bucket for bucket in met}.values())
        if selected:
            met.append(Selected.of(selected))
        return met

    def _fact(self, said: str) -> _Fact:
        fact = self._facts.get(said)
        if fact is None:
            patterns, lookup = self._needs.patterns.of(said), self._needs.lookups.of(said)
            fact = self._facts[said] = _Fact(patterns, lookup, is_of_elements=OF_ELEMENTS in said)
            self._names.add(said, fact)
        return fact

    def _bucket(self, trigger: Any) -> Bucket:
        """Return the bucket of a trigger."""
        buckets, key = self._fact(trigger.fact).buckets_of(trigger, self._needs.stored), _key_of(trigger)
        bucket: Bucket | None = buckets.get(key)
        if bucket is None:
            is_value = isinstance(trigger, Hit) and trigger.value is not PRESENT
            bucket = buckets[key] = Bucket(self._compile, self.selected, trigger if is_value else None)
        return bucket

    def _held(self, remembered: Remembered) -> Bucket:
        """Return the bucket for entries of a memory."""
        if remembered.bucket is None:
            remembered.bucket = Bucket(self._compile, self.selected)
            remembered.slices.watched[remembered.place] = remembered
        return remembered.bucket  # type: ignore[no-any-return]

    def _drop(self, trigger: Any) -> None:
        """Drop the bucket of a trigger."""
        fact = self._facts[trigger.fact]
        del fact.buckets_of(trigger, self._needs.stored)[_key_of(trigger)]
        fact.drop_if_empty(trigger)
        self._drop_if_unused(trigger.fact)

    def _drop_if_unused(self, said: str) -> None:
        if not self._facts[said]:
            del self._facts[said]
            self._names.remove(said)


_MEASURES: Final[Mapping[type, Callable[[Any], int]]] = {
    Beginning: len,
    Ending: len,
    InNetwork: lambda key: shift_of(key if type(key) is int else int(key[1], 16)),
}


def may_meet_several(triggers: Triggers) -> bool:
    """Return whether one event may meet several of the triggers, or a range several times.

    A fact of the event has only one value at a time; a fact of the elements of an array has several.
    """
    if len(triggers) == 1:
        return any(isinstance(trigger, Range) and _is_of_elements(trigger) for trigger in triggers)
    facts = {
        trigger.fact
        if isinstance(trigger, Hit) and trigger.value is not PRESENT and not _is_of_elements(trigger)
        else None
        for trigger in triggers
    }
    return len(facts) > 1 or None in facts


def _is_of_elements(trigger: Hit | Range) -> bool:
    return OF_ELEMENTS in trigger.fact


def _key_of(trigger: Any) -> Any:
    """Return the key of a trigger's bucket among those of its kind."""
    return trigger.literals if isinstance(trigger, Related) else trigger[1]


def _ranges_in(triggers: Triggers) -> dict[str, list[Range]]:
    """Return the ranges among triggers, by fact."""
    found: dict[str, list[Range]] = {}
    for trigger in triggers:
        if isinstance(trigger, Range):
            found.setdefault(trigger.fact, []).append(trigger)
    return found


def _held_in(triggers: Triggers) -> set[Slices]:
    """Return the slices with entries among the triggers."""
    return {one.remembered.slices for one in triggers if isinstance(one, Holding)}


def _meet_more(fact: _Fact, value: Any, sent: Mapping[str, Any], met: list[Any]) -> None:
    """Add the buckets met by an event with this value of a fact, except by equality and ranges."""
    for kind, buckets in fact.more.items():
        if kind is Hit:
            met += buckets.values()
        elif kind is Related:
            buckets.meet(value, sent, met)
        elif kind is Element:
            met += _met_elements(buckets, fact.lookup, value)
        elif type(value) is not str:
            continue
        elif kind is Found:
            met += [buckets[pattern] for pattern in fact.patterns.found_among(buckets, value)]
        elif kind is InNetwork:
            number = address(value)
            for shift in () if number is None else buckets.measures:
                if (bucket := buckets.get(network_key(number >> shift))) is not None:
                    met.append(bucket)
        else:
            for length in buckets.measures:
                # A text shorter than `length` has no such beginning or ending.
                end = value[:length] if kind is Beginning else value[-length:]
                if length <= len(value) and (bucket := buckets.get(end)) is not None:
                    met.append(bucket)


def _met_elements(by_element: Mapping[Any, Bucket], lookup: Lookup, value: Any) -> list[Bucket]:
    """Return the buckets of the elements of an array, or of the literals in a text."""
    if type(value) is list:
        keys = lookup.keys(value)
    elif type(value) is str:
        keys = lookup.found(value)
    else:
        return []
    if len(keys) < len(by_element):
        return [by_element[key] for key in keys if key in by_element]
    return [bucket for key, bucket in by_element.items() if key in keys]
