"""Migrates documents of versions 7 to 10 to version 11, which `saved.py` describes.

Until version 10, each node had a memory for each birth of its rules, with times, but without the numbers of
events:

    previous_us: the time of the last event
    tables:   for each path, by slot: the key (nil: free), the last event and its time; the slice's first
              event and its time, if it is younger than the memories read with these
    memories: [node, path, birth, content]. Without a path, the content is [time, event up to which it is
              complete]. With a path, it has that event, `whole_at`; the slots and times of its `few` entries,
              or its pages; and in `ticks` the slots that are complete up to a later event. Records have their
              slots and lengths, and then the contents of all: times; values and times; or panes, sums and
              perhaps counts
    joined:   [node, path, birth, birth of the memory that rules of the first birth read, time up to which
              they ignore it]
    starts:   [path, birth, window, slots, number of times of each, these times]: first events after births

Now nodes and births share memories, and stamps tell what came after a birth. Their event numbers were not
saved, but can be replaced: an entry gets the number after the youngest birth that saw it, and a rule's birth
is the latest time of any entry that it did not see. The last event of a slice gets the time of its latest
entry: only `previous` reads it, and then has an entry.
"""

from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple, cast

from engine.evaluation.operators.table import operator_of, remembering
from engine.evaluation.paths import ANY_BIRTH, Path
from engine.evaluation.persistence.columns import (
    EntryColumns,
    condition_bytes,
    keys_unpacked,
    numbers_unpacked,
    path_document,
    stamps_packed,
    stored_condition,
    stored_path,
    unpack,
)
from engine.evaluation.requirements import Births, MemoryName, requirements_of
from engine.evaluation.slices import slices as lists
from engine.evaluation.stamps import UNSET, stamp_of, time_of
from engine.evaluation.times import NEVER
from engine.language import condition as language
from engine.language.condition import Condition
from engine.language.operators import COMPARED

PAGE_SLOTS: Final = 256

Name = tuple[Condition, Path, int]
"""A node, its path and a birth."""

Held = list[tuple[int, Any]]
"""The times in a slot of a memory, oldest first, each perhaps with a value."""


class Reading(NamedTuple):
    """What rules of one birth read through one node."""

    node: Condition
    birth: int
    held: Mapping[int, Any]
    """The contents by slot."""


def migrated(document: dict[str, Any]) -> dict[str, Any]:
    """Convert a document of versions 7 to 10 to version 11."""
    old = _Old(document)
    readings: dict[MemoryName, dict[Name, Reading]] = {}
    for _, _, condition, enabled, *_, birth in document["rules"]:
        if enabled:
            for use in requirements_of(stored_condition(condition), Births(birth)).memories:
                # These versions had no terms.
                node, path = cast("Condition", use.node), use.path
                of_memory = readings.setdefault(use.name, {})
                if (node, path, birth) not in of_memory:
                    of_memory[node, path, birth] = Reading(node, birth, old.read((node, path, birth)))
    born_us: dict[int, int] = {}
    slices: dict[Path, list[tuple[list[Any], Any, dict[int, Any]]]] = {}
    for name, by_node in readings.items():
        merge = _Merge(name, list(by_node.values()), old, born_us)
        memories = slices.setdefault(name.path, [])
        place, first = lists.FIRST + len(memories), merge.readings[0]
        keep = max(remembering(one.node).keep(one.node) for one in merge.readings)
        row = [condition_bytes(first.node), first.birth, place, keep]
        memories.append((row, name.memory, dict(merge.entries())))
    return {
        **{name: part for name, part in document.items() if name in _KEPT},
        "indexed": None,
        "rules": [[*rule, born_us.get(rule[-1])] for rule in document["rules"]],
        "slices": [_slices(path, memories, old) for path, memories in slices.items()],
    }


_KEPT: Final = {"clock_us", "events_seen", "priority_highest", "sources", "shadows", "comparisons", "figures"}


def _slices(path: Path, memories: list[Any], old: "_Old") -> list[Any]:
    slots = sorted({slot for _, _, entries in memories for slot in entries})
    if not path:
        slots = [0]
    numbers = {slot: number for number, slot in enumerate(slots)}
    columns, latest_us = {}, dict.fromkeys(slots, time_of(UNSET))
    for row, memory, entries in memories:
        if "stamps" in memory.columns:
            for slot, entry in entries.items():
                latest_us[slot] = max(latest_us[slot], time_of(memory.latest(entry)))
        made = EntryColumns(memory)
        if memory.by_exception:
            entries = dict.fromkeys(slots, UNSET) | entries  # noqa: PLW2901 -- none is left out
        for slot, entry in entries.items():
            made.add(numbers[slot], entry)
        columns[row[2]] = unpack(b"".join(made.packed()))
    keys = [old.tables[path]["keys"][slot] for slot in slots] if path else []
    seen = unpack(
        b"".join(stamps_packed([stamp_of(latest_us[slot], old.seen(path, slot)) for slot in slots]))
    )
    width = max(lists.FIRST, min(lists.FIRST + len(memories), lists.PLACES_MAX))
    return [path_document(path), width, [row for row, *_ in memories], [[keys, seen, columns]]]


class _Merge:
    """The memory that replaces those of several nodes and births."""

    def __init__(
        self, name: MemoryName, readings: list[Reading], old: "_Old", born_us: dict[int, int]
    ) -> None:
        self._name, self.readings, self._old, self._born_us = name, readings, old, born_us

    def entries(self) -> Iterator[tuple[int, Any]]:
        """Yield the slots with an entry, and the entries. Hide from births what they did not see."""
        for slot in {slot: None for reading in self.readings for slot in reading.held}:
            held = [(reading, reading.held.get(slot, ())) for reading in self.readings]
            if isinstance(self.readings[0].node, language.Sum | language.Avg):
                yield slot, self._panes([one for _, one in held if one])
            else:
                yield slot, self._stamped(slot, held)

    def _panes(self, records: list[Any]) -> Any:
        # Only means had counts, and only means read them.
        panes, sums, *counts = max(records, key=len)
        return self._name.memory.entry_of(panes, sums, *(counts or ([1] * len(panes),)))

    def _stamped(self, slot: int, held: list[tuple[Reading, Held]]) -> Any:
        """Return an entry with everything that the nodes read. Shorter contents are ends of longer ones."""
        longest = max([one for _, one in held], key=len)
        numbers = [
            1 + self._youngest([one for one, seen in held if len(seen) >= left], at_us)
            for left, (at_us, _) in zip(range(len(longest), 0, -1), longest, strict=True)
        ]
        seen = self._old.seen(self._name.path, slot)
        if any(one and _only_next(reading) for reading, one in held):
            # `previous` tests whether that event was the last one.
            numbers[-1] = seen
        if self._name.birth == ANY_BIRTH:
            for reading, one in held:
                self._hide(reading, one, longest, is_last=numbers[-1] == seen)
        stamps = [stamp_of(time_us, number) for (time_us, _), number in zip(longest, numbers, strict=True)]
        values = [value for _, value in longest]
        memory = self._name.memory
        return memory.entry_of(*[values if kind == "keys" else stamps for kind in memory.columns])

    def _youngest(self, readings: list[Reading], time_us: int) -> int:
        """Return the youngest birth that saw an entry, or 0. Readers may be younger than expired entries."""
        return max([0, *(one.birth for one in readings if not self._expired(one, time_us))])

    def _hide(self, reading: Reading, held: Held, longest: Held, *, is_last: bool) -> None:
        """Move a birth after the latest of the events that it did not see."""
        operator = operator_of(reading.node)
        assert operator is not None
        if len(held) >= min(operator.keep(reading.node), len(longest)):
            return
        time_us, _ = longest[-len(held) - 1]
        if is_last if operator.only_next else not self._expired(reading, time_us):
            born_us = self._born_us
            born_us[reading.birth] = max(born_us.get(reading.birth, time_us), time_us)

    def _expired(self, reading: Reading, time_us: int) -> bool:
        """Return whether an entry is outside the window of a node."""
        operator = operator_of(reading.node)
        window_us = None if operator is None else operator.window_us(reading.node)
        return window_us is not None and time_us + window_us < self._old.clock_us


def _only_next(reading: Reading) -> bool:
    operator = operator_of(reading.node)
    return operator is not None and operator.only_next


class _Old:
    """The contents of an older document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.clock_us = document["clock_us"] or 0
        self._events_seen, self._previous_us = document["events_seen"], document["previous_us"]
        self._indexed = document["indexed"]
        self.tables = {stored_path(row["path"]): _table(row) for row in document["tables"]}
        self._memories = {_name(*row[:3]): row[3] for row in document["memories"]}
        self._joined = {
            _name(*row[:3]): (_name(row[0], row[1], oldest), since_us)
            for *row, oldest, since_us in document["joined"]
        }
        self._starts = {
            stored_path(path): dict(_spans(*map(numbers_unpacked, numbers)))
            for path, _, _, *numbers in document.get("starts", ())
        }
        self._found: dict[Name, dict[int, Any]] = {}

    def seen(self, path: Path, slot: int) -> int:
        """Return the last event of a slot."""
        return int(self.tables[path]["seen"][slot]) if path else self._events_seen

    def read(self, name: Name) -> dict[int, Any]:
        """Return what rules of a birth read, by slot."""
        node, path, _ = name
        oldest, since_us = self._joined.get(name, (name, NEVER))
        if oldest not in self._found:
            self._found[oldest] = dict(self._held(oldest))
        held = self._found[oldest]
        if since_us == NEVER or isinstance(node, language.Sum | language.Avg):
            return held
        if _is_run(node):
            starts = self._starts.get(path, {})
            begun = {slot: _begun(one, since_us, starts.get(slot, ())) for slot, one in held.items()}
        else:
            begun = {slot: [each for each in one if each[0] > since_us] for slot, one in held.items()}
        return {slot: one for slot, one in begun.items() if one}

    def _held(self, name: Name) -> Iterator[tuple[int, Any]]:
        """Yield the contents of a memory by slot, as read after the last event."""
        node, path, _ = name
        content = self._memories[name]
        if isinstance(content, dict) and "slots" in content:
            yield from _records(content)
            return
        clocked = self._indexed and _is_clocked(node)
        if not path:
            time_us, complete_at = content
            if clocked and not _is_run(node) and complete_at < self._events_seen:
                time_us = self._previous_us
            if time_us != NEVER:
                yield 0, [(time_us, None)]
            return
        times_us, ticks = _times(content), _entries(content["ticks"])
        if clocked:
            for slot, time_us in self._clocked(node, path, content["whole_at"], times_us, ticks):
                times_us[slot] = time_us
        for slot, time_us in times_us.items():
            if time_us != NEVER:
                yield slot, [(time_us, None)]

    def _clocked(
        self, node: Condition, path: Path, whole_at: int, times_us: dict[int, int], ticks: dict[int, int]
    ) -> Iterator[tuple[int, int]]:
        """Yield times that were not written, because they equal those of a slice's first or last event."""
        table = self.tables[path]
        for slot, key in enumerate(table["keys"]):
            if key is None:
                continue
            if not _is_run(node):
                if ticks.get(slot, whole_at) < table["seen"][slot]:
                    yield slot, table["times"][slot]
            elif slot not in times_us and slot not in ticks and table["first_ticks"][slot] > whole_at:
                yield slot, table["first_times"][slot]


def _name(condition: bytes, path: list[Any], birth: int) -> Name:
    return stored_condition(condition), stored_path(path), birth


def _table(row: dict[str, Any]) -> dict[str, Any]:
    arrays = ("seen", "times", "first_ticks", "first_times")
    return {"keys": row["keys"], **{name: numbers_unpacked(row[name]) for name in arrays}}


def _entries(saved: list[bytes]) -> dict[int, int]:
    return dict(zip(*map(numbers_unpacked, saved), strict=True))


def _times(content: dict[str, Any]) -> dict[int, int]:
    """Return the times of a column by slot, which are in pages unless they are few."""
    if "few" in content:
        return _entries(content["few"])
    pages, _ = map(numbers_unpacked, content["counts"])
    times_us = numbers_unpacked(content["pages"])
    return {
        page * PAGE_SLOTS + offset: times_us[number * PAGE_SLOTS + offset]
        for number, page in enumerate(pages)
        for offset in range(PAGE_SLOTS)
        if times_us[number * PAGE_SLOTS + offset] != NEVER
    }


def _records(content: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    """Yield the slots of records and their contents: `Held`, or columns of panes, sums, perhaps counts."""
    slots, lengths = numbers_unpacked(content["slots"]), numbers_unpacked(content["lengths"])
    if "times" in content:
        times_us = numbers_unpacked(content["times"])
        values = keys_unpacked(content["values"], several=False) if "values" in content else times_us
        yield from _spans(slots, lengths, list(zip(times_us, values, strict=True)))
        return
    columns = [numbers_unpacked(content["panes"]), numbers_unpacked(content["sums"], "d")]
    columns += [numbers_unpacked(content["counts"])] if "counts" in content else []
    for slot, (first, end) in zip(slots, pairwise(accumulate(lengths, initial=0)), strict=True):
        yield slot, [column[first:end] for column in columns]


def _spans(slots: Any, lengths: Any, column: Any) -> Iterator[tuple[int, Any]]:
    for slot, (first, end) in zip(slots, pairwise(accumulate(lengths, initial=0)), strict=True):
        yield slot, column[first:end]


def _begun(held: Held, since_us: int, starts: Any) -> Held:
    """Return the start of a run for a birth: for an older run, the slice's first event after the birth."""
    ((start_us, _),) = held
    if start_us > since_us:
        return held
    return [(time_us, None) for time_us in starts if time_us > since_us][:1]


def _is_run(node: Condition) -> bool:
    """Return whether the memory of a node was the start of a run."""
    return isinstance(node, language.HistoricallyFor) and node.boundary == "strong"


# -- which memories were read with the first or last event of a slice ---------------------------------------


def _is_clocked(node: Condition) -> bool:
    """Return whether events that met no trigger changed a memory while rules were indexed."""
    match node:
        case language.Once(operand) | language.OnceWithin(operand):
            written = True
        case language.Since(_, operand) | language.SinceWithin(_, operand):
            written = True
        case language.HistoricallyFor(operand, _, "strong"):
            written = True
        case language.Historically(operand) | language.HistoricallyFor(operand):
            written = False
        case _:
            return False
    return not _has_triggers(operand, written) and _has_triggers(operand, not written)


def _has_triggers(node: Condition, truth: bool) -> bool:
    """Return whether all events at which a condition has this truth met a trigger."""
    match node:
        case language.Not(inner):
            return _has_triggers(inner, not truth)
        case language.All(members) | language.Any(members):
            found = [_has_triggers(member, truth) for member in members]
            return any(found) if isinstance(node, language.All) is truth else all(found)
        case language.HistoricallyFor(_, _, "strong") if not truth:
            return False
        case language.Once(inner) | language.OnceWithin(inner) | language.Since(_, inner):
            return _has_triggers(inner, truth)
        case language.SinceWithin(_, inner) | language.Historically(inner) | language.HistoricallyFor(inner):
            return _has_triggers(inner, truth)
        case language.InRelation(_, args):
            return truth and any(isinstance(argument, language.FactArg) for argument in args)
        case language.Aggregate():
            return truth and _comparison_has_triggers(node)
        case _:
            # Predicates, keys, `previous` and `earlier`: missing values were not triggers.
            return truth


def _comparison_has_triggers(node: Any) -> bool:
    if isinstance(node.value, language.ScaledFact):
        return True
    if not isinstance(node, language.Avg) and COMPARED[node.op](0, node.value):
        return False
    return not isinstance(node, language.Count) or _has_triggers(node.inner, truth=True)
