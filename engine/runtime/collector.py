"""Python's garbage collector, kept from looking through what stays, in actors and in front ends.

A detector of 100 000 rules is some million objects, and to look through all of them stops it for a second.
What it lets go is freed at once, by reference counts; cycles are made by little else than errors. So what a
detector is made of is hidden from the collector while it is awake, and looked through when it has gone.

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


def look_seldom() -> None:
    """Have the collector come seldom, in a process that makes objects at a high rate and few cycles."""
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_ROUNDS, _OLD_ROUNDS)


def settle() -> None:
    """Hide what is there to stay, collect the rest, and have the collector come less often, for a front end.

    How often it looks at what is older is left as it is: connections grow old before they end.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)


def leave_alone() -> None:
    """Hide all objects there are from the collector."""
    gc.freeze()


def look_at_all() -> None:
    """Collect whatever can be collected, of what was hidden too."""
    gc.unfreeze()
    gc.collect()
