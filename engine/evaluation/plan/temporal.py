"""The temporal operators: what each remembers, how an event updates it, how it is read.

Every window ends now. So a memory is one number for each node and slice, whatever the window: the time of the
one past event that decides, the decisive event. A comment at each operator says why no more is needed (after
Havelund and Rosu, "Synthesizing Monitors for Safety Properties", 2002, extended by windows).

An update gives no verdict, because often none is read. It is idempotent within one event, because an event
may meet several triggers of a memory.

`previous` and `earlier` look at the events before the current one. Their verdict is read before the update
for the event, which is *deferred* until everything else has been evaluated.

A comparison with a number over the past is no operator: see `Aggregate` in `shapes.py`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, NamedTuple

WINDOW_US_PLAIN: Final = 500_000_000_000_000_000
"""Up to this window, about 15 000 years, the edge is later than NEVER at any event."""


class Action(Enum):
    """What an event does to a memory."""

    WRITE = "write"
    """Remembers the time of the event."""
    BEGIN = "begin"
    """Remembers the time of the event if there is none."""
    KEEP = "keep"
    """Keeps the remembered time."""
    CLEAR = "clear"
    """Forgets the remembered time."""


class Case(NamedTuple):
    """An action, and the operand that must be true for it. None fits all events that no earlier case fits."""

    operand: Literal["inner", "left", "right"] | None
    action: Action


class Verdict(Enum):
    """What a memory must hold for the operator to be true, after the memory's update for the event."""

    EVER = "a time"
    NEVER = "no time"
    INSIDE = "a time inside the window"
    OUTSIDE = "no time inside the window"
    LONG_AGO = "a time no later than the start of the window"


@dataclass(frozen=True, slots=True)
class Operator:
    """A temporal operator."""

    name: str
    update: tuple[Case, ...]
    """The first case that fits an event updates the memory."""
    verdict: Verdict
    deferred: bool = False
    """Whether the verdict is that before the memory's update for the event."""


_LATEST_TRUE: Final = Case("inner", Action.WRITE), Case(None, Action.KEEP)
_LATEST_FALSE: Final = Case("inner", Action.KEEP), Case(None, Action.WRITE)
_LATEST_WITNESS: Final = Case("right", Action.WRITE), Case("left", Action.KEEP), Case(None, Action.CLEAR)

# Remembers the latest time at which inner was true. Only its existence matters.
ONCE: Final = Operator("once", _LATEST_TRUE, Verdict.EVER)

# Remembers the latest time at which inner was false. Only its existence matters.
HISTORICALLY: Final = Operator("historically", _LATEST_FALSE, Verdict.NEVER)

# Remembers the latest time at which right was true, while left has been true at every event after it. The
# latest witness suffices: if left held after an earlier one, it also held after this one.
SINCE: Final = Operator("since", _LATEST_WITNESS, Verdict.EVER)

# Remembers the latest time at which inner was true, which stays in the window longest.
ONCE_WITHIN: Final = Operator("once_within", _LATEST_TRUE, Verdict.INSIDE)

# Remembers the latest time at which inner was false, which stays in the window longest.
HISTORICALLY_FOR_WEAK: Final = Operator("historically_for_weak", _LATEST_FALSE, Verdict.OUTSIDE)

# Remembers the start of the current run of events at which inner is true. It never expires: a longer run
# still satisfies the window.
HISTORICALLY_FOR_STRONG: Final = Operator(
    "historically_for_strong",
    (Case("inner", Action.BEGIN), Case(None, Action.CLEAR)),
    Verdict.LONG_AGO,
)

# Like SINCE. The latest witness also stays in the window longest.
SINCE_WITHIN: Final = Operator("since_within", _LATEST_WITNESS, Verdict.INSIDE)

# Remembers the time of the latest event if inner was true at it.
PREVIOUS: Final = Operator(
    "previous",
    (Case("inner", Action.WRITE), Case(None, Action.CLEAR)),
    Verdict.EVER,
    deferred=True,
)

# They remember what ONCE and ONCE_WITHIN do, and are read before the event.
EARLIER: Final = Operator("earlier", (Case("inner", Action.WRITE),), Verdict.EVER, deferred=True)
EARLIER_WITHIN: Final = Operator("earlier_within", EARLIER.update, Verdict.INSIDE, deferred=True)
