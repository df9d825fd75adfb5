"""Timelines: which conditions of a rule were true at the latest events. They are kept while requested."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.explaining import explain_clean
from engine.evaluation.explanation.nodes import Node
from engine.evaluation.facts.look_up import split_name, value_of
from engine.evaluation.facts.values import equal
from engine.evaluation.requirements import is_temporal
from engine.evaluation.wire.events import Done
from engine.language.condition import Condition, Keyed, Keys, Scalar, walk
from engine.language.diagnostics import Entry, Refusal
from engine.language.json.writer import json_bytes
from engine.language.text.printer import format as format_condition

EVENTS_KEPT: Final = 500
ROWS_MAX: Final = 32
TIMELINES_MAX: Final = 8
LOOKED_AT_S: Final = 30.0
"""A timeline ends when nobody has requested it for this long."""

SHARE: Final = 0.1
"""The share of a processor that the timelines of a detector may take in the long run. An explanation takes a
hundred times as long as an evaluation, so without a limit, timelines would delay events."""
BURST_S: Final = 0.5
"""The maximum processor time that they may take at once."""

_TOO_MANY: Final = 1400


class Moment(NamedTuple):
    """An event on a timeline."""

    number: int
    """The number of the event in the detector. It continues when a timeline starts anew."""
    time_us: int
    verdict: bool
    """Whether the rule fires."""
    verdicts: tuple[bool | None, ...]
    """The verdicts of the rows; None for a condition under a key that the event does not have."""
    key: Mapping[str, Any]
    """The slice of the event under the outermost `per`."""


class Timeline:
    """A rule at the latest events; with `key`, only at events with these values."""

    def __init__(self, condition: Condition, key: Mapping[str, Any]) -> None:
        self.condition = condition
        temporal = dict.fromkeys(row for row in walk(condition) if is_temporal(row[0]))
        self.rows = tuple(islice(temporal, ROWS_MAX))
        """The temporal conditions with the keys around them, outer ones first."""
        self.moments = deque[Moment](maxlen=EVENTS_KEPT)
        self.looked_at_s: float
        """Set at each request."""
        self._key = [(split_name(name), value) for name, value in key.items()]

    def concerns(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
        """Return whether an event has the key."""
        return all(equal(value_of(name, fields, sent), value) for name, value in self._key)

    def add(self, number: int, node: Node, time_us: int) -> None:
        """Add an event with its explained condition."""
        nodes = dict(_nodes(node, ()))
        verdicts = {row: each.verdict for row, each in nodes.items()}
        key = next((each.key for each in nodes.values() if each.key), {})
        rows = tuple(map(verdicts.get, self.rows))
        self.moments.append(Moment(number, time_us, node.verdict, rows, key))


class Timelines:
    """The timelines of a detector. While there are any, it explains events before they are evaluated.

    `work_s` returns the processor time of the thread, so a busy machine does not make explanations seem
    expensive.
    """

    def __init__(
        self,
        detector: Detector,
        clock_s: Callable[[], float],
        work_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._detector = detector
        self._clock_s, self._work_s = clock_s, work_s
        self._credit_s, self._credited_at_s = BURST_S, clock_s()
        self._timelines: dict[tuple[str, str], Timeline] = {}

    def look(self, rule_id: str, key: Mapping[str, Any]) -> Timeline:
        """Return a timeline. It begins now unless it was requested lately.

        Raises Refusal 1201 for an unknown rule, and 1400 if there are too many timelines.
        """
        rule = self._detector.rule(rule_id)
        self._end_unseen()
        name = (rule_id, repr(sorted(key.items())))
        timeline = self._timelines.get(name)
        if timeline is None or timeline.condition is not rule.condition:
            if timeline is None and len(self._timelines) >= TIMELINES_MAX:
                said = f"at most {TIMELINES_MAX} timelines of a detector can be open"
                raise Refusal(Entry(_TOO_MANY, said))
            timeline = self._timelines[name] = Timeline(rule.condition, key)
        timeline.looked_at_s = self._clock_s()
        if self not in self._detector.observers:
            self._detector.observers.append(self)
        return timeline

    def observe(self, fields: Mapping[str, Any], timestamp_ms: float, sent: Mapping[str, Any]) -> None:
        """Add an event to its timelines, as long as there is processor time left to explain it."""
        self._end_unseen()
        self._add_credit()
        for (rule_id, _), timeline in self._timelines.items():
            if self._credit_s <= 0 or not timeline.concerns(fields, sent):
                continue
            begun_s = self._work_s()
            self._explain(rule_id, timeline, fields, timestamp_ms, sent)
            self._credit_s -= self._work_s() - begun_s

    def _explain(
        self,
        rule_id: str,
        timeline: Timeline,
        fields: Mapping[str, Any],
        timestamp_ms: float,
        sent: Mapping[str, Any],
    ) -> None:
        try:
            explanation = explain_clean(self._detector, fields, timestamp_ms, sent, rule_id=rule_id)
        except Refusal:
            # The event will be refused, or the rule is gone.
            return
        [explained] = explanation.rules
        if explained.rule.enabled and explained.rule.condition is timeline.condition:
            timeline.add(self._detector.events_seen + 1, explained.node, explanation.time_us)

    def _add_credit(self) -> None:
        now_s = self._clock_s()
        self._credit_s = min(BURST_S, self._credit_s + SHARE * (now_s - self._credited_at_s))
        self._credited_at_s = now_s

    def _end_unseen(self) -> None:
        unseen_since_s = self._clock_s() - LOOKED_AT_S
        for name in [name for name, one in self._timelines.items() if one.looked_at_s < unseen_since_s]:
            del self._timelines[name]
        if not self._timelines and self in self._detector.observers:
            self._detector.observers.remove(self)


def _nodes(node: Node, keys: Keys) -> Iterator[tuple[tuple[Condition, Keys], Node]]:
    """Yield a node and all nodes inside it, each with its condition and the keys around it, like `walk`."""
    yield (node.condition, keys), node
    inside = (*keys, node.condition.step) if isinstance(node.condition, Keyed) else keys
    for number, inner in enumerate(node.nodes):
        # The second node of a `per` is that of its `where`, which is outside the slices.
        yield from _nodes(inner, keys if number and isinstance(node.condition, Keyed) else inside)


# -- as JSON ------------------------------------------------------------------------------------------------


class TimelineAsked(msgspec.Struct):
    """A timeline of a rule, from the event after the one with the number `after`."""

    rule_id: str
    key: dict[str, Scalar]
    after: int


def timeline(detector: Detector, payload: bytes) -> Done:
    """Return a timeline: `{"ruleId", "text", "rows": […], "moments": […]}`. Raises Refusal 1201 and 1400."""
    asked = msgspec.json.decode(payload, type=TimelineAsked)
    begun = (each for each in detector.observers if isinstance(each, Timelines))
    timelines = next(begun, None) or Timelines(detector, time.monotonic)
    found = timelines.look(asked.rule_id, asked.key)
    document: dict[str, Any] = {
        "ruleId": asked.rule_id,
        "text": format_condition(found.condition),
        "rows": [
            "".join(f"per {key if isinstance(key, str) else key.fact}: " for key in keys)
            + format_condition(row)
            for row, keys in found.rows
        ],
        "moments": [
            {
                "number": moment.number,
                "time_ms": moment.time_us / 1_000,
                "verdict": moment.verdict,
                "verdicts": moment.verdicts,
                "key": moment.key,
            }
            for moment in found.moments
            if moment.number > asked.after
        ],
    }
    return Done(json_bytes(document))
