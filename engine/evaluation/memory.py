"""What the plan tells the state about a memory: the times that it holds, and what an event does to it."""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from engine.evaluation.paths import Path
from engine.language.condition import Condition

NEVER: Final = -(1 << 63)
"""A time before any event. Event times are within 8.64e18 microseconds of 1970, so they fit 64 bits."""

FOREVER: Final = (1 << 63) - 1
"""A time after any event."""


Bucket: TypeAlias = Any
"""The rules and updates that events meet because of a memory. The state only keeps it."""


class Regime(Enum):
    """What an event that meets none of a memory's triggers does to the memory; see `plan/triggers.py`."""

    UNCHANGED = "unchanged"
    """Nothing."""
    STAMPED = "stamped"
    """The event sets the memory to its own time. The memory is not written: it is read as the time of the
    slice's last event, unless that event met a trigger."""
    BEGUN = "begun"
    """The event starts a run, if none is under way. The memory is not written: it is read as the time of the
    slice's first event, or of the first event after the memory was cleared."""
    SEEN = "seen"
    """Unknown, so every event updates the memory."""


class Sharing(Enum):
    """When rules of different births can share the memory of a node."""

    VIEWED = "viewed"
    """Once the clock has moved on: later births ignore the times of earlier events."""
    EXPIRED = "expired"
    """Once all that the later birth did not see has expired."""
    SETTLED = "settled"
    """Once all has expired that came while the operands, which look back too, might tell births apart."""
    NEVER = "never"


class Kind(Enum):
    """What a record holds."""

    TIMES = "times"
    """The latest times at which a condition was true."""
    VALUES = "values"
    """The most recently seen values of a fact, each with its latest time."""
    SUMS = "sums"
    """The sums of a fact over panes of time."""
    MEANS = "means"
    """The same, and how many numbers were added."""


class Recorded(NamedTuple):
    """The content of a memory that holds a record for each slice instead of a single time."""

    kind: Kind
    most: int
    """The most times or values that are needed. Panes are bounded by their width."""
    window_us: int | None
    needed: int = 1
    """The fewest times or values that can make the comparison true, if it is false without any; else 1."""


class Traits(NamedTuple):
    """What the state asks the plan about a temporal node."""

    expiry_of: Callable[[Condition], int | None]
    """Gives the microseconds until its memory expires, or None if it never does."""
    regime_of: Callable[[Condition], Regime]
    """Gives what an event does to its memory if it meets no trigger of it, once rules are indexed."""
    sharing_of: Callable[[Condition], Sharing]
    """Gives when rules of different births can share its memory."""
    settling_us_of: Callable[[Condition], int | None]
    """Gives the microseconds from a birth until its operands have the same verdicts for rules of that birth
    as for older ones; None if they may differ for ever."""
    inner_of: Callable[[Condition, Path, int], Iterable[tuple[Condition, Path]]]
    """Gives the temporal nodes inside a node under a path, each with its path, for rules of one birth."""
    run_us_of: Callable[[Condition], int | None]
    """Gives its window if its memory is the time at which a run started, else None."""
    recorded_of: Callable[[Condition], Recorded | None]
    """Gives what its records hold, or None if its memory is a time."""


PANES: Final = 256
"""The panes that cover a window."""


def pane_us(window_us: int) -> int:
    """Return the width of the panes of a window."""
    return max(1, -(-window_us // PANES))
