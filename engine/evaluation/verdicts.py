"""A checksum of verdicts, which tells whether a replay repeats an evaluation."""

import sys
import zlib
from array import array
from collections import Counter
from operator import attrgetter
from typing import Final

from engine.evaluation.dispatch.compiler import Fired

_COUNTED_AT_ONCE: Final = 1 << 14
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
        self._counts: Counter[int] = Counter()

    def note(self, number: int, fired: Fired) -> None:
        """Add the rules that fired at the event with this number."""
        # No other rule ever gets the same priority. Including the actions would cost several times as much.
        told = array("q", map(_PRIORITY, fired))
        self._fired += told
        if len(self._fired) > _COUNTED_AT_ONCE:
            self._count()
        if sys.byteorder == "big":
            told.byteswap()
        self.checksum = zlib.crc32(told, (self.checksum ^ number) & 0xFFFFFFFF)

    def times_fired(self, priority: int) -> int:
        """Return how often a rule has fired."""
        self._count()
        return self._counts[priority]

    def forget(self, priority: int) -> None:
        """Forget a rule that was removed."""
        self._count()
        del self._counts[priority]

    def _count(self) -> None:
        if self._fired:
            self._counts.update(self._fired)
            del self._fired[:]

    def take(self) -> int:
        """Return the checksum, and start a new one."""
        checksum, self.checksum = self.checksum, 0
        return checksum
