"""The temporal operators: what each remembers, how an event updates it, how it is read.

Every window ends now, so one number for each node and slice is enough, whatever the window: the time of the
one event in the past that decides. That each operator needs no more is argued where it stands (after Havelund
and Rosu, "Synthesizing Monitors for Safety Properties", 2002, extended by windows).

An operator is written as the Python that goes into generated functions. In it stand: `{past}`, the remembered
time, NEVER if there is none; `{write}`, which remembers the time of this event; `{clear}`, which forgets;
`{keep}`, which leaves what is remembered as it is; `{edge}`, the oldest time inside the window; `{inner}`,
`{left}`, `{right}`, the operands now; `{verdict}`, the variable that takes the outcome. Each update is
idempotent within one event: a rule may be shown an event twice, and two rules may share one memory.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

NEVER: Final = -(1 << 63)
"""Before any event: event times are within 8.64e18 microseconds either way, and fit 64 bits."""

FOREVER: Final = (1 << 63) - 1
"""After any event."""

WINDOW_US_PLAIN: Final = 500_000_000_000_000_000
"""Up to this window, some 15 000 years, the far edge is later than NEVER whatever the time of the event."""


class Regime(Enum):
    """What happens to a memory at an event that meets none of its triggers; see `triggers.py`."""

    KEPT = "kept"
    """Nothing."""
    STAMPED = "stamped"
    """It would take the time of the event: what is remembered is the time of the slice's last event."""
    BEGUN = "begun"
    """It would begin to remember, if it did not already: what is remembered is the time of the slice's first
    event, or of the first one after it was cleared."""
    SEEN = "seen"
    """Nothing can be said: the rules that need it see every event."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A temporal operator: its code, and whether a time that has left the window reads as none at all."""

    name: str
    update: tuple[str, ...]
    truth: str
    """The verdict once the memory is updated for the event. Only what is later than `{since}` counts."""
    expires: bool


ONCE: Final = Operator(
    # Remembers the latest time at which inner was true; that there is one is all that matters.
    "once",
    update=(
        "if {inner}:",
        " {write}",
        " {verdict} = True",
        "else:",
        " {verdict} = {past} != NEVER",
        " {keep}",
    ),
    truth="{since} < {past}",
    expires=False,
)

HISTORICALLY: Final = Operator(
    # Remembers the latest time at which inner was false; that there is one is all that matters.
    "historically",
    update=(
        "if {inner}:",
        " {verdict} = {past} == NEVER",
        " {keep}",
        "else:",
        " {write}",
        " {verdict} = False",
    ),
    truth="not {since} < {past}",
    expires=False,
)

SINCE: Final = Operator(
    # Remembers the latest time at which right was true, while left has been true at every event after it. The
    # latest is the best witness: left must hold after an earlier one for longer.
    "since",
    update=(
        "if {right}:",
        " {write}",
        " {verdict} = True",
        "elif {left}:",
        " {verdict} = {past} != NEVER",
        " {keep}",
        "else:",
        " {clear}",
        " {verdict} = False",
    ),
    truth="{since} < {past}",
    expires=False,
)

ONCE_WITHIN: Final = Operator(
    # Remembers the latest time at which inner was true: it stays in the window longest.
    "once_within",
    update=(
        "if {inner}:",
        " {write}",
        " {verdict} = True",
        "else:",
        " {verdict} = {past} >= {edge}",
        " {keep}",
    ),
    truth="{since} < {past} >= {edge}",
    expires=True,
)

HISTORICALLY_FOR_WEAK: Final = Operator(
    # Remembers the latest time at which inner was false: it stays in the window longest.
    "historically_for_weak",
    update=(
        "if {inner}:",
        " {verdict} = {past} < {edge}",
        " {keep}",
        "else:",
        " {write}",
        " {verdict} = False",
    ),
    truth="not {since} < {past} >= {edge}",
    expires=True,
)

HISTORICALLY_FOR_STRONG: Final = Operator(
    # Remembers the first time of the unbroken run in which inner is true. It never expires: the longer the
    # run, the more it has held.
    "historically_for_strong",
    update=(
        "if {inner}:",
        " if {past} == NEVER:",
        "  {write}",
        "  {verdict} = now <= {edge}",
        " else:",
        "  {verdict} = {past} <= {edge}",
        "else:",
        " {clear}",
        " {verdict} = False",
    ),
    truth="{since} < {past} <= {edge}",
    expires=False,
)

SINCE_WITHIN: Final = Operator(
    # As SINCE. The latest witness is also the one that stays in the window longest.
    "since_within",
    update=(
        "if {right}:",
        " {write}",
        " {verdict} = True",
        "elif {left}:",
        " {verdict} = {past} >= {edge}",
        " {keep}",
        "else:",
        " {clear}",
        " {verdict} = False",
    ),
    truth="{since} < {past} >= {edge}",
    expires=True,
)
