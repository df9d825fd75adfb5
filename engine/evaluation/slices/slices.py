"""The slices of a history under one path of keys: what each remembers of its events.

A slice is a list: the number of its last event, a dict of entries that have no place in the list (or None),
and then the entries by place.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final

from engine.evaluation.facts.values import KEY_CHARS_MAX, part_of_key, slice_key_of, split_name, value_of
from engine.evaluation.operators.interface import Memory
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.stamps import NEVER

Slice = list[Any]

SEEN: Final = 0
MORE: Final = 1
FIRST: Final = 2

SHARDS: Final = 256
"""A dict that grows is copied in one piece, so the slices of a path are in many."""

PLACES_MAX: Final = 16
"""Further memories have no place in the lists: of thousands, a slice has entries of only a few."""

EXTENDED_MAX: Final = 10_000
"""With more slices, a new memory gets no place either, so that adding a rule takes no longer."""


class Remembered:
    """A memory in the slices of one path. Generated code calls its methods with the entries of slices."""

    __slots__ = ("bucket", "commit", "has_place", "keep", "memory", "place", "slices")

    def __init__(self, memory: Memory, slices: "Slices", place: int, *, has_place: bool) -> None:
        self.memory, self.slices = memory, slices
        self.place = place
        """The number of its entries: their place in the list of a slice if it `has_place`, else their key."""
        self.has_place = has_place
        self.bucket: Any = None
        """The members of the index that an entry triggers, while rules are indexed."""
        self.commit: Any = None
        """Writes an outcome into the slice of the event, while rules are indexed: (outcome, base, tick)."""
        self.keep = 1
        """The most entries of a record that any node needs."""

    @property
    def blank(self) -> Any:
        """The entry of a slice that remembers nothing."""
        return () if self.memory.is_record else NEVER

    def cut(self, entry: Any) -> None:
        """Cut a record to what is needed, if it has become much longer."""
        self.memory.cut(entry, self.keep)


class Slices:
    """The slices of one path. That without keys has one slice, the `root`, which always exists."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shards: list[dict[Hashable, Slice]] = [{} for _ in range(SHARDS)]
        self.blank: Slice = [0, {}]
        """What a key without a slice reads. Only an event number that nobody reads is written into it."""
        self.memories: dict[int, Remembered] = {}
        """By place."""
        self.live = 0
        """How many slices there are."""
        self.root = self.blank[:]
        self.key: Hashable | None = None if path else ()
        """The key of the event that is evaluated, while rules are indexed; None if it belongs to no slice."""
        self.slice = self.root
        """Its slice, if there is a key; perhaps `blank`."""
        self.watched: list[Remembered] = []
        """The memories whose entries trigger something, while rules are indexed."""
        self.runs: list[Remembered] = []
        """The memories that any event may begin; see `Memory.begins`."""
        self._names = [split_name(fact_of(step)) for step in path]

    def remember(self, memory: Memory) -> Remembered:
        """Have the slices remember one more thing, from now on."""
        place = FIRST
        while place in self.memories:
            place += 1
        has_place = place < PLACES_MAX and self.live <= EXTENDED_MAX
        if not has_place:
            place = max([PLACES_MAX - 1, *self.memories]) + 1
        remembered = self.memories[place] = Remembered(memory, self, place, has_place=has_place)
        if has_place:
            for slice_ in self._all():
                slice_.extend([None] * (place + 1 - len(slice_)))
                slice_[place] = remembered.blank
        return remembered

    def forget(self, remembered: Remembered) -> None:
        """Undo `remember`."""
        del self.memories[remembered.place]
        if not remembered.has_place:
            for slice_ in self._all():
                if slice_[MORE]:
                    slice_[MORE].pop(remembered.place, None)

    def admit(self, key: Hashable) -> Slice:
        """Return a new slice, which remembers nothing yet, for a key that has none."""
        slice_ = self.shards[hash(key) % SHARDS][key] = self.blank[:]
        slice_[MORE] = None
        self.live += 1
        return slice_

    # -- while rules are indexed ----------------------------------------------------------------------------

    def enter(self, fields: Mapping[str, Any], sent: Mapping[str, Any], *_: int) -> None:
        """Set the key and the slice of an event."""
        key = self.key = self._key_at(fields, sent)
        if key is not None:
            self.slice = self.shards[hash(key) % SHARDS].get(key, self.blank)

    def begin(self) -> Slice:
        """Return a new slice for the event, which has a key without one."""
        self.slice = self.admit(self.key)
        return self.slice

    def leave(self) -> None:
        """Set no key."""
        self.key = None

    def _key_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Hashable | None:
        parts: tuple[Hashable, ...] = ()
        for name in self._names:
            value = value_of(name, fields, sent)
            key = value if type(value) is str and len(value) <= KEY_CHARS_MAX else slice_key_of(value)
            if key is None or len(self._names) == 1:
                return key
            parts += (part_of_key(key),)
        return parts

    def meet(self) -> list[Any]:
        """Return the buckets that the entries of the event's slice trigger."""
        return [one.bucket for one in self.watched if self.entry(one) != one.blank]

    def entry(self, remembered: Remembered) -> Any:
        """Return what the slice of the event remembers."""
        if remembered.has_place:
            return self.slice[remembered.place]
        return (self.slice[MORE] or {}).get(remembered.place, remembered.blank)

    def _all(self) -> Iterator[Slice]:
        yield self.blank
        yield self.root
        for shard in self.shards:
            yield from shard.values()
