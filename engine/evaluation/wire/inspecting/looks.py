"""What somebody looks at, as JSON: timelines, how the firings of a rule and its draft differ, the feed."""

import json
import time
from typing import Any, Final

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.explanation.looking.differences import Difference, watch
from engine.evaluation.explanation.looking.timelines import Timelines
from engine.evaluation.explanation.nodes import node_document
from engine.evaluation.rule_book.shadows import EXAMPLES_MAX, Comparison, Example
from engine.evaluation.times import FOREVER, milliseconds
from engine.evaluation.wire.events import Done
from engine.language.condition import Scalar
from engine.language.diagnostics import Entry, Refusal
from engine.language.json.writer import json_bytes
from engine.language.text.printer import format as format_condition


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


# -- comparisons --------------------------------------------------------------------------------------------

TREES_BYTES_MAX: Final = 4 * 1024 * 1024
"""About the most bytes of the explanations in an answer; the differences after those have none."""


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

    With `after`, its differences are watched, and those after the event with that number are included. Raises
    Refusal 1400 then if too many are watched.
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
    """Return the last examples of a kind, the last one first, with all that were explained."""
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


FIRINGS_PAGE_MAX = 1_000
"""The most firings of a page."""


class FiringsAsked(msgspec.Struct):
    """At most `limit` firings, from the one after the number `after`; None for those still to come."""

    after: int | None = None
    limit: int = FIRINGS_PAGE_MAX


def firings_of(detector: Detector, payload: bytes) -> Done:
    """Return a page of the feed: `{"firings": […], "next"}`. Raises Refusal 1006 for a number to come."""
    asked, feed = msgspec.json.decode(payload, type=FiringsAsked), detector.feed
    if asked.after is not None and asked.after > feed.durable:
        raise Refusal(Entry(1006, f"after: expected at most {feed.durable}, the number of the newest firing"))
    page = feed.page(feed.durable if asked.after is None else asked.after, asked.limit)
    gone = [] if page.gap is None else [b'{"gap":{"from":%d,"to":%d}}' % page.gap]
    return Done(b'{"firings":[%b],"next":%d}' % (b",".join([*gone, *page.firings]), page.next))
