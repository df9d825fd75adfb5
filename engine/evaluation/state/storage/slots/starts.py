"""The first events of slices after births: where a run that is older than a rule begins for that rule.

Rules of several births read the start of one run. A run that started after a rule's birth is the same for the
rule. One that started before it begins, for the rule, at the slice's first event after the birth.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from engine.evaluation.memory import FOREVER, NEVER
from engine.evaluation.state.storage.sizes import START_BYTES, STARTS_BYTES

NO_BIRTH: Final = -1
"""Stands for no birth: no event precedes it."""


class Starts:
    """For each slot, the times of its first events after births, in order."""

    __slots__ = ("_weigh", "birth", "times", "window_us")

    def __init__(self, weigh: Callable[[int], None]) -> None:
        self._weigh = weigh
        self.birth = NO_BIRTH
        """The number of the last event before the latest birth."""
        self.window_us = 0
        """The longest window of these rules."""
        self.times: dict[int, tuple[int, ...]] = {}

    def born(self, birth: int, window_us: int) -> None:
        """Record a birth after an event of this number."""
        self.birth, self.window_us = max(self.birth, birth), max(self.window_us, window_us)

    def restore(self, birth: int, window_us: int, times: dict[int, tuple[int, ...]]) -> None:
        """Restore what a snapshot holds."""
        self.born(birth, window_us)
        self.times = times
        self._weigh(sum(map(len, times.values())) * START_BYTES + len(times) * STARTS_BYTES)

    def add(self, slot: int, now_us: int) -> None:
        """Add the first event of a slot after the latest birth."""
        times = self.times.get(slot, ())
        # Of starts that are old enough for every window, the latest is as good as the others.
        needed = max(0, bisect_right(times, now_us - self.window_us) - 1)
        self.times[slot] = (*times[needed:], now_us)
        self._weigh((1 - needed) * START_BYTES + (0 if times else STARTS_BYTES))

    @property
    def last_us(self) -> int:
        """The time of the latest start in slot 0, or NEVER."""
        return self.times[0][-1] if self.times else NEVER

    def after(self, slot: int, since_us: int) -> int:
        """Return the time of a slot's first event after a birth at `since_us`, or FOREVER."""
        times = self.times.get(slot, ())
        place = bisect_right(times, since_us)
        return times[place] if place < len(times) else FOREVER

    def begun(self, slot: int, start_us: int, since_us: int) -> int:
        """Return when a run that started at `start_us` began for a rule born at `since_us`, or FOREVER."""
        return start_us if start_us > since_us else self.after(slot, since_us)

    def drop(self, slot: int) -> None:
        """Forget a slot."""
        times = self.times.pop(slot, None)
        if times is not None:
            self._weigh(-len(times) * START_BYTES - STARTS_BYTES)

    def clear(self) -> None:
        """Forget everything."""
        for slot in list(self.times):
            self.drop(slot)
        self.birth, self.window_us = NO_BIRTH, 0
