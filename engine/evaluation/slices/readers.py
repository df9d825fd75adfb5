"""How long the entries of a memory matter to the nodes that read it."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import Any, NamedTuple, Self

from engine.evaluation.operators.interface import Memory
from engine.evaluation.requirements import Use
from engine.evaluation.stamps import LATEST, NUMBER_BITS, UNSET
from engine.evaluation.times import FOREVER
from engine.evaluation.times import NEVER as PAST


class Reader(NamedTuple):
    """How a node reads a memory."""

    window_us: int | None
    """How long an entry matters; None for ever."""
    born: int
    """The stamp up to which events do not matter."""
    only_next: bool
    """Whether an entry matters only at the next event of its slice."""

    @classmethod
    def of(cls, use: Use) -> Self:
        """Return how a node reads its memory."""
        return cls(use.window_us, use.births.born, use.operator.only_next)


class _Reach:
    """How long entries matter to some nodes, by the births of their rules."""

    def __init__(self, readers: Iterable[Reader]) -> None:
        ordered = sorted((born, FOREVER if window is None else window) for window, born, _ in readers)
        self.borns = [born for born, _ in ordered]
        self.longest_us = list(accumulate((window_us for _, window_us in ordered), max))

    def window_us(self, latest: int) -> int | None:
        """Return how long an entry with this latest stamp matters; None if it matters to no node."""
        readers = bisect_left(self.borns, latest)
        return self.longest_us[readers - 1] if readers else None


class Readers:
    """The nodes that read a memory."""

    __slots__ = ("_reaches", "_readers", "born", "memory", "newest", "reach")

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.born = UNSET
        """The stamp up to which no node reads events."""
        self._readers: Counter[Reader] = Counter()
        self._reaches: tuple[_Reach, _Reach] | None = None
        """For nodes to which an entry matters for its window, and for those that read only the last event.
        None after a change."""
        self.newest, self.reach = LATEST, 0
        """A record certainly matters if its latest stamp is after `newest` and not before `reach`."""

    def read_by(self, use: Use) -> None:
        """Add a node that reads it."""
        reader = Reader.of(use)
        self.born = min(self.born, reader.born) if self._readers else reader.born
        self._readers[reader] += 1
        self._changed()

    def read_no_more(self, use: Use) -> bool:
        """Undo `read_by`. Return whether no reader remains."""
        reader = Reader.of(use)
        self._readers[reader] -= 1
        if not self._readers[reader]:
            del self._readers[reader]
            self._changed()
            if reader.born == self.born:
                self.born = min([born for _, born, _ in self._readers], default=UNSET)
        return not self._readers

    def until_us(self, entry: Any, seen: int) -> int:
        """Return the last time at which an entry can matter, given the stamp of its slice's last event."""
        lasting, next_only = self._reaches or self._find_reaches()
        latest = self.memory.latest(entry)
        window_us = lasting.window_us(latest)
        if latest == seen and next_only.window_us(latest) is not None:
            return FOREVER
        if window_us is None:
            return PAST
        return FOREVER if window_us == FOREVER else min(FOREVER, self.memory.until_us(entry, window_us))

    def _changed(self) -> None:
        self._reaches, self.newest = None, LATEST

    def _find_reaches(self) -> tuple[_Reach, _Reach]:
        lasting, next_only = [
            _Reach([one for one in self._readers if one.only_next is only_next])
            for only_next in (False, True)
        ]
        if lasting.borns:
            self.newest, self.reach = lasting.borns[-1], lasting.longest_us[-1] << NUMBER_BITS
        self._reaches = lasting, next_only
        return self._reaches
