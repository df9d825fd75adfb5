"""A checksum of verdicts, which tells whether a replay repeats an evaluation."""

import sys
import zlib
from array import array
from operator import attrgetter
from typing import Final

from engine.evaluation.dispatch.compiler import Fired

_PRIORITY: Final = attrgetter("priority")


class Verdicts:
    """A checksum of the rules that fired and of the events at which they did.

    Two evaluations of the same events have the same checksum if the same rules fired at the same events, and
    almost never otherwise. An event at which nothing fired does not change it.
    """

    def __init__(self) -> None:
        self.checksum = 0

    def note(self, number: int, fired: Fired) -> None:
        """Add the rules that fired at the event with this number."""
        # No other rule ever gets the same priority. Including the actions would cost several times as much.
        told = array("q", map(_PRIORITY, fired))
        if sys.byteorder == "big":
            told.byteswap()
        self.checksum = zlib.crc32(told, (self.checksum ^ number) & 0xFFFFFFFF)

    def take(self) -> int:
        """Return the checksum, and start a new one."""
        checksum, self.checksum = self.checksum, 0
        return checksum
