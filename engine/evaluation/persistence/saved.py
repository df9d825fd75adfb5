"""Loads a detector from a msgpack document: its rules, and their state by key.

`capturing.py` and `packing.py` write the document. This is version 13:

    clock_us, events_seen, priority_highest
    indexed:  whether rules were indexed
    rules:    [id, name, condition as JSON, enabled, notify, priority, birth, time of the last event before it
              (nil: none)] in order of priority
    sources:  conditions as they were written, by rule id, if different from the canonical text. Absent if
              there are none
    kept:     by priority, the histories that a change of the rule's condition has kept: [a part, like the
              node of a memory; path; birth; time of the last event before it (nil: none)]. The part of a
              `where` is the key of its slices, without the `where`. Absent if there are none
    described: [description, labels as JSON] by priority, for rules that have either. Absent if none has
    acting:   [timed, every_secs (nil: no limit), every_by (nil: the rule's keys)] by priority, for rules that
              have any of these. Absent if none has
    versions: [current ones: priority, number, time in µs of the change that made it (nil: unknown), id and
              name of the token that made it; earlier ones: the same, and the rule as JSON]. Absent from older
              documents
    shadows:  the shadow rules by priority, each with the priority of the rule that it is a draft of, or nil.
              Absent if there are none, like `comparisons`
    comparisons: [priority of the rule, events before the comparison, time of the last of them (nil: none),
              time until which the draft may differ because it has seen less (nil: it has seen enough), how
              often both fired, only the rule, only the draft]
    acted:    the serial number of the last firing of a rule with every_secs, and [keys, serial numbers of the
              last firings, times in µs from which their rules may act again, numbers of suppressed actions]
              for each shard of entries; see `firings/at_most_once.py`. A key is the rule's priority and the
              values of the names, nil if missing; an array or object is stored like a long text. Absent
              before the first firing
    feed:     number of the newest firing; the firings in the feed, as JSON, oldest first. Absent before the
              first firing
    relations: the stored relations; see `relations/builder.py`. Absent if there are none
    slices:   [path, width of the lists, memories, portions]. The path has each key as its name, or as
              [name, condition as JSON, birth] if it has a `where`
        memories: [a node that reads it, as JSON, a term as a comparison with 0; birth; place; maximum length
              of a record] by place. Places from the width on are not in the lists
        portions: [keys, stamps of last events, entries by place of the memory]: the slices of a shard. A key
              is an array if the path has several. Without a path, there is one slice, and no key
        entries: [number of the slice of each, length of each (empty unless they are records), columns]. In a
              memory kept by exception, they are the exceptions; see `slices/slices.py`
    waiting:  the waiting slices, by the priority of their timed rule: [time at which all are checked (nil:
              never), portions, and true if a slice may have state from before the rule waited for any].
              Absent if there is no such rule
        portions: [keys, numbers of the slices' first events, times at which each is checked (FOREVER: never),
              the values of keys with long texts, by place]
    figures:  since: [events before the count of firings began, time of the last of them]; fired: priorities
              of rules, and how often they fired; held_back: priorities, and numbers of suppressed actions;
              ran: the number of sampled events, priorities, and at how many of the events the rules were
              evaluated; rule_ns: priorities, and the time that the rules took; memory_ns: [a node, path,
              birth, time that the memory took]; behind_us: how far the clock was behind the server's at the
              last event or tick (nil: unknown). Only in snapshots

`columns.py` describes columns. The memories of operators define which columns they have.
"""

from typing import Any, Final

import msgspec

from engine.evaluation.paths import Path
from engine.evaluation.persistence import columns
from engine.evaluation.persistence.capturing import Saved, capture
from engine.evaluation.persistence.columns import (
    entries_in,
    keys_unpacked,
    numbers_unpacked,
    stamps_unpacked,
    stored_condition,
    stored_part,
    stored_path,
)
from engine.evaluation.persistence.migration import migrated
from engine.evaluation.persistence.packing import packed
from engine.evaluation.relations.builder import relations_unpacked
from engine.evaluation.requirements import Birth, Births, Part
from engine.evaluation.rules import Rule
from engine.evaluation.slices.slices import SEEN, Remembered, Slices
from engine.evaluation.stamps import LATEST, UNSET, stamp_of
from engine.evaluation.times import FOREVER

STATE_VERSION: Final = 13
"""Version 12 lacks `acting`, `feed` and `waiting`, and version 11 also `kept`, `described`, `versions` and
`relations`. Both are read without migration."""
_MIGRATED_BEFORE: Final = 11
OLDEST_VERSION: Final = 7
"""Release 0.1.0 wrote versions 7 to 10, the lowest that sufficed. Older documents cannot be read."""

unpack: Final = columns.unpack


def dump(detector: Saved) -> bytes:
    """Return bytes from which `load` restores an equivalent detector."""
    return b"".join(packed(capture(detector)))


def load(detector: Saved, document: Any, version: int) -> None:
    """Restore an empty detector from a document of a version from OLDEST_VERSION on."""
    assert not detector.live, "a detector is loaded before it is used"
    assert not detector.events_seen, "a detector is loaded before it is used"
    if version < _MIGRATED_BEFORE:
        document = migrated(document)
    detector.clock_us = document["clock_us"]
    detector.events_seen = document["events_seen"]
    detector.priority_highest = document["priority_highest"]
    detector.stored.update(relations_unpacked(document.get("relations", ()), detector.limits))
    sources, shadows = document.get("sources", {}), document.get("shadows", {})
    described, acting = document.get("described", {}), document.get("acting", {})
    ids = {priority: rule_id for rule_id, *_, priority, _, _ in document["rules"]}
    for rule_id, name, condition, enabled, notify, priority, birth, born_us in document["rules"]:
        description, labels = described.get(priority, ("", b"{}"))
        timed, every_secs, every_by = acting.get(priority, (False, None, None))
        rule = Rule(
            id=rule_id,
            name=name,
            condition=stored_condition(condition),
            enabled=enabled,
            notify=notify,
            priority=priority,
            source=sources.get(rule_id),
            shadow=priority in shadows,
            draft_of=ids.get(shadows.get(priority)),
            description=description,
            labels=msgspec.json.decode(labels),
            timed=timed,
            every_secs=every_secs,
            every_by=None if every_by is None else tuple(every_by),
        )
        rule.know_condition_bytes(len(condition))
        kept = {
            Part(stored_part(node), stored_path(path)): Birth(birth, _born(birth, born_us))
            for node, path, birth, born_us in document.get("kept", {}).get(priority, ())
        }
        detector.install(rule, Births(birth, _born(birth, born_us), kept))
    detector.versions.restore(*document.get("versions", ((), ())))
    detector.at_most_once.last, acted = document.get("acted", (0, ()))
    for portion in acted:
        keys, *columns = portion
        for entry in zip(keys_unpacked(keys, several=True), *map(numbers_unpacked, columns), strict=True):
            detector.at_most_once.restore(*entry)
    detector.feed.restore(*document.get("feed", (0, ())))
    for priority, *compared in document.get("comparisons", ()):
        detector.shadows.comparison(ids[priority]).restore(*compared)
    for saved_path, width, memories, portions in document["slices"]:
        _load_slices(detector, stored_path(saved_path), width, memories, portions)
    for priority, (rest_us, portions, *late) in document.get("waiting", {}).items():
        _load_waiting(detector, priority, rest_us, portions, is_late=bool(late))
    detector.settle_rules(indexed=document["indexed"])


def _born(birth: int, born_us: int | None) -> int:
    return UNSET if born_us is None else stamp_of(born_us, birth)


def _load_slices(detector: Saved, path: Path, width: int, memories: list[Any], portions: list[Any]) -> None:
    histories = detector.histories
    # Keep the order in which they were saved.
    slices = histories.slices[path] = histories.slices.pop(path)
    by_place: dict[int, Remembered] = {}
    for condition, birth, place, keep in memories:
        node = stored_part(condition)
        remembered = by_place[place] = histories.of(node, path, birth)
        remembered.node, remembered.keep = node, keep
    slices.arrange(width, by_place)
    for portion in portions:
        _load_portion(slices, *portion)


def _load_portion(slices: Slices, keys: list[Any], seen: list[bytes], entries: dict[int, Any]) -> None:
    if slices.path:
        admitted = list(map(slices.admit, keys_unpacked(keys, several=len(slices.path) > 1)))
    else:
        admitted = [slices.root]
    for slice_, stamp in zip(admitted, stamps_unpacked(seen), strict=True):
        slice_[SEEN] = stamp
    for place, saved in entries.items():
        remembered = slices.memories[place]
        for number, entry in entries_in(remembered.memory, saved):
            slices.restore(admitted[number], remembered, entry)


def _load_waiting(
    detector: Saved, priority: int, rest_us: int | None, portions: list[Any], *, is_late: bool
) -> None:
    watch = detector.timing.watches[priority]
    watch.is_late = is_late
    if rest_us is not None:
        watch.look_at_all_from(rest_us)
    for saved_keys, firsts, times, long in portions:
        found = keys_unpacked(saved_keys, several=not watch.keys.is_single)
        rows = zip(found, numbers_unpacked(firsts), numbers_unpacked(times), strict=True)
        for key, first, time_us in rows:
            watch.put((LATEST if time_us == FOREVER else stamp_of(time_us, 0), priority, first, key))
        watch.long.update((found[place], tuple(values)) for place, values in long.items())
