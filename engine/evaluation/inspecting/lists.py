"""Requests for the rules of a detector and for its feed, and their answers as JSON."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.rules import rule_as_sent, rule_with_text
from engine.evaluation.wire.events import Done
from engine.language.diagnostics import Entry, Refusal
from engine.language.json.writer import json_bytes

LIST_BYTES_MAX: Final = 64 * 1024 * 1024
"""The maximum size of a list of all rules."""
PAGE_BYTES_MAX: Final = 1024 * 1024
"""A page ends at this size, but has at least one rule."""


class RulesAsked(msgspec.Struct, frozen=True):
    """Which rules are requested: at most `limit` after a priority; all of them if `limit` is 0."""

    after: int = 0
    limit: int = 0
    source: bool = False
    """Whether a page includes the conditions as text."""
    name: str | None = None
    """If given, a page has only rules with this name."""


def rules_of(detector: Detector, detector_id: str, payload: bytes) -> Done:
    """Return the requested rules, by priority: `{"rules": […]}`.

    Raises Refusal 1400 if all rules are requested and are larger than LIST_BYTES_MAX.
    """
    asked = msgspec.json.decode(payload, type=RulesAsked)
    if not asked.limit:
        return _listed(_whole(detector, detector_id))
    named = (rule for rule in detector.rules() if asked.name in (None, rule.name))
    following = (rule for rule in named if rule.priority > asked.after)
    sent = rule_with_text if asked.source else rule_as_sent
    page, size = [], 0
    for rule in islice(following, asked.limit):
        page.append(json_bytes(sent(rule, detector_id)))
        size += len(page[-1])
        if size >= PAGE_BYTES_MAX:
            break
    return _listed(page)


def _whole(detector: Detector, detector_id: str) -> list[bytes]:
    rules = detector.rules()
    # Escapes turn a character into up to six bytes, so check the size before building anything so large.
    left = LIST_BYTES_MAX - sum(rule.bytes_as_json() for rule in rules)
    if left < 0:
        raise _too_large()
    left = LIST_BYTES_MAX
    found = []
    for rule in rules:
        found.append(json_bytes(rule_as_sent(rule, detector_id)))
        left -= len(found[-1]) + 1
        if left < 0:
            raise _too_large()
    return found


def _too_large() -> Refusal:
    return Refusal(Entry(1400, f"the list exceeds {LIST_BYTES_MAX} bytes; use `limit` and `after`"))


def _listed(rules: Iterable[bytes]) -> Done:
    return Done(b'{"rules":[' + b",".join(rules) + b"]}")


# -- the feed -----------------------------------------------------------------------------------------------

FIRINGS_PAGE_MAX = 1_000
"""The maximum number of firings of a page."""


class FiringsAsked(msgspec.Struct):
    """At most `limit` firings after the number `after`; None for those still to come."""

    after: int | None = None
    limit: int = FIRINGS_PAGE_MAX


def firings_of(detector: Detector, payload: bytes) -> Done:
    """Return a page of the feed: `{"firings": […], "next"}`. Raises Refusal 1006 for a future number."""
    asked, feed = msgspec.json.decode(payload, type=FiringsAsked), detector.feed
    if asked.after is not None and asked.after > feed.durable:
        raise Refusal(Entry(1006, f"after: expected at most {feed.durable}, the number of the newest firing"))
    page = feed.page(feed.durable if asked.after is None else asked.after, asked.limit)
    gone = [] if page.gap is None else [b'{"gap":{"from":%d,"to":%d}}' % page.gap]
    return Done(b'{"firings":[%b],"next":%d}' % (b",".join([*gone, *page.firings]), page.next))
