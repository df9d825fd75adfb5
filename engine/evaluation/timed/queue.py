"""The queue of waiting slices: in buckets while their times are far away, in exact order once they are near.

Most slices get another event before their time, which is then postponed. In a bucket, this takes little work:
all its slices are checked together when its time begins, and most go to a later bucket.
"""

from collections import defaultdict
from collections.abc import Callable
from heapq import heapify, heappush
from itertools import count
from typing import Any, Final

from engine.evaluation.stamps import LATEST, NUMBER_BITS
from engine.evaluation.timed.table import Entry

ALL: Final = -1
"""In place of a priority, which follows: all slices of the rule are to be checked then."""
BUCKET: Final = -2
"""In place of a priority: the time of a bucket begins. A serial number and the bucket follow."""

_SPAN_BITS_MIN: Final = 4
"""A bucket spans less than an eighth of the time until it begins, so a slice may be checked this much
early."""

_SPAN_BITS_MAX: Final = 12
"""With many slices, buckets have shorter spans, because all slices in one are checked between two events."""

_FILLING_BITS: Final = 8
"""If times are spread evenly, a bucket has at most about two to this power slices."""

FULL: Final = 1_024
"""The maximum number of entries in a bucket. Further ones go to a bucket with a shorter span."""

_NARROWEST: Final = NUMBER_BITS + 8
"""The minimum span of a bucket, as a power of two of a stamp: a quarter of a millisecond. Nearer entries are
in exact order."""

_SPARE: Final = 4_096
"""The queue may have this many entries more than twice the number of waiting slices. The others are
obsolete."""


class Bucket:
    """Entries of one rule that are due at about the same time."""

    __slots__ = ("due", "end", "entries", "of", "shift", "start")

    def __init__(self, start: int, shift: int, of: "Buckets") -> None:
        self.start, self.shift, self.of = start, shift, of
        self.end = start + (1 << shift)
        self.entries: list[Entry] = []
        self.due = LATEST
        """When its first entry is due."""


class Buckets:
    """The buckets of one rule."""

    def __init__(self, queue: "Queue", priority: int) -> None:
        self.queue, self.priority = queue, priority
        self.by_span: defaultdict[int, dict[int, Bucket]] = defaultdict(dict)
        """By their span, as a power of two, and the number of spans before them. Generated code reads it."""
        self.count = 0
        """The number of entries in all buckets."""

    def put(self, entry: Entry, now: int) -> None:
        """Add an entry, given the stamp of the time."""
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
        """The time until a bucket is about two to this power times its span."""
        many_bits = self.count.bit_length() - _FILLING_BITS
        return min(max(_SPAN_BITS_MIN, many_bits), _SPAN_BITS_MAX)

    def filled(self, count: int) -> None:
        """Count entries that were put into buckets."""
        self.count += count
        self.queue.in_buckets += count
        self.queue.trim()

    def take(self, bucket: Bucket) -> list[Entry]:
        """Remove and return the entries of a bucket."""
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
    """Entries by the time at which they are due. Obsolete entries have no effect.

    `waits` returns whether an entry is not obsolete, `waiting` the number of such entries.
    """

    def __init__(self, waits: Callable[[Entry], bool], waiting: Callable[[], int]) -> None:
        self._waits, self._waiting = waits, waiting
        self.due = LATEST
        """The stamp, before all events of its time, at which to check next. Generated code reads it."""
        self.heap: list[tuple[int, int, int, Any]] = []
        """Entries, and the starts of buckets with others."""
        self.in_buckets = 0
        """The number of entries in buckets."""
        self._numbers = count()
        self._most = _SPARE

    def __len__(self) -> int:
        return len(self.heap) + self.in_buckets

    def push(self, entry: tuple[int, int, int, Any]) -> None:
        """Add an entry in exact order."""
        heappush(self.heap, entry)
        self.due = min(self.due, entry[0])
        self.trim()

    def mark(self, bucket: Bucket) -> None:
        """Add the start of a bucket."""
        self.push((bucket.start, BUCKET, next(self._numbers), bucket))

    def first_due(self) -> int:
        """Return the stamp, before all events of its time, at which the first entry is due, or LATEST."""
        found, heap = LATEST, self.heap
        # Entries below one in the heap come after it, so few are visited.
        visited = [0] if heap else []
        while visited:
            place = visited.pop()
            if heap[place][0] < found:
                found = min(found, heap[place][3].due if heap[place][1] == BUCKET else heap[place][0])
                visited += [below for below in (2 * place + 1, 2 * place + 2) if below < len(heap)]
        return found

    def settle(self) -> None:
        """Update `due`."""
        self.due = self.heap[0][0] if self.heap else LATEST

    def clear(self) -> None:
        """Drop everything; the buckets are already empty."""
        self.heap.clear()
        self.due = LATEST

    def trim(self) -> None:
        """Drop obsolete entries if there are many."""
        if len(self.heap) + self.in_buckets > self._most:
            self._most = 2 * self._waiting() + _SPARE
            if len(self) > self._most:
                self.purge()

    def purge(self) -> None:
        """Drop obsolete entries."""
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
