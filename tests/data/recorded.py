"""Recorded events, and the events before each of them, for plain search."""

import gzip
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Search = Callable[[list[Event], int], bool]

MINUTE_US = 60_000_000


def read(path: Path, time_field: str) -> list[Event]:
    """Return the events of a gzipped recording, each with its time in microseconds under `TIME`."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        events: list[Event] = [json.loads(line, parse_float=Decimal) for line in lines]
    epoch = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    for event in events:
        given = event[time_field]
        if isinstance(given, str):
            event["TIME"] = (datetime.fromisoformat(given) - epoch) // timedelta(microseconds=1)
        else:
            event["TIME"] = int(given * 1_000_000)
    return events


def earlier(events: list[Event], now: int, span_us: int, *same: str) -> Iterator[tuple[int, Event]]:
    """Yield backwards from `now` the events at most `span_us` older that equal it in the fields `same`."""
    for at in range(now, -1, -1):
        event = events[at]
        if events[now]["TIME"] - event["TIME"] > span_us:
            return
        if all(name in event and event[name] == events[now].get(name) for name in same):
            yield at, event


SOME_CHANGES = "1131f6aa-9c07-11d1-f79f-00c04fc2dcd2"
ALL_CHANGES = "1131f6ad-9c07-11d1-f79f-00c04fc2dcd2"
PAIR = ("id_orig_h", "id_resp_h", "id_resp_p")


def asks_for_changes(event: Event) -> bool:
    return event["EventID"] == 4662 and SOME_CHANGES in event.get("Properties", "")
