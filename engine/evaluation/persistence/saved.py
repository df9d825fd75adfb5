"""A detector from bytes: rules and temporal state, named by meaning, in one msgpack document.

Version 4 of the document, which `capturing` and `packing` make:

    clock_us, events_seen, priority_highest, indexed, previous_us
    rules:    [id, name, condition as JSON, enabled, notify, priority, birth] in order of priority
    tables:   by path: keys by slot (nil: free; of a path of several keys the array of its values), how many
              memories hold something for each, when each was seen as an event (the greatest number: free)
              and, if there are clocks, as a time
    memories: [condition as JSON, path, birth, remembered]; remembered is [time, event up to which it says
    all] without a path; with one the slots and times of the entries if they are few, else how many entries
              each page has that has any, and those pages, one after another; that event, and for stamped
              nodes the slots and events of the last deviations

Columns of numbers are bytes, eight for each, little end first. Integers past 64 bits travel as an extension
type, so that a key of any size survives, and long texts that are keys as another, by their digest.
"""

import sys
from array import array
from typing import TYPE_CHECKING, Any, Final

import msgpack
import msgspec

from engine.evaluation.persistence.capturing import capture
from engine.evaluation.persistence.migrations import from_version_1, from_version_2, from_version_3
from engine.evaluation.persistence.packing import ANY_TEXT, BIG_INTEGER, LONG_TEXT_TYPE, packed
from engine.evaluation.rules import Rule
from engine.evaluation.state.columns import PAGE_SLOTS, Column
from engine.evaluation.state.slices import NodeName
from engine.evaluation.state.tables import Key, KeyTable
from engine.evaluation.values import LONG_TEXT, part_of_key, slice_key_of
from engine.language.condition import Condition
from engine.language.validation.document import condition_from_stored

if TYPE_CHECKING:
    from engine.evaluation.detector import Detector

STATE_VERSION: Final = 4


def dump(detector: "Detector") -> bytes:
    """Give all that `load` needs to make a detector that cannot be told from this one."""
    return b"".join(packed(capture(detector)))


def unpack(data: bytes) -> Any:
    """Give the document that bytes hold, or what it stands in."""
    return msgpack.unpackb(data, ext_hook=_unpack_extension, strict_map_key=False, unicode_errors=ANY_TEXT)


def load(detector: "Detector", document: Any, version: int) -> None:
    """Fill an empty detector from a document of this version or an older one."""
    assert not detector.live, "a detector is loaded before it is used"
    assert not detector.events_seen, "a detector is loaded before it is used"
    if version == 1:
        document = from_version_1(document)
    if version < 3:  # noqa: PLR2004 -- the number of a version
        document = from_version_2(document)
    if version < STATE_VERSION:
        document = from_version_3(document)
    state = detector.state
    detector.clock_us = document["clock_us"]
    detector.events_seen = document["events_seen"]
    detector.priority_highest = document["priority_highest"]
    if document["indexed"]:
        state.begin_to_sleep(0)
    for row in document["tables"]:
        path = tuple(row["path"])
        state.table(path).restore(_keys(row["keys"], several=len(path) > 1), _unpacked(row["held"]))
    for rule_id, name, condition, enabled, notify, priority, birth in document["rules"]:
        rule = Rule(
            id=rule_id,
            name=name,
            condition=stored_condition(condition),
            enabled=enabled,
            notify=notify,
            priority=priority,
        )
        detector.install(rule, birth)
    for row in document["tables"]:
        _load_table(state.tables[tuple(row["path"])], row)
    columns: dict[tuple[str, ...], list[Column]] = {path: [] for path in state.tables}
    for condition, path, birth, remembered in document["memories"]:
        store = state.stores[NodeName(stored_condition(condition), tuple(path), birth)]
        if isinstance(store, Column):
            _load_column(store, remembered)
            columns[tuple(path)].append(store)
        else:
            time_us, state.whole.ticks[store] = remembered
            state.whole.restore(store, time_us)
    for row in document["tables"]:
        table = state.tables[tuple(row["path"])]
        table.columns = columns[table.path]
    state.whole.previous_us = document["previous_us"]
    # Other bounds may hold now. What is past them goes with the next event, which says so.
    state.due = state.live > state.live_max or state.bytes > state.bytes_max
    state.eviction.resume()


def _load_table(table: KeyTable, row: dict[str, Any]) -> None:
    table.seen = _unpacked(row["seen"])
    # Without any, none were kept; if there are clocks now, nothing is read from them for what was before.
    table.times = _unpacked(row["times"]) or table.times
    table.first_ticks = _unpacked(row["first_ticks"]) or table.first_ticks
    table.first_times = _unpacked(row["first_times"]) or table.first_times


def _load_column(column: Column, row: dict[str, Any]) -> None:
    few, pages = None, {}
    if "few" in row:
        few = _entries(row["few"])
    else:
        size = PAGE_SLOTS * 8
        numbers, counts = map(_unpacked, row["counts"])
        pages = {
            number: (_unpacked(row["pages"][place * size : (place + 1) * size]), count)
            for place, (number, count) in enumerate(zip(numbers, counts, strict=True))
        }
    column.restore(few, pages, _entries(row["ticks"]), row["whole_at"])


def _entries(columns: list[bytes]) -> dict[int, int]:
    return dict(zip(*map(_unpacked, columns), strict=True))


def _unpacked(data: bytes) -> "array[int]":
    column = array("q", data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _keys(values: list[Any], *, several: bool) -> list[Key | None]:
    if several:
        return [
            None if value is None else tuple([part_of_key(_key(part)) for part in value]) for value in values
        ]
    # Texts and free slots, as nearly all are, stand there as they are.
    return values if {*map(type, values)} <= {str, type(None)} else list(map(_key, values))


def _key(value: Any) -> Key | None:
    return value if type(value) is tuple else slice_key_of(value)


def stored_condition(data: bytes) -> Condition:
    """Give a condition that was judged when it was stored; bounds that were lowered since do not undo it."""
    return condition_from_stored(msgspec.json.decode(data))


def _unpack_extension(code: int, data: bytes) -> int | tuple[str, str]:
    if code == LONG_TEXT_TYPE:
        return (LONG_TEXT, data.hex())
    assert code == BIG_INTEGER, code
    return int(data)
