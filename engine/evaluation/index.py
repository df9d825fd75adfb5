"""From an event to the rules that must see it: the cost of an event grows with what it can touch.

A rule stands in the bucket of every hint that `noticing` gives for it, or among those that see every event.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.evaluation.access import PRESENT, Found, Hint, Hints, Hit
from engine.evaluation.buckets import Bucket
from engine.evaluation.facts import Name, key_of, split_name, value_of
from engine.evaluation.pattern_sets import PatternSets
from engine.evaluation.shapes import Known

_PRESENT_COST: Final = 1.0
_LIVE_COST: Final = 0.5
_SEARCH_COST: Final = 20.0
"""What a hint adds to the cost of each event, in runs of a rule: that a fact is there may meet every event; a
search for patterns costs so many, and those that are searched for share it."""

NewBucket = Callable[[Known | None], Bucket]
"""Gives an empty bucket, for events of which something may be known beforehand."""

NewSets = Callable[[str], PatternSets]
"""Gives empty sets of patterns for the texts of a fact."""


class _Fact:
    """The buckets of one fact: by value, by pattern, and for any value."""

    __slots__ = ("by_pattern", "by_value", "patterns", "present")

    def __init__(self, patterns: PatternSets) -> None:
        self.by_value: dict[Any, Bucket] = {}
        self.by_pattern: dict[str, Bucket] = {}
        self.patterns = patterns
        self.present: Bucket | None = None


class Index:
    """The rules of a detector by what makes them take notice."""

    def __init__(self, new_bucket: NewBucket, new_sets: NewSets) -> None:
        self._new_bucket = new_bucket
        self._new_sets = new_sets
        self._always = new_bucket(None)
        self._plain: dict[str, _Fact] = {}
        """Facts of the event without dots."""
        self._others: dict[Name, _Fact] = {}
        self._facts: dict[str, _Fact] = {}

    def cost(self, hints: Hints) -> float:
        """Give how often a rule with these hints is run, judged by how many values each fact has."""
        values = Counter(hint.fact for hint in hints if isinstance(hint, Hit) and hint.value is not PRESENT)
        rest = (hint for hint in hints if not isinstance(hint, Hit) or hint.value is PRESENT)
        return sum(map(self._cost, rest)) + sum(
            count / (count + 1 + len(self._facts[fact].by_value) if fact in self._facts else count + 1)
            for fact, count in values.items()
        )

    def _cost(self, hint: Hint) -> float:
        if isinstance(hint, Found):
            fact = self._facts.get(hint.fact)
            return _SEARCH_COST / (1 + len(fact.by_pattern) if fact else 1)
        return _PRESENT_COST if isinstance(hint, Hit) else _LIVE_COST

    def add(self, priority: int, hints: Hints | None) -> None:
        """Take a rule in; hints on memories are the business of those."""
        if hints is None:
            self._always.add(priority)
            return
        for hint in hints:
            if isinstance(hint, Hit):
                self._bucket(hint).add(priority)
            elif isinstance(hint, Found):
                self._bucket_of_pattern(hint).add(priority)

    def remove(self, priority: int, hints: Hints | None) -> None:
        """Let a rule go that was taken in with these hints."""
        if hints is None:
            self._always.remove(priority)
            return
        for hint in hints:
            if isinstance(hint, Hit):
                self._bucket(hint).remove(priority)
            elif isinstance(hint, Found):
                self._bucket_of_pattern(hint).remove(priority)
            else:
                continue
            self._drop_if_empty(hint)

    def met_by(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[Bucket]:
        """Give the buckets that an event meets."""
        met = [self._always] if self._always.size else []
        plain = self._plain
        if len(plain) <= len(fields):
            for name, fact in plain.items():
                value = fields.get(name)
                if value is not None:
                    _meet(fact, value, met)
        else:
            for name, value in fields.items():
                known = plain.get(name)
                if known is not None and value is not None:
                    _meet(known, value, met)
        for others, fact in self._others.items():
            value = value_of(others, fields, sent)
            if value is not None:
                _meet(fact, value, met)
        return met

    def _fact(self, said: str) -> _Fact:
        fact = self._facts.get(said)
        if fact is None:
            fact = self._facts[said] = _Fact(self._new_sets(said))
            name = split_name(said)
            if name.of_vars or name.steps:
                self._others[name] = fact
            else:
                self._plain[said] = fact
        return fact

    def _bucket(self, hint: Hit) -> Bucket:
        fact = self._fact(hint.fact)
        if hint.value is PRESENT:
            if fact.present is None:
                fact.present = self._new_bucket(None)
            return fact.present
        bucket = fact.by_value.get(hint.value)
        if bucket is None:
            bucket = fact.by_value[hint.value] = self._new_bucket(Known(hint.fact, hint.value))
        return bucket

    def _bucket_of_pattern(self, hint: Found) -> Bucket:
        fact = self._fact(hint.fact)
        bucket = fact.by_pattern.get(hint.pattern)
        if bucket is None:
            bucket = fact.by_pattern[hint.pattern] = self._new_bucket(None)
            fact.patterns.add(hint.pattern)
        return bucket

    def _drop_if_empty(self, hint: Hit | Found) -> None:
        fact = self._facts[hint.fact]
        if isinstance(hint, Found):
            if not fact.by_pattern[hint.pattern].size:
                del fact.by_pattern[hint.pattern]
                fact.patterns.remove(hint.pattern)
        elif hint.value is PRESENT:
            if fact.present is not None and not fact.present.size:
                fact.present = None
        elif not fact.by_value[hint.value].size:
            del fact.by_value[hint.value]
        if fact.present is None and not fact.by_value and not fact.by_pattern:
            del self._facts[hint.fact]
            self._plain.pop(hint.fact, None)
            self._others.pop(split_name(hint.fact), None)


def _meet(fact: _Fact, value: Any, met: list[Bucket]) -> None:
    """Add the buckets of a fact that an event meets with a value."""
    bucket = fact.by_value.get(value if type(value) is str else key_of(value))
    if bucket is not None:
        met.append(bucket)
    if fact.present is not None:
        met.append(fact.present)
    if fact.by_pattern and type(value) is str:
        met += [fact.by_pattern[pattern] for pattern in fact.patterns.found(value)]
