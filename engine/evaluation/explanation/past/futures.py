"""How verdicts change as time passes without another event.

A temporal node's verdict depends on time through its window. Every other verdict follows from those of its
members, so it can change several times.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

LATEST_US: Final = 8_640_000_000_000_000_000
"""The latest time that an event can have."""


class Future(NamedTuple):
    """A verdict now, and when it changes if nothing else happens."""

    verdict: bool
    flips: tuple[int, ...] = ()
    """The last times in microseconds before each change, in ascending order."""

    @property
    def until_us(self) -> int | None:
        """The last time at which the verdict is still the same, or None if it stays for ever."""
        return self.flips[0] if self.flips else None


def negated(inner: Future) -> Future:
    """Return the future of `not`."""
    return Future(not inner.verdict, inner.flips)


def every(members: Sequence[Future]) -> Future:
    """Return the future of `all`."""
    verdicts = [member.verdict for member in members]
    false_count = verdicts.count(False)
    verdict = before = not false_count
    flips: list[int] = []
    flipping = sorted((time_us, place) for place, member in enumerate(members) for time_us in member.flips)
    for number, (time_us, place) in enumerate(flipping):
        false_count += 1 if verdicts[place] else -1
        verdicts[place] = not verdicts[place]
        is_last_at_time = number + 1 == len(flipping) or flipping[number + 1][0] != time_us
        if is_last_at_time and before is bool(false_count):
            before = not false_count
            flips.append(time_us)
    return Future(verdict, tuple(flips))


def some(members: Sequence[Future]) -> Future:
    """Return the future of `any`."""
    return negated(every([negated(member) for member in members]))
