"""A detector as bytes and back: rules and temporal state, named by meaning, in one msgpack document.

Version 2 of the document:

    clock_us, events_seen, priority_highest, indexed, due, busy, rounds, previous_us
    rules:    [id, name, condition as JSON, enabled, notify, priority, birth] in order of priority
    tables:   by path: keys by slot (nil: free; else the array of the path's values), when each was seen as an
              event and, if there are clocks, as a time, and where tidying and evicting stand
    memories: [condition as JSON, path, birth, remembered]; remembered is [time, event up to which it says
    all] without a path; with one the slots and times of the entries, whether they are paged, that event, for
              stamped nodes the slots and events of the last deviations, and where sweeping stands
    doomed:   [event, table number, slot]

Columns of numbers are bytes, eight for each, little end first. Integers past 64 bits travel as an extension
type, so that a key of any size survives, and long texts that are keys as another, by their digest.
"""

import sys
from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgpack
import msgspec

from engine.evaluation.columns import Column
from engine.evaluation.facts import LONG_TEXT, scalar_of, slice_key_of
from engine.evaluation.migrations import from_version_1
from engine.evaluation.rules import Rule
from engine.evaluation.slices import NodeName, State, Store
from engine.evaluation.tables import Key, KeyTable
from engine.language.condition import Condition
from engine.language.document import condition_from_document, condition_to_document
from engine.language.limits import Limits

if TYPE_CHECKING:
    from engine.evaluation.detector import Detector

STATE_VERSION: Final = 2

_UNBOUNDED: Final = Limits(text_bytes_max=2**62, nodes_max=2**62, depth_max=2**62, pattern_program_max=2**31)

_BIG_INTEGER: Final = 1
"""The extension type of an integer past 64 bits: its decimal digits."""

_ANY_TEXT: Final = "surrogatepass"
"""Who calls the engine in process may use texts as keys that are no Unicode."""

_LONG_TEXT: Final = 2
"""The extension type of a key that is a long text: its SHA-256."""


def dump(detector: "Detector") -> bytes:
    """Give all that `load` needs to make a detector that cannot be told from this one."""
    state = detector.state
    if not state.indexed:
        # Every event has written every memory, should rules sleep from here on.
        for store in state.stores.values():
            state.is_whole(store, detector.events_seen)
    places = {table.path: place for place, table in enumerate(state.tables.values())}
    document = {
        "clock_us": detector.clock_us,
        "events_seen": detector.events_seen,
        "priority_highest": detector.priority_highest,
        "indexed": state.indexed,
        "due": state.due,
        "busy": state.busy,
        "rounds": state.rounds,
        "previous_us": state.whole.previous_us,
        "rules": [
            [
                live.rule.id,
                live.rule.name,
                _condition_bytes(live.rule.condition),
                live.rule.enabled,
                live.rule.notify,
                live.rule.priority,
                live.birth,
            ]
            for live in detector.live.values()
        ],
        "tables": [_table_row(table) for table in state.tables.values()],
        "memories": [_memory_row(name, store, state) for name, store in state.stores.items()],
        "doomed": [[tick, places[table.path], slot] for tick, table, slot in state.doomed],
    }
    return bytes(msgpack.packb(document, default=_pack_big, unicode_errors=_ANY_TEXT))


def load(detector: "Detector", data: bytes, version: int) -> None:
    """Fill an empty detector from the bytes of `dump`, of this version or an older one."""
    assert not detector.live, "a detector is loaded before it is used"
    assert not detector.events_seen, "a detector is loaded before it is used"
    document = msgpack.unpackb(
        data, ext_hook=_unpack_extension, strict_map_key=False, unicode_errors=_ANY_TEXT
    )
    if version == 1:
        document = from_version_1(document)
    state = detector.state
    detector.clock_us = document["clock_us"]
    detector.events_seen = document["events_seen"]
    detector.priority_highest = document["priority_highest"]
    if document["indexed"]:
        state.begin_to_sleep(0)
    for row in document["tables"]:
        state.table(tuple(row["path"])).restore([None if key is None else _key(key) for key in row["keys"]])
    for rule_id, name, condition, enabled, notify, priority, birth in document["rules"]:
        rule = Rule(
            id=rule_id,
            name=name,
            condition=_condition(condition),
            enabled=enabled,
            notify=notify,
            priority=priority,
        )
        detector.install(rule, birth)
    columns: dict[tuple[str, ...], list[Column]] = {path: [] for path in state.tables}
    for condition, path, birth, remembered in document["memories"]:
        store = state.stores[NodeName(_condition(condition), tuple(path), birth)]
        if isinstance(store, Column):
            _load_column(store, remembered)
            columns[tuple(path)].append(store)
        else:
            time_us, state.whole.ticks[store] = remembered
            state.whole.restore(store, time_us)
    for row in document["tables"]:
        table = state.tables[tuple(row["path"])]
        table.columns = columns[table.path]
        _load_table(table, row)
    tables = list(state.tables.values())
    state.doomed.extend((tick, tables[place], slot) for tick, place, slot in document["doomed"])
    state.due, state.busy, state.rounds = document["due"], document["busy"], document["rounds"]
    state.whole.previous_us = document["previous_us"]


def _table_row(table: KeyTable) -> dict[str, Any]:
    several = len(table.path) > 1
    return {
        "path": list(table.path),
        "keys": [None if key is None else _key_array(key, several) for key in table.keys],
        "seen": _packed(table.seen),
        "times": _packed(table.times),
        "first_ticks": _packed(table.first_ticks),
        "first_times": _packed(table.first_times),
        "idle": _packed(table.idle),
        "opened": table.opened,
        "turn": table.turn,
        "scanned": table.scanned,
        "ticked": table.ticked,
    }


def _load_table(table: KeyTable, row: dict[str, Any]) -> None:
    table.seen = _unpacked(row["seen"])
    # Without any, none were kept; if there are clocks now, nothing is read from them for what was before.
    table.times = _unpacked(row["times"]) or table.times
    table.first_ticks = _unpacked(row["first_ticks"]) or table.first_ticks
    table.first_times = _unpacked(row["first_times"]) or table.first_times
    table.idle = list(_unpacked(row["idle"]))
    table.opened, table.turn = row["opened"], row["turn"]
    table.scanned, table.ticked = row["scanned"], row["ticked"]


def _memory_row(name: NodeName, store: Store, state: State) -> list[Any]:
    remembered: Any
    if isinstance(store, Column):
        slots = store.slots()
        remembered = {
            "slots": _packed(slots),
            "times": _packed(map(store.at, slots)),
            "paged": store.few is None,
            "whole_at": store.whole_at,
            "ticks": [_packed(store.ticks), _packed(store.ticks.values())],
            "swept": store.swept,
            "sweeping": _packed(store.sweeping),
        }
    else:
        remembered = [state.whole.cells[store], state.whole.ticks[store]]
    return [_condition_bytes(name.condition), list(name.path), name.birth, remembered]


def _load_column(column: Column, row: dict[str, Any]) -> None:
    entries = dict(zip(_unpacked(row["slots"]), _unpacked(row["times"]), strict=True))
    ticks = dict(zip(*map(_unpacked, row["ticks"]), strict=True))
    column.restore(entries, ticks, row["whole_at"], paged=row["paged"])
    column.swept, column.sweeping = row["swept"], list(_unpacked(row["sweeping"]))


def _packed(numbers: Iterable[int]) -> bytes:
    column = numbers if isinstance(numbers, array) else array("q", numbers)
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _unpacked(data: bytes) -> "array[int]":
    column = array("q", data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _key_array(key: Key, several: bool) -> list[Any]:
    parts = key if several else (key,)
    return [
        msgpack.ExtType(_LONG_TEXT, bytes.fromhex(part[1]))
        if type(part) is tuple and part[0] == LONG_TEXT
        else scalar_of(part)
        for part in parts
    ]


def _key(array_of_values: list[Any]) -> Key:
    parts = tuple(value if type(value) is tuple else slice_key_of(value) for value in array_of_values)
    return parts if len(parts) > 1 else parts[0]


def _condition_bytes(condition: Condition) -> bytes:
    return msgspec.json.encode(condition_to_document(condition))


def _condition(data: bytes) -> Condition:
    """Give a condition that was judged when it was stored; bounds that were lowered since do not undo it."""
    return condition_from_document(msgspec.json.decode(data), _UNBOUNDED)


def _pack_big(value: object) -> msgpack.ExtType:
    assert isinstance(value, int), value
    return msgpack.ExtType(_BIG_INTEGER, str(value).encode())


def _unpack_extension(code: int, data: bytes) -> int | tuple[str, str]:
    if code == _LONG_TEXT:
        return (LONG_TEXT, data.hex())
    assert code == _BIG_INTEGER, code
    return int(data)
