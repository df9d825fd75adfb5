"""Which rules fired at which events, as one number: to find out whether an evaluation can be repeated."""

import sys
import zlib
from array import array
from operator import attrgetter
from typing import Final

from engine.evaluation.compiler import Fired

_PRIORITY: Final = attrgetter("priority")


class Verdicts:
    """A checksum of the rules that fired at some events, in order. Where nothing fired it stays as it is.

    Two evaluations of the same events have the same checksum if the same rules fired at the same events, and
    hardly ever otherwise.
    """

    def __init__(self) -> None:
        self.checksum = 0

    def note(self, number: int, fired: Fired) -> None:
        """Take in what fired at the event of this number."""
        # A priority is a rule's own for ever; to look at its action too would cost several times as much.
        told = array("q", map(_PRIORITY, fired))
        if sys.byteorder == "big":
            told.byteswap()
        self.checksum = zlib.crc32(told, (self.checksum ^ number) & 0xFFFFFFFF)

    def take(self) -> int:
        """Give the checksum, and begin anew."""
        checksum, self.checksum = self.checksum, 0
        return checksum
