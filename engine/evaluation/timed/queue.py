"""The queue of what waits for its time: in buckets while that is far away, in exact order once it is near.

Most slices are seen again before their time comes, and then it is later. To those in a bucket that costs
little: all are looked at together when its time begins, and most go to a later bucket.
"""

from collections import defaultdict
from collections.abc import Callable
from heapq import heapify, heappush
from itertools import count
from typing import Any, Final

from engine.evaluation.stamps import LATEST, NUMBER_BITS
from engine.evaluation.timed.table import Entry

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
