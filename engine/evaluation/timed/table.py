"""The keys of a timed rule, and the table of when each of its slices is checked next."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from engine.evaluation.facts.look_up import split_name, value_of
from engine.evaluation.facts.values import LONG_TEXT, part_of_key, scalar_of, slice_key_of
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.slices.slices import SHARDS, Slices
from engine.evaluation.stamps import LATEST

Long = tuple[Any, ...] | None
"""The values of a key with a long text, which the key has only as a digest."""


class Event(NamedTuple):
    """An event that has only the keys of a rule."""

    fields: dict[str, Any]
    sent: dict[str, Any]


class RuleKeys:
    """The keys of one rule, by name. If all its slices are of one path, these are `slices`."""

    def __init__(self, names: Sequence[str], slices: Slices | None) -> None:
        self.names = names
        self.path: Path | None = None if slices is None else slices.path
        """The path of the slices whose keys are used; None if the slices are of several paths."""
        self.is_single = self.path is not None and len(self.path) == 1
        self._slices = slices
        self._in_key = names if self.path is None else [fact_of(step) for step in self.path]
        self._split = [split_name(name) for name in names]

    def key_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Hashable | None:
        """Return the key of an event; None if it lacks a key of the rule."""
        if self._slices is not None:
            return self._slices.key_at(fields, sent) if self.path else ()
        parts = [slice_key_of(value_of(split, fields, sent)) for split in self._split]
        return None if None in parts else tuple(map(part_of_key, parts))

    def long_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values of the rule's keys in an event."""
        return tuple([value_of(split, fields, sent) for split in self._split])

    def values(self, key: Any, long: Long) -> dict[str, Any]:
        """Return the values of a key by name."""
        if long is not None:
            return dict(zip(self.names, long, strict=True))
        if self.is_single:
            return {self._in_key[0]: scalar_of(key)}
        return dict(zip(self._in_key, map(scalar_of, self._parts_of(key)), strict=True))

    def event_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Event:
        """Return an event that has only the keys of an event."""
        return event_of(dict(zip(self.names, self.long_at(fields, sent), strict=True)))

    def is_long(self, key: Any) -> bool:
        """Return whether a key contains the digest of a long text."""
        if type(key) is not tuple:
            return False
        return any(type(part) is tuple and part[0] == LONG_TEXT for part in self._parts_of(key))

    def _parts_of(self, key: Any) -> tuple[Any, ...]:
        return (key,) if self.is_single else key


def event_of(values: dict[str, Any]) -> Event:
    """Return an event that has only these keys, given their values by name."""
    if not any(name[0] == "$" for name in values):
        return Event(values, {})
    fields, sent = dict[str, Any](), dict[str, Any]()
    for name, value in values.items():
        if name.startswith("$"):
            sent[name[1:]] = value
        else:
            fields[name] = value
    return Event(fields, sent)


Entry = tuple[int, int, int, Hashable]
"""When time may turn the verdict next, as the stamp before all events of that time; the rule's priority; the
number of the slice's first event; its key. Entries sort in the order in which rules fire."""

NO_SOONEST: Final = LATEST << 1
"""A difference of stamps: no entry is due this long after an event."""

NOT_WAITING: Final = (LATEST << 2,)
"""Stands for the entry of a key that has none. It is due later than NO_SOONEST after any event."""

_EMPTY: Final[dict[Hashable, Entry]] = {}


class Table:
    """Entries by key. A capture shares the shards, each until it changes."""

    def __init__(self) -> None:
        self.shards: list[dict[Hashable, Entry]] = [_EMPTY] * SHARDS
        """Generated code reads this list, which is never replaced."""
        self.shared = bytearray(b"\1" * SHARDS)
        """Whether a capture shares a shard, by number. Generated code reads it; it is never replaced."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Entry]:
        for shard in self.shards:
            yield from shard.values()

    def get(self, key: Hashable) -> Entry | None:
        """Return the entry of a key, or None."""
        return self.shards[hash(key) % SHARDS].get(key)

    def put(self, entry: Entry) -> None:
        """Add the entry of a key, or replace it."""
        number = hash(entry[3]) % SHARDS
        shard = self.own(number) if self.shared[number] else self.shards[number]
        before = len(shard)
        shard[entry[3]] = entry
        self._size += len(shard) - before

    def remove(self, key: Hashable) -> bool:
        """Remove the entry of a key. Return whether it had one."""
        number = hash(key) % SHARDS
        if key not in self.shards[number]:
            return False
        del self.own(number)[key]
        self._size -= 1
        return True

    def captured(self) -> list[dict[Hashable, Entry]]:
        """Return the current shards, which nobody changes any more."""
        self.shared[:] = b"\1" * SHARDS
        return self.shards[:]

    def own(self, number: int) -> dict[Hashable, Entry]:
        """Return a shard after making it independent of captures."""
        if self.shared[number]:
            self.shared[number] = 0
            self.shards[number] = self.shards[number].copy()
        return self.shards[number]
