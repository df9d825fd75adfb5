"""Packs a captured detector as a msgpack document, in pieces of less than a millisecond.

`saved.py` describes the document. Between two pieces, the packing thread lets the evaluating thread run.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import msgpack
import msgspec

from engine.evaluation.facts.values import LONG_TEXT, scalar_of
from engine.evaluation.paths import Path
from engine.evaluation.persistence.capturing import (
    Captured,
    CapturedCell,
    CapturedTable,
    Memory,
)
from engine.evaluation.persistence.figures import Figures
from engine.evaluation.rules import Rule
from engine.evaluation.state.aggregates.panes import Panes, PaneSums
from engine.evaluation.state.aggregates.times import Times
from engine.evaluation.state.aggregates.values import Values
from engine.evaluation.state.node_names import NodeName
from engine.evaluation.state.storage.columns import PAGED_FROM
from engine.evaluation.state.storage.records import Records
from engine.evaluation.state.storage.tables import Key
from engine.language.condition import Condition
from engine.language.json.writer import condition_to_document

BIG_INTEGER: Final = 1
"""The extension type of an integer beyond 64 bits: its decimal digits."""

LONG_TEXT_TYPE: Final = 2
"""The extension type of a long text as a key: its SHA-256."""

ANY_TEXT: Final = "surrogatepass"
"""Callers in the same process may use texts with surrogates as keys."""

_KEYS: Final = 4096
_NUMBERS: Final = 1 << 17
"""The most keys, or numbers, in a piece."""

_RECORDS: Final = 128
"""After this many records, a piece ends."""

_NUMBERED: Final = ("held", "seen", "times", "first_ticks", "first_times")
"""The arrays of a table that have a number for each slot."""

_ARRAY_16_FROM: Final = 16
_BIN_32: Final = struct.Struct(">BI")
_BIN_32_TYPE: Final = 0xC6


def packed(captured: Captured) -> Iterator[bytes]:
    """Yield the bytes of the document, piece by piece."""
    packer = _packer()
    sources: list[tuple[str, str]] = []
    for first in range(0, len(captured.rules), _KEYS):
        some = captured.rules[first : first + _KEYS]
        sources += [(rule.id, rule.source) for rule, _ in some if rule.source is not None]
        yield b""
    optional = (bool(sources), bool(captured.starts), captured.figures is not None)
    yield packer.pack_map_header(len(captured.marks) + 6 + sum(optional))
    for name, mark in captured.marks.items():
        yield packer.pack(name) + packer.pack(mark)
    yield packer.pack("rules") + packer.pack_array_header(len(captured.rules))
    for rule, birth in captured.rules:
        yield packer.pack(_rule_row(rule, birth))
    if sources:
        yield packer.pack("sources") + packer.pack_map_header(len(sources))
        for rule_id, source in sources:
            yield packer.pack(rule_id) + packer.pack(source)
    yield packer.pack("tables") + packer.pack_array_header(len(captured.tables))
    for table in captured.tables:
        yield from _table(table)
    yield packer.pack("memories") + packer.pack_array_header(len(captured.memories))
    for node, remembered in captured.memories:
        yield from _memory(node, remembered)
    yield packer.pack("joined") + packer.pack_array_header(len(captured.joined))
    for node, joined in captured.joined:
        yield packer.pack([*_node(node), joined.name.birth, joined.since_us])
    yield packer.pack("newborn") + packer.pack_array_header(len(captured.newborn))
    for node, clock_us in captured.newborn:
        yield packer.pack([*_node(node), clock_us])
    yield packer.pack("joining") + packer.pack_array_header(len(captured.joining))
    for due_us, _, node, since_us, same in captured.joining:
        yield packer.pack([*_node(node), due_us, since_us, same])
    if captured.starts:
        yield packer.pack("starts") + packer.pack_array_header(len(captured.starts))
    for path, birth, window_us, times in captured.starts:
        entries = [numbers_packed(times), numbers_packed(map(len, times.values()))]
        starts = numbers_packed(chain.from_iterable(times.values()))
        yield packer.pack([_path(path), birth, window_us, *entries, starts])
    if captured.figures is not None:
        yield packer.pack("figures")
        yield from _figures(captured.figures)


def numbers_packed(numbers: Iterable[int] | Iterable[float]) -> bytes:
    """Pack numbers as little-endian 64-bit integers, or doubles if they are in an array of those."""
    column = numbers if isinstance(numbers, array) else array("q", numbers)
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def numbers_unpacked(data: bytes, kind: str = "q") -> Any:
    """Unpack numbers: 64-bit integers, or doubles if `kind` is `d`."""
    column = array(kind, data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def condition_bytes(condition: Condition) -> bytes:
    """Return a condition as JSON."""
    return msgspec.json.encode(condition_to_document(condition))


def _rule_row(rule: Rule, birth: int) -> list[Any]:
    return [
        rule.id,
        rule.name,
        condition_bytes(rule.condition),
        rule.enabled,
        rule.notify,
        rule.priority,
        birth,
    ]


def _table(table: CapturedTable) -> Iterator[bytes]:
    packer = _packer()
    several = len(table.path) > 1
    yield packer.pack_map_header(2 + len(_NUMBERED))
    yield packer.pack("path") + packer.pack(_path(table.path))
    yield packer.pack("keys") + packer.pack_array_header(len(table.keys))
    for first in range(0, len(table.keys), _KEYS):
        keys = table.keys[first : first + _KEYS]
        portion = packer.pack(
            [None if key is None else list(map(_scalar, key)) for key in keys]
            if several
            else [key if type(key) is str else _scalar(key) for key in keys]
        )
        # The portion is packed as an array, whose header is dropped.
        yield portion[1 if len(keys) < _ARRAY_16_FROM else 3 :]
    for name in _NUMBERED:
        yield packer.pack(name)
        yield from _numbers(getattr(table, name))


def _node(node: NodeName) -> tuple[bytes, list[Any], int]:
    return condition_bytes(node.condition), _path(node.path), node.birth


def _path(path: Path) -> list[Any]:
    return [
        step if isinstance(step, str) else [step.fact, condition_bytes(step.where), step.birth]
        for step in path
    ]


def _memory(node: NodeName, remembered: Memory) -> Iterator[bytes]:
    packer = _packer()
    head = _node(node)
    yield packer.pack_array_header(len(head) + 1) + b"".join(map(packer.pack, head))
    if isinstance(remembered, CapturedCell):
        yield packer.pack(remembered)
        return
    if isinstance(remembered, Records):
        yield from _records(remembered)
        return
    marks = {
        "whole_at": remembered.complete_at,
        "ticks": _entries(remembered.ticks),
    }
    yield packer.pack_map_header(len(marks) + (2 if remembered.few is None else 1))
    yield b"".join(packer.pack(name) + packer.pack(mark) for name, mark in marks.items())
    if remembered.few is not None:
        yield packer.pack("few") + packer.pack(_entries(remembered.few))
        return
    yield packer.pack("counts") + packer.pack(_entries(remembered.counts))
    yield packer.pack("pages")
    yield _BIN_32.pack(_BIN_32_TYPE, sum(map(len, remembered.pages.values())))
    for page in remembered.pages.values():
        yield page if sys.byteorder == "little" else numbers_packed(array("q", page))


def _records(records: Records[Any]) -> Iterator[bytes]:
    packer = _packer()
    slots, lengths = array("q"), array("q")
    columns = _columns(records)
    for number, slot in enumerate(records.each_slot(), 1):
        parts = _parts(records.record(slot))
        for column, part in zip(columns.values(), parts, strict=True):
            column.extend(part)
        slots.append(slot)
        lengths.append(len(parts[0]))
        if not number % _RECORDS:
            yield b""
    paged = records.few is None
    # Few records are hardly ever paged, and documents of before there were pages did not say so.
    marks = {"paged": paged} if paged or len(slots) > PAGED_FROM else {}
    yield packer.pack_map_header(2 + len(columns) + len(marks))
    yield b"".join(packer.pack(name) + packer.pack(mark) for name, mark in marks.items())
    for name, column in {"slots": slots, "lengths": lengths, **columns}.items():
        yield packer.pack(name)
        if isinstance(column, array):
            yield from _numbers(column)
            continue
        yield packer.pack_array_header(len(column))
        for first in range(0, len(column), _KEYS):
            for value in column[first : first + _KEYS]:
                yield packer.pack(value if type(value) is str else _scalar(value))


def _columns(records: Records[Any]) -> "dict[str, array[int] | array[float] | list[Any]]":
    """Return an empty column for each part of a record."""
    match records:
        case Times():
            return {"times": array("q")}
        case Values():
            return {"times": array("q"), "values": []}
        case Panes(counted=counted):
            columns: dict[str, Any] = {"panes": array("q"), "sums": array("d")}
            return {**columns, "counts": array("q")} if counted else columns
        case _:
            raise AssertionError(records)


def _parts(record: Any) -> list[Any]:
    """Return what a record holds, column by column."""
    match record:
        case dict():
            return [record.values(), record]
        case PaneSums(panes=panes, sums=sums, counts=counts):
            return [panes, sums] if counts is None else [panes, sums, counts]
        case _:
            return [record]


def _figures(figures: Figures) -> Iterator[bytes]:
    packer = _packer()
    yield packer.pack_map_header(5)
    yield packer.pack("since") + packer.pack([*figures.since])
    yield packer.pack("fired") + packer.pack(_entries(figures.fired))
    yield packer.pack("ran") + packer.pack([figures.samples, *_entries(figures.ran)])
    times = array("d", figures.rule_ns.values())
    yield packer.pack("rule_ns") + packer.pack([numbers_packed(figures.rule_ns), numbers_packed(times)])
    yield packer.pack("memory_ns") + packer.pack_array_header(len(figures.memory_ns))
    for node, time_ns in figures.memory_ns.items():
        yield packer.pack([*_node(node), time_ns])


def _numbers(column: "array[int] | array[float]") -> Iterator[bytes]:
    yield _BIN_32.pack(_BIN_32_TYPE, len(column) * column.itemsize)
    for first in range(0, len(column), _NUMBERS):
        yield numbers_packed(column[first : first + _NUMBERS])


def _entries(entries: Mapping[int, int]) -> list[bytes]:
    return [numbers_packed(entries), numbers_packed(entries.values())]


def _scalar(key: Key) -> Any:
    """Return one part of a key, or None for a free slot."""
    if type(key) is bytes:
        return scalar_of(key)
    if type(key) is not tuple:
        return key
    if key[0] == LONG_TEXT:
        return msgpack.ExtType(LONG_TEXT_TYPE, bytes.fromhex(key[1]))
    return scalar_of(key)


def _pack_big(value: object) -> msgpack.ExtType:
    assert isinstance(value, int), value
    return msgpack.ExtType(BIG_INTEGER, str(value).encode())


def _packer() -> Any:
    return msgpack.Packer(default=_pack_big, unicode_errors=ANY_TEXT)
