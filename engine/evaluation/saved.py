"""A detector as bytes and back: rules and temporal state, named by meaning, in one msgpack document.

Version 1 of the document:

    clock_us, events_seen, priority_highest
    rules:    [id, name, condition as JSON, enabled, notify, priority, birth] in order of priority
    memories: [condition as JSON, path, birth, time], with a path [[key number, time] …] in place of the time
    tables:   [path, keys in the order of sweeping, last sighting of each (nil: evicted), cursor];
              a key is the array of its path's values
    doomed:   [table number, key number, sighting]

Integers past 64 bits travel as an extension type, so that a key of any size survives.
"""

from typing import TYPE_CHECKING, Any, Final

import msgpack
import msgspec

from engine.evaluation.facts import key_of, scalar_of
from engine.evaluation.rules import Rule
from engine.evaluation.slices import Key, KeyTable, Memory, NodeName
from engine.evaluation.temporal import NEVER
from engine.language.condition import Condition
from engine.language.document import condition_from_document, condition_to_document
from engine.language.limits import Limits

if TYPE_CHECKING:
    from engine.evaluation.detector import Detector

STATE_VERSION: Final = 1

_UNBOUNDED: Final = Limits(text_bytes_max=2**62, nodes_max=2**62, depth_max=2**62, pattern_program_max=2**31)

_BIG_INTEGER: Final = 1
"""The extension type of an integer past 64 bits: its decimal digits."""


def dump(detector: "Detector") -> bytes:
    """Give all that `load` needs to make a detector that cannot be told from this one."""
    tables = list(detector.state.tables.values())
    numbers = [_numbered(table) for table in tables]
    by_path = {table.path: number for number, table in enumerate(tables)}
    document = {
        "clock_us": detector.clock_us,
        "events_seen": detector.events_seen,
        "priority_highest": detector.priority_highest,
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
        "tables": [_table_row(table) for table in tables],
        "memories": [
            _memory_row(memory, numbers[by_path[name.path]] if name.path else {})
            for name, memory in detector.state.memories.items()
        ],
        "doomed": [
            [by_path[table.path], numbers[by_path[table.path]][key], tick]
            for tick, table, key in detector.state.doomed
            if table.seen.get(key) == tick
        ],
    }
    return bytes(msgpack.packb(document, default=_pack_big))


def load(detector: "Detector", data: bytes) -> None:
    """Fill an empty detector from the bytes of `dump`."""
    assert not detector.live, "a detector is loaded before it is used"
    assert not detector.events_seen, "a detector is loaded before it is used"
    document = msgpack.unpackb(data, ext_hook=_unpack_big, strict_map_key=False)
    detector.clock_us = document["clock_us"]
    detector.events_seen = document["events_seen"]
    detector.priority_highest = document["priority_highest"]
    for path, *_ in document["tables"]:
        detector.state.table(tuple(path))
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
    for path, arrays, sightings, cursor in document["tables"]:
        _load_table(detector.state.table(tuple(path)), arrays, sightings, cursor)
    for condition, path, birth, remembered in document["memories"]:
        memory = detector.state.memories[NodeName(_condition(condition), tuple(path), birth)]
        if path:
            ring = detector.state.table(tuple(path)).ring
            memory.by_key.update({ring[number]: time_us for number, time_us in remembered})
        else:
            memory.single[0] = NEVER if remembered is None else remembered
    tables = list(detector.state.tables.values())
    for place, number, tick in document["doomed"]:
        table = tables[place]
        detector.state.doomed.append((tick, table, table.ring[number]))


def _numbered(table: KeyTable) -> dict[Key, int]:
    """Give each key of the ring the place at which it stands there first."""
    numbers: dict[Key, int] = {}
    for number, key in enumerate(table.ring):
        numbers.setdefault(key, number)
    return numbers


def _table_row(table: KeyTable) -> list[Any]:
    arrays = [_key_array(key, len(table.path)) for key in table.ring]
    return [list(table.path), arrays, [table.seen.get(key) for key in table.ring], table.cursor]


def _load_table(table: KeyTable, arrays: list[Any], sightings: list[int | None], cursor: int) -> None:
    table.ring = [_key(array) for array in arrays]
    table.cursor = cursor
    table.seen.update(
        {key: tick for key, tick in zip(table.ring, sightings, strict=True) if tick is not None}
    )


def _memory_row(memory: Memory, numbers: dict[Key, int]) -> list[Any]:
    name = memory.name
    if name.path:
        remembered: Any = [[numbers[key], time_us] for key, time_us in memory.by_key.items()]
    else:
        remembered = None if memory.single[0] == NEVER else memory.single[0]
    return [_condition_bytes(name.condition), list(name.path), name.birth, remembered]


def _key_array(key: Key, length: int) -> list[Any]:
    parts = key if length > 1 else (key,)
    return list(map(scalar_of, parts))


def _key(array: list[Any]) -> Key:
    parts = tuple(map(key_of, array))
    return parts if len(parts) > 1 else parts[0]


def _condition_bytes(condition: Condition) -> bytes:
    return msgspec.json.encode(condition_to_document(condition))


def _condition(data: bytes) -> Condition:
    """Give a condition that was judged when it was stored; bounds that were lowered since do not undo it."""
    return condition_from_document(msgspec.json.decode(data), _UNBOUNDED)


def _pack_big(value: object) -> msgpack.ExtType:
    assert isinstance(value, int), value
    return msgpack.ExtType(_BIG_INTEGER, str(value).encode())


def _unpack_big(code: int, data: bytes) -> int:
    assert code == _BIG_INTEGER, code
    return int(data)
