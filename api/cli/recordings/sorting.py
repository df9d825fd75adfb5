"""Puts the events of one or more recordings in order of time, within a bound on lateness or on memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter
from typing import Final

from api.cli.recordings.reading import RecordedEvent
from api.cli.recordings.skipping import RecordingError

OPEN_MAX: Final = 64
"""The most recordings that are read side by side. With more, one begins where another one ends."""

WAITING_EVENTS_MAX: Final = 50_000
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
"""The most events that wait for earlier ones where no lateness is given. In memory they are larger."""

_CELL_BYTES: Final = 32
"""What a field counts of an event that is not JSON."""

_TIME_OF: Final = attrgetter("time_us")


@dataclass(slots=True)
class Sorter:
    """Yields events sorted by time. Events of one time keep their order.

    With `late_us_max`, an event may be that much earlier than some event before it. Otherwise events wait
    until half of WAITING_EVENTS_MAX, or of WAITING_BYTES_MAX, have come after them. An event that comes later
    still is not sorted.
    """

    late_us_max: int | None
    late_us_most: int = 0
    """How much earlier than an event before it an event was at most."""
    interrupted: bool = False
    """Whether Ctrl-C ended the events, as it ends a live pipe; those read so far were yielded."""
    _waiting: list[RecordedEvent] = field(default_factory=list)
    _bytes: int = 0

    def in_order(self, events: Iterable[RecordedEvent]) -> Iterator[RecordedEvent]:
        """Yield the events in order. Raises RecordingError once those read before it have been yielded."""
        failure: RecordingError | None = None
        late_us_max, waiting, latest_us = self.late_us_max, self._waiting, None
        heap: list[tuple[int, int, RecordedEvent]] = []
        arriving = enumerate(events)
        while True:
            try:
                number, event = next(arriving)
            except StopIteration:
                break
            except RecordingError as error:
                failure = error
                break
            except KeyboardInterrupt:
                self.interrupted = True
                break
            if latest_us is None or event.time_us > latest_us:
                latest_us = event.time_us
            else:
                self.late_us_most = max(self.late_us_most, latest_us - event.time_us)
            if late_us_max is not None:
                heappush(heap, (event.time_us, number, event))
                while heap and heap[0][0] <= latest_us - late_us_max:
                    yield heappop(heap)[2]
                continue
            waiting.append(event)
            self._bytes += _size(event)
            if len(waiting) > WAITING_EVENTS_MAX or self._bytes > WAITING_BYTES_MAX:
                yield from self._first(len(waiting) // 2 + 1)
        yield from self._first(len(waiting))
        yield from [event for _, _, event in sorted(heap)]
        if failure is not None:
            raise failure

    def _first(self, count: int) -> Iterator[RecordedEvent]:
        """Yield the first events of those that wait."""
        # Sorting many that are nearly in order takes a tenth of the time of a heap. The sort is stable.
        self._waiting.sort(key=_TIME_OF)
        ready = self._waiting[:count]
        del self._waiting[:count]
        self._bytes -= sum(map(_size, ready))
        yield from ready


def merged(recordings: Iterable[Iterator[RecordedEvent]]) -> Iterator[RecordedEvent]:
    """Yield the events of recordings, always the earliest of those that are next in one of them.

    If each recording has its events in order but for some lateness, so has the result. Reads OPEN_MAX
    recordings at once. If one fails, those next in the others come before the RecordingError.
    """
    waiting = iter(enumerate(recordings))
    heads: list[tuple[int, int, RecordedEvent, Iterator[RecordedEvent]]] = []

    def begun() -> tuple[int, int, RecordedEvent, Iterator[RecordedEvent]] | None:
        """Begin the next recording that has an event."""
        for number, events in waiting:
            if (first := next(events, None)) is not None:
                return first.time_us, number, first, events
        return None

    while len(heads) < OPEN_MAX and (head := begun()):
        heads.append(head)
    heapify(heads)
    try:
        while heads:
            _, number, event, events = heads[0]
            yield event
            following = next(events, None)
            if following is not None:
                heapreplace(heads, (following.time_us, number, following, events))
                continue
            heappop(heads)
            if head := begun():
                heappush(heads, head)
    except RecordingError:
        yield from [head[2] for head in sorted(heads) if head[1] != number]
        raise


def _size(event: RecordedEvent) -> int:
    return len(event.text) if event.text is not None else _CELL_BYTES * len(event.fields)
