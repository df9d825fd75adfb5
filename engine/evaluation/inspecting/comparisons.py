"""Compares the firings of a rule and its draft, as JSON, and explains events at which they differ.

A sample of the differences is explained; all of them while somebody watches.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.decided import Entries
from engine.evaluation.explanation.explaining import reading_at
from engine.evaluation.explanation.nodes import Node, node_document
from engine.evaluation.facts.values import Event
from engine.evaluation.inspecting.timelines import LOOKED_AT_S
from engine.evaluation.requirements import requirements_of
from engine.evaluation.rule_book.shadows import EXAMPLES_MAX, Comparison, Example, Explained
from engine.evaluation.times import FOREVER, milliseconds
from engine.evaluation.wire.events import Done
from engine.language.diagnostics import Entry, Refusal
from engine.language.json.writer import json_bytes

DIFFERENCES_KEPT: Final = 500
WATCHED_MAX: Final = 8
"""The maximum number of a detector's comparisons that are watched at the same time."""

EXPLAINED_NODES_MAX: Final = 400
"""Differences are explained if a rule and its draft have at most this many nodes together."""
EXPLAINED_ENTRIES_MAX: Final = 40_000
"""And if they remember at most this many times, values and panes, which are copied before each event."""
EXPLAINED_EACH_SECOND: Final = 50
"""The maximum number of differences explained in a second; each takes some hundred microseconds."""

SAMPLED_EACH_SECOND: Final = 1_000
"""The maximum number of events in a second at which Samples copies state; each takes some microseconds."""
EXPLAINED_BYTES_MAX: Final = 32 * 1024
"""The maximum size of the trees kept with an example."""

_TOO_MANY: Final = 1400


class Difference(NamedTuple):
    """An event at which only the rule or only the draft fired."""

    kind: str
    """ONLY_RULE or ONLY_DRAFT."""
    example: Example
    nodes: tuple[Node, Node] | None
    """The explained conditions of the rule and the draft, before the event was recorded. None if there were
    too many differences in that second, or if the conditions are too large."""


class _Quota:
    """Limits how often something is done in a second."""

    def __init__(self, most: int, clock_s: Callable[[], float]) -> None:
        self._most, self._clock_s = most, clock_s
        self._second, self._done = 0, 0

    def take(self) -> bool:
        """Count one more use. Return whether it is within the limit."""
        second = int(self._clock_s())
        if second != self._second:
            self._second, self._done = second, 0
        self._done += 1
        return self._done <= self._most


class _Pair:
    """A rule and its draft. Their state is copied before an event, so that it can be explained later."""

    def __init__(self, detector: Detector, comparison: Comparison) -> None:
        self._detector, self._comparison = detector, comparison
        enabled = [
            detector.rule_set.enabled[detector.live[rule_id].rule.priority]
            for rule_id in (comparison.rule_id, comparison.draft_id)
        ]
        needed = [requirements_of(each.rule.condition, each.births) for each in enabled]
        entries = sum(use.operator.keep(use.node) for each in needed for use in each.memories)
        self.is_small = (
            sum(each.size for each in needed) <= EXPLAINED_NODES_MAX and entries <= EXPLAINED_ENTRIES_MAX
        )
        self._memories = dict.fromkeys(one for each in enabled for one in each.memories)
        self._before: tuple[Mapping[str, Any], Entries] | None = None
        """The fields of the next event, and the state before it."""

    def keep(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> None:
        """Copy the state that the next event may change, unless the conditions are large."""
        if self.is_small:
            entries = Entries(self._detector.events_seen + 1, fields, sent)
            entries.keep(self._memories)
            self._before = fields, entries

    def take_nodes(self, event: Event) -> tuple[Node, Node] | None:
        """Return the explained rule and draft as before an event, once; None if nothing was copied."""
        fields, _, sent = event
        before, self._before = self._before, None
        # `Detector.evaluate` calls no observers, and an observed event may have been refused.
        if before is None or before[0] is not fields:
            return None
        detector, comparison = self._detector, self._comparison
        assert detector.clock_us is not None, "an event was evaluated"
        reading = reading_at(detector, detector.clock_us, fields, sent or {}, before[1])
        rule, draft = detector.live[comparison.rule_id], detector.live[comparison.draft_id]
        return reading.node(rule), reading.node(draft)


class Differences:
    """Watches one comparison, as an observer of its detector."""

    def __init__(self, detector: Detector, comparison: Comparison, clock_s: Callable[[], float]) -> None:
        self.kept = deque[Difference](maxlen=DIFFERENCES_KEPT)
        """The latest differences, the newest last."""
        self.looked_at_s = clock_s()
        self._detector, self._comparison, self._clock_s = detector, comparison, clock_s
        self._pair = _Pair(detector, comparison)
        self._quota = _Quota(EXPLAINED_EACH_SECOND, clock_s)

    def observe(
        self,
        fields: Mapping[str, Any],
        timestamp_ms: float,  # noqa: ARG002 -- the state does not depend on it
        sent: Mapping[str, Any],
    ) -> None:
        """Copy the state before this event may change it. End if nobody has looked lately."""
        if self._comparison.watcher is not self or self.looked_at_s < self._clock_s() - LOOKED_AT_S:
            self._end()
        else:
            self._pair.keep(fields, sent)

    def differed(self, kind: str, example: Example, event: Event) -> None:
        """Keep an event at which only one fired."""
        nodes = self._pair.take_nodes(event) if self._quota.take() else None
        self.kept.append(Difference(kind, example, nodes))

    def _end(self) -> None:
        self._detector.observers.remove(self)
        if self._comparison.watcher is self:
            self._comparison.watcher = None


class Samples:
    """Explains some differences of each comparison while nobody watches: the sampler of its detector.

    At each event, it copies the state of one pair; the pairs take turns.
    """

    def __init__(self, detector: Detector, clock_s: Callable[[], float]) -> None:
        self._detector = detector
        self._quota = _Quota(SAMPLED_EACH_SECOND, clock_s)

    def observe(
        self,
        fields: Mapping[str, Any],
        timestamp_ms: float,  # noqa: ARG002 -- as in Differences
        sent: Mapping[str, Any],
    ) -> None:
        """Copy the state of one pair before this event may change it."""
        if not self._quota.take():
            return
        comparisons, seen = self._detector.shadows.comparisons, self._detector.events_seen
        [comparison] = islice(comparisons.values(), seen % len(comparisons), seen % len(comparisons) + 1)
        sampler = comparison.sampler
        if not isinstance(sampler, _Sampler):
            sampler = comparison.sampler = _Sampler(self._detector, comparison)
        if sampler.pair.is_small:
            comparison.sampled_at = seen + 1
            sampler.pair.keep(fields, sent)


class _Sampler:
    """Explains the examples of one comparison."""

    def __init__(self, detector: Detector, comparison: Comparison) -> None:
        self.pair = _Pair(detector, comparison)
        self._comparison = comparison

    def differed(self, kind: str, example: Example, event: Event) -> None:
        """Keep the explanation of why only one fired."""
        nodes = self.pair.take_nodes(event)
        if nodes is None:
            return
        rule, draft = [
            json.dumps(node_document(node), ensure_ascii=False, allow_nan=False).encode() for node in nodes
        ]
        if len(rule) + len(draft) <= EXPLAINED_BYTES_MAX:
            self._comparison.explained[kind].append(Explained(example, rule, draft))


def watch(detector: Detector, comparison: Comparison, clock_s: Callable[[], float]) -> Differences:
    """Return the watcher of a comparison, which keeps differences from the first call on.

    Raises Refusal 1400 if too many comparisons of the detector are watched.
    """
    watcher = comparison.watcher
    if isinstance(watcher, Differences):
        watcher.looked_at_s = clock_s()
        return watcher
    others = [each for each in detector.observers if isinstance(each, Differences)]
    if len(others) >= WATCHED_MAX:
        said = f"at most {WATCHED_MAX} comparisons of a detector can be watched"
        raise Refusal(Entry(_TOO_MANY, said))
    comparison.watcher = found = Differences(detector, comparison, clock_s)
    detector.observers.append(found)
    return found


# -- as JSON ------------------------------------------------------------------------------------------------

TREES_BYTES_MAX: Final = 4 * 1024 * 1024
"""The approximate maximum size of the explanations in an answer; later differences have none."""


class ComparisonAsked(msgspec.Struct):
    """The comparison of a rule with its draft; with `after`, also the differences after that event."""

    rule_id: str
    after: int | None = None


def comparison_asked(detector: Detector, payload: bytes) -> Done:
    """Return the comparison that a payload asks for. Raises Refusal 1201 and 1400."""
    asked = msgspec.json.decode(payload, type=ComparisonAsked)
    return comparison_of(detector, asked.rule_id, asked.after)


def comparison_of(detector: Detector, rule_id: str, after: int | None = None) -> Done:
    """Return the comparison of a rule with its draft. Raises Refusal 1201 if there is none.

    With `after`, watch the differences and include those after the event with that number. This raises
    Refusal 1400 if too many are watched.
    """
    found = detector.comparison(rule_id)
    document: dict[str, Any] = {
        "ruleId": found.rule_id,
        "draftId": found.draft_id,
        "since_event": found.since_event,
        "events": detector.events_seen - found.since_event,
        **found.counts,
        "examples": {kind: _examples(found, kind) for kind in found.examples},
    }
    if found.since_us is not None:
        document["since_ms"] = milliseconds(found.since_us)
    if found.young_until_us is not None:
        until_us = found.young_until_us
        document["young_until_ms"] = None if until_us >= FOREVER else milliseconds(until_us)
    if after is not None:
        kept = watch(detector, found, time.monotonic).kept
        document["differences"] = _differences([one for one in kept if one.example.number > after])
    return Done(json_bytes(document))


def _examples(comparison: Comparison, kind: str) -> list[dict[str, Any]]:
    """Return the latest examples of a kind, the newest first, including all explained ones."""
    trees = {one.example.number: one for one in comparison.explained.get(kind, ())}
    examples = {one.number: one for one in comparison.examples[kind]}
    others = [one for number, one in examples.items() if number not in trees]
    shown = [*(one.example for one in trees.values()), *others[-(EXAMPLES_MAX - len(trees)) :]]
    documents = []
    for example in sorted(shown, key=lambda one: -one.number):
        document = _example(example)
        if example.number in trees:
            one = trees[example.number]
            document |= {"rule": json.loads(one.rule), "draft": json.loads(one.draft)}
        documents.append(document)
    return documents


def _differences(differences: list[Difference]) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = []
    left = TREES_BYTES_MAX
    for one in differences:
        document = {"fired": one.kind, **_example(one.example)}
        if one.nodes is not None and left > 0:
            rule, draft = map(node_document, one.nodes)
            left -= len(json.dumps([rule, draft], allow_nan=False))
            document |= {"rule": rule, "draft": draft}
        documents.append(document)
    return documents


def _example(example: Example) -> dict[str, Any]:
    document = {
        "number": example.number,
        "timestamp_ms": example.timestamp_ms,
        "key": example.key,
        "fields": example.fields,
    }
    return document | {"cut": True} if example.is_cut else document
