"""Estimates how often an event meets a trigger, from the triggers that rules could be indexed by.

The values and the ends of ranges that rules ask for stand for the values that events have. They count whether
or not rules are indexed by them; otherwise the first choice would decide all later ones.
"""

from bisect import bisect_left, bisect_right, insort
from math import inf
from typing import Final

from engine.evaluation.kernel.selection.ranges import ordinal
from engine.evaluation.kernel.selection.triggers import PRESENT, Hit, Range, Triggers
from engine.language.operators import LARGEST

_FACTS_MAX: Final = 256
_SAMPLES_MAX: Final = 256
"""The most facts, and the most values and ends of ranges of a fact, that are kept."""

_OPEN: Final = frozenset({LARGEST, -LARGEST, inf, -inf})
"""The ends of ranges that go on for ever."""

_SEARCH: Final = 40.0
"""The cost of searching the ranges of a fact at an event, in evaluations of a rule. Its ranges share it."""

_SELECTED: Final = 8.0
"""A rule that a range selects is collected alone, which takes as long as so many in a bucket."""

_COST_MAX: Final = 0.99
"""The highest cost of a range: less than that of all events with the fact."""

_STRIDE: Final = 97
"""Which end of a full sample the next one replaces; prime, so that every end is replaced sometimes."""


class _Sample:
    """What rules ask of a fact."""

    __slots__ = ("count", "ends", "values")

    def __init__(self) -> None:
        self.values: set[int] = set()
        """The hashes of values."""
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
    """The samples of the facts that rules ask for."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: dict[str, _Sample] = {}

    def learn(self, triggers: Triggers) -> None:
        """Take triggers into account that a rule could be indexed by."""
        for trigger in triggers:
            if isinstance(trigger, Range):
                sample = self._sample(trigger.fact)
                sample.add_end(trigger.low)
                sample.add_end(trigger.high)
            elif isinstance(trigger, Hit) and trigger.value is not PRESENT:
                sample = self._sample(trigger.fact)
                if len(sample.values) < _SAMPLES_MAX:
                    sample.values.add(hash(trigger.value))

    def values(self, fact: str) -> int:
        """Return how many values of a fact are known, up to a bound."""
        return len(self._sample(fact).values)

    def cost(self, trigger: Range) -> float:
        """Estimate what a range costs an event: how often it selects a rule, and its share of the search."""
        sample = self._sample(trigger.fact)
        ends = sample.ends
        inside = bisect_left(ends, ordinal(trigger.high)) - bisect_right(ends, ordinal(trigger.low))
        share = (max(0, inside) + 0.5) / (len(ends) + 1)
        return min(_COST_MAX, _SELECTED * share + _SEARCH / (1 + sample.count))

    def _sample(self, fact: str) -> _Sample:
        sample = self._samples.get(fact)
        if sample is None:
            if len(self._samples) >= _FACTS_MAX:
                # The oldest is forgotten.
                del self._samples[next(iter(self._samples))]
            sample = self._samples[fact] = _Sample()
        return sample
