"""Estimates how often events meet a trigger, from all triggers by which rules could be indexed.

The values and the ends of ranges in rules stand for the values of events. They count whether or not rules are
indexed by them; otherwise the first choice would decide all later ones.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final

from engine.evaluation.facts.look_up import OF_ELEMENTS
from engine.evaluation.kernel.buckets.ranges import ordinal
from engine.evaluation.kernel.buckets.triggers import (
    PRESENT,
    Beginning,
    Element,
    Ending,
    Found,
    Hit,
    InNetwork,
    Range,
    Related,
    Triggers,
)
from engine.language.operators import LARGEST

_PRESENT_COST: Final = 1.0
_RELATED_COST: Final = 0.9
_HOLDING_COST: Final = 0.5
_SEARCH_COST: Final = 20.0
"""The cost that a trigger adds to each event, in evaluations of a rule. Any event may meet PRESENT. A search
for patterns has a fixed cost, which all patterns of a fact share."""

_ELEMENTS_SEARCH_COST: Final = 3.0
"""The same for the elements of an array, each of which an evaluation of a rule tries as well."""

_ELEMENTS: Final = 2.0
"""A rough estimate of how many of the indexed elements a value has."""

_FACTS_MAX: Final = 256
_SAMPLES_MAX: Final = 256
"""The maximum number of facts, and of values and ends of ranges of a fact, that are kept."""

_OPEN: Final = frozenset({LARGEST, -LARGEST, inf, -inf})
"""The ends of unbounded ranges."""

_SEARCH: Final = 40.0
"""The cost of searching the ranges of a fact at an event, in evaluations of a rule. All its ranges share
it."""

_SELECTED: Final = 8.0
"""A rule selected by a range is collected alone, which takes as long as this many rules in a bucket."""

_COST_MAX: Final = 0.99
"""The maximum cost of a range: less than that of all events with the fact."""

_STRIDE: Final = 97
"""Decides which end of a full sample the next one replaces. It is prime, so every end is replaced at
times."""


class _Sample:
    """The values and ranges of a fact in rules."""

    __slots__ = ("count", "ends", "patterns", "values")

    def __init__(self) -> None:
        self.values: set[int] = set()
        """The hashes of values."""
        self.patterns: set[int] = set()
        """The hashes of patterns."""
        self.ends: list[int] = []
        """The ends of ranges, in order."""
        self.count = 0

    def add_end(self, end: str | float) -> None:
        if end in _OPEN:
            return
        self.count += 1
        if len(self.ends) >= _SAMPLES_MAX:
            del self.ends[self.count * _STRIDE % _SAMPLES_MAX]
        insort(self.ends, ordinal(end))


class Selectivity:
    """Estimates from the rules how often events meet triggers."""

    __slots__ = ("_facts", "_samples")

    def __init__(self, facts: Mapping[str, Any]) -> None:
        """`facts` has the index of each fact, which others change."""
        self._facts = facts
        self._samples: dict[str, _Sample] = {}

    def cheapest(self, choices: Iterable[Triggers]) -> Triggers:
        """Return the set of triggers that the fewest events meet, of those by which a rule can be indexed."""

        def learned_cost(triggers: Triggers) -> float:
            self.learn(triggers)
            return self.cost(triggers)

        return min(choices, key=learned_cost)

    def learn(self, triggers: Triggers) -> None:
        """Take into account triggers by which a rule could be indexed."""
        for trigger in triggers:
            if isinstance(trigger, Range):
                sample = self._sample(trigger.fact)
                sample.add_end(trigger.low)
                sample.add_end(trigger.high)
            elif isinstance(trigger, Hit) and trigger.value is not PRESENT:
                sample = self._sample(trigger.fact)
                if len(sample.values) < _SAMPLES_MAX:
                    sample.values.add(hash(trigger.value))
            elif isinstance(trigger, Found):
                sample = self._sample(trigger.fact)
                if len(sample.patterns) < _SAMPLES_MAX:
                    sample.patterns.add(hash(trigger.pattern))

    def cost(self, triggers: Triggers) -> float:
        """Estimate how often an event meets one of the triggers."""
        values = Counter(
            trigger.fact for trigger in triggers if isinstance(trigger, Hit) and trigger.value is not PRESENT
        )
        rest = (trigger for trigger in triggers if not isinstance(trigger, Hit) or trigger.value is PRESENT)
        return sum(map(self._cost, rest)) + sum(
            count / (count + 1 + self._values(fact)) for fact, count in values.items()
        )

    def _values(self, fact: str) -> int:
        """Estimate how many values of a fact occur in rules."""
        indexed = len(self._facts[fact].by_value) if fact in self._facts else 0
        return max(indexed, len(self._sample(fact).values))

    def _cost(self, trigger: Any) -> float:
        match trigger:
            case Found(fact):
                cost = _ELEMENTS_SEARCH_COST if OF_ELEMENTS in fact else _SEARCH_COST
                return cost / (1 + max(self._alike(trigger), len(self._sample(fact).patterns)))
            case Beginning() | Ending() | InNetwork():
                return 1 / (2 + self._alike(trigger))
            case Element():
                return _ELEMENTS / (1 + _ELEMENTS + self._alike(trigger))
            case Range():
                return self._cost_of_range(trigger)
            case Hit():
                return _PRESENT_COST
            case Related():
                return _RELATED_COST
            case _:
                return _HOLDING_COST

    def _alike(self, trigger: Any) -> int:
        """Return the number of triggers in the index with the same fact and kind."""
        fact = self._facts.get(trigger.fact)
        return 0 if fact is None else len(fact.more.get(type(trigger), ()))

    def _cost_of_range(self, trigger: Range) -> float:
        """Estimate how often a range selects a rule, plus its share of the search."""
        sample = self._sample(trigger.fact)
        ends = sample.ends
        inside = bisect_left(ends, ordinal(trigger.high)) - bisect_right(ends, ordinal(trigger.low))
        share = (max(0, inside) + 0.5) / (len(ends) + 1)
        return min(_COST_MAX, _SELECTED * share + _SEARCH / (1 + sample.count))

    def _sample(self, fact: str) -> _Sample:
        sample = self._samples.get(fact)
        if sample is None:
            if len(self._samples) >= _FACTS_MAX:
                # Drop the oldest one.
                del self._samples[next(iter(self._samples))]
            sample = self._samples[fact] = _Sample()
        return sample
