"""Python's garbage collector in the process of an actor, kept from looking through a detector at work.

A detector of 100 000 rules is some million objects, and to look through all of them stops it for a second.
What it lets go is freed at once, by reference counts; cycles are made by little else than errors. So what a
detector is made of is hidden from the collector while it is awake, and looked through when it has gone.
"""

import gc
from typing import Final

_YOUNG_OBJECTS: Final = 50_000
_YOUNG_ROUNDS: Final = 20
_OLD_ROUNDS: Final = 1_000
"""How many new objects, and rounds over younger ones, bring the next round; those over all become rare."""


def look_seldom() -> None:
    """Have the collector come seldom, in a process that makes objects at a high rate and few cycles."""
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_ROUNDS, _OLD_ROUNDS)


def leave_alone() -> None:
    """Hide all objects there are from the collector."""
    gc.freeze()


def look_at_all() -> None:
    """Collect whatever can be collected, of what was hidden too."""
    gc.unfreeze()
    gc.collect()
