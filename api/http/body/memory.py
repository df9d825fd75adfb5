"""The memory of bodies that are being read: one bound over all connections of a front end."""

import time
from collections.abc import Callable
from typing import Final

from api.schema.envelope import RequestRefusal

SMALL_BYTES_MAX: Final = 64 * 1024
"""Bodies up to this size have a share of their own, so that large ones cannot crowd them out."""

STALLED_S: Final = 1.0
"""Without a byte for so long, a body may lose its memory to others."""
PACE_S: Final = 10.0
"""Nor is a body safe that comes too slowly to be complete within this time."""

_SMALL_SHARE: Final = 4
"""The small bodies' share of the memory is one part in so many."""
_SCAN_S: Final = 0.1
"""Between two searches among all bodies for those that come too slowly."""
_RETRY_AFTER_S: Final = 1


class BodyMemory:
    """The bodies that are being read hold at most `bytes_max` bytes together.

    What counts are the bytes that have come, not those that were announced. Where there is no room for more,
    it is taken from bodies that have stalled, then from those that come too slowly, then from the youngest,
    until there is room or the body that asks is the youngest itself. Whoever loses its memory is refused.
    So nobody holds memory for long without sending, and the oldest bodies always come to their end.
    """

    def __init__(self, bytes_max: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        small = bytes_max // _SMALL_SHARE
        self.small = _Share(small, clock_s)
        self.large = _Share(bytes_max - small, clock_s)

    def take_fallen(self) -> int:
        """Give how much less is held now than at some time since this was last asked."""
        return self.small.take_fallen() + self.large.take_fallen()

    @property
    def held_bytes(self) -> int:
        """How much all bodies hold."""
        return self.small.held_bytes + self.large.held_bytes

    def claim(self, announced: int | None, lose: Callable[[RequestRefusal], None]) -> "Claim":
        """Give a claim for a body of the announced length, if any was, which holds nothing yet.

        `lose` is called where the memory goes to another body, with what the caller is to be told.
        """
        is_small = announced is None or announced <= SMALL_BYTES_MAX
        return Claim(self.small if is_small else self.large, self.large, announced, lose)


class Claim:
    """What one body holds. `announced` is its length, None where that is not known."""

    __slots__ = (
        "_large",
        "_share",
        "announced",
        "begun_s",
        "held",
        "is_lost",
        "is_paused",
        "lose",
        "progressed_s",
    )

    def __init__(
        self,
        share: "_Share",
        large: "_Share",
        announced: int | None,
        lose: Callable[[RequestRefusal], None],
    ) -> None:
        self.held = 0
        self.announced = announced
        self.begun_s = self.progressed_s = 0.0
        self.lose = lose
        self.is_paused = False
        """Whether it is not for the caller to send more: then the body has not stalled."""
        self.is_lost = False
        self._share = share
        self._large = large

    def hold(self, bytes_: int) -> None:
        """Hold so many bytes from now on. Raises RequestRefusal 1401 where there is no room for them."""
        if self.is_lost:
            raise no_room()
        if bytes_ > SMALL_BYTES_MAX and self._share is not self._large:
            self._share.release(self)
            self._share = self._large
        self._share.hold(self, bytes_)

    def complete(self) -> None:
        """Take note that the body has come whole: it is not lost any more, and counts until `release`."""
        self._share.keep(self)

    def release(self) -> None:
        """Hold nothing any more."""
        self._share.release(self)

    def is_slow(self, now_s: float) -> bool:
        """Whether the body comes too slowly to be complete within a time that others can wait."""
        whole = self.announced or self.held or 1
        return now_s - self.begun_s > STALLED_S + PACE_S * min(1.0, self.held / whole)


class _Share:
    """The memory of bodies of one size."""

    def __init__(self, bytes_max: int, clock_s: Callable[[], float]) -> None:
        self.held_bytes = 0
        self.clock_s = clock_s
        self._most_bytes = 0
        """The most that was held since `take_fallen` was last asked."""
        self._bytes_max = bytes_max
        self._by_age: dict[Claim, None] = {}
        """The oldest first, of those that may be lost."""
        self._by_progress: dict[Claim, None] = {}
        """The same, those first that have been without progress for longest."""
        self._scanned_s = -_SCAN_S

    def hold(self, claim: Claim, bytes_: int) -> None:
        """Have a claim hold so many bytes; others may lose theirs. Raises RequestRefusal 1401."""
        now_s = self.clock_s()
        if not claim.held:
            claim.begun_s = now_s
        claim.progressed_s = now_s
        self._by_age.setdefault(claim)
        self._by_progress.pop(claim, None)
        self._by_progress[claim] = None
        more = bytes_ - claim.held
        if self.held_bytes + more > self._bytes_max and not self._has_made_room(claim, more, now_s):
            self.release(claim)
            claim.is_lost = True
            raise no_room()
        self.held_bytes += more
        claim.held = bytes_
        self._most_bytes = max(self._most_bytes, self.held_bytes)

    def take_fallen(self) -> int:
        """Give how much less is held now than at some time since this was last asked."""
        most, self._most_bytes = self._most_bytes, self.held_bytes
        return most - self.held_bytes

    def keep(self, claim: Claim) -> None:
        """Have a claim keep what it holds, whoever asks."""
        self._by_age.pop(claim, None)
        self._by_progress.pop(claim, None)

    def release(self, claim: Claim) -> None:
        """Give back what a claim holds."""
        self.keep(claim)
        self.held_bytes -= claim.held
        claim.held = 0

    def _has_made_room(self, claim: Claim, more: int, now_s: float) -> bool:
        """Take memory from others until there is room. Tell whether there is."""
        room = self._bytes_max - more
        while self.held_bytes > room and (stalled := self._stalled(claim, now_s)) is not None:
            self._take_from(stalled)
        if self.held_bytes > room and now_s - self._scanned_s >= _SCAN_S:
            self._scanned_s = now_s
            for slow in [one for one in self._by_age if one is not claim and one.is_slow(now_s)]:
                if self.held_bytes <= room:
                    break
                self._take_from(slow)
        while self.held_bytes > room and (youngest := next(reversed(self._by_age))) is not claim:
            self._take_from(youngest)
        return self.held_bytes <= room

    def _stalled(self, asking: Claim, now_s: float) -> Claim | None:
        """Give the body that has been without progress for longest, if for long enough."""
        for claim in self._by_progress:
            if now_s - claim.progressed_s < STALLED_S:
                return None
            if not claim.is_paused and claim is not asking:
                return claim
        return None

    def _take_from(self, claim: Claim) -> None:
        self.release(claim)
        claim.is_lost = True
        claim.lose(no_room())


def no_room() -> RequestRefusal:
    """Give the refusal of a body for which there is no memory."""
    message = "there is no memory for more of the body beside those of others; nothing was done"
    return RequestRefusal(1401, message, headers=((b"retry-after", b"%d" % _RETRY_AFTER_S),))
