"""The triggers of rules and memories: which events each must see, by what its operators say."""

from typing import NamedTuple

from engine.evaluation.kernel.site import Site
from engine.evaluation.operators.interface import Found, Memory
from engine.evaluation.operators.table import operator_of
from engine.evaluation.paths import Path
from engine.evaluation.plan.triggers import PRESENT, Analysis, Cost, Hit
from engine.evaluation.slices.slices import Remembered
from engine.language.condition import Condition


class Holding(NamedTuple):
    """Met if a memory has an entry in the event's slice."""

    remembered: Remembered
    kind: str = "holding"


class Triggers(Analysis):
    """Finds the triggers of the rules and memories of one site."""

    def __init__(self, site: Site, cost: Cost) -> None:
        super().__init__(site.birth, cost)
        self._site = site

    def present(self, fact: str) -> Found:
        """Return triggers for the events that have a fact."""
        return frozenset({Hit(fact, PRESENT)})

    def holding(self, memory: Memory, path: Path) -> Found:
        """Return triggers for the events in whose slice a memory has an entry."""
        return frozenset({Holding(self._site.histories.remembered(memory, path, self._site.birth))})

    def _true(self, node: Condition, path: Path) -> Found:
        operator = operator_of(node)
        return super()._true(node, path) if operator is None else operator.true_at(node, self, path)

    def _false(self, node: Condition, path: Path) -> Found:
        operator = operator_of(node)
        return super()._false(node, path) if operator is None else operator.false_at(node, self, path)
