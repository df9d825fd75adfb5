"""A checksum of verdicts, which tells whether a replay repeats an evaluation."""

import sys
import zlib
from array import array
from collections import Counter
from operator import attrgetter
from typing import Final

from engine.evaluation.dispatch.compiler import Fired

_COUNTED_AT_ONCE: Final = 1 << 12
_FEW: Final = 3
_PRIORITY: Final = attrgetter("priority")


class Verdicts:
    """A checksum of the rules that fired and of the events at which they did.

    Two evaluations of the same events have the same checksum if the same rules fired at the same events, and
    almost never otherwise. An event at which nothing fired does not change it.
    """

    def __init__(self) -> None:
        self.checksum = 0
        self._fired = array("q")
        """The priorities of rules that fired and are not counted yet."""
        self._together: dict[bytes, int] = {}
        """How often many rules fired together that are not counted yet; by their priorities."""
        self._counts: Counter[int] = Counter()

    def note(self, number: int, fired: Fired) -> None:
        """Add the rules that fired at the event with this number."""
        # No other rule ever gets the same priority. Including the actions would cost several times as much.
        told = array("q", map(_PRIORITY, fired))
        # Many that fire together are counted together: they often do.
        if len(told) > _FEW:
            together = told.tobytes()
            self._together[together] = self._together.get(together, 0) + 1
        else:
            self._fired += told
        if sys.byteorder == "big":
            told.byteswap()
        self.checksum = zlib.crc32(told, (self.checksum ^ number) & 0xFFFFFFFF)

    def count_some(self) -> None:
        """Count the rules that fired, if they are many by now; to be called now and then."""
        if len(self._fired) > _COUNTED_AT_ONCE or len(self._together) > _COUNTED_AT_ONCE:
            self._count()

    def times_fired(self, priority: int) -> int:
        """Return how often a rule has fired."""
        self._count()
        return self._counts[priority]

    def forget(self, priority: int) -> None:
        """Forget a rule that was removed."""
        self._count()
        del self._counts[priority]

    def _count(self) -> None:
        self._counts.update(self._fired)
        del self._fired[:]
        for together, times in self._together.items():
            for priority in array("q", together):
                self._counts[priority] += times
        self._together.clear()

    def take(self) -> int:
        """Return the checksum, and start a new one."""
        checksum, self.checksum = self.checksum, 0
        return checksum
