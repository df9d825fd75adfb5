"""Counts anew what a detector's state keeps twice: sizes, counts, and which memories trigger.

Answers seldom depend on it at once, so a mistake in it would be noticed late: as memory that is never given
back, or as an event that reaches rules it need not.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from engine import Detector
from engine.evaluation.key_sizes import key_bytes
from engine.evaluation.times import NEVER
from engine.evaluation.requirements import requirements_of, size_of
from engine.evaluation.kernel.selection.triggers import Element, Found, Hit, Holding, Unstarted, may_meet_several
from engine.evaluation.state.aggregates.entries import Entries
from engine.evaluation.state.aggregates.values import Values
from engine.evaluation.state.node_names import NodeName
from engine.evaluation.state.removal.expiry import until_us
from engine.evaluation.state.slices import State
from engine.evaluation.state.storage.columns import Column, ColumnTable
from engine.evaluation.state.storage.pages import IN_PAGE, PAGE_BITS, PAGE_SLOTS
from engine.evaluation.state.storage.records import Records
from engine.evaluation.state.storage.sizes import (
    ENTRY_BYTES,
    INTERNED_BYTES,
    PAGE_BYTES,
    RECORD_BYTES,
    SLOT_BYTES,
    START_BYTES,
    STARTS_BYTES,
    TICK_BYTES,
)
from engine.evaluation.state.storage.slots.starts import Starts
from engine.evaluation.state.storage.tables import NOT_SEEN
from engine.patterns.compiled_pattern import compile_pattern


def audit(detector: Detector) -> None:
    """Assert that all counts are right, between two events."""
    state = detector.state
    for path, table in state.tables.items():
        assert table.path == path
        assert table.columns, "a table goes with its last column"
        _audit_keys(table)
        _audit_columns(table)
        _audit_clocks(table)
        for column in table.columns:
            _audit_column(column)
    assert state.live == sum(table.live for table in state.tables.values())
    assert state.keyed_bytes == keyed_bytes(state)
    _audit_globals(state)
    _audit_names(state)
    _audit_rules(detector)
    if state.indexed:
        _audit_index(detector)
    _audit_eviction(state)


def keyed_bytes(state: State) -> int:
    """Compute the size of all keys and their memories anew."""
    return sum(
        sum(SLOT_BYTES + key_bytes(key) for key in table.keys if key is not None)
        + starts_bytes(table.starts)
        + sum(map(column_bytes, table.columns))
        for table in state.tables.values()
    )


def column_bytes(column: Column) -> int:
    """Compute the size of a column anew."""
    pages = sum(map(bool, column.counts))
    total = TICK_BYTES * len(column.ticks) + PAGE_BYTES * pages + ENTRY_BYTES * len(column.few or ())
    if isinstance(column, Records):
        total += column._page_bytes * pages
        total += sum(RECORD_BYTES + column.bytes_of(record) for record in column.long.values())
    if isinstance(column, Values) and column._interned is not None:
        values = [value for shard in column._interned.shards for value in shard]
        total += sum(INTERNED_BYTES + key_bytes(value) for value in values)
    return total


def starts_bytes(starts: Starts) -> int:
    """Compute the size of the first events after births anew."""
    return sum(STARTS_BYTES + START_BYTES * len(times) for times in starts.times.values())


def _audit_keys(table: ColumnTable) -> None:
    slots = {slot: key for slot, key in enumerate(table.keys) if key is not None}
    found = {slot: key for shard in table.shards for key, slot in shard.items()}
    assert found.keys() == slots.keys()
    assert all(found[slot] is key or found[slot] == key for slot, key in slots.items())
    assert table.live == len(slots)
    assert len(table.seen) == len(table.held) == len(table.keys) == len(table.free_slots.taken)
    assert [slot for slot, taken in enumerate(table.free_slots.taken) if taken] == list(slots)
    assert [slot for slot, seen in enumerate(table.seen) if seen != NOT_SEEN] == list(slots)
    free = [
        table.keys[first : first + PAGE_SLOTS].count(None) for first in range(0, len(table.keys), PAGE_SLOTS)
    ]
    assert list(table.free_slots.room) == free
    assert list(table.free_slots._roomy) == [bool(each) for each in free]
    assert table.starts.times.keys() <= slots.keys()


def _audit_columns(table: ColumnTable) -> None:
    """Assert what a table knows of its columns."""
    entries = {column: set(column.slots()) for column in table.columns}
    held = Counter(slot for slots in entries.values() for slot in slots)
    assert list(table.held) == [held[slot] for slot in range(len(table.keys))]
    sparse: dict[int, set[Column]] = {}
    triggering: dict[int, set[Column]] = {}
    for column in table.columns:
        for slot in {**(column.few or {}), **column.ticks}:
            sparse.setdefault(slot, set()).add(column)
        for slot in triggering_slots(column):
            triggering.setdefault(slot, set()).add(column)
    assert table.sparse.keys() == sparse.keys()
    assert all(sorted_ids(table.sparse.at(slot)) == sorted_ids(columns) for slot, columns in sparse.items())
    assert table.triggering.keys() == triggering.keys()
    for slot, columns in triggering.items():
        assert sorted_ids(table.triggering[slot]) == sorted_ids(columns)
    paged = [column for column in table.columns if column.few is None]
    assert sorted_ids(table.dense) == sorted_ids(paged)
    watched = [column for column in paged if column.bucket is not None and not column.begun]
    assert sorted_ids(table.watched) == sorted_ids(watched)


def triggering_slots(column: Column) -> Iterable[int]:
    """Give the slots whose events meet the bucket of a column that is a dict, or of any that is BEGUN."""
    if column.bucket is None:
        return ()
    if column.begun:
        return column.ticks
    if column.few is None:
        return ()
    if isinstance(column, Entries) and column.needed > 1:
        return [slot for slot, record in column.long.items() if len(record) >= column.needed]
    return column.few


def _audit_clocks(table: ColumnTable) -> None:
    clocked = [column for column in table.columns if column.clocked]
    begun = [column for column in clocked if column.begun]
    windows = [column.expires_after_us for column in table.stamped]
    unbounded = windows.count(None)
    lasting = [window for window in windows if window is not None]
    assert windows == [None] * unbounded + sorted(lasting, reverse=True)
    # Before rules are indexed, nothing is read with a clock, whatever regimes were before.
    if table.stamped:
        assert sorted_ids(table.stamped) == sorted_ids(clocked)
        assert sorted_ids(table.begun) == sorted_ids(begun)
        assert table.begun_at >= max((column.complete_at for column in begun), default=0)
    assert len(table.times) == (len(table.keys) if table.stamped else 0)
    for firsts in (table.first_ticks, table.first_times):
        assert len(firsts) == (len(table.keys) if table.begun else 0)


def _audit_column(column: Column) -> None:
    table = column.table
    slots = column.slots()
    assert column.held == len(slots)
    assert all(table.free_slots.taken[slot] for slot in [*slots, *column.ticks])
    assert column.bytes == column_bytes(column)
    assert column.clocked or not column.ticks
    if column.bucket is not None:
        assert column.bucket.size > 0, "a bucket without members is watched no longer"
    if column.few is not None:
        assert (len(column.pages), column.counts) == (1, [])
    else:
        assert slots, "a column without entries is a dict"
        assert len(column.counts) == (len(table.keys) + IN_PAGE) >> PAGE_BITS
        by_page = Counter(slot >> PAGE_BITS for slot in slots)
        assert column.counts == [by_page[number] for number in range(len(column.counts))]
        blank = column.pages[-1]
        assert blank.count(NEVER) == len(blank) == PAGE_SLOTS
        for page, count in zip(column.pages, [*column.counts, 0], strict=True):
            assert (page is blank) is not bool(count), "only a page with entries is its own"
    if isinstance(column, Records):
        _audit_records(column)


def _audit_records(records: Records[Any]) -> None:
    for slot in records.slots():
        record = records.record(slot)
        assert record is not None
        assert records.latest_us(record) == records.at(slot)
    assert records.long.keys() <= set(records.slots())
    if records.few is not None:
        assert records.rows == []
        assert not isinstance(records, Values) or records._interned is None
        assert records.long.keys() == records.few.keys()
        return
    assert len(records.rows) == len(records.pages)
    for rows, count in zip(records.rows, [*records.counts, 0], strict=True):
        assert (rows is records._blank) is not bool(count)
        assert _lengths(rows) == _lengths(records._blank)
    for slot in range(len(records.table.keys)):
        in_row = (
            records._read_row(records.rows[slot >> PAGE_BITS], slot & IN_PAGE)
            if slot not in records.long
            else None
        )
        assert (in_row is not None) is (records.at(slot) != NEVER and slot not in records.long)
    if isinstance(records, Values):
        _audit_interned(records)


def _lengths(rows: Any) -> list[int]:
    return [len(part) for part in rows] if isinstance(rows, tuple) else [len(rows)]


def _audit_interned(values: Values) -> None:
    interned = values._interned
    assert interned is not None
    uses = Counter[Any]()
    for slot in values.slots():
        if slot not in values.long:
            record = values.record(slot)
            assert record is not None
            uses.update((type(value), value) for value in record)
    numbers = {value: number for shard in interned.shards for value, number in shard.items()}
    assert {(type(value), value): interned.uses[number] for value, number in numbers.items()} == uses
    assert len(interned.uses) == len(interned.values) == len(numbers) + len(interned._free)
    assert all(interned.values[number] == value for value, number in numbers.items())
    assert all(interned.values[number] is None and not interned.uses[number] for number in interned._free)


def _audit_globals(state: State) -> None:
    cells = state.globals
    stores = list(state.stores.values())
    used = {store for store in stores if isinstance(store, int)}
    assert used | set(cells.free) == set(range(len(cells.cells)))
    assert len(used) + len(cells.free) == len(cells.cells) == len(cells.ticks)
    assert all(cells.cells[cell] == NEVER for cell in cells.free)
    assert cells.regimes.keys() == (used if state.indexed else set())
    assert cells.unstarted <= cells.buckets.keys() <= used
    records = [store for name, store in state.stores.items() if isinstance(store, Records) and not name.path]
    triggering = {
        cell: cells.buckets[cell]
        for cell in cells.buckets
        if (cells.cells[cell] == NEVER) is (cell in cells.unstarted)
    }
    for record in records:
        _audit_column(record)
        if list(triggering_slots(record)):
            triggering[record] = record.bucket
    assert dict(cells.triggering) == triggering
    assert all(bucket.size > 0 for bucket in cells.buckets.values())
    assert state.unkeyed_bytes == sum(record.bytes for record in records) + starts_bytes(cells.starts)


def _audit_names(state: State) -> None:
    assert state.stores.keys() | state.joined.keys() == state.users.keys()
    assert not state.stores.keys() & state.joined.keys()
    assert all(uses > 0 for uses in state.users.values())
    readers: dict[Any, set[Any]] = {}
    for name, joined in state.joined.items():
        assert joined.name in state.stores
        readers.setdefault(joined.name, set()).add(name)
    assert {name: set(names) for name, names in state.readers.items()} == readers
    assert all(len(names) == len(readers[name]) for name, names in state.readers.items())
    assert state.inner.keys() <= readers.keys()
    assert state.views.keys() >= state.joined.keys()
    for name, view in state.views.items():
        assert view.store is state.store_of(name) or view.store == state.store_of(name)
    shared = [name for names in state._shared.values() for name in names]
    assert len(shared) == len(set(shared))
    assert set(shared) == state.views.keys() - state.joined.keys()
    columns = [store for name, store in state.stores.items() if name.path]
    assert sorted_ids(columns) == sorted_ids(
        column for table in state.tables.values() for column in table.columns
    )


def _audit_rules(detector: Detector) -> None:
    rules, state = detector.rule_set, detector.state
    live = [(each.rule, each.birth) for each in detector.live.values() if each.rule.enabled]
    enabled = {rule.priority: (rule, birth) for rule, birth in live}
    assert {priority: (each.rule, each.birth) for priority, each in rules.enabled.items()} == enabled
    assert rules._rules == {rule.priority: rule for rule, _ in live}
    uses, relations, bounds, nodes = Counter[Any](), Counter[str](), Counter[Any](), 0
    for rule, birth in live:
        parts = requirements_of(rule.condition, birth)
        uses.update(NodeName(*memory, birth) for memory in parts.memories)
        relations.update(parts.relations)
        nodes += parts.size
        for fact, pattern in parts.patterns:
            bounds[fact, compile_pattern(pattern, detector.limits).text_bytes_max] += 1
    shared = sum((count - 1) * size_of(name.condition) for name, count in uses.items())
    assert (rules.uses, rules.relations, rules._bounds) == (uses, relations, bounds)
    assert rules.nodes == nodes - shared
    assert rules._action_bytes == sum(rule.action_bytes_max for rule, _ in live)
    users = Counter[Any](uses)
    users.update(joined.name for joined in state.joined.values())
    users.update(name for inner in state.inner.values() for name in inner)
    assert state.users == users


def _audit_index(detector: Detector) -> None:
    """Assert that each member is in the buckets of its triggers, and that nothing else is indexed."""
    rules, state = detector.rule_set, detector.state
    members, selected = rules._members, rules._members._selected
    index = members._index
    assert members._updater_of.keys() == state.stores.keys()
    assert {number: name for name, number in members._updater_of.items()} == {
        number: updater.name for number, updater in members._updaters.items()
    }
    triggers = {priority: (each.triggers, each.birth) for priority, each in rules.enabled.items()}
    triggers |= {number: (each.triggers, each.name.birth) for number, each in members._updaters.items()}
    sizes = Counter[int]()
    for found, birth in triggers.values():
        for trigger in (None,) if found is None else found:
            if trigger is None:
                sizes[id(index._always)] += 1
            elif isinstance(trigger, Hit | Element | Found):
                buckets, key = index._facts[trigger.fact].place_of(trigger)
                sizes[id(buckets[key])] += 1
            elif isinstance(trigger, Holding | Unstarted):
                store = state.store_of(NodeName(trigger.node, trigger.path, birth))
                bucket = state.globals.buckets[store] if isinstance(store, int) else store.bucket
                sizes[id(bucket)] += 1
    buckets = [
        bucket
        for fact in index._facts.values()
        for of_kind in (fact.by_value, fact.by_element, fact.by_pattern, fact.present)
        for bucket in of_kind.values()
    ]
    buckets += state.globals.buckets.values()
    buckets += [
        store.bucket for store in state.stores.values() if not isinstance(store, int) and store.bucket
    ]
    if index._always.size:
        buckets.append(index._always)
    assert {id(bucket): bucket.size for bucket in buckets} == sizes
    for bucket in buckets:
        rows = sum(len(group.rest) // group.width for group in bucket.groups.values())
        rows += sum(len(each) for shapes in bucket.several.values() for each in shapes.values())
        assert bucket.size == rows + len(bucket.pending)
        assert all(group.rest for group in bucket.groups.values())
        assert all(shapes and all(shapes.values()) for shapes in bucket.several.values())
    for fact in index._facts.values():
        more, has_ranges = fact.more, fact.has_ranges
        assert fact.refresh(), "a fact without triggers is dropped"
        assert (more, has_ranges) == (fact.more, fact.has_ranges)
    several = {member for member, (found, *_) in triggers.items() if may_meet_several(found)}
    assert selected._rows.keys() | selected._pending.keys() == several
    assert len(selected._rows) + len(selected._pending) == len(several)
    made = selected.unions._made.values()
    assert selected.unions._rows == sum(rows for _, rows in made)


def _audit_eviction(state: State) -> None:
    tracked = state.eviction._tracked
    if not state.tracking:
        assert not tracked
        assert not any(table.log for table in state.tables.values())
    for path, keys in tracked.items():
        table = state.tables[path]
        known = range(min(keys._pages << PAGE_BITS, len(table.keys)))
        for slot in set(known) - set(table.log):
            assert keys._until_us[slot] == until_us(table, slot)


def sorted_ids(objects: Iterable[Any]) -> list[int]:
    """Give what tells objects apart: two lists of the same objects have the same."""
    return sorted(map(id, objects))
