"""Puts events in order of time, within the lateness that is allowed."""

import math
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from api.cli.recordings.reading import RecordedEvent


def in_order(events: Iterable[RecordedEvent], late_us_max: int) -> Iterator[RecordedEvent]:
    """Yield events sorted by time, if each is at most `late_us_max` earlier than some event before it.

    Events of one time keep their order. An event that comes later than allowed is yielded at once.
    """
    waiting: list[tuple[int, int, RecordedEvent]] = []
    latest_us = -math.inf
    for number, event in enumerate(events):
        latest_us = max(latest_us, event.time_us)
        heappush(waiting, (event.time_us, number, event))
        while waiting and waiting[0][0] <= latest_us - late_us_max:
            yield heappop(waiting)[2]
    while waiting:
        yield heappop(waiting)[2]
