"""The slices under one path of keys. A slice holds the state of all memories for one key.

A slice is a list: the stamp of its last event, a dict of entries without a place in the list (or None), a
number for `bounds`, and then the entries by place.

In a memory kept `by_exception`, the entry `NEVER` stands for the stamp of the slice's last event, and `UNSET`
for no state.
"""

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, MutableMapping
from itertools import islice
from typing import Any, Final

from engine.evaluation.facts.look_up import split_name
from engine.evaluation.facts.values import KEY_CHARS_MAX, part_of_key, slice_key_of
from engine.evaluation.key_sizes import key_bytes
from engine.evaluation.operators.interface import Memory
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.slices.readers import Readers
from engine.evaluation.stamps import EVENT, NEVER, UNSET, WITHIN_BITS, time_of
from engine.evaluation.times import NEVER as PAST
from engine.language.nodes import Node

Slice = list[Any]

SEEN: Final = 0
MORE: Final = 1
NUMBER: Final = 2
FIRST: Final = 3

SHARDS: Final = 251
"""A growing dict is copied in one piece, so the slices of a path are spread over many dicts. A prime number
spreads integers that have a common factor."""

SLICE_BYTES: Final = 170
"""The size of a slice without its entries and its key."""

PLACE_BYTES: Final = 32
"""The size of a place in a slice, with a stamp in it."""

ENTRY_BYTES: Final = 56
"""The size of an entry without a place. It is smaller if entries share the same stamp."""

PLACES_MAX: Final = 16
"""The end of the places in lists. Of thousands of memories, a slice has entries of only a few."""

EXTENDED_MAX: Final = 5_000
"""With more slices that can still matter, a new memory gets no place, so that adding a rule does not take
longer. Places decide the sizes of slices, so slices that wait for the sweep do not count."""

TRIGGERS_MAX: Final = 8
"""If a slice has more entries that trigger something, and most of those it may have, an event meets the joint
bucket of all entries. One large bucket takes less time than many small ones."""


class Remembered(Readers):
    """A memory in the slices of one path. Generated code calls its methods with entries of slices."""

    __slots__ = (
        *("blank", "bucket", "by_exception", "bytes_of", "commit", "has_place", "keep", "node", "nodes"),
        *("place", "slices", "weigh"),
    )

    def __init__(self, memory: Memory, node: Node, slices: "Slices", place: int, *, has_place: bool) -> None:
        super().__init__(memory)
        self.slices = slices
        self.weigh: Callable[[int], None] = slices.weigh
        """Adds to the estimated size, in bytes."""
        self.bytes_of = memory.bytes_of
        """Returns the size of a record."""
        self.node = node
        """The first node that reads it."""
        self.nodes = 1
        """The number of nodes that decide an event's outcome for it; see `Use.nodes`."""
        self.place = place
        """The place of its entries: in the list of a slice if it `has_place`, otherwise in the dict."""
        self.has_place = has_place
        self.blank: Any = () if memory.is_record else NEVER
        """The entry of a slice without state."""
        self.by_exception = memory.by_exception
        """See `Memory.by_exception`."""
        self.bucket: Any = None
        """The members of the index that an entry triggers; None while rules are not indexed."""
        self.commit: Any = None
        """Writes an outcome into the slice of the event: (outcome, stamp). None while rules are not
        indexed."""
        self.keep = 1
        """The maximum number of entries of a record that any node needs."""

    # -- called by generated code ---------------------------------------------------------------------------

    def lasts(self, entry: Any, stamp: int) -> bool:
        """Return whether a record can matter to an event with this stamp. If not, subtract its size."""
        if self.until_us(entry, 0) >= time_of(stamp):
            return True
        self.weigh(-self.bytes_of(entry))
        return False

    def put(self, slice_: Slice, value: Any) -> None:
        """Set the entry of a slice, for a memory without a place."""
        more = slice_[MORE]
        if more is None:
            more = slice_[MORE] = {}
        if self.place not in more:
            self.weigh(ENTRY_BYTES)
        more[self.place] = value

    def clear(self, slice_: Slice) -> None:
        """Remove the entry of a slice, for a memory without a place."""
        if slice_[MORE] and slice_[MORE].pop(self.place, None) is not None:
            self.weigh(-ENTRY_BYTES)

    def resized(self, entry: Any) -> None:
        """Update the size of a changed record, and truncate it to what is needed if it has grown."""
        self.memory.resize(entry, self.keep, self.weigh)


class Slices:
    """The slices of one path. The empty path has one slice, the `root`, which always exists."""

    def __init__(self, path: Path, weigh: Callable[..., None]) -> None:
        self.path = path
        self.weigh = weigh
        """Called with the additional bytes, and the additional slices."""
        self.touched: list[Hashable] = []
        """The keys of the latest events, while a bound is near."""
        self.shards: list[MutableMapping[Hashable, Slice]] = [{} for _ in range(SHARDS if path else 1)]
        self.blank: Slice = [UNSET, {}, -1]
        """Read for a key without a slice. Only a stamp that nobody reads is written into it."""
        self.memories: dict[int, Remembered] = {}
        """All memories, by place."""
        self._unused = 0
        """The first place that was never taken."""
        self.root = self.blank if path else self.blank[:]
        self.key: Hashable | None = None if path else ()
        """The key of the current event, while rules are indexed; None if it belongs to no slice."""
        self.slice = self.blank if path else self.root
        """The slice of that key, which may be `blank`."""
        self.watched: dict[int, Remembered] = {}
        """The memories whose entries trigger something, by place, while rules are indexed."""
        self.triggered: Any = None
        """The members of the index that any of these triggers, in one bucket."""
        self.by_exception: dict[int, Remembered] = {}
        """The memories kept by exception, by place. If there are any, each key of an event gets a slice."""
        self._exceptions_placed: list[int] = []
        """Those of their places that are in lists."""
        self.runs: dict[int, Remembered] = {}
        """The memories that any event may begin, by place, while rules are indexed; see `Memory.begins`."""
        self.dropped: list[Callable[[Hashable], None]] = []
        """Called with the key of each dropped slice."""
        self._names = [split_name(fact_of(step)) for step in path]

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    @property
    def _root_bytes(self) -> int:
        """The size of the root without its entries."""
        return 0 if self.path else PLACE_BYTES * (len(self.root) - FIRST)

    def remember(self, memory: Memory, node: Node, born: int) -> Remembered:
        """Add a memory, whose history begins after the event with the stamp `born`."""
        place = next((place for place in range(FIRST, PLACES_MAX) if place not in self.memories), PLACES_MAX)
        has_place = place < PLACES_MAX and not self._has_many(born)
        if not has_place:
            place = max(PLACES_MAX, len(self.blank), self._unused)
            self._unused = place + 1
        remembered = self.memories[place] = Remembered(memory, node, self, place, has_place=has_place)
        if remembered.by_exception:
            self._remember_by_exception(remembered)
        if has_place:
            for slice_ in self.all():
                missing = place + 1 - len(slice_)
                slice_.extend([None] * missing)
                slice_[place] = remembered.blank
                if missing > 0 and slice_ is not self.blank:
                    self.weigh(missing * PLACE_BYTES)
        return remembered

    def _has_many(self, stamp: int) -> bool:
        """Return whether more than EXTENDED_MAX slices can still matter after the event with a stamp."""
        if len(self) <= EXTENDED_MAX:
            return False
        now_us = time_of(stamp)
        living = (slice_ for slice_ in self.all() if self.until_us(slice_) >= now_us)
        return next(islice(living, EXTENDED_MAX, None), None) is not None

    def arrange(self, width: int, places: Mapping[int, Remembered]) -> None:
        """Restore the places of all memories in lists of this width, before there are slices."""
        self.memories = dict(places)
        self._unused = max(places) + 1
        self.weigh(-self._root_bytes)
        for slice_ in (self.blank, self.root):
            slice_[FIRST:] = [None] * (width - FIRST)
        self.weigh(self._root_bytes)
        for place, remembered in places.items():
            remembered.place, remembered.has_place = place, FIRST <= place < width
            if remembered.has_place:
                self.blank[place] = self.root[place] = remembered.blank
        self.by_exception, self._exceptions_placed = {}, []
        for remembered in places.values():
            if remembered.by_exception:
                self._remember_by_exception(remembered)

    def forget(self, remembered: Remembered) -> None:
        """Undo `remember`. Drop slices without other entries."""
        for slice_ in self.all():
            self._leave_none(slice_, remembered)
        del self.memories[remembered.place]
        if remembered.by_exception:
            del self.by_exception[remembered.place]
            if remembered.has_place:
                self._exceptions_placed.remove(remembered.place)
        for shard in self.shards:
            for key in [key for key, slice_ in shard.items() if not any(self.held_in(slice_))]:
                self.drop(key)
        if not self.memories:
            self.weigh(-self._root_bytes)

    def _remember_by_exception(self, remembered: Remembered) -> None:
        self.by_exception[remembered.place] = remembered
        if remembered.has_place:
            self._exceptions_placed.append(remembered.place)

    def find(self, key: Hashable) -> Slice | None:
        """Return the slice of a key, if there is one."""
        return self.shards[hash(key) % SHARDS].get(key) if self.path else self.root

    def admit(self, key: Hashable) -> Slice:
        """Return a new, empty slice for a key that has none."""
        slice_ = self.shards[hash(key) % SHARDS][key] = self.blank[:]
        slice_[SEEN], slice_[MORE] = UNSET, None
        self.weigh(SLICE_BYTES + PLACE_BYTES * (len(slice_) - FIRST) + key_bytes(key), 1)
        return slice_

    def restore(self, slice_: Slice, remembered: Remembered, entry: Any) -> None:
        """Set an entry that is not blank in a slice that has none of this memory."""
        if remembered.has_place:
            slice_[remembered.place] = entry
        else:
            remembered.put(slice_, entry)
        if remembered.memory.is_record:
            remembered.weigh(remembered.bytes_of(entry))

    def drop(self, key: Hashable) -> None:
        """Drop a slice. If its key returns, its history begins anew."""
        slice_ = self.shards[hash(key) % SHARDS].pop(key)
        for remembered, _ in list(self._all_kept_in(slice_)):
            self._leave_none(slice_, remembered)
        self.weigh(-SLICE_BYTES - PLACE_BYTES * (len(slice_) - FIRST) - key_bytes(key), -1)
        for tell in self.dropped:
            tell(key)

    def until_us(self, slice_: Slice) -> int:
        """Return the last time at which a slice can matter."""
        return max([PAST, *(one.until_us(entry, slice_[SEEN]) for one, entry in self.held_in(slice_))])

    def last_seen(self, slice_: Slice) -> int:
        """Return the rank of a slice's last event among all events."""
        return (slice_[SEEN] & EVENT) << WITHIN_BITS  # type: ignore[no-any-return]

    def first_until_us(self, slice_: Slice) -> int:
        """Return the last time at which nothing is expired, neither a single entry nor the whole slice."""
        until_us = [(one, one.until_us(entry, slice_[SEEN])) for one, entry in self.held_in(slice_)]
        whole_us = max([PAST, *(one for _, one in until_us)])
        # Entries kept by exception are dropped only with their slice.
        return min([whole_us, *(one for remembered, one in until_us if not remembered.by_exception)])

    def drop_expired(self, slice_: Slice, now_us: int) -> tuple[bool, bool]:
        """Drop expired entries. Return whether there were any, and whether others remain."""
        drops = remains = False
        for remembered, entry in list(self.held_in(slice_)):
            if remembered.until_us(entry, slice_[SEEN]) >= now_us:
                remains = True
            elif not remembered.by_exception:
                drops = True
                self._leave_none(slice_, remembered)
        return drops, remains

    def held_in(self, slice_: Slice) -> Iterator[tuple[Remembered, Any]]:
        """Yield the memories with state in a slice, each with its entry."""
        for remembered, entry in self._all_kept_in(slice_):
            if not remembered.by_exception:
                yield remembered, entry
        for remembered in self.by_exception.values():
            entry = self.entry_in(slice_, remembered)
            if entry > remembered.born:
                yield remembered, entry

    def _all_kept_in(self, slice_: Slice) -> Iterator[tuple[Remembered, Any]]:
        memories = self.memories
        for place in range(FIRST, len(slice_)):
            remembered = memories.get(place)
            if remembered is not None and slice_[place] != remembered.blank:
                yield remembered, slice_[place]
        for place, entry in (slice_[MORE] or {}).items():
            yield memories[place], entry

    def entry_in(self, slice_: Slice, remembered: Remembered) -> Any:
        """Return the entry of a memory in a slice, with a stamp in place of `NEVER`."""
        kept = self.kept_in(slice_, remembered)
        return slice_[SEEN] if remembered.by_exception and kept == NEVER else kept

    def kept_in(self, slice_: Slice, remembered: Remembered) -> Any:
        """Return the entry of a memory in a slice, as it is kept."""
        if remembered.has_place:
            return slice_[remembered.place]
        return (slice_[MORE] or {}).get(remembered.place, remembered.blank)

    def at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Slice:
        """Return the slice of an event, or `blank` if it has none."""
        key = self.key_at(fields, sent)
        return self.blank if key is None else self.find(key) or self.blank

    def _leave_none(self, slice_: Slice, remembered: Remembered) -> None:
        entry = self.kept_in(slice_, remembered)
        if entry == remembered.blank:
            return
        if remembered.has_place:
            slice_[remembered.place] = remembered.blank
        else:
            remembered.clear(slice_)
        if remembered.memory.is_record:
            remembered.weigh(-remembered.bytes_of(entry))

    # -- while rules are indexed ----------------------------------------------------------------------------

    def enter(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> None:
        """Set the key and the slice of an event."""
        key = self.key = self.key_at(fields, sent)
        if key is not None:
            self.slice = self.shards[hash(key) % SHARDS].get(key, self.blank)

    def begin(self) -> Slice:
        """Return a new slice for the event, whose key has none."""
        self.slice = self.admit(self.key)
        return self.slice

    def end_exceptions(self, outcomes: Container[Remembered]) -> None:
        """Reset the entries kept by exception that are not among the outcomes of the event."""
        if self.slice is self.blank:
            self.begin()
            return
        slice_, by_exception = self.slice, self.by_exception
        for place in self._exceptions_placed:
            if slice_[place] != NEVER and by_exception[place] not in outcomes:
                slice_[place] = NEVER
        more = slice_[MORE]
        if more:
            for place in more.keys() & by_exception.keys():
                if by_exception[place] not in outcomes:
                    by_exception[place].clear(slice_)

    def not_running(self) -> Iterable[Remembered]:
        """Return at least those of the `runs` that have no entry in the event's slice."""
        more = self.slice[MORE]
        return [self.runs[place] for place in self.runs.keys() - more.keys()] if more else self.runs.values()

    def leave(self) -> None:
        """Clear the key."""
        self.key = None

    def key_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Hashable | None:
        """Return the key of an event; None if it lacks a fact of the path."""
        parts: tuple[Hashable, ...] = ()
        for name in self._names:
            value = name.look(sent if name.of_vars else fields)
            key = value if type(value) is str and len(value) <= KEY_CHARS_MAX else slice_key_of(value)
            if key is None or len(self._names) == 1:
                return key
            parts += (part_of_key(key),)
        return parts

    def meet(self) -> list[Any]:
        """Return the buckets that the entries of the event's slice trigger."""
        if self.key is None:
            return []
        slice_, watched = self.slice, self.watched
        more = slice_[MORE] or ()
        if len(watched) <= len(more) + len(slice_):
            met = [
                one.bucket
                for place, one in watched.items()
                if (slice_[place] != one.blank if one.has_place else place in more)
            ]
        else:
            met = [watched[place].bucket for place in more if place in watched]
            for place in range(FIRST, len(slice_)):
                one = watched.get(place)
                if one is not None and slice_[place] != one.blank:
                    met.append(one.bucket)
        return [self.triggered] if len(met) > TRIGGERS_MAX and 2 * len(met) > len(watched) else met

    def all(self) -> Iterator[Slice]:
        """Yield the blank slice and all others."""
        yield self.blank
        if not self.path:
            yield self.root
        for shard in self.shards:
            yield from shard.values()
