"""Packs a captured detector as a msgpack document, in pieces that take less than a millisecond each.

`saved.py` describes the document. Between two pieces, the packing thread lets the evaluating thread run.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from engine.evaluation.firings.at_most_once import FREE_US, HELD_BACK
from engine.evaluation.persistence.capturing import Captured, CapturedSlices, CapturedWatch, Guard, Kept
from engine.evaluation.persistence.columns import (
    EntryColumns,
    condition_bytes,
    keys,
    numbers,
    packer,
    part_bytes,
    path_document,
    stamps_packed,
)
from engine.evaluation.persistence.figures import figures_packed
from engine.evaluation.relations.builder import relations_packed
from engine.evaluation.rules import LiveRule
from engine.evaluation.slices.slices import FIRST, MORE, SEEN, Slice
from engine.evaluation.stamps import LATEST, NUMBER_BITS, UNSET, time_of
from engine.evaluation.timed.table import Entry
from engine.evaluation.times import FOREVER
from engine.language.json.writer import json_bytes

_RULES: Final = 4096
"""The maximum number of rules visited in a piece."""

_VERSIONS: Final = 256
"""The maximum number of versions of rules in a piece."""

_FIRINGS: Final = 256
"""The maximum number of firings in a piece."""

_COPIED: Final = 256
"""After copying this many slices, a piece ends."""

_SLICES: Final = 256
"""The maximum number of slices whose stamps are added in a piece."""

_ADDED: Final = 256
"""After adding this many stamps, values or panes of records, a piece ends."""


def packed(captured: Captured) -> Iterator[bytes]:
    """Yield the bytes of the document, piece by piece."""
    pack = packer()
    rows = yield from _rows_of_rules(captured)
    rules = (pack.pack(_rule_row(live)) for live in captured.rules)
    versions = [_some(each, _VERSIONS) for each in captured.versions]
    sections: list[tuple[str, Iterable[bytes]]] = [
        *((name, [pack.pack(mark)]) for name, mark in captured.marks.items()),
        ("rules", chain([pack.pack_array_header(len(captured.rules))], rules)),
        ("versions", chain([pack.pack_array_header(2)], *versions)),
        *((name, _by_rule(of_rules)) for name, of_rules in rows.items() if of_rules),
    ]
    newest, firings = captured.feed
    if captured.relations:
        sections.append(("relations", relations_packed(captured.relations, pack)))
    if newest:
        head = pack.pack_array_header(2) + pack.pack(newest)
        sections.append(("feed", chain([head], _some(firings, _FIRINGS))))
    if captured.last_acted:
        sections.append(("acted", _acted(captured)))
    slices = chain.from_iterable(map(_slices, captured.slices))
    sections.append(("slices", chain([pack.pack_array_header(len(captured.slices))], slices)))
    if captured.waiting:
        sections.append(("waiting", _waiting(captured.waiting)))
    if captured.figures is not None:
        sections.append(("figures", figures_packed(captured.figures)))
    yield pack.pack_map_header(len(sections))
    for name, pieces in sections:
        yield pack.pack(name)
        yield from pieces


def _rows_of_rules(captured: Captured) -> Generator[bytes, None, dict[str, list[tuple[Any, Any]]]]:
    """Return the sections that have rows for some rules only, by rule id or priority."""
    rows: dict[str, list[tuple[Any, Any]]] = {"sources": [], "described": [], "acting": [], "kept": []}
    for number, live in enumerate(captured.rules):
        rule = live.rule
        if rule.source is not None:
            rows["sources"].append((rule.id, rule.source))
        if rule.description or rule.labels:
            rows["described"].append((rule.priority, [rule.description, json_bytes(rule.labels)]))
        if rule.timed or rule.every_secs is not None:
            rows["acting"].append((rule.priority, [rule.timed, rule.every_secs, rule.every_by]))
        if live.births.kept:
            rows["kept"].append((rule.priority, _kept_rows(live)))
        if not number % _RULES:
            yield b""
    return rows


def _by_rule(rows: list[tuple[Any, Any]]) -> Iterator[bytes]:
    pack = packer()
    yield pack.pack_map_header(len(rows))
    for rule, said in rows:
        yield pack.pack(rule) + pack.pack(said)


def _some(rows: Sequence[Any], at_once: int) -> Iterator[bytes]:
    """Yield an array of small rows, `at_once` in a piece."""
    pack = packer()
    yield pack.pack_array_header(len(rows))
    for first in range(0, len(rows), at_once):
        yield b"".join(map(pack.pack, rows[first : first + at_once]))


def _acted(captured: Captured) -> Iterator[bytes]:
    """Yield the serial number of the last firing, and the entries of each shard by column."""
    pack = packer()
    yield pack.pack_array_header(2) + pack.pack(captured.last_acted)
    yield pack.pack_array_header(len(captured.acted))
    for number in range(len(captured.acted)):
        kept = yield from _completed(captured.acted, number)
        yield b""
        yield pack.pack_array_header(4)
        yield from keys([key for key, _ in kept], several=True)
        for place in (SEEN, FREE_US, HELD_BACK):
            yield from numbers([entry[place] for _, entry in kept])


def _rule_row(live: LiveRule) -> list[Any]:
    rule, births = live.rule, live.births
    condition = condition_bytes(rule.condition)
    kind = (rule.enabled, rule.notify, rule.priority)
    return [rule.id, rule.name, condition, *kind, births.birth, _born_us(births.born)]


def _born_us(born: int) -> int | None:
    return None if born == UNSET else time_of(born)


def _kept_rows(live: LiveRule) -> list[Any]:
    return [
        [part_bytes(node), path_document(path), birth, _born_us(born)]
        for (node, path), (birth, born) in live.births.kept.items()
    ]


def _slices(slices: CapturedSlices) -> Iterator[bytes]:
    pack = packer()
    yield pack.pack_array_header(4) + pack.pack(path_document(slices.path)) + pack.pack(slices.width)
    yield pack.pack_array_header(len(slices.memories))
    for place in sorted(slices.memories):
        memory = slices.memories[place]
        yield pack.pack([part_bytes(memory.node), memory.birth, place, memory.keep])
    if slices.root is not None:
        yield pack.pack_array_header(1)
        yield from _portion(slices, [()], [slices.root])
        return
    yield pack.pack_array_header(len(slices.shards))
    for number in range(len(slices.shards)):
        kept = yield from _completed(slices.shards, number)
        yield b""
        portion_keys, portion = [key for key, _ in kept], [slice_ for _, slice_ in kept]
        del kept
        yield b""
        yield from _portion(slices, portion_keys, portion)


def _completed(
    shards: list[tuple[Guard, Kept] | None], number: int
) -> Generator[bytes, None, list[tuple[Any, Slice]]]:
    """Return the keys and slices of a captured shard, and end its capture."""
    shard, shards[number] = shards[number], None
    assert shard is not None, "a capture is packed once"
    guard, kept = shard
    for copied, _ in enumerate(guard.complete(kept), 1):
        if not copied % _COPIED:
            yield b""
    # Events may add keys as long as `kept` exists. Listing a dict is atomic.
    found = list(kept.items())
    yield b""
    return [(key, slice_) for key, slice_ in found if slice_ is not None]


def _portion(slices: CapturedSlices, all_keys: list[Any], left: list[Slice]) -> Iterator[bytes]:
    """Yield some slices by column: keys, last events, and the entries of each memory.

    The slices are removed from the list one by one, so that their memory is freed in pieces, too.
    """
    memories = slices.memories
    columns = {
        place: EntryColumns(memories[place].memory)
        for place in range(FIRST, slices.width)
        if place in memories
    }
    stamps = [place for place in columns if not memories[place].memory.is_record]
    records = [place for place in columns if memories[place].memory.is_record]
    added, seen = 0, list[int]()
    left.reverse()
    while left:
        first, now = len(seen), left[: -_SLICES - 1 : -1]
        del left[-_SLICES:]
        seen.extend([slice_[SEEN] for slice_ in now])
        for place in stamps:
            columns[place].add_stamps(first, [slice_[place] for slice_ in now])
        yield b""
        for number, slice_ in enumerate(now, first):
            held = [(place, slice_[place]) for place in records if slice_[place]]
            for place, entry in chain(held, (slice_[MORE] or {}).items()):
                if place not in columns:
                    columns[place] = EntryColumns(memories[place].memory)
                added += columns[place].add(number, entry)
                if added >= _ADDED:
                    added = 0
                    yield b""
    # Equal states have equal bytes, whichever slices got their entries first.
    columns = {place: columns[place] for place in sorted(columns) if columns[place]}
    pack = packer()
    yield pack.pack_array_header(3)
    yield from keys(all_keys, several=len(slices.path) > 1) if slices.path else [pack.pack([])]
    yield from stamps_packed(seen)
    yield pack.pack_map_header(len(columns))
    for place, column in columns.items():
        yield pack.pack(place)
        yield from column.packed()


def _waiting(captured: list[CapturedWatch]) -> Iterator[bytes]:
    """Yield a map of waiting slices by the priority of their rule, in pieces."""
    pack = packer()
    yield pack.pack_map_header(len(captured))
    for one in captured:
        shards = [shard for shard in one.shards if shard]
        yield pack.pack(one.priority) + pack.pack_array_header(2 + one.is_late)
        yield pack.pack(None if one.rest == LATEST else one.rest >> NUMBER_BITS)
        yield pack.pack_array_header(len(shards))
        for shard in shards:
            entries = list(shard.values())
            found = [entry[3] for entry in entries]
            yield pack.pack_array_header(4)
            yield from keys(found, several=one.several)
            yield from numbers([entry[2] for entry in entries])
            yield from numbers(entries, of=_times_us)
            yield pack.pack({place: one.long[key] for place, key in enumerate(found) if key in one.long})
        if one.is_late:
            yield pack.pack(True)


def _times_us(entries: Sequence[Entry]) -> list[int]:
    return [FOREVER if due == LATEST else due >> NUMBER_BITS for due, *_ in entries]
