"""Migrates documents of older versions; `saved.py` describes the current one."""

from array import array
from collections import Counter
from typing import Any, Final

from engine.evaluation.persistence.packing import numbers_packed, numbers_unpacked
from engine.evaluation.state.storage.pages import IN_PAGE, PAGE_BITS, PAGE_SLOTS
from engine.evaluation.times import FOREVER, NEVER


def _from_version_1(document: dict[str, Any]) -> dict[str, Any]:
    """Migrate a document of version 1 to version 2.

    In version 1, the keys of a table were in the order of expiry checks, some of them twice. Entries referred
    to places in this order:

        tables:   [path, keys, last sighting of each (nil: evicted), cursor]
        memories: [condition as JSON, path, birth, time], with a path [[place, time] …] in place of the time

    The progress of expiry and eviction, which version 4 no longer has, is left out.
    """
    slots: dict[tuple[str, ...], dict[int, int]] = {}
    tables = []
    for path, keys, sightings, _ in document["tables"]:
        live = [place for place, tick in enumerate(sightings) if tick is not None]
        # If a key has two places, entries refer to the first.
        first: dict[str, int] = {}
        for place in live:
            first.setdefault(repr(keys[place]), place)
        places = list(first.values())
        slots[tuple(path)] = {place: slot for slot, place in enumerate(places)}
        tables.append(
            {
                "path": path,
                "keys": [keys[place] for place in places],
                "seen": numbers_packed(sightings[place] for place in places),
                **dict.fromkeys(("times", "first_ticks", "first_times"), b""),
            }
        )
    memories = [
        [condition, path, birth, _remembered(document, slots.get(tuple(path)), value)]
        for condition, path, birth, value in document["memories"]
    ]
    unchanged = {name: document[name] for name in ("clock_us", "events_seen", "priority_highest", "rules")}
    return {
        **unchanged,
        "tables": tables,
        "memories": memories,
        # In version 1, every event updated every memory.
        "indexed": False,
        "previous_us": document["clock_us"] or 0,
    }


def _from_version_2(document: dict[str, Any]) -> dict[str, Any]:
    """Migrate a document of version 2 to version 3.

    In version 2, the single keys of a path of one key were in arrays too. The entries of paged columns were
    listed like those of other columns. The number of columns with an entry at each slot was not stored.

        memories: … with a path, the slots and times of the entries, and whether they are paged
    """
    held = {tuple(row["path"]): array("q", bytes(8 * len(row["keys"]))) for row in document["tables"]}
    memories = [
        [condition, path, birth, _laid_out(remembered, held[tuple(path)]) if path else remembered]
        for condition, path, birth, remembered in document["memories"]
    ]
    tables = [
        {
            **row,
            "keys": [key[0] if key is not None and len(row["path"]) == 1 else key for key in row["keys"]],
            "held": numbers_packed(held[tuple(row["path"])]),
        }
        for row in document["tables"]
    ]
    return {**document, "tables": tables, "memories": memories}


def _from_version_3(document: dict[str, Any]) -> dict[str, Any]:
    """Migrate a document of version 3 to version 4.

    Version 3 also recorded the progress of expiry and eviction. A free slot kept the last event of its
    previous key, and an entry in `ticks` could belong to a previous key:

        due, busy, rounds, doomed
        tables:   … idle, opened, turn, scanned, ticked
        memories: … with a path, swept, sweeping
    """
    taken = {tuple(row["path"]): [key is not None for key in row["keys"]] for row in document["tables"]}
    tables = [
        {name: row[name] for name in ("path", "keys", "held", "times", "first_ticks", "first_times")}
        | {"seen": _seen_where(row["seen"], taken[tuple(row["path"])])}
        for row in document["tables"]
    ]
    memories = [
        [condition, path, birth, _without_marks(remembered, taken[tuple(path)]) if path else remembered]
        for condition, path, birth, remembered in document["memories"]
    ]
    unchanged = ("clock_us", "events_seen", "priority_highest", "rules", "indexed", "previous_us")
    return {**{name: document[name] for name in unchanged}, "tables": tables, "memories": memories}


def _seen_where(seen: bytes, taken: list[bool]) -> bytes:
    return numbers_packed(
        tick if is_taken else FOREVER for tick, is_taken in zip(numbers_unpacked(seen), taken, strict=True)
    )


def _without_marks(remembered: dict[str, Any], taken: list[bool]) -> dict[str, Any]:
    ticks = {
        slot: tick
        for slot, tick in zip(*map(numbers_unpacked, remembered["ticks"]), strict=True)
        if slot < len(taken) and taken[slot]
    }
    others = {name: remembered[name] for name in remembered if name not in {"swept", "sweeping"}}
    return {**others, "ticks": [numbers_packed(ticks), numbers_packed(ticks.values())]}


def _laid_out(remembered: dict[str, Any], held: "array[int]") -> dict[str, Any]:
    slots, times = numbers_unpacked(remembered["slots"]), numbers_unpacked(remembered["times"])
    for slot in slots:
        held[slot] += 1
    unchanged = {name: remembered[name] for name in ("whole_at", "ticks")}
    if not remembered["paged"]:
        return {**unchanged, "few": [remembered["slots"], remembered["times"]]}
    pages: dict[int, array[int]] = {}
    counts: Counter[int] = Counter()
    for slot, time_us in zip(slots, times, strict=True):
        number = slot >> PAGE_BITS
        pages.setdefault(number, array("q", [NEVER]) * PAGE_SLOTS)[slot & IN_PAGE] = time_us
        counts[number] += 1
    return {
        **unchanged,
        "counts": [numbers_packed(pages), numbers_packed(counts[number] for number in pages)],
        "pages": b"".join(map(numbers_packed, pages.values())),
    }


def _remembered(document: dict[str, Any], slots: dict[int, int] | None, value: Any) -> Any:
    events_seen = document["events_seen"]
    if slots is None:
        return [NEVER if value is None else value, events_seen]
    entries = [(slots[place], time_us) for place, time_us in value if place in slots]
    return {
        "slots": numbers_packed(slot for slot, _ in entries),
        "times": numbers_packed(time_us for _, time_us in entries),
        "paged": False,
        "whole_at": events_seen,
        "ticks": [b"", b""],
    }


_REBUILT: Final = (_from_version_1, _from_version_2, _from_version_3)
"""Each rebuilds a document of its version as one of the next."""

_ADDED: Final[tuple[dict[str, Any], ...]] = (
    # In version 4, every rule reads a memory of its own birth.
    {"joined": [], "newborn": []},
    # Version 6 adds keys with a `where`, and records.
    {},
    # From version 7 on, memories without a window may wait to join.
    {"joining": None},
)
"""The members that documents of version 4 and each later version lack."""


def migrated(document: dict[str, Any], version: int) -> dict[str, Any]:
    """Return a document of any version as one of the current version."""
    for rebuilt in _REBUILT[version - 1 :]:
        document = rebuilt(document)
    for added in _ADDED[max(0, version - 1 - len(_REBUILT)) :]:
        document = {**document, **added}
    return document
