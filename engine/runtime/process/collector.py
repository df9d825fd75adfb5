"""Python's garbage collector, kept from looking through what stays, in actors and in front ends.

A detector of 100 000 rules is some million objects, and to look through all of them stops it for a second.
What it lets go is freed at once, by reference counts; cycles are made by little else than errors. So what a
large detector is made of is hidden from the collector while it is awake, and looked through when it has gone.

What an actor is made of itself, most of it Ray's modules, stays hidden as long as it lives: to look through
that takes forty times as long as to put a small detector to rest. Python brings back all that is hidden or
nothing, so a small detector is not hidden at all. The collector comes so seldom that it hardly meets it.

A front end holds some hundred thousand objects that stay, most of them modules, and a few hundred for each
request under way: enough for a look at each few requests, and for one now and then at everything, which stops
all requests for a tenth of a second. Its connections are cycles, so it does look on, at what came since.
"""

import gc
from typing import Final

_YOUNG_OBJECTS: Final = 50_000
_YOUNG_ROUNDS: Final = 20
_OLD_ROUNDS: Final = 1_000
"""How many new objects, and rounds over younger ones, bring the next round; those over all become rare."""


_LARGE_OBJECTS: Final = 100_000
"""A look through so many takes 10 ms."""


def collect_seldom() -> None:
    """Have the collector come seldom, in a process that makes objects at a high rate and few cycles."""
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_ROUNDS, _OLD_ROUNDS)


def settle() -> None:
    """Hide what is there to stay, collect the rest, and have the collector come less often, for a front end.

    How often it looks at what is older is left as it is: connections grow old before they end.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)


class FrozenHeap:
    """What an actor hides from the collector: itself always, and a large detector while it is awake."""

    def __init__(self) -> None:
        """Hide all there is: the actor itself."""
        self._large = False
        gc.freeze()

    def awake(self) -> None:
        """Take note that a detector is awake."""
        self._large = len(gc.get_objects()) > _LARGE_OBJECTS
        if self._large:
            gc.freeze()

    def gone(self) -> None:
        """Collect what the detector has left behind, and hide what is there to stay.

        So there is little to look through the next time. An actor is replaced after some detectors, before
        what it hides in this way can come to much.
        """
        if self._large:
            self._large = False
            gc.unfreeze()
        gc.collect()
        gc.freeze()
