"""The events at which only one of a rule and its draft fired, and why, for as long as somebody looks."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from engine.evaluation.detector import Detector
from engine.evaluation.dispatch.compiler import Event
from engine.evaluation.explanation.explaining import Reading, predicates_at
from engine.evaluation.explanation.nodes import Node
from engine.evaluation.explanation.past.remembered import Remembered
from engine.evaluation.explanation.timelines import LOOKED_AT_S
from engine.evaluation.plan.requirements import requirements_of
from engine.evaluation.rule_book.shadows import Comparison, Example
from engine.evaluation.state.slices import NodeName
from engine.language.diagnostics import Entry, Refusal

DIFFERENCES_KEPT: Final = 500
WATCHED_MAX: Final = 8
"""The most comparisons of a detector that are watched at the same time."""

EXPLAINED_NODES_MAX: Final = 400
"""The most nodes that a rule and its draft have together if their differences are explained."""
EXPLAINED_EACH_SECOND: Final = 50
"""The most differences that are explained in a second: each takes some hundred microseconds."""

_TOO_MANY: Final = 1400


class Difference(NamedTuple):
    """An event at which only one of the two fired."""

    kind: str
    """Which: ONLY_RULE or ONLY_DRAFT."""
    example: Example
    nodes: tuple[Node, Node] | None
    """The conditions of the rule and of the draft before the event was recorded. None if there were too many
    differences in that second, or if the conditions are too large."""


class Differences:
    """Watches one comparison: an observer of its detector, and the watcher of the comparison."""

    def __init__(self, detector: Detector, comparison: Comparison, clock_s: Callable[[], float]) -> None:
        self.kept = deque[Difference](maxlen=DIFFERENCES_KEPT)
        """The latest differences, the last one last."""
        self.looked_at_s = clock_s()
        self._detector, self._comparison, self._clock_s = detector, comparison, clock_s
        pair = [detector.live[comparison.rule_id], detector.live[comparison.draft_id]]
        needed = [requirements_of(live.rule.condition, live.birth) for live in pair]
        self._is_small = sum(each.size for each in needed) <= EXPLAINED_NODES_MAX
        self._names = [
            NodeName(node, path, live.birth)
            for live, each in zip(pair, needed, strict=True)
            for node, path in each.memories
        ]
        self._before: tuple[int, Remembered] | None = None
        """The number of the event that is evaluated next, and what is remembered before it."""
        self._second, self._explained = 0, 0

    def observe(
        self,
        fields: Mapping[str, Any],
        timestamp_ms: float,  # noqa: ARG002 -- what is remembered does not depend on it
        sent: Mapping[str, Any],
    ) -> None:
        """Keep what both remember, which this event may change. Ends if nobody looks any more."""
        if self._comparison.watcher is not self or self.looked_at_s < self._clock_s() - LOOKED_AT_S:
            self._end()
        elif self._is_small:
            seen = self._detector.events_seen
            remembered = Remembered(self._detector.state, seen, fields, sent)
            self._before = seen + 1, remembered.keep(self._names)

    def differed(self, kind: str, example: Example, event: Event) -> None:
        """Keep an event at which only one fired."""
        self.kept.append(Difference(kind, example, self._nodes(example.number, event)))

    def _nodes(self, number: int, event: Event) -> tuple[Node, Node] | None:
        before, self._before = self._before, None
        # An event that `Detector.evaluate` takes is not observed.
        if before is None or before[0] != number or not self._has_time():
            return None
        detector, comparison = self._detector, self._comparison
        assert detector.clock_us is not None, "an event was evaluated"
        fields, _, sent = event
        reading = Reading(detector.clock_us, (), predicates_at(detector, fields, sent or {}), before[1])
        rule, draft = detector.live[comparison.rule_id], detector.live[comparison.draft_id]
        return reading.node(rule), reading.node(draft)

    def _has_time(self) -> bool:
        second = int(self._clock_s())
        if second != self._second:
            self._second, self._explained = second, 0
        self._explained += 1
        return self._explained <= EXPLAINED_EACH_SECOND

    def _end(self) -> None:
        self._detector.observers.remove(self)
        if self._comparison.watcher is self:
            self._comparison.watcher = None


def watched(detector: Detector, comparison: Comparison, clock_s: Callable[[], float]) -> Differences:
    """Look at the differences of a comparison, which are kept from the first look on.

    Raises Refusal 1400 if too many comparisons of the detector are looked at.
    """
    watcher = comparison.watcher
    if isinstance(watcher, Differences):
        watcher.looked_at_s = clock_s()
        return watcher
    others = [each for each in detector.observers if isinstance(each, Differences)]
    if len(others) >= WATCHED_MAX:
        said = f"{WATCHED_MAX} comparisons of this detector are watched, which is the limit"
        raise Refusal(Entry(_TOO_MANY, said))
    comparison.watcher = found = Differences(detector, comparison, clock_s)
    detector.observers.append(found)
    return found
