"""Which rules fired at which events, as one number: to find out whether an evaluation can be repeated."""

import zlib

from engine.evaluation.compiler import Fired


class Verdicts:
    """A checksum of the actions of some events, in order. An event at which nothing fired leaves it as it is.

    Two evaluations of the same events have the same checksum if the same rules fired at the same events, and
    hardly ever otherwise.
    """

    def __init__(self) -> None:
        self.checksum = 0

    def note(self, number: int, fired: Fired) -> None:
        """Take in what fired at the event of this number."""
        actions = b",".join([rule.action_json() for rule in fired])
        self.checksum = zlib.crc32(b"%d %b" % (number, actions), self.checksum)

    def take(self) -> int:
        """Give the checksum, and begin anew."""
        checksum, self.checksum = self.checksum, 0
        return checksum
