"""When each slice of a timed rule is looked at next, and the queue of what waits for its time.

It waits in buckets while that is far away, in exact order once it is near. Most slices are seen again before
their time comes, and then it is later. To those in a bucket that costs little: all are looked at together
when its time begins, and most go to a later bucket.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final, NamedTuple

from engine.evaluation.facts.look_up import split_name, value_of
from engine.evaluation.facts.values import LONG_TEXT, part_of_key, scalar_of, slice_key_of
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.slices.slices import SHARDS, Slices
from engine.evaluation.stamps import LATEST, NUMBER_BITS

# -- the keys of a timed rule, and its table ----------------------------------------------------------------

Long = tuple[Any, ...] | None
"""The values of a key of which a digest is kept, because it is long."""


class Event(NamedTuple):
    """An event that has only the keys of a rule."""

    fields: dict[str, Any]
    sent: dict[str, Any]


class RuleKeys:
    """The keys of one rule, by name. If all its slices are of one path, they are in `slices`."""

    def __init__(self, names: Sequence[str], slices: Slices | None) -> None:
        self.names = names
        self.path: Path | None = None if slices is None else slices.path
        """That of the slices whose keys are used; None if there are those of several paths together."""
        self.is_single = self.path is not None and len(self.path) == 1
        self._slices = slices
        self._in_key = names if self.path is None else [fact_of(step) for step in self.path]
        self._split = [split_name(name) for name in names]

    def key_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Hashable | None:
        """Return the key of an event, if it has all keys of the rule."""
        if self._slices is not None:
            return self._slices.key_at(fields, sent) if self.path else ()
        parts = [slice_key_of(value_of(split, fields, sent)) for split in self._split]
        return None if None in parts else tuple(map(part_of_key, parts))

    def long_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values of an event's keys."""
        return tuple([value_of(split, fields, sent) for split in self._split])

    def values(self, key: Any, long: Long) -> dict[str, Any]:
        """Return the values of a key by name."""
        if long is not None:
            return dict(zip(self.names, long, strict=True))
        if self.is_single:
            return {self._in_key[0]: scalar_of(key)}
        return dict(zip(self._in_key, map(scalar_of, self._parts_of(key)), strict=True))

    def event_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Event:
        """Return the event that has only the keys of an event."""
        return event_of(dict(zip(self.names, self.long_at(fields, sent), strict=True)))

    def is_long(self, key: Any) -> bool:
        """Return whether a key is, or has, the digest of a long text."""
        if type(key) is not tuple:
            return False
        return any(type(part) is tuple and part[0] == LONG_TEXT for part in self._parts_of(key))

    def _parts_of(self, key: Any) -> tuple[Any, ...]:
        return (key,) if self.is_single else key


def event_of(values: dict[str, Any]) -> Event:
    """Return the event that has only some keys, given their values by name."""
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
number of the slice's first event; its key. Entries are in the order in which rules fire."""

NO_SOONEST: Final = LATEST << 1
"""As a difference of stamps: no time that an entry may have is this long after an event."""

NOT_WAITING: Final = (LATEST << 2,)
"""In place of the entry of a key that has none: it is after any event by more than that."""

_EMPTY: Final[dict[Hashable, Entry]] = {}


class Table:
    """Entries by key. A capture shares its shards, each until it is changed."""

    def __init__(self) -> None:
        self.shards: list[dict[Hashable, Entry]] = [_EMPTY] * SHARDS
        """Generated code reads them. The list stays the same."""
        self.shared = bytearray(b"\1" * SHARDS)
        """By number, whether a capture has a shard, too. It stays the same, and generated code reads it."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Entry]:
        for shard in self.shards:
            yield from shard.values()

    def get(self, key: Hashable) -> Entry | None:
        """Return the entry of a key, if it has one."""
        return self.shards[hash(key) % SHARDS].get(key)

    def put(self, entry: Entry) -> None:
        """Add the entry of a key, or replace it."""
        number = hash(entry[3]) % SHARDS
        shard = self.own(number) if self.shared[number] else self.shards[number]
        before = len(shard)
        shard[entry[3]] = entry
        self._size += len(shard) - before

    def remove(self, key: Hashable) -> bool:
        """Remove the entry of a key; return whether it had one."""
        number = hash(key) % SHARDS
        if key not in self.shards[number]:
            return False
        del self.own(number)[key]
        self._size -= 1
        return True

    def captured(self) -> list[dict[Hashable, Entry]]:
        """Return the shards as they are now. Nobody changes them from now on."""
        self.shared[:] = b"\1" * SHARDS
        return self.shards[:]

    def own(self, number: int) -> dict[Hashable, Entry]:
        """Return a shard, which no capture has from now on."""
        if self.shared[number]:
            self.shared[number] = 0
            self.shards[number] = self.shards[number].copy()
        return self.shards[number]


# -- the queue ----------------------------------------------------------------------------------------------

ALL: Final = -1
"""In place of a priority, which follows: all slices of the rule are looked at then."""
BUCKET: Final = -2
"""In place of a priority: the time of a bucket begins. A number of its own follows, and the bucket."""

_SPAN_BITS_MIN: Final = 4
"""A bucket spans less than an eighth of the time to it. So much too early a slice may be looked at."""

_SPAN_BITS_MAX: Final = 12
"""With many slices, buckets span less: all in one are looked at between two events."""

_FILLING_BITS: Final = 8
"""Where times are spread evenly, a bucket has about two to this power slices, or fewer."""

FULL: Final = 1_024
"""A bucket takes no more entries than this. Others go to a narrower one."""

_NARROWEST: Final = NUMBER_BITS + 8
"""A bucket spans at least so many powers of two of a stamp, a quarter of a millisecond. What is nearer is in
exact order."""

_SPARE: Final = 4_096
"""How many entries more than twice those that wait there may be: of slices that wait no more."""


class Bucket:
    """What is due at about the same time, for one rule."""

    __slots__ = ("due", "end", "entries", "of", "shift", "start")

    def __init__(self, start: int, shift: int, of: "Buckets") -> None:
        self.start, self.shift, self.of = start, shift, of
        self.end = start + (1 << shift)
        self.entries: list[Entry] = []
        self.due = LATEST
        """When the first is due."""


class Buckets:
    """The buckets of one rule."""

    def __init__(self, queue: "Queue", priority: int) -> None:
        self.queue, self.priority = queue, priority
        self.by_span: defaultdict[int, dict[int, Bucket]] = defaultdict(dict)
        """By the power of two that they span, and the number of spans before. Generated code reads it."""
        self.count = 0
        """How many entries are in them."""

    def put(self, entry: Entry, now: int) -> None:
        """Have an entry wait, given the stamp of the time."""
        due = entry[0]
        if due >= LATEST:
            return
        shift = (due - now).bit_length() - self.span_bits
        while shift >= _NARROWEST:
            of_span, place = self.by_span[shift], due >> shift
            bucket = of_span.get(place)
            if bucket is None:
                bucket = of_span[place] = Bucket(place << shift, shift, self)
                self.queue.mark(bucket)
            if len(bucket.entries) < FULL:
                bucket.due = min(bucket.due, due)
                bucket.entries.append(entry)
                self.filled(1)
                return
            shift -= 1
        self.queue.push(entry)

    @property
    def span_bits(self) -> int:
        """The time to a bucket is about two to this power times as long as what the bucket spans."""
        many_bits = self.count.bit_length() - _FILLING_BITS
        return min(max(_SPAN_BITS_MIN, many_bits), _SPAN_BITS_MAX)

    def filled(self, count: int) -> None:
        """See that so many entries were put into buckets."""
        self.count += count
        self.queue.in_buckets += count
        self.queue.trim()

    def take(self, bucket: Bucket) -> list[Entry]:
        """Return the entries of a bucket, which are in the queue no more."""
        entries, bucket.entries, bucket.due = bucket.entries, [], LATEST
        self.by_span[bucket.shift].pop(bucket.start >> bucket.shift, None)
        self.count -= len(entries)
        self.queue.in_buckets -= len(entries)
        return entries

    def clear(self) -> None:
        """Drop all entries."""
        for of_span in self.by_span.values():
            for bucket in [*of_span.values()]:
                self.take(bucket)


class Queue:
    """Entries by the time at which they are due. Those that do not wait any more count for nothing.

    `waits` tells whether an entry does, and `waiting` gives how many do.
    """

    def __init__(self, waits: Callable[[Entry], bool], waiting: Callable[[], int]) -> None:
        self._waits, self._waiting = waits, waiting
        self.due = LATEST
        """The stamp before all events of the time at which to look next. Generated code reads it."""
        self.heap: list[tuple[int, int, int, Any]] = []
        """Entries, and the starts of the buckets in which others are."""
        self.in_buckets = 0
        """How many entries are in buckets."""
        self._numbers = count()
        self._most = _SPARE

    def __len__(self) -> int:
        return len(self.heap) + self.in_buckets

    def push(self, entry: tuple[int, int, int, Any]) -> None:
        """Have an entry wait in exact order."""
        heappush(self.heap, entry)
        self.due = min(self.due, entry[0])
        self.trim()

    def mark(self, bucket: Bucket) -> None:
        """Have a bucket wait for its time."""
        self.push((bucket.start, BUCKET, next(self._numbers), bucket))

    def pop(self) -> tuple[int, int, int, Any]:
        """Take the first entry."""
        return heappop(self.heap)

    def first_due(self) -> int:
        """Return the stamp before all events of the time at which the first is due; LATEST without any."""
        found, heap = LATEST, self.heap
        # What is below an entry of the heap comes after it, so few are visited.
        visited = [0] if heap else []
        while visited:
            place = visited.pop()
            if heap[place][0] < found:
                found = min(found, heap[place][3].due if heap[place][1] == BUCKET else heap[place][0])
                visited += [below for below in (2 * place + 1, 2 * place + 2) if below < len(heap)]
        return found

    def settle(self) -> None:
        """Find when the first is due."""
        self.due = self.heap[0][0] if self.heap else LATEST

    def clear(self) -> None:
        """Drop everything; the buckets are empty already."""
        self.heap.clear()
        self.due = LATEST

    def trim(self) -> None:
        """Drop what waits no more if there is much of it."""
        if len(self.heap) + self.in_buckets > self._most:
            self._most = 2 * self._waiting() + _SPARE
            if len(self) > self._most:
                self.purge()

    def purge(self) -> None:
        """Drop what waits no more."""
        buckets = [one[3] for one in self.heap if one[1] == BUCKET]
        self.in_buckets = 0
        for bucket in buckets:
            bucket.of.count -= len(bucket.entries)
            bucket.entries = [*filter(self._waits, bucket.entries)]
            bucket.of.count += len(bucket.entries)
            bucket.due = min([LATEST, *(due for due, *_ in bucket.entries)])
            self.in_buckets += len(bucket.entries)
        self.heap[:] = [one for one in self.heap if one[1] == BUCKET or self._waits(one)]
        heapify(self.heap)
