"""The memory for bodies being read: one limit over all connections, within the front end's budget."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from api.schema.envelope import RequestRefusal
from engine.runtime.front_end.memory_budget import READING, MemoryBudget

SMALL_BYTES_MAX: Final = 64 * 1024
"""Bodies up to this size have their own share, so that large bodies cannot starve them."""

STALLED_S: Final = 1.0
"""A body of which nothing arrives for this long may lose its memory to others."""
PACE_S: Final = 10.0
"""A body that arrives too slowly to be complete within this time may lose its memory, too."""

_SMALL_SHARE: Final = 4
"""The share of small bodies is 1 / _SMALL_SHARE of the memory."""
_SCAN_S: Final = 0.1
"""The interval between two searches for slow bodies."""
_RETRY_AFTER_S: Final = 1


class BodyMemory:
    """Limits the bodies being read to `bytes_max` bytes together, and to the rest of the budget.

    Received bytes count, not announced ones. When a body needs memory and none is left, others lose theirs
    and are refused: first stalled ones, then slow ones, then the youngest, until there is room or the asking
    body is itself the youngest. So no caller holds memory for long without sending, and the oldest bodies
    always complete.
    """

    def __init__(
        self, bytes_max: int, budget: MemoryBudget, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        small = bytes_max // _SMALL_SHARE
        self.small = _Share(small, budget, clock_s, is_small=True)
        self.large = _Share(bytes_max - small, budget, clock_s, is_small=False)

    @property
    def held_bytes(self) -> int:
        """The bytes that all bodies hold."""
        return self.small.held_bytes + self.large.held_bytes

    def reserve(self, announced: int | None, lose: Callable[[RequestRefusal], None]) -> "Reservation":
        """Return an empty reservation for a body of the announced length, None if unknown.

        `lose` is called with the refusal for the caller if the body loses its memory.
        """
        is_small = announced is None or announced <= SMALL_BYTES_MAX
        return Reservation(self.small if is_small else self.large, self.large, announced, lose)


@dataclass(slots=True, eq=False)
class Reservation:
    """The memory of one body. `announced` is its length, None if unknown."""

    _share: "_Share"
    _large: "_Share"
    announced: int | None
    lose: Callable[[RequestRefusal], None]
    held: int = 0
    begun_s: float = 0.0
    progressed_s: float = 0.0
    is_paused: bool = False
    """Whether the service itself has stopped reading, so that the body does not count as stalled."""
    is_lost: bool = False

    def hold(self, bytes_: int) -> None:
        """Change the reservation to `bytes_`. Raises RequestRefusal 1401 if there is no room."""
        if self.is_lost:
            raise no_room()
        if bytes_ > SMALL_BYTES_MAX and self._share is not self._large:
            self._share.release(self)
            self._share = self._large
        self._share.hold(self, bytes_)

    def complete(self) -> None:
        """Mark the body as complete: it can no longer lose its memory, but counts until `release`."""
        self._share.exempt(self)

    def release(self) -> None:
        """Give the memory back."""
        self._share.release(self)

    def is_slow(self, now_s: float) -> bool:
        """Whether the body arrives too slowly to be complete within STALLED_S + PACE_S."""
        whole = self.announced or self.held or 1
        return now_s - self.begun_s > STALLED_S + PACE_S * min(1.0, self.held / whole)


@dataclass(eq=False)
class _Share:
    """The memory shared by all small bodies, or by all large ones."""

    bytes_max: int
    budget: MemoryBudget
    clock_s: Callable[[], float]
    is_small: bool
    held_bytes: int = 0
    _by_age: dict[Reservation, None] = field(default_factory=dict)
    """The revocable reservations, oldest first."""
    _by_progress: dict[Reservation, None] = field(default_factory=dict)
    """The same reservations, longest without progress first."""
    _scanned_s: float = -_SCAN_S

    def hold(self, reservation: Reservation, bytes_: int) -> None:
        """Change a reservation to `bytes_`; others may lose theirs. Raises RequestRefusal 1401."""
        now_s = self.clock_s()
        if not reservation.held:
            reservation.begun_s = now_s
        reservation.progressed_s = now_s
        self._by_age.setdefault(reservation)
        self._by_progress.pop(reservation, None)
        self._by_progress[reservation] = None
        more = bytes_ - reservation.held
        has_room = self.held_bytes + more <= self.bytes_max or self._make_room(reservation, more, now_s)
        if not has_room or not self.budget.find_room(more, is_small=self.is_small):
            self._refuse(reservation)
            raise no_room()
        self.held_bytes += more
        reservation.held = bytes_
        self.budget.change_bodies(more)

    def exempt(self, reservation: Reservation) -> None:
        """Exempt a reservation from losing its memory."""
        self._by_age.pop(reservation, None)
        self._by_progress.pop(reservation, None)

    def release(self, reservation: Reservation) -> None:
        """Give back the memory of a reservation."""
        self.exempt(reservation)
        released, reservation.held = reservation.held, 0
        if released:
            self.held_bytes -= released
            self.budget.change_bodies(-released)

    def _make_room(self, reservation: Reservation, more: int, now_s: float) -> bool:
        """Take memory from other bodies until there is room; return whether there is."""
        room = self.bytes_max - more
        while self.held_bytes > room and (stalled := self._stalled(reservation, now_s)) is not None:
            self._take_from(stalled)
        if self.held_bytes > room and now_s - self._scanned_s >= _SCAN_S:
            self._scanned_s = now_s
            for slow in [one for one in self._by_age if one is not reservation and one.is_slow(now_s)]:
                if self.held_bytes <= room:
                    break
                self._take_from(slow)
        while self.held_bytes > room and (youngest := next(reversed(self._by_age))) is not reservation:
            self._take_from(youngest)
        return self.held_bytes <= room

    def _stalled(self, asking: Reservation, now_s: float) -> Reservation | None:
        """Return the reservation longest without progress, if that is at least STALLED_S."""
        for reservation in self._by_progress:
            if now_s - reservation.progressed_s < STALLED_S:
                return None
            if not reservation.is_paused and reservation is not asking:
                return reservation
        return None

    def _take_from(self, reservation: Reservation) -> None:
        self._refuse(reservation)
        reservation.lose(no_room())

    def _refuse(self, reservation: Reservation) -> None:
        self.release(reservation)
        reservation.is_lost = True
        self.budget.throttled[READING] += 1


def no_room() -> RequestRefusal:
    """Return the refusal of a body for which there is no memory."""
    message = "there is no memory for the body beside those of other requests; nothing was done"
    return RequestRefusal(1401, message, headers=((b"retry-after", b"%d" % _RETRY_AFTER_S),))
