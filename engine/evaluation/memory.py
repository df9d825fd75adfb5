"""What the plan says of a memory and the state keeps it by: its times, and what an event does to it."""

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from engine.language.condition import Condition

NEVER: Final = -(1 << 63)
"""Before any event. Event times are within 8.64e18 microseconds of 1970, so they fit 64 bits."""

FOREVER: Final = (1 << 63) - 1
"""A time after any event."""


Bucket: TypeAlias = Any
"""The rules and updates that events meet because of a memory. The state only keeps it."""


class Regime(Enum):
    """What an event that meets none of a memory's triggers does to the memory; see `plan/triggers.py`."""

    KEPT = "kept"
    """Nothing."""
    STAMPED = "stamped"
    """It sets the memory to its time. The memory is not written: it is read as the time of the slice's last
    event, unless that event met a trigger."""
    BEGUN = "begun"
    """It starts a run, if none is under way. The memory is not written: it is read as the time of the slice's
    first event, or of the first event after the memory was cleared."""
    SEEN = "seen"
    """Unknown, so every event updates the memory."""


class Traits(NamedTuple):
    """What the state asks the plan about a temporal node."""

    expiry_of: Callable[[Condition], int | None]
    """Gives the microseconds until its memory expires, or None if it never does."""
    regime_of: Callable[[Condition], Regime]
    """Gives what an event does to its memory if it meets no trigger of it, once rules are indexed."""
    can_be_shared: Callable[[Condition], bool]
    """Tells whether rules of different births can share its memory."""
