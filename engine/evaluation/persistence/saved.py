"""Loads a detector from a msgpack document: its rules, and its memories by name.

`capturing.py` and `packing.py` write the document. This is version 10:

    clock_us, events_seen, priority_highest, indexed, previous_us
    rules:    [id, name, condition as JSON, enabled, notify, priority, birth] in order of priority
    sources:  conditions as they were written, by rule id, where that is not the canonical text. Absent if
              there are none, and in older documents; older programs ignore it
    shadows:  the shadow rules by priority, each with that of the rule that it is a draft of, or nil. Absent
              if there are none, as are `comparisons`; the document then counts as version 7
    comparisons: [priority of the rule, events before it began, time of the last of them (nil: none), time
              until which the draft may differ because it has seen less (nil: it has not), how often both
              fired, only the rule, only the draft]
    paths:    for each key its name, or [name, condition as JSON, birth] if it has a `where`
    tables:   for each path, by slot: the key (nil: free; an array if the path has several keys), the number
              of memories that hold a time for it, its last event (the largest number: free) and, if columns
              are read with the slice's clock, the time of that event
    memories: [condition as JSON, path, birth, content]. Without a path the content is [time, event up to
              which it is complete]. With a path it has that event; either the slots and times of its few
              entries, or its pages one after another and the number of entries on each; and the slots and
              events of its `ticks`, see `Column`. Records have their slots and lengths, and one after another
              what they hold, see `Records`: times; values and times; or panes, sums and perhaps counts.
              `paged` says whether they are paged; it is absent for up to 512 that are not, and in older
              documents
    joined:   [condition as JSON, path, birth, birth of the shared memory that rules of the first birth read,
              time in microseconds up to which they ignore it]. If no shared memory has memories inside it,
              the document is of version 8 or 7
    newborn:  [condition as JSON, path, birth, time of the last event before it] of memories that no event has
              met
    joining:  [condition as JSON, path, birth, time after which it joins the oldest memory of its node, time
              up to which it ignores that, nil or the number of slots in which both are known to read the
              same] in order; nil if that is not known. If none of a record has such a number, the document is
              of version 9, 8 or 7

    starts:   [path, last event before the latest birth, longest window in microseconds, slots, how many times
              each has, these times], see `Starts`. Absent if there are none
    figures:  since: [events before the count of firings began, time of the last of them]; fired: priorities
              of rules, and how often these fired; ran: the number of sampled events, priorities, and at how
              many of the events these were evaluated; rule_ns: priorities, and the time that these took;
              memory_ns: [condition as JSON, path, birth, time that the memory took]. Only in snapshots,
              and absent in older ones; older programs ignore it

A column of numbers is a byte string of little-endian 64-bit integers, or doubles for sums. Integers beyond 64
bits have an extension type, so keys of any size survive. Long texts as keys have another, which holds their
digest.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Final

import msgpack
import msgspec

from engine.evaluation.facts.values import LONG_TEXT, Event, part_of_key, slice_key_of
from engine.evaluation.paths import Filter, Path
from engine.evaluation.persistence.capturing import Captured, Saved, capture
from engine.evaluation.persistence.figures import Figures, restore_figures
from engine.evaluation.persistence.migrations import migrated
from engine.evaluation.persistence.packing import (
    ANY_TEXT,
    BIG_INTEGER,
    LONG_TEXT_TYPE,
    numbers_unpacked,
    packed,
)
from engine.evaluation.rule_book.verdicts import CountedSince
from engine.evaluation.rules import Rule
from engine.evaluation.state.aggregates.panes import Panes, PaneSums
from engine.evaluation.state.aggregates.times import Times
from engine.evaluation.state.aggregates.values import Values
from engine.evaluation.state.joining import Joining
from engine.evaluation.state.node_names import Joined, NodeName
from engine.evaluation.state.storage.columns import PAGED_FROM, Column, ColumnTable
from engine.evaluation.state.storage.pages import PAGE_SLOTS
from engine.evaluation.state.storage.records import Records
from engine.evaluation.state.storage.tables import Key
from engine.evaluation.times import NEVER
from engine.language.condition import Condition
from engine.language.validation.document import condition_from_stored

STATE_VERSION: Final = 10

_SHADOWS_FROM: Final = 8
"""The version of documents with shadow rules. Older programs refuse it, because they would let these act."""

_NESTED_FROM: Final = 9
"""The version of documents with memories inside shared ones, which older programs would drop."""

_VIEWED_FROM: Final = 10
"""The version of documents with records that wait until a view reads the same. Older programs would have them
join too early."""

_SHORT_BYTES: Final = 1024
_READ_LATELY: Final = 1024
"""This many short conditions stay in memory once they are read: a few megabytes."""


def dump(detector: Saved, events: Sequence[Event] | None = None) -> bytes:
    """Return the bytes from which `load` restores an equivalent detector.

    With `events`, it has the keys of these events only, and so is equivalent for them.
    """
    return b"".join(packed(capture(detector, events)))


def version_of(captured: Captured) -> int:
    """Return the lowest version of the document of a captured detector."""
    if any(each.same is not None and each.since_us != NEVER for each in captured.joining):
        return _VIEWED_FROM
    if captured.nested:
        return _NESTED_FROM
    return _SHADOWS_FROM if "shadows" in captured.marks else _SHADOWS_FROM - 1


def unpack(data: bytes) -> Any:
    """Unpack the document, or whatever contains it."""
    return msgpack.unpackb(data, ext_hook=_unpack_extension, strict_map_key=False, unicode_errors=ANY_TEXT)


def load(detector: Saved, document: Any, version: int) -> None:
    """Restore an empty detector from a document of this version or an older one."""
    assert not detector.live, "a detector is loaded before it is used"
    assert not detector.events_seen, "a detector is loaded before it is used"
    document = migrated(document, version)
    state = detector.state
    detector.clock_us = document["clock_us"]
    detector.events_seen = document["events_seen"]
    detector.priority_highest = document["priority_highest"]
    if document["indexed"]:
        state.become_indexed(0)
    for row in document["tables"]:
        path = _path(row["path"])
        state.table(path).restore(_keys(row["keys"], several=len(path) > 1), numbers_unpacked(row["held"]))
    for condition, saved_path, birth, oldest_birth, since_us in document["joined"]:
        node = stored_condition(condition), _path(saved_path)
        state.restore_joined(NodeName(*node, birth), Joined(NodeName(*node, oldest_birth), since_us))
    for oldest in list(state.readers):
        state.use_inner(oldest)
    detector.rule_set.joins.restore(
        {NodeName(*_node(node), birth): clock_us for *node, birth, clock_us in document["newborn"]},
        [
            Joining(due_us, number, NodeName(*_node(node), birth), since_us, same)
            for number, (*node, birth, due_us, since_us, same) in enumerate(document["joining"] or (), 1)
        ],
    )
    sources, shadows = document.get("sources", {}), document.get("shadows", {})
    ids = {priority: rule_id for rule_id, *_, priority, _ in document["rules"]}
    for rule_id, name, condition, enabled, notify, priority, birth in document["rules"]:
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
        )
        rule.know_condition_bytes(len(condition))
        detector.install(rule, birth)
    for priority, *compared in document.get("comparisons", ()):
        detector.shadows.comparison(ids[priority]).restore(*compared)
    detector.rule_set.joins.await_all(detector.events_seen, detector.clock_us or 0)
    for row in document["tables"]:
        _load_table(state.tables[_path(row["path"])], row)
    for saved_path, birth, window_us, *numbers in document.get("starts", ()):
        slots, lengths, times = map(numbers_unpacked, numbers)
        ends = accumulate(lengths, initial=0)
        spans = [tuple(times[first:end]) for first, end in pairwise(ends)]
        state.starts_of(_path(saved_path)).restore(birth, window_us, dict(zip(slots, spans, strict=True)))
    for condition, saved_path, birth, remembered in document["memories"]:
        name = NodeName(stored_condition(condition), _path(saved_path), birth)
        store = state.stores[name]
        if isinstance(store, int):
            time_us, state.globals.ticks[store] = remembered
            state.globals.restore(store, time_us)
            continue
        if isinstance(store, Records):
            _load_records(store, remembered, keyed=bool(name.path))
        else:
            _load_column(store, remembered)
        if store.bucket is not None:
            # While it was empty, no slot triggered.
            store.watch(store.bucket)
    state.globals.previous_us = document["previous_us"]
    # The limits may have changed. The next event evicts keys beyond them, and reports it.
    state.due = state.live > state.live_max or state.keyed_bytes > state.bytes_max
    state.eviction.resume()


def load_figures(detector: Saved, document: Any) -> None:
    """Have a loaded detector count on from the figures of its document; from now on, if it has none."""
    stored = document.get("figures")
    if stored is None:
        since = (
            CountedSince(detector.events_seen, detector.clock_us) if detector.events_seen else CountedSince()
        )
        detector.verdicts.restore(since, {})
        return
    samples, *ran = stored["ran"]
    priorities, times = stored["rule_ns"]
    rule_ns = zip(numbers_unpacked(priorities), numbers_unpacked(times, "d"), strict=True)
    memory_ns = {NodeName(*_node(node), birth): time_ns for *node, birth, time_ns in stored["memory_ns"]}
    since = CountedSince(*stored["since"])
    figures = Figures(since, _entries(stored["fired"]), samples, _entries(ran), dict(rule_ns), memory_ns)
    restore_figures(detector, figures)


def _node(saved: list[Any]) -> tuple[Condition, Path]:
    condition, path = saved
    return stored_condition(condition), _path(path)


def _path(saved: list[Any]) -> Path:
    return tuple(
        [step if type(step) is str else Filter(step[0], stored_condition(step[1]), step[2]) for step in saved]
    )


def _load_table(table: ColumnTable, row: dict[str, Any]) -> None:
    table.seen = numbers_unpacked(row["seen"])
    # An empty array means that no column was read with a clock. New clocks are not read for earlier events.
    table.times = numbers_unpacked(row["times"]) or table.times
    table.first_ticks = numbers_unpacked(row["first_ticks"]) or table.first_ticks
    table.first_times = numbers_unpacked(row["first_times"]) or table.first_times


def _load_column(column: Column, row: dict[str, Any]) -> None:
    few, pages = None, {}
    if "few" in row:
        few = _entries(row["few"])
    else:
        size = PAGE_SLOTS * 8
        numbers, counts = map(numbers_unpacked, row["counts"])
        pages = {
            number: (numbers_unpacked(row["pages"][place * size : (place + 1) * size]), count)
            for place, (number, count) in enumerate(zip(numbers, counts, strict=True))
        }
    column.restore(few, pages, _entries(row["ticks"]), row["whole_at"])


def _load_records(records: Records[Any], row: dict[str, Any], *, keyed: bool) -> None:
    slots, ends = numbers_unpacked(row["slots"]), [0, *accumulate(numbers_unpacked(row["lengths"]))]
    spans = [slice(*span) for span in pairwise(ends)]
    held: list[Any]
    match records:
        case Times():
            times = numbers_unpacked(row["times"])
            held = [times[span] for span in spans]
        case Values():
            seen = list(zip(_keys(row["values"], several=False), numbers_unpacked(row["times"]), strict=True))
            held = [records.ordered(seen[span]) for span in spans]
        case Panes():
            panes, sums = numbers_unpacked(row["panes"]), numbers_unpacked(row["sums"], "d")
            counts = numbers_unpacked(row["counts"]) if records.counted else None
            held = [
                PaneSums(panes[span], sums[span], None if counts is None else counts[span]) for span in spans
            ]
        case _:
            raise AssertionError(records)
    paged = row.get("paged", keyed and len(slots) > PAGED_FROM)
    records.restore_records(dict(zip(slots, held, strict=True)), paged=paged)


def _entries(columns: list[bytes]) -> dict[int, int]:
    return dict(zip(*map(numbers_unpacked, columns), strict=True))


def _keys(values: list[Any], *, several: bool) -> list[Key | None]:
    if several:
        return [
            None if value is None else tuple([part_of_key(_key(part)) for part in value]) for value in values
        ]
    # Nearly all keys are texts or free slots, and need no conversion.
    return values if {*map(type, values)} <= {str, type(None)} else list(map(_key, values))


def _key(value: Any) -> Key | None:
    return value if type(value) is tuple else slice_key_of(value)


def stored_condition(data: bytes) -> Condition:
    """Return a condition that was validated when it was stored. Limits lowered since then do not apply."""
    return _read_lately(data) if len(data) <= _SHORT_BYTES else _read(data)


def _read(data: bytes) -> Condition:
    return condition_from_stored(_decoder.decode(data))


_decoder: Final = msgspec.json.Decoder(float_hook=float)
"""Python takes less time than the decoder for numbers near the ends of a double's range."""

# A document repeats the conditions of its rules, and a process often activates the same detectors again.
_read_lately: Final = lru_cache(_READ_LATELY)(_read)


def _unpack_extension(code: int, data: bytes) -> int | tuple[str, str]:
    if code == LONG_TEXT_TYPE:
        return (LONG_TEXT, data.hex())
    assert code == BIG_INTEGER, code
    return int(data)
