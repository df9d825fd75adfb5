"""Pages of a detector's feed as JSON."""

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.wire.events import Done
from engine.language.diagnostics import Entry, Refusal

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
