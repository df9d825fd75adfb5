"""Counts firings, with a checksum that shows whether a replay repeats an evaluation."""

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from struct import Struct, pack
from typing import Final, NamedTuple

from engine.evaluation.rules import Fired

_COUNTED_AT_ONCE: Final = 1 << 12
_ONE: Final = Struct("<q")
_PRIORITY: Final = attrgetter("priority")


class CountedSince(NamedTuple):
    """Where the count of firings began."""

    event: int = 0
    """The number of earlier events: 0, unless an older version served the detector, which stored no count."""
    clock_us: int | None = None
    """The time of the last of them."""


class VerdictChecksum:
    """The number of firings of each rule, and a checksum of which rules fired at which events.

    Two evaluations of the same events have the same checksum if the same rules fired at the same events, and
    almost never otherwise. Events without firings do not change it.
    """

    def __init__(self) -> None:
        self.checksum = 0
        """The checksum since the last `take`."""
        self._at_events = self._by_time = 0
        """The checksum of firings by time is separate, because the events of a batch may be noted later."""
        self._together: dict[bytes, int] = {}
        """How often rules fired together since the last `_count`, by their packed priorities."""
        self._counts: Counter[int] = Counter()
        self.since = CountedSince()

    def note(self, first: int, fired: Sequence[Fired]) -> int:
        """Add the rules that fired at consecutive events, and return the number of firings.

        `first` is the number of the first event.
        """
        checksum, together, firings = self._at_events, self._together, 0
        packed_of: dict[int, bytes] = {}
        for number, rules in enumerate(fired, first):
            if rules:
                firings += len(rules)
                # The same rules often fire together, mostly as the same tuple.
                packed = packed_of.get(id(rules))
                if packed is None:
                    # Priorities are never reused. Using actions would take several times as long.
                    packed = packed_of[id(rules)] = pack(f"<{len(rules)}q", *map(_PRIORITY, rules))
                together[packed] = together.get(packed, 0) + 1
                checksum = zlib.crc32(packed, (checksum ^ number) & 0xFFFFFFFF)
        self._at_events = checksum
        self._join()
        if len(together) > _COUNTED_AT_ONCE:
            self._count()
        return firings

    def note_by_time(self, time_us: int, priority: int) -> None:
        """Add a rule that fired by time."""
        self._by_time = zlib.crc32(pack("<2q", time_us, priority), self._by_time)
        self._join()
        self._counts[priority] += 1

    def times_fired(self, priority: int) -> int:
        """Return how often a rule has fired."""
        self._count()
        return self._counts[priority]

    def counts(self) -> dict[int, int]:
        """Return how often each rule has fired, by priority, without those that never fired."""
        self._count()
        return dict(self._counts)

    def restore(self, since: CountedSince, counts: Mapping[int, int]) -> None:
        """Continue from stored counts."""
        self._together.clear()
        self.since, self._counts = since, Counter(counts)

    def forget(self, priority: int) -> None:
        """Drop the count of a removed rule."""
        self._count()
        del self._counts[priority]

    def _join(self) -> None:
        by_time = self._by_time
        self.checksum = zlib.crc32(pack("<I", by_time), self._at_events) if by_time else self._at_events

    def _count(self) -> None:
        for packed, times in self._together.items():
            for (priority,) in _ONE.iter_unpack(packed):
                self._counts[priority] += times
        self._together.clear()

    def take(self) -> int:
        """Return the checksum, and start a new one."""
        checksum = self.checksum
        self.checksum = self._at_events = self._by_time = 0
        return checksum
