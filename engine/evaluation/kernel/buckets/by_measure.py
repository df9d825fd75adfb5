"""Buckets whose keys have measures, such as lengths: an event looks up one key of each measure."""

from collections.abc import Callable
from typing import Any

from engine.evaluation.kernel.buckets.buckets import Bucket


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
