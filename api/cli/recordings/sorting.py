"""Sorts the events of one or more recordings by time, within a bound on lateness or on memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush, merge
from itertools import chain, count
from operator import attrgetter
from typing import Final

from api.cli.recordings.reading import RecordedEvent
from api.cli.recordings.skipping import RecordingError

OPEN_MAX: Final = 64
"""The maximum number of recordings read side by side. Further ones begin where others end."""

WAITING_EVENTS_MAX: Final = 50_000
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
"""The maximum number and size of waiting events if no lateness is given. In memory they are larger."""

_CELL_BYTES: Final = 32
"""The size that a field of an event counts, if the event is not JSON."""

_TIME_OF: Final = attrgetter("time_us")


@dataclass(slots=True)
class Sorter:
    """Yields events sorted by time. Events of the same time keep their order.

    With `late_us_max`, an event may be that much earlier than some event before it. Otherwise events wait
    until half of WAITING_EVENTS_MAX, or of WAITING_BYTES_MAX, have arrived after them. Events that are even
    later are not sorted.
    """

    late_us_max: int | None
    late_us_most: int = 0
    """The maximum lateness: how much earlier an event was than one before it."""
    interrupted: bool = False
    """Whether Ctrl-C ended the events, as usual for a live pipe; those read so far were yielded."""
    _latest_us: int | None = None
    _waiting: list[RecordedEvent] = field(default_factory=list)
    _bytes: int = 0

    def in_order(self, portions: Iterable[list[RecordedEvent]]) -> Iterator[list[RecordedEvent]]:
        """Yield the events in order. Raises RecordingError after the events that were read before it."""
        failure: RecordingError | None = None
        heap: list[tuple[int, int, RecordedEvent]] = []
        numbers = count()
        arriving = iter(portions)
        while True:
            try:
                portion = next(arriving)
            except StopIteration:
                break
            except RecordingError as error:
                failure = error
                break
            except KeyboardInterrupt:
                self.interrupted = True
                break
            if self.late_us_max is None:
                self._note(portion)
                yield from self._first_of_many(portion)
                continue
            for event in portion:
                earliest_us = self._note([event]) - self.late_us_max
                heappush(heap, (event.time_us, next(numbers), event))
                while heap and heap[0][0] <= earliest_us:
                    yield [heappop(heap)[2]]
        yield self._first(len(self._waiting))
        yield [event for _, _, event in sorted(heap)]
        if failure is not None:
            raise failure

    def _note(self, portion: list[RecordedEvent]) -> int:
        """Note the lateness of events; return the latest time so far."""
        latest_us = portion[0].time_us if self._latest_us is None else self._latest_us
        for event in portion:
            if (time_us := event.time_us) >= latest_us:
                latest_us = time_us
            elif latest_us - time_us > self.late_us_most:
                self.late_us_most = latest_us - time_us
        self._latest_us = latest_us
        return latest_us

    def _first_of_many(self, portion: list[RecordedEvent]) -> Iterator[list[RecordedEvent]]:
        """Add waiting events, and yield the first ones when there are too many."""
        size = _size(portion)
        if (
            len(self._waiting) + len(portion) <= WAITING_EVENTS_MAX
            and self._bytes + size <= WAITING_BYTES_MAX
        ):
            self._waiting += portion
            self._bytes += size
            return
        for event in portion:
            self._waiting.append(event)
            self._bytes += _size([event])
            if len(self._waiting) > WAITING_EVENTS_MAX or self._bytes > WAITING_BYTES_MAX:
                yield self._first(len(self._waiting) // 2 + 1)

    def _first(self, number: int) -> list[RecordedEvent]:
        """Return the first waiting events."""
        # Sorting many nearly sorted events takes a tenth of the time of a heap. The sort is stable.
        self._waiting.sort(key=_TIME_OF)
        ready = self._waiting[:number]
        del self._waiting[:number]
        self._bytes -= _size(ready)
        return ready


def merged(recordings: Iterable[Iterator[RecordedEvent]]) -> Iterator[RecordedEvent]:
    """Merge recordings: always yield the earliest of their next events.

    If each recording is sorted except for some lateness, so is the result. Reads OPEN_MAX recordings at once.
    If one fails, the next events of the others are yielded before the RecordingError, unless it fails at its
    beginning.
    """
    failures: list[RecordingError] = []

    def until_failure(events: Iterator[RecordedEvent]) -> Iterator[RecordedEvent]:
        try:
            for event in events:
                yield event
                if failures:
                    return
        except RecordingError as error:
            failures.append(error)

    given = list(recordings)
    chains = (chain.from_iterable(given[first::OPEN_MAX]) for first in range(min(OPEN_MAX, len(given))))
    for place, event in enumerate(merge(*map(until_failure, chains), key=_TIME_OF)):
        if failures and not place:
            break
        yield event
    if failures:
        raise failures[0]


def _size(events: list[RecordedEvent]) -> int:
    return sum(
        [len(event.text) if event.text is not None else _CELL_BYTES * len(event.fields) for event in events]
    )
