"""Documents of older versions of a detector's state -> the present one, see `saved`."""

from array import array
from typing import Any

from engine.evaluation.temporal import NEVER


def from_version_1(document: dict[str, Any]) -> dict[str, Any]:
    """Give the document of version 2 for one of version 1.

    There, keys stood in the order of sweeping, some of them twice, and their entries spoke of places in it:

        tables:   [path, keys, last sighting of each (nil: evicted), cursor]
        memories: [condition as JSON, path, birth, time], with a path [[place, time] …] in place of the time
    """
    slots: dict[tuple[str, ...], dict[int, int]] = {}
    tables = []
    for path, keys, sightings, _ in document["tables"]:
        live = [place for place, tick in enumerate(sightings) if tick is not None]
        # Of a key that stands there twice, entries speak of the first place.
        first: dict[str, int] = {}
        for place in live:
            first.setdefault(repr(keys[place]), place)
        places = list(first.values())
        slots[tuple(path)] = {place: slot for slot, place in enumerate(places)}
        tables.append(
            {
                "path": path,
                "keys": [keys[place] for place in places],
                "seen": _packed(sightings[place] for place in places),
                **dict.fromkeys(("times", "first_ticks", "first_times"), b""),
                # Those that turn out to hold nothing are given back.
                "idle": _packed(range(len(places))),
                **dict.fromkeys(("opened", "turn", "scanned", "ticked"), 0),
            }
        )
    memories = [
        [condition, path, birth, _remembered(document, slots.get(tuple(path)), value)]
        for condition, path, birth, value in document["memories"]
    ]
    kept = {name: document[name] for name in ("clock_us", "events_seen", "priority_highest", "rules")}
    return {
        **kept,
        "tables": tables,
        "memories": memories,
        "doomed": [],
        # Every memory was written by every event.
        "indexed": False,
        "due": False,
        "busy": False,
        "rounds": 0,
        "previous_us": document["clock_us"] or 0,
    }


def _remembered(document: dict[str, Any], slots: dict[int, int] | None, value: Any) -> Any:
    events_seen = document["events_seen"]
    if slots is None:
        return [NEVER if value is None else value, events_seen]
    entries = [(slots[place], time_us) for place, time_us in value if place in slots]
    return {
        "slots": _packed(slot for slot, _ in entries),
        "times": _packed(time_us for _, time_us in entries),
        "paged": False,
        "whole_at": events_seen,
        "ticks": [b"", b""],
        "swept": 0,
        "sweeping": b"",
    }


def _packed(numbers: Any) -> bytes:
    return b"".join(number.to_bytes(8, "little", signed=True) for number in array("q", numbers))
